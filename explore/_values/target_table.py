"""A table of the target networks' outputs, for environments of few one-hot observations."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

ROWS = 256  # by which the table grows


class TargetTable:
    """The outputs at all one-hot observations so far, evaluated anew once the target networks have changed."""

    def __init__(self, evaluate: Callable[[Tensor], list[Tensor]], lanes: int, observations: int, device: torch.device):
        self._evaluate, self._lanes, self._observations, self._device = evaluate, lanes, observations, device
        self._outputs: list[Tensor] = []  # of each part [lanes, observations, ...]

    def clear(self) -> None:
        self._outputs = []

    def look_up(self, obs: Tensor) -> list[Tensor]:
        """The outputs of each part at observations `[lanes, batch]`."""
        highest = int(obs.max())
        if not self._outputs or highest >= self._outputs[0].shape[1]:
            self._fill((highest // ROWS + 1) * ROWS)
        lane = torch.arange(len(obs), device=self._device).unsqueeze(1)
        return [outputs[lane, obs] for outputs in self._outputs]

    def _fill(self, size: int) -> None:
        every = torch.arange(size, device=self._device).clamp_max(self._observations - 1)
        self._outputs = self._evaluate(every.expand(self._lanes, -1))
