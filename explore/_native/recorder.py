"""Records what PyTorch does, as a program for the kernels.

A function is called once on example tensors of a single lane, its backward pass included. Each operation that PyTorch
executes is noted with where in memory its tensors lie; views are no operations, and gradients land where PyTorch put
them. One without a handler (see `operations.py`) is replaced by those into which PyTorch itself decomposes it.

Run again on other memory, the program does the same to other numbers. So a function must do the same operations
whatever its numbers are: one that looks at them (`if tensor.any()`) or uses what the kernels lack cannot be recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode

from explore._native import indexing, reductions  # noqa: F401  (which register handlers)
from explore._native.operations import HANDLERS, Handler
from explore._native.program import (
    ALIGNMENT,
    ARENA,
    CONSTANTS,
    DTYPES,
    Program,
    Region,
    allocate,
    encode,
    plain,
    simplify,
)

FRESH = torch.ops.aten.lift_fresh.default
"""What a tensor made of Python's numbers goes through: no view, though it seems to be one. A single number is constant,
as it is elsewhere; longer ones may be of lists and arrays that change between calls."""

LOOKS = "what it does depends on the numbers it is given"


class NotRecordable(Exception):
    """A function that the kernels cannot execute; the message says why."""


@dataclass
class _Temporary:
    """Memory that PyTorch allocated while recording."""

    address: int
    size: int
    first: int  # instructions between which it is used
    last: int


def record(function: Callable[[], Sequence[Tensor]], blocks: Sequence[Tensor]) -> Program:
    """The program of a function that works on `blocks` of memory. The program has further blocks, one after another,
    for the tensors that the function returns; raises `NotRecordable`."""
    recorder = Recorder(blocks)
    try:
        with recorder:
            outputs = function()
        return recorder.finish(outputs)
    except NotRecordable:
        raise
    except Exception as error:  # of a function that is fine with other arguments than those stood in here
        raise NotRecordable(f"{type(error).__name__}: {error}".splitlines()[0]) from error


class Recorder(TorchDispatchMode):
    """Notes operations as instructions."""

    def __init__(self, blocks: Sequence[Tensor]):
        super().__init__()
        self._blocks = [(one.data_ptr(), one.data_ptr() + one.numel() * one.element_size()) for one in blocks]
        self._alive: list[Any] = [*blocks]  # so that no memory is used twice
        self._temporaries: dict[int, _Temporary] = {}  # by address
        self._constants: list[np.ndarray] = []
        self._places: dict[tuple[bytes, torch.dtype], int] = {}  # of constants, in their block
        self._fixed: dict[int, int] = {}  # address -> place
        self._instructions: list[np.ndarray] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch is to import its compiler first, which takes a second."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        handler, changes = _find_handler(func), func._schema.is_mutable
        if handler is None or "out" in kwargs:
            _refuse(func, kwargs)
            if changes:
                return self._compose_in_place(func, args, kwargs)
        given = [] if func is FRESH and args[0].dim() == 0 else _tensors([*args, *kwargs.values()])
        out = func(*args, **kwargs)
        made = _tensors([out])
        self._alive += [*given, *made]
        _refuse_looks(given, made, out)
        is_view = not changes and made and all(_shares(one, given) for one in made)
        if is_view or not any(tensor.numel() for tensor in made):
            return out
        if handler is None:
            return self._compose(func, args, kwargs)
        for tensor in made:
            if not _shares(tensor, given):
                self._notice(tensor)
        _handle(self, func, handler, out, args, kwargs)
        return out

    def _compose(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """An operation as others that PyTorch decomposes it into."""
        with self:
            found = decomposition_table.get(func, func.decompose)(*args, **kwargs)
        if found is NotImplemented:
            raise NotRecordable(f"the kernels have no {_name(func)}")
        return found

    def _compose_in_place(self, func: Any, args: tuple, kwargs: dict) -> Any:
        same = getattr(getattr(torch.ops.aten, _name(func), None), func._overloadname, None)
        if same is None:
            raise NotRecordable(f"the kernels have no {_name(func)}")
        with self:
            return args[0].copy_(same(*args, **kwargs))

    # For handlers.

    def emit(self, op: str, out: Tensor, *operands: Tensor | float, shape: Sequence[int] | None = None) -> None:
        """An operation on each element; operands are spread over the shape of the output."""
        shape = out.shape if shape is None else shape
        tensors = [self.tensor(one, out.dtype) for one in operands]
        self._emit(op, shape, [out, *(one.expand(shape) for one in tensors)])

    def compare(self, op: str, out: Tensor, *operands: Tensor) -> None:
        """An operation on each element whose operands are of other types than its result."""
        self._emit(op, out.shape, [out, *(one.expand(out.shape) for one in operands)])

    def emit_sum(self, out: Tensor, x: Tensor) -> None:
        """Sums of `x` along the dimensions in which `out` has size 1; both have as many."""
        self.accumulate("sum", out, 0.0, x)

    def accumulate(self, op: str, out: Tensor, start: float, x: Tensor) -> None:
        """What an operation makes of `start` and the numbers of `x` along the dimensions in which `out` has size 1.

        Their order does not depend on the other dimensions: what is made of an observation is the same in any batch.
        """
        self.emit("copy", out, start)
        spread = out.expand(x.shape)
        self._emit(op, x.shape, [spread, x] if op == "sum" else [spread, spread, x], ordered=True)

    def emit_places(
        self, op: str, shape: Sequence[int], values: Tensor, strides: Sequence[int], table: Tensor,
        places: Sequence[tuple[Tensor, int, int]],
    ) -> None:  # fmt: skip
        """`take`, `put` or `set`: values from (added to, or stored in) a table whose strides are given by dimension of
        `shape`, and further away by numbers in tensors, each with what it is multiplied with and how many there are."""
        if op == "put" and values.dtype != torch.float32:
            raise NotRecordable(f"the kernels have no sum of {plain(values.dtype)} by place")
        if len(places) > 3:
            raise NotRecordable("the kernels take at most three tensors of indices")
        spread = [place.expand(shape) for place, _, _ in places]
        operands = [values.expand(shape), table, *spread]
        steps = [operands[0].stride(), strides, *(one.stride() for one in spread)]
        extra = [0] * 6
        for k, (_, stride, count) in enumerate(places):
            extra[k], extra[3 + k] = stride, count
        self._write(op, shape, operands, steps, extra)

    def emit_argmax(self, out: Tensor, x: Tensor, count: int) -> None:
        """The places of the largest of each `count` numbers."""
        rows = self.new((x.numel() // count, count))
        self.emit("copy", rows.view(x.shape), x)
        regions = [self._region(out, (1, 0)), self._region(rows, (rows.shape[1], 1))]
        self._instructions.append(encode("argmax", rows.shape, regions))

    def emit_product(self, out: Tensor, a: Tensor, b: Tensor, start: Tensor | None) -> None:
        """out = start + a b: `[batch, rows, columns]`, `[batch, rows, inner]` and `[batch, inner, columns]`."""
        batch, rows, columns = out.shape
        if out.dtype != torch.float32:
            raise NotRecordable(f"the kernels have no product of {plain(out.dtype)}")
        a_steps = (a.stride(0), a.stride(1), 0, a.stride(2))
        b_steps = (b.stride(0), 0, 1 if columns == 1 else b.stride(2), b.stride(1))
        operands, steps = [out, a, b], [(out.stride(0), out.stride(1), 1, 0), a_steps, b_steps]
        if columns > 1 and out.stride(2) != 1:
            raise NotRecordable("a product whose columns are apart")
        if start is not None:
            start = start.expand(out.shape)
            operands.append(start)
            steps.append((start.stride(0), start.stride(1), 1 if columns == 1 else start.stride(2), 0))
        regions = [self._region(one, own) for one, own in zip(operands, steps)]
        self._instructions.append(encode("product", (batch, rows, columns, a.shape[2]), regions))

    def tensor(self, value: Tensor | float, dtype: torch.dtype) -> Tensor:
        """A number as a tensor; a tensor of truths or integers as floats where such are wanted."""
        if not isinstance(value, Tensor):
            return self.constant(torch.tensor(value, dtype=torch.int64 if dtype == torch.int64 else torch.float32))
        ops = {torch.float32: "to_float", torch.int64: "to_integer"}
        if value.dtype != dtype and value.dtype in DTYPES and dtype in ops:
            converted = self.new(value.shape, dtype)
            self._emit(ops[dtype], value.shape, [converted, value])
            return converted
        return value

    def new(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """Memory for what is computed on the way."""
        made = torch.empty(shape, dtype=dtype)
        self._alive.append(made)
        self._notice(made)
        return made

    def constant(self, value: Tensor) -> Tensor:
        """A tensor whose numbers are the same each time."""
        value = value.contiguous().clone()
        self._alive.append(value)
        key = (value.numpy().tobytes(), value.dtype)
        if key not in self._places:
            self._places[key] = sum(map(len, self._constants))
            data = np.frombuffer(key[0], np.uint8)
            self._constants.append(np.pad(data, (0, -len(data) % ALIGNMENT)))
        self._fixed[value.data_ptr()] = self._places[key]
        return value

    # Memory.

    def _emit(self, op: str, shape: Sequence[int], operands: Sequence[Tensor], ordered: bool = False) -> None:
        self._write(op, shape, operands, [one.stride() for one in operands], ordered=ordered)

    def _write(
        self, op: str, shape: Sequence[int], operands: Sequence[Tensor], steps: Sequence[Sequence[int]],
        extra: Sequence[int] = (), ordered: bool = False,
    ) -> None:  # fmt: skip
        if any(one.numel() == 0 for one in operands):
            return
        sizes, strides = simplify(shape, steps, ordered)
        regions = [self._region(one, own) for one, own in zip(operands, strides)]
        self._instructions.append(encode(op, sizes, regions, extra))

    def _notice(self, tensor: Tensor) -> None:
        """Memory that is new."""
        if tensor.dtype not in DTYPES:
            raise NotRecordable(f"the kernels have no {plain(tensor.dtype)}")
        storage = tensor.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
        if size and self._find_block(address) is None and address not in self._temporaries:
            number = len(self._instructions)
            self._temporaries[address] = _Temporary(address, size, number, number)

    def _find_block(self, address: int) -> int | None:
        return next((k for k, (start, end) in enumerate(self._blocks) if start <= address < end), None)

    def _region(self, tensor: Tensor, strides: Sequence[int]) -> Region:
        if tensor.dtype not in DTYPES:
            raise NotRecordable(f"the kernels have no {plain(tensor.dtype)}")
        address = tensor.data_ptr()
        if (block := self._find_block(address)) is not None:
            if address + _extent(tensor) > self._blocks[block][1]:
                raise NotRecordable("a tensor that reaches over several blocks of memory")
            return Region(CONSTANTS + 1 + block, address - self._blocks[block][0], tensor.dtype, tuple(strides))
        storage = tensor.untyped_storage().data_ptr()
        if storage in self._temporaries:
            self._temporaries[storage].last = len(self._instructions)
            # As an address for now, as it is not yet known where in the arena it will be.
            return Region(ARENA, address, tensor.dtype, tuple(strides))
        if storage in self._fixed:
            return Region(CONSTANTS, self._fixed[storage] + address - storage, tensor.dtype, tuple(strides))
        raise NotRecordable("a tensor that is neither a parameter nor computed from the arguments")

    def finish(self, outputs: Sequence[Tensor]) -> Program:
        """The program, which ends with copies of the outputs to blocks of their own."""
        for output in outputs:
            result = torch.empty(output.shape, dtype=output.dtype)
            self._alive.append(result)
            self._blocks.append((result.data_ptr(), result.data_ptr() + max(1, result.numel() * result.element_size())))
            self._emit("copy", output.shape, [result, output])
        places, size = self._arrange()
        instructions = np.array(self._instructions, self._instructions[0].dtype)
        operands = instructions["operand"]
        used = np.arange(operands.shape[1]) < instructions["operands"][:, None]
        for slot in np.argwhere(used & (operands["base"] == ARENA)):
            address = int(operands["offset"][tuple(slot)])
            start = max(start for start in places if start <= address)
            operands["offset"][tuple(slot)] = places[start] + address - start
        constants = np.concatenate([*self._constants, np.zeros(ALIGNMENT, np.uint8)])
        return Program(instructions, constants, allocate(size))

    def _arrange(self) -> tuple[dict[int, int], int]:
        """Where in the arena each temporary begins, and how large that is: what is not used at once may share it."""
        placed: list[tuple[_Temporary, int]] = []
        for one in sorted(self._temporaries.values(), key=lambda one: (one.first, -one.size)):
            start = 0
            for other, at in sorted(placed, key=lambda pair: pair[1]):
                if other.last < one.first or one.last < other.first:
                    continue
                if start + one.size <= at:
                    break
                start = max(start, _round_up(at + other.size))
            placed.append((one, start))
        return {one.address: start for one, start in placed}, max((at + one.size for one, at in placed), default=0)


def _name(func: Any) -> str:
    return func._schema.name.rpartition("::")[2].removesuffix("_")


def _find_handler(func: Any) -> Handler | None:
    return HANDLERS.get(_name(func)) if func.namespace in ("aten", "prims") else None


def _refuse_looks(given: Sequence[Tensor], made: Sequence[Tensor], out: Any) -> None:
    """What makes a number of Python's from tensors."""
    if given and not made and not isinstance(out, list | tuple | type(None)):
        raise NotRecordable(LOOKS)


def _handle(recorder: Recorder, func: Any, handler: Handler, out: Any, args: tuple, kwargs: dict) -> None:
    try:
        handler(recorder, out, *args, **kwargs)
    except (TypeError, ValueError) as error:
        raise NotRecordable(f"{_name(func)}: {error}") from error


def _refuse(func: Any, kwargs: dict) -> None:
    """Operations that can be of no program."""
    if torch.Tag.nondeterministic_seeded in func.tags:
        raise NotRecordable(
            f"{_name(func)} draws random numbers, which only uniform, normal and integers of explore.streams may"
        )
    if torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags:
        raise NotRecordable(LOOKS)
    if "out" in kwargs:
        raise NotRecordable(f"the kernels have no {_name(func)} with out=")


def _extent(tensor: Tensor) -> int:
    """Bytes from its first element to the end of its last."""
    steps = zip(tensor.shape, tensor.stride())
    return (sum((size - 1) * stride for size, stride in steps) + 1) * tensor.element_size()


def _round_up(size: int) -> int:
    return size + -size % ALIGNMENT


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    """The tensors among arguments, in lists too."""
    found = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _tensors(value)
    return found


def _shares(tensor: Tensor, others: Sequence[Tensor]) -> bool:
    """Whether a tensor lies in the memory of others."""
    address = tensor.untyped_storage().data_ptr()
    return any(address == other.untyped_storage().data_ptr() for other in others)
