"""Things whose state is captured: an environment of every kind, and an object that holds what it is given."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import dm_env
from bsuite import sweep
from explore_plugins.bsuite import Bsuite
from explore_plugins.cartpole_swingup import CartpoleSwingup
from explore_plugins.deep_sea import DeepSea

EXPERIMENTS = {id.split("/")[0]: id for id in reversed(sweep.SWEEP) if not id.startswith("mnist")}
ENVIRONMENTS: dict[str, Callable[[], dm_env.Environment]] = {
    "deep sea": lambda: DeepSea(3),
    "stochastic deep sea": lambda: DeepSea(3, deterministic=False),
    "swing-up": lambda: CartpoleSwingup(3, max_time=0.5),
} | {id: functools.partial(Bsuite, 3, id) for id in EXPERIMENTS.values()}


class Holder:
    """An object that holds what it is given."""

    def __init__(self, **attributes: Any):
        vars(self).update(attributes)
