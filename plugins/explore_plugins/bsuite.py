"""Any experiment of bsuite by its id (Osband et al., https://arxiv.org/abs/1908.03568)."""

from __future__ import annotations

import difflib
import inspect
from dataclasses import replace
from numbers import Real
from typing import Any

import dm_env
from dm_env import specs

from explore import hookimpl
from explore.interfaces import Judge
from explore.streams import integer_seed
from explore.tasks import TaskDescription
from explore_plugins.cartpole_swingup import CartpoleSwingup
from explore_plugins.deep_sea import DeepSea


class BsuiteJudge(Judge):
    """Writes down what an environment of bsuite reports of itself, for bsuite's own analysis.

    The columns are the numbers of its `bsuite_info` as an episode ends, by names such as
    `bsuite_total_regret`: with a prefix, lest an agent has a column of that name.
    """

    def __init__(self, environment: dm_env.Environment):
        super().__init__(environment)
        self.columns = tuple(self._report())

    def episode(self, episode_return: float) -> dict[str, float]:
        return super().episode(episode_return) | self._report()

    def _report(self) -> dict[str, float]:
        report = self.environment.bsuite_info()
        return {f"bsuite_{name}": float(number) for name, number in report.items() if isinstance(number, Real)}


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

    def reward_spec(self) -> specs.Array:
        return self._environment.reward_spec()

    def action_spec(self) -> specs.DiscreteArray:
        return self._environment.action_spec()

    def describe_task(self) -> TaskDescription:
        """That of its environment; bsuite's settings of an experiment differ in size only."""
        if not hasattr(self._environment, "describe_task"):
            return TaskDescription()
        told: TaskDescription = self._environment.describe_task()
        family = self.task.partition("/")[0]
        return told if told.size is None else replace(told, size=replace(told.size, parameters=("id",), family=family))

    @property
    def judge(self) -> type[Judge]:
        return getattr(self._environment, "judge", BsuiteJudge)

    def __getattr__(self, name: str) -> Any:
        """All else is the environment's own."""
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
        settings = settings | {"seed": integer_seed(seed, "environment")}
    return load(**settings)


@hookimpl
def explore_environments() -> list[type]:
    return [Bsuite]
