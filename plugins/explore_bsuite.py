"""Any experiment of bsuite by its id (Osband et al., https://arxiv.org/abs/1908.03568)."""

from __future__ import annotations

import difflib
import inspect
from typing import Any

import dm_env
from dm_env import specs
from explore_cartpole_swingup import CartpoleSwingup
from explore_deep_sea import DeepSea

from explore import hookimpl


class Bsuite(dm_env.Environment):
    """An environment of bsuite by its id, seeded (bsuite's own loader leaves most of them unseeded).

    What the id fixes (sizes, noise, the mapping of actions) stays; all other randomness is the
    seed's. Deep-sea and Cartpole swing-up are `environment.DeepSea` and
    `environment.CartpoleSwingup`, with their judges.

    Args:
        id: an experiment and the number of its setting, such as "catch/0" or
            "deep_sea_stochastic/3"; those of mnist are not available, as they need its data.
    """

    def __init__(self, seed: int, id: str):
        self.task = id
        self._environment = _load(seed, id)

    def reset(self) -> dm_env.TimeStep:
        return self._environment.reset()

    def step(self, action: int) -> dm_env.TimeStep:
        return self._environment.step(action)

    def observation_spec(self) -> specs.Array:
        return self._environment.observation_spec()

    def action_spec(self) -> specs.DiscreteArray:
        return self._environment.action_spec()

    def __getattr__(self, name: str) -> Any:
        """All else, the judge included, is the environment's own."""
        return getattr(self._environment, name)


def _load(seed: int, id: str) -> dm_env.Environment:
    # Here, not above: bsuite brings pandas and more, which only these environments should wait for.
    from bsuite import sweep
    from bsuite.bsuite import EXPERIMENT_NAME_TO_ENVIRONMENT

    if id not in sweep.SWEEP:
        nearest = ", ".join(difflib.get_close_matches(str(id), sweep.SWEEP, cutoff=0.0))
        raise ValueError(f"id must be one of bsuite's, got {id!r}; the nearest are {nearest}")
    experiment, settings = id.split("/")[0], sweep.SETTINGS[id]
    if experiment.startswith("mnist"):
        raise ValueError(f"id must be one that needs no download, got {id!r}, which needs the data of mnist")
    if experiment in ("deep_sea", "deep_sea_stochastic"):
        return DeepSea(seed, deterministic=experiment == "deep_sea", **settings)
    if experiment == "cartpole_swingup":
        return CartpoleSwingup(seed, move_cost=0.1, x_threshold=3.0, **settings)
    load = EXPERIMENT_NAME_TO_ENVIRONMENT[experiment]
    if "seed" in inspect.signature(load).parameters:
        settings = settings | {"seed": seed}
    return load(**settings)


@hookimpl
def explore_environments() -> list[type]:
    return [Bsuite]
