"""Environments that are stepped together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import dm_env
import numpy as np

from explore.interfaces import Timesteps

StepLanes = Callable[[Sequence[dm_env.Environment], Sequence[int], Sequence[int], Timesteps], None]
"""Takes actions in the environments of some lanes, see `explore.interfaces.environment`."""


class Lanes:
    """Environments that are stepped together; a lane whose episode has ended waits for the others.

    `step_lanes` takes the steps; None: the batch form of the environments, if they have one.
    """

    def __init__(self, environments: Sequence[dm_env.Environment], step_lanes: StepLanes | None = None):
        self.environments = environments
        one_hot = isinstance(environments[0].observation_spec(), dm_env.specs.DiscreteArray)
        self._dtype = np.int64 if one_hot else np.float32
        self._step_lanes = step_lanes or find_batch_form(environments) or step_one_by_one

    def reset(self) -> None:
        count = len(self.environments)
        self.observations = np.array(
            [environment.reset().observation for environment in self.environments], self._dtype
        )
        self.active = [True] * count
        self.returns = [0.0] * count
        self.lengths = np.zeros(count, int)
        self._steps, self._lanes = 0, [*range(count)]
        self._blank = Timesteps(self.observations, np.zeros(count), np.ones(count), np.zeros(count, bool))

    def step(self, actions: Sequence[int]) -> Timesteps:
        """Take an action in every active lane; return what it led to, in arrays that nobody changes any more."""
        blank = self._blank
        timesteps = Timesteps(self.observations.copy(), blank.rewards.copy(), blank.discounts.copy(), blank.last.copy())
        self._step_lanes(self.environments, actions, self._lanes, timesteps)
        self.observations = timesteps.observations
        self.returns = [total + reward for total, reward in zip(self.returns, timesteps.rewards.tolist())]
        self._steps += 1
        if True in (over := timesteps.last.tolist()):
            self._stop(over)
        return timesteps

    def _stop(self, over: Sequence[bool]) -> None:
        """Lanes whose episodes are over wait from now on."""
        for lane in [lane for lane in self._lanes if over[lane]]:
            self.lengths[lane] = self._steps
            self._blank.end(lane)
        self._lanes = [lane for lane in self._lanes if not over[lane]]
        self.active = [not one for one in over]


def step_one_by_one(
    environments: Sequence[dm_env.Environment], actions: Sequence[int], lanes: Sequence[int], timesteps: Timesteps
) -> None:
    """A step of environments that have no batch form."""
    for lane in lanes:
        timestep = environments[lane].step(actions[lane])
        timesteps.observations[lane] = timestep.observation
        timesteps.rewards[lane] = float(timestep.reward)
        timesteps.discounts[lane] = float(timestep.discount)
        timesteps.last[lane] = timestep.last()


def find_batch_form(environments: Sequence[dm_env.Environment]) -> StepLanes | None:
    """`step_lanes` of their class, unless a subclass overrides `step` alone."""
    classes = {type(environment) for environment in environments}
    for cls in classes.pop().__mro__ if len(classes) == 1 else ():
        if "step_lanes" in vars(cls):
            return cls.step_lanes  # type: ignore[attr-defined]
        if "step" in vars(cls):
            return None
    return None
