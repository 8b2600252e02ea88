"""Every random number of a run, drawn from the seed of its lane and the name of its use.

A lane's streams depend on nothing but its seed, so a seed gives the same episodes whichever
seeds run beside it, and a new use of randomness does not disturb the others.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from explore._native.library import find_fill

__all__ = [
    "Generators", "PlannedDraws", "Streams", "global_generators", "integer_seed", "integers", "normal", "stream",
    "uniform",
]  # fmt: skip

Generators = Sequence[np.random.Generator | None]
"""One generator per lane; None for a lane that waits, whose draws are zeros."""


class PlannedDraws(Sequence[None]):
    """Stands for the generator of one lane while a function is recorded: `take` gives what will be drawn later.

    It can be used with `uniform`, `normal` and `integers` only.
    """

    def __init__(self, take: Callable[..., Tensor]):
        self.take = take

    def __len__(self) -> int:
        return 1

    def __getitem__(self, lane: Any) -> Any:
        raise TypeError("random numbers that are not drawn by uniform, normal or integers of explore.streams")


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """The random stream of one lane for one use, e.g. `stream(3, "init", "value", 7)`."""
    words = [zlib.crc32(str(name).encode()) for name in names]
    return np.random.default_rng(np.random.SeedSequence([seed, *words]))


def integer_seed(seed: int, *names: str | int) -> int:
    """A 31-bit seed for what wants an integer rather than a generator (bsuite's environments)."""
    return int(stream(seed, *names).integers(2**31))


class Streams:
    """The generators of all lanes: `streams["index"][lane]`."""

    def __init__(self, seeds: Iterable[int]):
        self.seeds = tuple(seeds)
        self._generators: dict[str, list[np.random.Generator]] = {}

    def __len__(self) -> int:
        return len(self.seeds)

    def __getitem__(self, name: str) -> list[np.random.Generator]:
        if name not in self._generators:
            self._generators[name] = [stream(seed, name) for seed in self.seeds]
        return self._generators[name]

    def state_dict(self) -> dict[str, list[dict[str, Any]]]:
        """The states of all generators, by use and lane."""
        return {name: [dict(g.bit_generator.state) for g in lanes] for name, lanes in self._generators.items()}

    def load_state_dict(self, state: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Continues where the generators of other streams of the same seeds were."""
        for name, lanes in state.items():
            for generator, one in zip(self[name], lanes, strict=True):
                generator.bit_generator.state = one


def global_generators() -> dict[str, Any]:
    """The generators behind the global functions of `numpy.random`, `random` and `torch`, for what draws from them."""
    return {
        "numpy": np.random.get_state.__self__,  # type: ignore[attr-defined]
        "random": random.getstate.__self__,  # type: ignore[attr-defined]
        "torch": torch.default_generator,
    }


def uniform(generators: Generators, *shape: int) -> Tensor:
    """Uniform numbers in [0, 1), float32 `[lanes, *shape]`."""
    if isinstance(generators, PlannedDraws):
        return generators.take(uniform, *shape)
    if (fill := find_fill()) is not None:
        return _fill(fill, generators, shape, 0)
    return _stack(generators, lambda g: g.random(shape, dtype=np.float32), shape, np.float32)


def normal(generators: Generators, *shape: int) -> Tensor:
    """Standard normal numbers, float32 `[lanes, *shape]`."""
    if isinstance(generators, PlannedDraws):
        return generators.take(normal, *shape)
    if (fill := find_fill()) is not None:
        return _fill(fill, generators, shape, 1)
    return _stack(generators, lambda g: g.standard_normal(shape, dtype=np.float32), shape, np.float32)


def integers(generators: Generators, high: int, *shape: int) -> Tensor:
    """Integers in [0, high), int64 `[lanes, *shape]`."""
    if isinstance(generators, PlannedDraws):
        return generators.take(lambda own, *sizes: integers(own, high, *sizes), *shape)
    return _stack(generators, lambda g: g.integers(high, size=shape), shape, np.int64)


def _fill(fill: Callable[..., None], generators: Generators, shape: tuple[int, ...], is_normal: int) -> Tensor:
    """Numbers that a counter-based generator makes of a number from each lane's own."""
    lanes = torch.empty(len(generators), *shape)
    keys = np.array([0 if g is None else g.bit_generator.random_raw() for g in generators], np.uint64)
    wanted = np.array([g is not None for g in generators])
    fill(lanes.data_ptr(), len(generators), math.prod(shape), keys.ctypes.data, wanted.ctypes.data, is_normal)
    return lanes


def _stack(
    generators: Generators,
    draw: Callable[[np.random.Generator], np.ndarray],
    shape: tuple[int, ...],
    dtype: type,
) -> Tensor:
    lanes: np.ndarray = np.zeros((len(generators), *shape), dtype)
    for lane, generator in enumerate(generators):
        if generator is not None:
            lanes[lane] = draw(generator)
    return torch.from_numpy(lanes)
