"""What a recorded function is given anew each time it runs: random numbers, and the values of schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from explore._native.recorder import NotRecordable
from explore.interfaces.objective import PlannedProgress
from explore.streams import Generators, PlannedDraws, stream


class Draw(NamedTuple):
    """Random numbers for `rows` transitions, or for all of a phase."""

    whose: str  # streams
    draw: Callable[..., Tensor]
    shape: tuple[int, ...]


class Plan:
    """Notes what a function draws, and from whose streams, and which schedules it follows, when it is called once;
    afterwards it hands over what was drawn."""

    def __init__(self, rows: int):
        self.rows = rows
        self.examples: list[Tensor] = []
        self._requests: list[Draw | Callable[[float], float]] = []
        self._given: Iterator[Tensor] | None = None
        self.progress = PlannedProgress(self._take_value)

    def make_draws(self, whose: str) -> PlannedDraws:
        return PlannedDraws(lambda draw, *shape: self._take_draw(whose, draw, shape))

    def hand_over(self, given: Sequence[Tensor]) -> None:
        """From now on, what is asked for is taken from these."""
        self._given = iter(given)

    def fulfil(self, generators: Mapping[str, Generators], progress: float, batches: int) -> list[Tensor]:
        """What the function needs for so many minibatches."""
        fulfilled = []
        for request in self._requests:
            if isinstance(request, Draw):
                first = request.shape[0] if request.shape[0] == 1 else request.shape[0] * batches
                fulfilled.append(request.draw(generators[request.whose], first, *request.shape[1:]))
            else:
                fulfilled.append(torch.full((1, 1), request(progress)))
        return fulfilled

    def _take_draw(self, whose: str, draw: Callable[..., Tensor], shape: tuple[int, ...]) -> Tensor:
        if self._given is not None:
            return next(self._given)
        if not shape or shape[0] not in (1, self.rows) or self.rows == 1:
            raise NotRecordable(f"random numbers of shape {[*shape]}, not for each transition")
        self._requests.append(Draw(whose, draw, shape))
        self.examples.append(draw([stream(0, "example", len(self.examples))], *shape))
        return self.examples[-1]

    def _take_value(self, schedule: Callable[[float], float]) -> Any:
        if self._given is not None:
            return next(self._given).view(())
        self._requests.append(schedule)
        self.examples.append(torch.full((1, 1), schedule(0.5)))
        return self.examples[-1].view(())
