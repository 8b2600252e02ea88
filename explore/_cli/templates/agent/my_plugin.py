"""Optimistic Q-learning."""

import numpy as np
from dm_env import specs
from explore import hookimpl
from explore.interfaces import Agent


class MyPlugin(Agent):
    """Q-learning in a table that thinks the best of what it has not tried, and so tries it.

    Args:
      optimism: the value of an action that has not been tried.
      step_size: how far a value moves towards its target, from 0 to 1.
      discount: what a reward is worth one step later.
    """

    def __init__(self, spec, streams, device, optimism: float = 1.0, step_size: float = 0.5, discount: float = 0.99):
        if not isinstance(spec.observation, specs.DiscreteArray):
            raise ValueError("environment must have one-hot observations, such as those of @environment.DeepSea")
        for name, value in (("step_size", step_size), ("discount", discount)):
            if not 0 <= value <= 1:
                raise ValueError(f"{name} must be between 0 and 1, got {value!r}")
        self.step_size, self.discount, self.streams = step_size, discount, streams
        self.lanes = np.arange(len(streams))
        self.values = np.full((len(streams), spec.observation.num_values, spec.num_actions), optimism)

    def begin_episode(self, observations, progress):
        pass

    def act(self, observations, active):
        self.observations = observations
        return self._best("acting", observations, active)

    def observe(self, actions, timesteps, active):
        for lane in np.flatnonzero(active):
            timestep = timesteps[lane]
            later = self.values[lane, timestep.observation].max()
            target = timestep.reward + self.discount * timestep.discount * later
            here = lane, self.observations[lane], actions[lane]
            self.values[here] += self.step_size * (target - self.values[here])

    def evaluate(self, observations, active):
        return self._best("evaluation", observations, active)

    def beliefs(self, observations):
        return {"mean": self.values[self.lanes[:, None], observations]}

    def _best(self, use, observations, active):
        """The best action of each active lane, ties broken by its own stream; a lane that waits draws nothing."""
        actions = [0] * len(active)
        for lane in np.flatnonzero(active):
            values = self.values[lane, observations[lane]]
            actions[lane] = int(self.streams[use][lane].choice(np.flatnonzero(values == values.max())))
        return actions


@hookimpl
def explore_agents():
    return [MyPlugin]
