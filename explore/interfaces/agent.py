"""Who acts and learns, and who judges it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import dm_env
import numpy as np


class Agent(ABC):
    """Slot `agent`: acts and learns, all lanes at once.

    The loop calls `begin_episode`, then for each step `act` and `observe`. A lane whose episode
    has ended waits: it is not `active`, its action is ignored, and none of its random numbers may
    be drawn.

    Checkpoints keep its attributes, and those of what it is made of (see `explore.state`).
    """

    columns: tuple[str, ...] = ()  # what `metrics` returns, the agent's columns of `episodes.csv`

    @abstractmethod
    def begin_episode(self, observations: np.ndarray, progress: float) -> None:
        """A new episode of every lane starts at these observations `[lanes, ...]`."""

    @abstractmethod
    def act(self, observations: np.ndarray, active: Sequence[bool]) -> Sequence[int]:
        """An action for each lane."""

    @abstractmethod
    def observe(self, actions: Sequence[int], timesteps: Sequence[dm_env.TimeStep], active: Sequence[bool]) -> None:
        """What the actions led to; entries of waiting lanes are to be ignored."""

    @abstractmethod
    def evaluate(self, observations: np.ndarray, active: Sequence[bool]) -> Sequence[int]:
        """An action for each lane in an evaluation episode, from which nothing is learned."""

    def begin_evaluation(self) -> None:
        """An evaluation episode of every lane starts."""

    def metrics(self) -> dict[str, Sequence[Any]]:
        """The values of `columns` for the episode at hand, each with one entry per lane."""
        return {}

    def beliefs(self, observations: np.ndarray) -> dict[str, np.ndarray]:
        """What it makes of observations, for pictures: `observations [lanes, batch, ...]` to arrays `[lanes, batch,
        actions]`. Known to reports are `mean`, `uncertainty`, `prior_mean` and `prior_uncertainty`.

        Nothing of what follows in the run may depend on whether it was asked.
        """
        return {}

    def cost(self) -> dict[str, int]:
        """What it has taken so far, for comparisons: `parameters` (trained, of one seed), `updates` and
        `samples` (learned from, of all seeds)."""
        return {}


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
