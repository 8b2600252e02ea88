"""The index of an indexed value function: one for each of its parts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from explore.interfaces import Index, IndexDistribution
from explore.streams import Generators


class Indexer:
    """Draws indices from the fixed distribution of each part."""

    def __init__(self, distributions: Sequence[IndexDistribution], device: torch.device):
        self.distributions, self.device = distributions, device

    @property
    def count(self) -> int | None:
        """How many indices there are, if so few that learning goes through all of them; else None.

        It goes through those of the first part, which has the value network.
        """
        return self.distributions[0].count if all(one.count is not None for one in self.distributions) else None

    def draw(self, generators: Generators, *shape: int) -> Index:
        """Indices `[lanes, *shape, size]` for each part."""
        return tuple(one.draw(generators, *shape).to(self.device) for one in self.distributions)

    def draw_to_learn(self, generators: Generators, bits: Sequence[Tensor], draws: int) -> tuple[Index, Tensor]:
        """Indices to learn at, `[lanes, batch or 1, draws, size]` for each part, and how much each of them counts,
        `[lanes, batch, draws]`; `draws` of them for every index that is not drawn but gone through."""
        draws *= self.distributions[0].count or 1
        everything = list(zip(self.distributions, bits))
        index = tuple(one.draw_to_learn(generators, own, draws).to(self.device) for one, own in everything)
        return index, self.distributions[0].weigh(bits[0], draws)

    def draw_batch(self, generators: Generators, batch: int) -> Index:
        """An index for each transition, whatever it is learned at, `[lanes, batch or 1, 1, size]` for each part."""
        return tuple(one.draw_batch(generators, batch, 1).to(self.device) for one in self.distributions)

    def mean(self) -> Index:
        """The expected index, `[1, 1, 1, size]` for each part."""
        return tuple(one.mean().to(self.device)[None, None, None] for one in self.distributions)

    def describe(self, index: Index) -> list[str]:
        """The index `[lanes, 1, 1, size]` of each lane in words."""
        numbers = [part[:, 0, 0].numpy(force=True) for part in index]
        words = [[one.describe(lane) for lane in lanes] for one, lanes in zip(self.distributions, numbers)]
        return [" ".join(filter(None, lane)) for lane in zip(*words)]
