"""What environments may have beside dm_env's interface: a batch form, a model of the truth, and a judge.

An environment class may have a batch form of `step`, a static method `step_lanes`: a step of all lanes in one call,
to the bit what `step` does in each.

    class Counter(dm_env.Environment):
        def step(self, action):
            self.count += action
            end = dm_env.termination if self.count >= 10 else dm_env.transition
            return end(float(action), np.int32(self.count))

        @staticmethod
        def step_lanes(environments, actions, lanes, timesteps):
            for lane in lanes:
                environments[lane].count += actions[lane]
                timesteps.observations[lane] = environments[lane].count
                timesteps.rewards[lane] = actions[lane]
                if environments[lane].count >= 10:
                    timesteps.end(lane)

It takes `actions[lane]` in `environments[lane]` for each of `lanes`, those whose episodes go on, and writes what comes
of it into their rows of `timesteps`, where discounts are 1 and no episode ends unless it says so. What an environment
keeps stays in its object, for its judge and for checkpoints. A subclass that overrides `step` alone has no batch form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import dm_env
import numpy as np


class Timesteps(Sequence[dm_env.TimeStep]):
    """What a step led to: arrays with a row for each lane; an index gives the `dm_env.TimeStep` of a lane.

    In the rows of lanes that wait, the observation is that of the end of their episode, and rewards are 0.
    """

    def __init__(self, observations: np.ndarray, rewards: np.ndarray, discounts: np.ndarray, last: np.ndarray):
        self.observations = observations  # [lanes, ...] integers if they are one-hot, else float32
        self.rewards = rewards  # [lanes] float64, as the discounts
        self.discounts = discounts
        self.last = last  # [lanes] bool: the episode has ended

    @classmethod
    def gather(cls, timesteps: Sequence[dm_env.TimeStep], active: Sequence[bool]) -> Timesteps:
        """The arrays of timesteps that came one by one; entries of lanes that wait may be anything."""
        if isinstance(timesteps, cls):
            return timesteps
        some = next(timestep for timestep, on in zip(timesteps, active) if on)
        rows = [timestep if on else some._replace(reward=0.0) for timestep, on in zip(timesteps, active)]
        return cls(
            np.array([row.observation for row in rows]),
            np.array([row.reward for row in rows], float),
            np.array([row.discount for row in rows], float),
            np.array([row.last() for row in rows]),
        )

    def end(self, lane: int, discount: float = 0.0) -> None:
        """The episode of a lane ends with this step, or is cut: then its discount is above 0."""
        self.discounts[lane], self.last[lane] = discount, True

    def __len__(self) -> int:
        return len(self.rewards)

    def __getitem__(self, lane: Any) -> Any:
        if isinstance(lane, slice):
            return [self[one] for one in range(len(self))[lane]]
        kind = dm_env.StepType.LAST if self.last[lane] else dm_env.StepType.MID
        return dm_env.TimeStep(kind, float(self.rewards[lane]), float(self.discounts[lane]), self.observations[lane])


@dataclass(frozen=True)
class Model:
    """The truth about an environment with one-hot observations whose episodes pass one stage per step.

    An environment tells it with a method `true_model()`. Agents get to know `observations` only, as
    `Spec.stages`; the rest is for the exact regret of what they do.
    """

    observations: np.ndarray  # [stages, states] their numbers, -1 where there is none
    transitions: np.ndarray  # [stages, states, actions, states] probabilities; those of the last stage do not matter
    rewards: np.ndarray  # [stages, states, actions] expected
    start: np.ndarray  # [states] probabilities at the first stage

    def __post_init__(self) -> None:
        """Raises `ValueError` unless arrays fit together and probabilities are such."""
        arrays = (self.observations, self.transitions, self.rewards, self.start)
        if not all(isinstance(array, np.ndarray) and array.dtype.kind in "if" for array in arrays):
            raise ValueError(f"a Model must consist of arrays of numbers, got {[type(array) for array in arrays]}")
        stages, states, actions = self.rewards.shape if self.rewards.ndim == 3 else (0, 0, 0)
        wanted = [(stages, states), (stages, states, actions, states), (stages, states, actions), (states,)]
        shapes = [array.shape for array in arrays]
        if shapes != wanted or not self.rewards.size:
            raise ValueError(f"a Model must have arrays of fitting shapes, see {type(self).__name__}, got {shapes}")
        there = self.observations >= 0
        sums = [self.start.sum(), *self.transitions[:-1][there[:-1]].sum(-1).ravel()]
        if not np.allclose(sums, 1) or self.start.min() < 0 or self.transitions.min() < 0:
            raise ValueError("a Model must have probabilities that are at least 0 and sum to 1")
        if not np.isfinite(self.rewards).all():
            raise ValueError("a Model must have rewards that are finite numbers")


class Judge:
    """Decides from the episodes of one seed whether its task is solved.

    An environment class names its judge in a class attribute `judge`; without one it gets this,
    which knows nothing of the task.
    """

    columns: tuple[str, ...] = ()  # its own columns of `episodes.csv`
    curve: ClassVar[tuple[str, str]] = ("return", "mean")
    """How learning is shown: a column of `episodes.csv`; its "sum" so far, or "mean" or "max" of the last 100."""
    decides: ClassVar[bool] = False  # whether it ever sets `solved_at`

    def __init__(self, environment: dm_env.Environment):
        self.environment = environment
        self.returns: list[float] = []
        self.solved_at: int | None = None  # the episode, counted from 1

    def episode(self, episode_return: float) -> dict[str, float]:
        """Sees an episode that has just ended; returns the values of `columns`."""
        self.returns.append(episode_return)
        return {}

    def summary(self) -> dict[str, Any]:
        """This seed's entry in `summary.json`.

        Comparisons and reports also know `score` and `normalised_return`, both from 0 to 1 (bsuite's
        score; the mean return as a share of the best possible), and `size`, of a task whose
        difficulty for dithering doubles with it.
        """
        recent = self.returns[-100:]
        return {
            "episodes": len(self.returns),
            "mean_return": float(np.mean(self.returns)) if self.returns else None,
            "best_return": max(self.returns, default=None),
            "mean_of_last_100": float(np.mean(recent)) if recent else None,
            "best_of_last_100": max(recent, default=None),
            "solved_at": self.solved_at,
        }
