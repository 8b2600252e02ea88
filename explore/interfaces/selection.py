"""What an agent believes, and which action it picks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from explore.streams import Generators, PlannedDraws, uniform

if TYPE_CHECKING:
    from explore._values.indexed_value import IndexedValue


@dataclass
class Conditional:
    """What a part whose values are not linear in the index gave for a batch of observations."""

    features: Tensor  # [lanes, batch, ...]
    values: Callable[[Tensor, Tensor], Tensor]  # of the network that gave them: features, index -> at every action
    prior: Tensor | None  # features of the prior, [lanes, batch, actions, size]
    action: Tensor | None  # [lanes, batch], if only values of the action taken are wanted
    latest: tuple[Tensor, Tensor] | None = None  # the latest index, and the values there

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the features."""
        return tuple(self.features.shape)


Features = tuple[Tensor | Conditional, ...]  # of one batch of observations: one per part, a tensor if it is linear
Index = tuple[Tensor, ...]  # one per part


@dataclass
class Beliefs:
    """What an agent believes of a batch of observations: values as a function of the index.

    `index` is the index acted on (held for the episode) or learned at, `[lanes, batch or 1,
    draws, size]` for each part. `generators` is where a selection gets its random numbers: with
    `explore.streams.uniform(beliefs.generators, ...)`.
    """

    function: IndexedValue
    features: Features
    index: Index
    generators: Generators
    progress: float  # the share of the run's episodes that are over

    def values(self) -> Tensor:
        """Values at the index, `[lanes, batch, draws, actions]`."""
        return self.function.values(self.features, self.index)

    def mean(self) -> Tensor:
        """Expected values, `[lanes, batch, 1, actions]`."""
        return self.function.values(self.features, self.function.indexer.mean())

    def std(self) -> Tensor:
        """Standard deviation over indices, `[lanes, batch, 1, actions]`."""
        return self.function.std(self.features).unsqueeze(2)

    def draw(self, count: int) -> Tensor:
        """Values at `count` fresh indices, `[lanes, batch, count, actions]`."""
        batch = self.features[0].shape[1]
        return self.function.values(self.features, self.function.indexer.draw(self.generators, batch, count))


class Selection(ABC):
    """Slot `selection`: which action an indexed value function picks.

    Example:

        class SecondGuess(Selection):
            def scores(self, beliefs):
                return beliefs.mean() + 0.5 * beliefs.std()
    """

    @abstractmethod
    def scores(self, beliefs: Beliefs) -> Tensor:
        """The action with the highest score is picked, `[lanes, batch, draws or 1, actions]`."""

    def select(self, beliefs: Beliefs) -> Tensor:
        """Actions `[lanes, batch, draws or 1]`; ties are broken at random."""
        return argmax(self.scores(beliefs), beliefs.generators)


def select_actions(selection: Selection, beliefs: Beliefs, draws: int) -> Tensor:
    """What a selection selects, `[lanes, batch, draws or 1]`; a selection that gives another shape is refused."""
    actions = selection.select(beliefs)
    lanes, batch = beliefs.features[0].shape[:2]
    if actions.shape not in ((lanes, batch, draws), (lanes, batch, 1)):
        expected = f"[lanes, batch, draws or 1] = {[lanes, batch, draws]}"
        raise ValueError(
            f"{type(selection).__name__} selects actions of shape {list(actions.shape)}, expected {expected}"
        )
    return actions


def argmax(scores: Tensor, generators: Generators) -> Tensor:
    """Argmax over the last axis, ties broken at random by each lane's own stream."""
    if isinstance(generators, PlannedDraws):
        best = (scores == scores.amax(-1, keepdim=True)).float()
        return (best + uniform(generators, *best.shape[1:])).argmax(-1)
    highest, first = scores.max(-1, keepdim=True)
    best = scores == highest
    if int(best.sum()) > first.numel():
        tied = (best.sum(-1) > 1).flatten(1).any(1).tolist()
        keys = uniform([g if tie else None for g, tie in zip(generators, tied)], *best.shape[1:])
        return (best + keys.to(best.device)).argmax(-1)
    return first.squeeze(-1)
