"""What is learned, from what, and numbers that change meanwhile."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from explore.interfaces.memory import Transitions
from explore.interfaces.selection import Beliefs, Features, Index, Selection, select_actions
from explore.streams import Generators

if TYPE_CHECKING:
    from explore._values.indexed_value import IndexedValue


@dataclass
class Phase:
    """All transitions of a learning phase, with the values of the frozen networks at them.

    `discount` holds the agent's discount times the environment's, so it is 0 after a terminal step.
    """

    function: IndexedValue
    transitions: Transitions
    reward: Tensor  # [lanes, batch]
    discount: Tensor  # [lanes, batch]
    bits: tuple[Tensor, ...]  # per part [lanes, batch, bits of its index]
    noise: tuple[Tensor, ...]  # per part [lanes, batch, size of its index]; empty unless the objective asks for it
    next_features: Features  # target networks joined with priors, at the next observations
    look: Callable[[Index], Beliefs] = field(repr=False)  # what selections see of the next observations at an index
    target: Selection  # the agent's
    generators: Generators = field(repr=False)
    progress: float = 0.0

    def select(self, index: Index, selection: Selection | None = None) -> Tensor:
        """The next actions that the agent's target selection (or another) selects at an index,
        `[lanes, batch, draws or 1]`."""
        return select_actions(selection or self.target, self.look(index), index[0].shape[2])


class Objective(ABC):
    """Slot `objective`: how targets are formed and matched.

    `prepare` runs once per learning phase on all its minibatches, without gradients; `loss` runs
    once per minibatch on the trained features at the actions taken.
    """

    losses: ClassVar[tuple[str, ...]]  # what `loss` returns, columns of `episodes.csv`

    def check(self, function: IndexedValue) -> None:
        """Raises `ValueError` with a sentence if the value function cannot be trained so."""

    @property
    def uses_noise(self) -> bool:
        """Whether `Phase.noise` is wanted (drawn once per transition and stored with it)."""
        return False

    @abstractmethod
    def prepare(self, phase: Phase) -> Mapping[str, Tensor | tuple[Tensor, ...]]:
        """Targets and weights, each `[lanes, batch, ...]`."""

    @abstractmethod
    def loss(self, function: IndexedValue, features: Features, prepared: Mapping[str, Any]) -> dict[str, Tensor]:
        """Named losses of a minibatch, each `[lanes]`; `features` are `[lanes, batch, 1, size]`."""


class Schedule(ABC):
    """Slot `schedule`: a number that changes over the run.

    Example:

        class Halving(Schedule):
            def __init__(self, start: float = 1.0, times: int = 4):
                self.start, self.times = start, times

            def __call__(self, progress):
                return self.start / 2 ** int(progress * self.times)
    """

    @abstractmethod
    def __call__(self, progress: float) -> float:
        """The value when this share of the run's episodes is over, from 0 to 1."""


class PlannedProgress:
    """Stands for the progress of a run while a function is recorded; `take` gives a schedule's later values."""

    def __init__(self, take: Callable[[Callable[[float], float]], Any]):
        self.take = take


class Scheduled:
    """A parameter that is a number or follows a schedule, as a function of progress."""

    def __init__(self, value: float | type[Schedule]):
        self.value = value() if isinstance(value, type) else float(value)

    def __call__(self, progress: float | PlannedProgress) -> Any:
        if isinstance(self.value, float):
            return self.value
        return progress.take(self.value) if isinstance(progress, PlannedProgress) else self.value(progress)


def as_schedule(
    value: float | type[Schedule], name: str, minimum: float = -math.inf, maximum: float = math.inf
) -> Scheduled:
    """A parameter that may be a number or a schedule, as a function of progress."""
    schedule = Scheduled(value)
    for number in (schedule(0.0), schedule(1.0)):
        if not minimum <= number <= maximum:
            bounds = f"at least {minimum:g}" if maximum == math.inf else f"between {minimum:g} and {maximum:g}"
            raise ValueError(f"{name} must be {bounds}, got {number!r}")
    return schedule
