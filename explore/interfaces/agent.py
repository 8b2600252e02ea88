"""Who acts and learns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import dm_env
import numpy as np


class Agent(ABC):
    """Slot `agent`: acts and learns, all lanes at once.

    The loop calls `begin_episode` and `learn`, then for each step `act`, `observe` and `learn_online`.
    A lane whose episode has ended waits: it is not `active`, its action is ignored, and none of its
    random numbers may be drawn.

    Checkpoints keep its attributes, and those of what it is made of (see `explore._state`).
    """

    columns: tuple[str, ...] = ()  # what `metrics` returns, the agent's columns of `episodes.csv`

    @abstractmethod
    def begin_episode(self, observations: np.ndarray, progress: float) -> None:
        """A new episode of every lane starts at these observations `[lanes, ...]`."""

    def learn(self) -> None:
        """Learn from the episodes so far. Called after `begin_episode`, before the first action."""

    @abstractmethod
    def act(self, observations: np.ndarray, active: Sequence[bool]) -> Sequence[int]:
        """An action for each lane."""

    @abstractmethod
    def observe(self, actions: Sequence[int], timesteps: Sequence[dm_env.TimeStep], active: Sequence[bool]) -> None:
        """What the actions led to; entries of waiting lanes are to be ignored."""

    def learn_online(self, active: Sequence[bool]) -> None:
        """Learn during the episode. Called after each step; the active lanes have taken one."""

    @abstractmethod
    def evaluate(self, observations: np.ndarray, active: Sequence[bool]) -> Sequence[int]:
        """An action for each lane in an evaluation episode, from which nothing is learned."""

    def begin_evaluation(self) -> None:
        """An evaluation episode of every lane starts."""

    def metrics(self) -> dict[str, Sequence[Any]]:
        """The values of `columns` for the episode at hand, each with one entry per lane."""
        return {}

    def policy(self, observations: np.ndarray) -> np.ndarray:
        """How likely each action is at these observations `[batch]` in the episode at hand, `[lanes, batch, actions]`.

        An agent that can tell this has its regret recorded where the environment has a `true_model`.
        """
        raise NotImplementedError

    def beliefs(self, observations: np.ndarray) -> dict[str, np.ndarray]:
        """What it makes of observations, for pictures: `observations [lanes, batch, ...]` to arrays `[lanes, batch,
        actions]`. Known to reports are `mean`, `uncertainty`, `prior_mean` and `prior_uncertainty`.

        Nothing of what follows in the run may depend on whether it was asked.
        """
        return {}

    def execution(self) -> dict[str, str]:
        """What executes it, each with a remark, which may be empty: {"native kernels": "avx512", "PyTorch for updates":
        "the kernels have no sort"}. Shown when a run begins and kept in `run.json`; a run is not resumed on other
        keys. An agent that is composed from an `IndexedValue` returns that of its function."""
        return {"PyTorch": ""}

    def cost(self) -> dict[str, int]:
        """What it has taken so far, for comparisons: `parameters` (trained, of one seed), `updates` and
        `samples` (learned from, of all seeds)."""
        return {}
