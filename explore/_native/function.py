"""Functions of tensors with a lane axis, executed by the kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from explore._native.library import NotAvailable, load_library
from explore._native.program import CONSTANTS, Lanes, Memory, Program, choose_lanes
from explore._native.recorder import LOOKS, NotRecordable, record

TOLERANCE = 1e-3  # how far the kernels may be from PyTorch, relative to the largest number


class Shared(NamedTuple):
    """Memory that a function works on beside its arguments: of the one lane it is recorded on, and of all lanes."""

    recorded: Tensor
    of_lanes: Callable[[], Memory]
    stays: bool = True  # where it is


class NativeFunction:
    """A function of a single lane, `[1, rows or 1, ...]` -> `[1, ...]`, recorded and then run for any lanes on any
    number of minibatches of `rows`.

    It is recorded twice, on different numbers, to see that it does the same whatever they are, and its results are
    compared with PyTorch's. Raises `NotRecordable`.
    """

    def __init__(
        self, function: Callable[..., Sequence[Tensor]], examples: Sequence[Tensor], shared: Sequence[Shared] = ()
    ):
        self._shared = [one for one in shared if one.recorded.numel()]
        self.rows = max((one.shape[1] for one in examples if one.dim() > 1), default=1)
        programs = [_record(function, some, self._shared) for some in (examples, list(map(_vary, examples)))]
        (self._program, self._outputs), (again, _) = programs
        same = (self._program.instructions.tobytes(), self._program.constants.tobytes())
        if same != (again.instructions.tobytes(), again.constants.tobytes()):
            raise NotRecordable(LOOKS)
        self._memory = [one.of_lanes() for one in self._shared]
        self._moving = [k for k, one in enumerate(self._shared) if not one.stays]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of what it gives for one lane, `[1, ...]`."""
        return [shape for shape, _ in self._outputs]

    def __call__(
        self, arguments: Sequence[Tensor], lanes: Lanes, count: int, batches: int = 1, adam: int | None = None
    ) -> list[Tensor]:
        """Results `[count, batches, ...]` of all lanes, of which only the chosen `lanes` are computed.

        An argument is `[lanes or 1, batches * rows or 1, ...]`. `adam` is the address of `adam.Adam`, for a step after
        each minibatch.
        """
        given = [one.contiguous() for one in arguments if one.numel()]
        made = [torch.zeros((count, batches, *shape[1:]), dtype=dtype) for shape, dtype in self._outputs]
        self._bind(given, made)
        self._program.run(lanes, batches, adam)
        return made

    def bind(self, arguments: Sequence[Tensor], results: Sequence[Tensor]) -> Program:
        """The program on memory that stays where it is, for functions that are called at every step."""
        self._bind(arguments, results)
        return self._program

    def _bind(self, arguments: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        for k in self._moving:
            self._memory[k] = self._shared[k].of_lanes()
        blocks = [_in_minibatches(one, self.rows) for one in arguments]
        self._program.bind([*self._memory, *blocks, *(_in_minibatches(one, 1) for one in results)])


def why_not(device: torch.device) -> str:
    """Why the kernels cannot be used at all; nothing if they can."""
    if device.type != "cpu":
        return f"they run on the processor, not on {device.type}"
    try:
        load_library()
    except NotAvailable as reason:
        return str(reason)
    return ""


def in_lanes(tensor: Tensor, lanes: int) -> Memory:
    """A tensor `[lanes * rows, ...]` of which each lane has a stretch."""
    if not tensor.is_contiguous():
        raise NotRecordable("memory with gaps")
    return Memory(tensor, tensor.numel() // lanes * tensor.element_size(), 0)


def _in_minibatches(tensor: Tensor, rows: int) -> Memory:
    """A tensor `[lanes or 1, batches * rows or 1, ...]`."""
    lanes, many, *_ = tensor.shape
    of_lane, of_row, *_ = tensor.stride()
    size = tensor.element_size()
    return Memory(tensor, size * of_lane if lanes > 1 else 0, size * of_row * rows if many > 1 else 0)


def _vary(example: Tensor) -> Tensor:
    """Other numbers of the same kind."""
    other = example.flip(1) if example.dim() > 1 else example.clone()
    return other.mul_(0.7) if other.is_floating_point() else other


def _record(
    function: Callable[..., Sequence[Tensor]], examples: Sequence[Tensor], shared: Sequence[Shared]
) -> tuple[Program, list[tuple[tuple[int, ...], torch.dtype]]]:
    """The program, and shapes and types of what it gives; everything in memory is as before."""
    given = [one.contiguous().clone() for one in examples]
    blocks = [*(one.recorded for one in shared), *(one for one in given if one.numel())]
    before = [block.clone() for block in blocks]
    wanted: list[Tensor] = []

    def call() -> Sequence[Tensor]:
        wanted[:] = function(*given)
        if any(one.dim() == 0 or len(one) != 1 for one in wanted):
            raise NotRecordable("it gives a tensor without an axis of lanes")
        return wanted

    with torch.enable_grad():
        program = record(call, blocks)
    arguments = range(CONSTANTS + 1 + len(shared), CONSTANTS + 1 + len(blocks))
    if program.written().intersection(arguments):
        raise NotRecordable("it changes an argument in place")
    wanted = [one.detach().clone(memory_format=torch.contiguous_format) for one in wanted]
    after = [block.clone() for block in blocks]
    _restore(blocks, before)
    made = [torch.zeros_like(one) for one in wanted]
    program.bind([Memory(block, 0, 0) for block in (*blocks, *made)])
    program.run(choose_lanes((0,)))
    found = [block.clone() for block in blocks]
    _restore(blocks, before)
    for one, other in zip([*wanted, *after], [*made, *found]):
        _compare(one, other)
    return program, [(tuple(one.shape), one.dtype) for one in made]


@torch.no_grad()
def _restore(blocks: Sequence[Tensor], before: Sequence[Tensor]) -> None:
    for block, old in zip(blocks, before):
        block.copy_(old)


def _compare(wanted: Tensor, found: Tensor) -> None:
    if not wanted.is_floating_point():
        same = torch.equal(wanted, found)
    else:
        scale = float(wanted.nan_to_num().abs().max()) if wanted.numel() else 0.0
        same = torch.allclose(wanted, found, rtol=TOLERANCE, atol=TOLERANCE * scale, equal_nan=True)
    if not same:
        raise NotRecordable("the kernels give other numbers than PyTorch")
