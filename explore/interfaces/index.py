"""Index distributions: how the index of an uncertainty module is drawn, in acting and in learning."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from explore.streams import Generators, normal, uniform


class IndexDistribution(ABC):
    """The fixed distribution of an index of `size` numbers.

    Values are features · index unless a module computes them itself, so `variance`, which a distribution
    may leave out, follows from features. `generators` has one generator per lane.

    Example:

        class Rademacher(IndexDistribution):  # signs, each 1 or -1
            def __init__(self, size):
                self.size = size

            def draw(self, generators, *shape):
                return 2.0 * (uniform(generators, *shape, self.size) < 0.5) - 1

            def variance(self, features):
                return features.square().sum(-1)
    """

    size: int  # the numbers in an index
    bits: int = 0  # bootstrap bits kept with each transition, which say what learns from it
    count: int | None = None  # how many indices there are, if so few that learning goes through all of them

    @abstractmethod
    def draw(self, generators: Generators, *shape: int) -> Tensor:
        """Indices `[lanes, *shape, size]`."""

    def mean(self) -> Tensor:
        """The expected index, `[size]`."""
        return torch.zeros(self.size)

    def combine(self, features: Tensor, index: Tensor) -> Tensor:
        """features · index: `[lanes, batch, actions, size]` at `[lanes, batch or 1, draws, size]` ->
        `[lanes, batch, draws, actions]`."""
        return (features.unsqueeze(2) * index.unsqueeze(3)).sum(-1)

    def describe(self, index: np.ndarray) -> str:
        """An index `[size]` in words, for the column `index` of `episodes.csv`."""
        return " ".join(f"{x:.4f}" for x in index)

    # In learning.

    def draw_batch(self, generators: Generators, batch: int, draws: int) -> Tensor:
        """Indices for each transition of a batch, or for all of them: `[lanes, batch or 1, draws, size]`."""
        return self.draw(generators, batch, draws)

    def draw_to_learn(self, generators: Generators, bits: Tensor, draws: int) -> Tensor:
        """Indices to learn at, given the bits of transitions `[lanes, batch, bits]`; `draws` is a multiple of
        `count`."""
        return self.draw_batch(generators, bits.shape[1], draws)

    def weigh(self, bits: Tensor, draws: int) -> Tensor:
        """How much a transition counts at each of the indices to learn at, `[lanes, batch, draws]`."""
        return bits.new_ones(*bits.shape[:2], draws)

    def draw_columns(self, generators: Generators, bits: Tensor) -> tuple[Tensor, Tensor]:
        """For objectives that train columns of the features one by one (means of members, scales of heads): which
        columns a transition trains `[lanes, batch, 1, columns]`, and an index for it `[lanes, batch, 1, size]`."""
        index = self.draw(generators, bits.shape[1], 1)
        return torch.ones(1, 1, 1, 1), index

    def perturb(self, noise: Tensor, index: Tensor) -> Tensor:
        """What a transition's normal numbers `[lanes, batch, size]` add to its reward at indices
        `[lanes, batch, draws, size]`, in units of the objective's noise: `[lanes, batch, draws]`."""
        return (noise.unsqueeze(2) * index).sum(-1)


class NoIndex(IndexDistribution):
    """A single index, 1: the values are the features."""

    size = count = 1

    def draw(self, generators: Generators, *shape: int) -> Tensor:
        return torch.ones(len(generators), *shape, 1)

    def mean(self) -> Tensor:
        return torch.ones(1)

    def combine(self, features: Tensor, index: Tensor) -> Tensor:
        return features.movedim(-1, 2)

    def variance(self, features: Tensor) -> Tensor:
        """Of the values over indices: `[lanes, batch, actions, size]` -> `[lanes, batch, actions]`."""
        return torch.zeros_like(features[..., 0])

    def describe(self, index: np.ndarray) -> str:
        return ""

    def perturb(self, noise: Tensor, index: Tensor) -> Tensor:
        return torch.zeros_like(noise)


class Member(IndexDistribution):
    """One of `count` members, uniformly, one-hot. Learning goes through all of them; a bit for each says whether it
    learns from a transition."""

    def __init__(self, count: int):
        self.size = self.count = self.bits = count
        self.every = torch.eye(count)[None, None]  # [1, 1, draws, size]

    def draw(self, generators: Generators, *shape: int) -> Tensor:
        return _one_hot((uniform(generators, *shape) * self.size).long(), self.size)

    def mean(self) -> Tensor:
        return torch.full((self.size,), 1 / self.size)

    def combine(self, features: Tensor, index: Tensor) -> Tensor:
        return features.movedim(-1, 2) if index is self.every else super().combine(features, index)

    def variance(self, features: Tensor) -> Tensor:
        """Of the values over indices: `[lanes, batch, actions, size]` -> `[lanes, batch, actions]`."""
        return (features - features.mean(-1, keepdim=True)).square().mean(-1)

    def describe(self, index: np.ndarray) -> str:
        return f"member={index.argmax()}"

    def draw_to_learn(self, generators: Generators, bits: Tensor, draws: int) -> Tensor:
        return self.every if draws == self.size else self.every.repeat_interleave(draws // self.size, 2)

    def weigh(self, bits: Tensor, draws: int) -> Tensor:
        return bits.repeat_interleave(draws // self.size, -1)

    def draw_columns(self, generators: Generators, bits: Tensor) -> tuple[Tensor, Tensor]:
        return bits.unsqueeze(2), self.draw(generators, bits.shape[1], 1)


class Gaussian(IndexDistribution):
    """z ~ N(0, I)."""

    def __init__(self, size: int):
        self.size = size

    def draw(self, generators: Generators, *shape: int) -> Tensor:
        return normal(generators, *shape, self.size)

    def variance(self, features: Tensor) -> Tensor:
        """Of the values over indices: `[lanes, batch, actions, size]` -> `[lanes, batch, actions]`."""
        return features.square().sum(-1)


class GaussianAtHead(IndexDistribution):
    """z ~ N(0, 1) at a head u, uniform among `heads`: the index of PINs, z at place u and 0 elsewhere.

    A transition trains one head drawn among its set bits (`train_heads = "one"`, the paper) or all of them
    ("masked"). Where no bit is set, any head is drawn.
    """

    def __init__(self, heads: int, train_heads: str = "one"):
        if heads < 1:
            raise ValueError(f"heads must be at least 1, got {heads!r}")
        if train_heads not in ("one", "masked"):
            raise ValueError(f"train_heads must be 'one' or 'masked', got {train_heads!r}")
        self.size = self.bits = heads
        self.train_heads = train_heads

    def draw(self, generators: Generators, *shape: int) -> Tensor:
        z = normal(generators, *shape)
        head = (uniform(generators, *shape) * self.size).long()
        return z.unsqueeze(-1) * _one_hot(head, self.size)

    def variance(self, features: Tensor) -> Tensor:
        """Of the values over indices: `[lanes, batch, actions, size]` -> `[lanes, batch, actions]`."""
        return features.square().mean(-1)

    def describe(self, index: np.ndarray) -> str:
        head = np.abs(index).argmax()
        return f"z={index[head]:.4f} head={head}"

    def draw_to_learn(self, generators: Generators, bits: Tensor, draws: int) -> Tensor:
        z = normal(generators, bits.shape[1], draws, 1).to(bits.device)
        return z * self._draw_heads(generators, bits, draws)

    def draw_columns(self, generators: Generators, bits: Tensor) -> tuple[Tensor, Tensor]:
        heads = self._draw_heads(generators, bits, 1)
        z = normal(generators, bits.shape[1], 1, 1).to(bits.device)
        return (heads if self.train_heads == "one" else bits.unsqueeze(2)), z * heads

    def _draw_heads(self, generators: Generators, bits: Tensor, draws: int) -> Tensor:
        """One-hot `[lanes, batch, draws, heads]`."""
        keys = uniform(generators, bits.shape[1], draws, self.size).to(bits.device) + bits.unsqueeze(2)
        return _one_hot(keys.argmax(-1), self.size)


class Sphere(IndexDistribution):
    """Uniform on the unit sphere."""

    def __init__(self, size: int):
        self.size = size

    def draw(self, generators: Generators, *shape: int) -> Tensor:
        return _normalise(normal(generators, *shape, self.size))

    def variance(self, features: Tensor) -> Tensor:
        """Of the values over indices: `[lanes, batch, actions, size]` -> `[lanes, batch, actions]`."""
        return features.square().sum(-1) / self.size

    def perturb(self, noise: Tensor, index: Tensor) -> Tensor:
        """ξ·z with ξ on the sphere too."""
        return (_normalise(noise).unsqueeze(2) * index).sum(-1)


class WithMean(IndexDistribution):
    """(z, 1) with z of another distribution: the last feature is the mean, where the expected z is 0."""

    def __init__(self, varying: IndexDistribution):
        self.varying = varying
        self.size, self.bits = varying.size + 1, varying.bits

    def draw(self, generators: Generators, *shape: int) -> Tensor:
        return _append_one(self.varying.draw(generators, *shape))

    def mean(self) -> Tensor:
        return _append_one(self.varying.mean())

    @property
    def variance(self) -> Callable[[Tensor], Tensor]:
        """That of z, if z has one."""
        of_z = self.varying.variance  # type: ignore[attr-defined]
        return lambda features: of_z(features[..., :-1])

    def describe(self, index: np.ndarray) -> str:
        return self.varying.describe(index[:-1])

    def draw_batch(self, generators: Generators, batch: int, draws: int) -> Tensor:
        return _append_one(self.varying.draw_batch(generators, batch, draws))

    def draw_to_learn(self, generators: Generators, bits: Tensor, draws: int) -> Tensor:
        return _append_one(self.varying.draw_to_learn(generators, bits, draws))

    def draw_columns(self, generators: Generators, bits: Tensor) -> tuple[Tensor, Tensor]:
        columns, index = self.varying.draw_columns(generators, bits)
        return columns, _append_one(index)

    def perturb(self, noise: Tensor, index: Tensor) -> Tensor:
        return self.varying.perturb(noise[..., :-1], index[..., :-1])


def _one_hot(numbers: Tensor, size: int) -> Tensor:
    return (numbers.unsqueeze(-1) == torch.arange(size, device=numbers.device)).float()


def _append_one(index: Tensor) -> Tensor:
    return torch.cat([index, index.new_ones(*index.shape[:-1], 1)], -1)


def _normalise(vectors: Tensor) -> Tensor:
    """Vectors of length 1; those of lanes that wait stay 0."""
    return vectors / vectors.square().sum(-1, keepdim=True).sqrt().clamp_min(1e-12)
