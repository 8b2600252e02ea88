"""A slippery corridor."""

import dm_env
import numpy as np
from dm_env import specs
from explore import hookimpl
from explore.interfaces import Judge


class MyPluginJudge(Judge):
    """Solved by ten goals in a row."""

    columns = ("goal",)
    decides = True

    def episode(self, episode_return):
        super().episode(episode_return)
        goals = [value > 0 for value in self.returns[-10:]]
        if self.solved_at is None and sum(goals) == 10:
            self.solved_at = len(self.returns)
        return {"goal": int(goals[-1])}


class MyPlugin(dm_env.Environment):
    """A corridor with a goal at its right end, in which steps to the right may slip to the left.

    Args:
      length: number of cells.
      slip: how likely a step to the right slips.
    """

    judge = MyPluginJudge

    def __init__(self, seed: int, length: int = 10, slip: float = 0.1):
        if length < 2:
            raise ValueError(f"length must be at least 2, got {length!r}")
        if not 0 <= slip < 1:
            raise ValueError(f"slip must be at least 0 and below 1, got {slip!r}")
        self.length, self.slip = length, slip
        self.random = np.random.default_rng(seed)
        self.cell, self.steps, self.over = 0, 0, True

    def reset(self):
        self.cell, self.steps, self.over = 0, 0, False
        return dm_env.restart(np.int32(self.cell))

    def step(self, action):
        if self.over:
            return self.reset()
        right = action == 1 and self.random.random() >= self.slip
        self.cell, self.steps = max(self.cell + (1 if right else -1), 0), self.steps + 1
        goal = self.cell == self.length - 1
        self.over = goal or self.steps == 2 * self.length
        if goal:
            return dm_env.termination(1.0, np.int32(self.cell))
        if self.over:
            return dm_env.truncation(0.0, np.int32(self.cell))
        return dm_env.transition(0.0, np.int32(self.cell))

    def observation_spec(self):
        return specs.DiscreteArray(self.length)

    def action_spec(self):
        return specs.DiscreteArray(2)


@hookimpl
def explore_environments():
    return [MyPlugin]
