"""The index of an indexed value function: one for each of its parts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from explore.interfaces import Index, UncertaintyModule
from explore.streams import Generators


class Indexer:
    """Draws indices from the fixed distribution of each part."""

    def __init__(self, parts: Sequence[UncertaintyModule], device: torch.device):
        self.parts, self.device = parts, device

    def draw(self, generators: Generators, *shape: int) -> tuple[Tensor, ...]:
        """Indices `[lanes, *shape, size]` for each part."""
        return tuple(part.draw(generators, *shape).to(self.device) for part in self.parts)

    def draw_for_learning(self, generators: Generators, mask: Sequence[Tensor], draws: int) -> Index:
        """Indices to learn at, `[lanes, batch or 1, draws, size]` for each part."""
        drawn = [part.draw_for_learning(generators, m, draws) for part, m in zip(self.parts, mask)]
        return tuple(index if index is None else index.to(self.device) for index in drawn)

    def draw_for_targets(self, generators: Generators, batch: int) -> Index:
        """An index for each transition, whatever it is learned at, `[lanes, batch or 1, 1, size]` for each part."""
        drawn = [part.draw(generators, 1 if part.shared else batch, 1) for part in self.parts]
        return tuple(index.to(self.device) for index in drawn)

    def mean(self) -> Index:
        """The expected index, `[1, 1, 1, size]` for each part."""
        return tuple(part.mean_index().to(self.device)[None, None, None] for part in self.parts)

    def describe(self, index: Index) -> list[str]:
        """The index `[lanes, 1, 1, size]` of each lane in words."""
        numbers = [part[:, 0, 0].numpy(force=True) for part in index if part is not None]
        words = [[part.describe_index(lane) for lane in lanes] for part, lanes in zip(self.parts, numbers)]
        return [" ".join(filter(None, lane)) for lane in zip(*words)]
