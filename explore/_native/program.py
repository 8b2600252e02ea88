"""Programs for the kernels: instructions on tensors, and the memory that they use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from explore._native.library import load_library

DIMS, OPERANDS = 6, 5
OPERAND = np.dtype([("base", "i4"), ("dtype", "i4"), ("offset", "i8"), ("strides", "i8", DIMS)])
INSTRUCTION = np.dtype(
    [("op", "i4"), ("dims", "i4"), ("operands", "i4"), ("flag", "i4"), ("shape", "i8", DIMS),
     ("operand", OPERAND, OPERANDS), ("extra", "i8", 6)]
)  # fmt: skip
DTYPES = {torch.float32: 0, torch.int64: 1, torch.bool: 2}
OPS = [
    "copy", "add", "subtract", "multiply", "divide", "maximum", "minimum", "negate", "absolute", "sign", "square",
    "square_root", "exp", "log", "cos", "sin", "tanh", "sigmoid", "softplus", "relu", "relu_backward", "less",
    "less_equal", "equal", "not", "where", "to_float", "to_integer", "sum", "argmax", "take", "put", "product",
    "set", "erf", "expm1", "log1p",
]  # fmt: skip
"""The operations, as `kernels.cpp` numbers them."""
ARENA, CONSTANTS = 0, 1  # the first bases: memory of the program, and numbers that never change
ALIGNMENT = 64  # bytes
SHORT = 8  # elements


class Region(NamedTuple):
    """Where a tensor lies: in which block of memory, at which byte."""

    base: int
    offset: int
    dtype: torch.dtype
    strides: tuple[int, ...]  # in elements, by dimension


class Memory(NamedTuple):
    """A block of memory that a program works on: its address, and how many bytes later that of the next lane and that
    of the next minibatch are."""

    tensor: Tensor
    lane_stride: int
    batch_stride: int


class Lanes(NamedTuple):
    """Some lanes, and where the kernels find their numbers."""

    numbers: np.ndarray
    address: int


@lru_cache(maxsize=1024)
def choose_lanes(numbers: tuple[int, ...]) -> Lanes:
    array = np.array(numbers, np.int64)
    return Lanes(array, array.ctypes.data)


class Program:
    """Instructions in order, with constants and an arena, in bytes; `bind` gives it the memory that it works on."""

    def __init__(self, instructions: np.ndarray, constants: np.ndarray, arena: np.ndarray):
        self.instructions, self.constants, self.arena = instructions, constants, arena
        self._run = load_library().run
        self._code = (instructions.ctypes.data, len(instructions))
        self._own = [_align(arena), constants.ctypes.data]
        self._bases = np.zeros((0, 3), np.int64)  # address, and strides of lanes and minibatches, as in kernels.cpp
        self._held: Sequence[Memory] = ()

    def bind(self, blocks: Sequence[Memory]) -> None:
        """The memory that it works on beside its own, in the order in which it was recorded."""
        if len(self._bases) != len(self._own) + len(blocks):
            self._bases = np.zeros((len(self._own) + len(blocks), 3), np.int64)
            self._bases[: len(self._own), 0] = self._own
            self._where = (*self._code, self._bases.ctypes.data, len(self._bases))
        self._bases[len(self._own) :] = [(tensor.data_ptr(), lane, batch) for tensor, lane, batch in blocks]
        self._held = blocks

    def written(self) -> set[int]:
        """The bases of the memory that it changes."""
        ops, operands = self.instructions["op"], self.instructions["operand"]
        onto_table = np.isin(ops, [OPS.index("put"), OPS.index("set")])
        return {int(base) for base in operands["base"][np.arange(len(ops)), onto_table.astype(int)]}

    def run(self, lanes: Lanes, batches: int = 1, adam: int | None = None) -> None:
        """Runs for these lanes, on so many minibatches; `adam` is the address of what a step after each takes."""
        outside = self._run(*self._where, lanes.address, len(lanes.numbers), batches, adam)
        if outside:
            raise IndexError(f"{outside} places in tensors that were asked for do not exist")


def encode(op: str, shape: Sequence[int], operands: Sequence[Region], extra: Sequence[int] = ()) -> np.ndarray:
    """An instruction."""
    one = np.zeros((), INSTRUCTION)
    one["op"], one["dims"], one["operands"] = OPS.index(op), len(shape), len(operands)
    one["shape"][: len(shape)] = shape
    for slot, region in zip(one["operand"], operands):
        slot["base"], slot["dtype"], slot["offset"] = region.base, DTYPES[region.dtype], region.offset
        slot["strides"][: len(shape)] = region.strides
    one["extra"][: len(extra)] = extra
    return one


def plain(dtype: torch.dtype) -> str:
    """The name of a type, for messages."""
    return str(dtype).removeprefix("torch.")


def simplify(
    shape: Sequence[int], strides: Sequence[Sequence[int]], ordered: bool = False
) -> tuple[list[int], list[list[int]]]:
    """The same loops with as few dimensions as possible, and the innermost long; `strides` are of each operand. If they
    are `ordered`, those along which the first operand stays where it is remain as they are."""
    dims = [(size, [own[d] for own in strides]) for d, size in enumerate(shape) if size != 1]
    merged: list[tuple[int, list[int]]] = []
    for size, steps in dims:
        stays = ordered and steps[0] == 0
        if merged and not stays and all(outer == inner * size for outer, inner in zip(merged[-1][1], steps)):
            merged[-1] = (merged[-1][0] * size, steps)
        else:
            merged.append((size, steps))
    if not merged:
        return [1], [[0] for _ in strides]
    if merged[-1][0] < SHORT and not ordered:
        merged.append(merged.pop(max(range(len(merged)), key=lambda d: merged[d][0])))
    if len(merged) > DIMS:
        raise ValueError(f"tensors of more than {DIMS} dimensions")
    return [size for size, _ in merged], [[steps[k] for _, steps in merged] for k in range(len(strides))]


def allocate(count: int) -> np.ndarray:
    """Memory for an arena, with room to begin at a multiple of `ALIGNMENT`."""
    return np.zeros(count + ALIGNMENT, np.uint8)


def _align(memory: np.ndarray) -> int:
    address = memory.ctypes.data
    return address + -address % ALIGNMENT
