"""How each of PyTorch's operations is executed by the kernels.

A handler gets the recorder, what PyTorch returned, and the arguments; it emits instructions that give the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from explore._native.recorder import Recorder

Handler = Callable[..., None]
HANDLERS: dict[str, Handler] = {}
"""The name of an operation without `aten::` and without the `_` of those in place -> its handler."""


def handles(*names: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return register


def _need(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(what)


# Memory.


@handles("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided")
def _nothing(rec: Recorder, out: Tensor, *_: Any, **__: Any) -> None:
    """Memory with nothing in it yet."""


@handles("clone", "copy", "_to_copy", "contiguous")
def _copy(rec: Recorder, out: Tensor, *args: Any, **_: Any) -> None:
    source = args[1] if len(args) > 1 and isinstance(args[1], Tensor) else args[0]
    source = rec.tensor(source, out.dtype)
    _need(source.dtype == out.dtype, f"from {source.dtype} to {out.dtype}")
    rec.emit("copy", out, source)


@handles("zeros", "zeros_like", "new_zeros", "zero")
def _zeros(rec: Recorder, out: Tensor, *_: Any, **__: Any) -> None:
    _fill(rec, out, 0.0)


@handles("ones", "ones_like", "new_ones")
def _ones(rec: Recorder, out: Tensor, *_: Any, **__: Any) -> None:
    _fill(rec, out, 1.0)


@handles("full", "full_like", "new_full", "scalar_tensor", "arange", "eye", "lift_fresh")
def _constant(rec: Recorder, out: Tensor, *args: Any, **_: Any) -> None:
    _need(not any(isinstance(arg, Tensor) for arg in args[1:]), "of a number that is not fixed")
    rec.emit("copy", out, rec.constant(out))


@handles("fill")
def _fill(rec: Recorder, out: Tensor, *args: Any) -> None:
    value = args[-1]
    _need(not isinstance(value, Tensor), "with a tensor")
    rec.emit("copy", out, rec.constant(torch.tensor(value, dtype=out.dtype)))


@handles("cat", "stack")
def _join(rec: Recorder, out: Tensor, tensors: Sequence[Tensor], dim: int = 0) -> None:
    start = 0
    is_stack = out.dim() > tensors[0].dim()
    for tensor in tensors:
        part = tensor.unsqueeze(dim) if is_stack else tensor
        if part.numel():
            rec.emit("copy", out.narrow(dim, start, part.shape[dim]), part)
            start += part.shape[dim]


@handles("constant_pad_nd")
def _pad(rec: Recorder, out: Tensor, x: Tensor, pad: Sequence[int], value: float = 0) -> None:
    _fill(rec, out, float(value))
    inner = out
    for k in range(len(pad) // 2):
        before, after = pad[2 * k], pad[2 * k + 1]
        size = x.shape[-1 - k] + min(before, 0) + min(after, 0)  # less than nothing is cut off
        x = x.narrow(-1 - k, max(-before, 0), size)
        inner = inner.narrow(-1 - k, max(before, 0), size)
    rec.emit("copy", inner, x)


@handles("slice_backward")
def _slice_backward(
    rec: Recorder, out: Tensor, gradient: Tensor, _: Any, dim: int, start: int, end: int, step: int
) -> None:
    _fill(rec, out, 0.0)
    rec.emit("copy", torch.ops.aten.slice.Tensor(out, dim, start, end, step), gradient)


@handles("select_backward")
def _select_backward(rec: Recorder, out: Tensor, gradient: Tensor, _: Any, dim: int, index: int) -> None:
    _fill(rec, out, 0.0)
    rec.emit("copy", out.select(dim, index), gradient)


# Element by element.


def _elementwise(op: str, *names: str) -> None:
    @handles(*names)
    def handler(rec: Recorder, out: Tensor, *args: Any, **_: Any) -> None:
        _need(out.dtype == torch.float32, f"of {out.dtype}")
        rec.emit(op, out, *args)


for _name in ("maximum", "minimum", "exp", "log", "cos", "sin", "tanh", "sigmoid", "relu"):
    _elementwise(_name, _name)
for _op, _names in {
    "absolute": ("abs",), "sign": ("sign", "sgn"), "square": ("square",), "square_root": ("sqrt",),
    "negate": ("neg",), "divide": ("div", "true_divide"),
}.items():  # fmt: skip
    _elementwise(_op, *_names)


@handles("add")
def _add(rec: Recorder, out: Tensor, a: Tensor, b: Any, alpha: float = 1) -> None:
    rec.emit("add", out, a, _times(rec, b, alpha))


@handles("sub")
def _sub(rec: Recorder, out: Tensor, a: Tensor, b: Any, alpha: float = 1) -> None:
    rec.emit("subtract", out, a, _times(rec, b, alpha))


@handles("rsub")
def _rsub(rec: Recorder, out: Tensor, a: Tensor, b: Any, alpha: float = 1) -> None:
    rec.emit("subtract", out, b, _times(rec, a, alpha))


@handles("mul")
def _mul(rec: Recorder, out: Tensor, a: Tensor, b: Any) -> None:
    rec.emit("multiply", out, a, b)


def _times(rec: Recorder, b: Any, alpha: float) -> Any:
    if alpha == 1:
        return b
    if not isinstance(b, Tensor):
        return b * alpha
    product = rec.new(b.shape, b.dtype)
    rec.emit("multiply", product, b, alpha)
    return product


@handles("pow")
def _pow(rec: Recorder, out: Tensor, x: Tensor, exponent: float) -> None:
    ops = {1: "copy", 2: "square", 0.5: "square_root"}
    _need(not isinstance(exponent, Tensor) and exponent in ops, "with an exponent other than 0.5, 1 and 2")
    rec.emit(ops[exponent], out, x)


@handles("clamp", "clamp_min")
def _clamp(rec: Recorder, out: Tensor, x: Tensor, low: float | None = None, high: float | None = None) -> None:
    rec.emit("copy", out, x)
    if low is not None:
        rec.emit("maximum", out, out, low)
    if high is not None:
        rec.emit("minimum", out, out, high)


@handles("clamp_max")
def _clamp_max(rec: Recorder, out: Tensor, x: Tensor, high: float) -> None:
    rec.emit("minimum", out, x, high)


@handles("softplus")
def _softplus(rec: Recorder, out: Tensor, x: Tensor, beta: float = 1, threshold: float = 20) -> None:
    _need(beta == 1 and threshold == 20, "with other settings than the usual")
    rec.emit("softplus", out, x)


@handles("softplus_backward")
def _softplus_backward(rec: Recorder, out: Tensor, gradient: Tensor, x: Tensor, beta: float, threshold: float) -> None:
    _need(beta == 1 and threshold == 20, "with other settings than the usual")
    slope = rec.new(out.shape)
    rec.emit("sigmoid", slope, x)
    rec.emit("multiply", out, gradient, slope)


@handles("threshold_backward")
def _threshold_backward(rec: Recorder, out: Tensor, gradient: Tensor, x: Tensor, threshold: float) -> None:
    _need(threshold == 0, "at another threshold than 0")
    rec.emit("relu_backward", out, gradient, x)


@handles("tanh_backward")
def _tanh_backward(rec: Recorder, out: Tensor, gradient: Tensor, y: Tensor) -> None:
    slope = rec.new(out.shape)
    rec.emit("square", slope, y)
    rec.emit("subtract", slope, 1.0, slope)
    rec.emit("multiply", out, gradient, slope)


@handles("sigmoid_backward")
def _sigmoid_backward(rec: Recorder, out: Tensor, gradient: Tensor, y: Tensor) -> None:
    slope = rec.new(out.shape)
    rec.emit("subtract", slope, 1.0, y)
    rec.emit("multiply", slope, slope, y)
    rec.emit("multiply", out, gradient, slope)


# Sums and products.


@handles("sum")
def _sum(
    rec: Recorder, out: Tensor, x: Tensor, dims: Sequence[int] | None = None, keepdim: bool = False, **_: Any
) -> None:
    _need(out.dtype == torch.float32, f"of {out.dtype}")
    rec.emit_sum(_keep_dims(out, x, dims, keepdim), rec.tensor(x, torch.float32))


@handles("mean")
def _mean(
    rec: Recorder, out: Tensor, x: Tensor, dims: Sequence[int] | None = None, keepdim: bool = False, **_: Any
) -> None:
    rec.emit_sum(_keep_dims(out, x, dims, keepdim), x)
    rec.emit("divide", out, out, x.numel() / max(1, out.numel()))


@handles("var")
def _var(
    rec: Recorder, out: Tensor, x: Tensor, dims: Sequence[int] | None = None, *, correction: float = 1,
    keepdim: bool = False,
) -> None:  # fmt: skip
    whole = _keep_dims(out, x, dims, keepdim)
    count, mean, apart = x.numel() / max(1, out.numel()), rec.new(whole.shape), rec.new(x.shape)
    rec.emit_sum(mean, x)
    rec.emit("divide", mean, mean, count)
    rec.emit("subtract", apart, x, mean)
    rec.emit("square", apart, apart)
    rec.emit_sum(whole, apart)
    rec.emit("divide", out, out, count - correction)


@handles("amax")
def _amax(rec: Recorder, out: Tensor, x: Tensor, dims: Sequence[int] = (), keepdim: bool = False) -> None:
    _need(len(dims) == 1 and x.shape[dims[0]] <= 64, "along several dimensions, or a long one")
    slices = x.unbind(dims[0])
    whole = out.squeeze(dims[0]) if keepdim else out
    rec.emit("copy", whole, slices[0])
    for one in slices[1:]:
        rec.emit("maximum", whole, whole, one)


@handles("argmax")
def _argmax(rec: Recorder, out: Tensor, x: Tensor, dim: int | None = None, keepdim: bool = False) -> None:
    _need(dim is not None and dim % x.dim() == x.dim() - 1 and x.dtype == torch.float32, "along another dimension")
    rec.emit_argmax(out, x)


def _keep_dims(out: Tensor, x: Tensor, dims: Sequence[int] | None, keepdim: bool) -> Tensor:
    """The output with a dimension of size 1 for each that was summed."""
    if keepdim:
        return out
    summed = {d % max(1, x.dim()) for d in (dims or range(x.dim()))}
    return out.view([1 if d in summed else size for d, size in enumerate(x.shape)])


@handles("bmm")
def _bmm(rec: Recorder, out: Tensor, a: Tensor, b: Tensor) -> None:
    rec.emit_product(out, a, b, None)


@handles("mm")
def _mm(rec: Recorder, out: Tensor, a: Tensor, b: Tensor) -> None:
    rec.emit_product(out.unsqueeze(0), a.unsqueeze(0), b.unsqueeze(0), None)


@handles("baddbmm")
def _baddbmm(
    rec: Recorder, out: Tensor, start: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1
) -> None:
    _need(beta == alpha == 1, "with factors")
    start = start.expand(out.shape)
    if start.stride(2) not in (0, 1):
        start, apart = rec.new(out.shape), start
        rec.emit("copy", start, apart)
    rec.emit_product(out, a, b, start)


@handles("addmm")
def _addmm(rec: Recorder, out: Tensor, start: Tensor, a: Tensor, b: Tensor, **factors: float) -> None:
    start = start.expand(out.shape).unsqueeze(0)
    _baddbmm(rec, out.unsqueeze(0), start, a.unsqueeze(0), b.unsqueeze(0), **factors)


# Rows and elements by number.


@handles("gather")
def _gather(rec: Recorder, out: Tensor, x: Tensor, dim: int, index: Tensor, sparse_grad: bool = False) -> None:
    rec.emit_places("take", index.shape, out, _without(x, dim), x, [(index, x.stride(dim), x.shape[dim])])


@handles("scatter_add")
def _scatter_add(rec: Recorder, out: Tensor, x: Tensor, dim: int, index: Tensor, values: Tensor) -> None:
    if out.data_ptr() != x.data_ptr():
        rec.emit("copy", out, x)
    values = values[tuple(slice(size) for size in index.shape)]
    rec.emit_places("put", index.shape, values, _without(out, dim), out, [(index, out.stride(dim), out.shape[dim])])


def _without(x: Tensor, dim: int) -> list[int]:
    """Strides, 0 in a dimension whose places are given by a tensor."""
    return [0 if d == dim % x.dim() else stride for d, stride in enumerate(x.stride())]


@handles("embedding")
def _embedding(rec: Recorder, out: Tensor, table: Tensor, index: Tensor, *_: Any) -> None:
    _take_rows(rec, "take", out, table, index)


@handles("embedding_dense_backward")
def _embedding_backward(
    rec: Recorder, out: Tensor, gradient: Tensor, index: Tensor, rows: int, padding: int, scale: bool
) -> None:
    _need(padding < 0 and not scale, "with padding or scaling")
    _fill(rec, out, 0.0)
    _take_rows(rec, "put", gradient, out, index)


@handles("index_add")
def _index_add(
    rec: Recorder, out: Tensor, x: Tensor, dim: int, index: Tensor, values: Tensor, alpha: float = 1
) -> None:
    _need(dim == 0 and alpha == 1 and x.dim() == 2, "along another dimension than the first")
    if out.data_ptr() != x.data_ptr():
        rec.emit("copy", out, x)
    _take_rows(rec, "put", values, out, index)


def _take_rows(rec: Recorder, op: str, values: Tensor, table: Tensor, index: Tensor) -> None:
    shape = [*index.shape, table.shape[1]]
    strides = [0] * index.dim() + [table.stride(1)]
    rec.emit_places(op, shape, values, strides, table, [(index.unsqueeze(-1), table.stride(0), table.shape[0])])


@handles("index")
def _index(rec: Recorder, out: Tensor, x: Tensor, indices: Sequence[Tensor | None]) -> None:
    rec.emit_places("take", out.shape, out, *_index_places(x, indices, out.dim()))


@handles("index_put", "_index_put_impl")
def _index_put(
    rec: Recorder, out: Tensor, x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False,
    *_: Any,
) -> None:  # fmt: skip
    _need(accumulate, "without adding up")
    if out.data_ptr() != x.data_ptr():
        rec.emit("copy", out, x)
    shape = _index_shape(x, indices)
    rec.emit_places("put", shape, values, *_index_places(out, indices, len(shape)))


def _index_shape(x: Tensor, indices: Sequence[Tensor | None]) -> list[int]:
    given = [index for index in indices if index is not None]
    first = next(d for d, index in enumerate(indices) if index is not None)
    return [*x.shape[:first], *torch.broadcast_shapes(*(g.shape for g in given)), *x.shape[first + len(given) :]]


def _index_places(
    x: Tensor, indices: Sequence[Tensor | None], dims: int
) -> tuple[list[int], Tensor, list[tuple[Tensor, int, int]]]:
    """Strides of `x` by dimension of the result, `x`, and the places, for tensors of indices side by side."""
    numbers = [d for d, index in enumerate(indices) if index is not None]
    first, count = numbers[0], len(numbers)
    _need(numbers == list(range(first, first + count)), "with tensors of indices that are apart")
    given = [index for index in indices if index is not None]
    _need(all(index.dtype == torch.int64 for index in given), "with truths")
    width = max(index.dim() for index in given)
    after = x.dim() - first - count
    strides = [*x.stride()[:first], *[0] * width, *x.stride()[first + count :]]
    _need(len(strides) == dims, "of this form")
    places = [
        (index.reshape(*[1] * (width - index.dim()), *index.shape, *[1] * after), x.stride(d), x.shape[d])
        for d, index in zip(numbers, given)
    ]
    return strides, x, places


# Truths.


@handles("where")
def _where(rec: Recorder, out: Tensor, condition: Tensor, a: Any, b: Any) -> None:
    _need(out.dtype in (torch.float32, torch.int64), f"of {out.dtype}")
    rec.compare("where", out, condition, rec.tensor(a, out.dtype), rec.tensor(b, out.dtype))


def _comparison(name: str, op: str, swapped: bool = False, negated: bool = False) -> None:
    @handles(name)
    def handler(rec: Recorder, out: Tensor, a: Tensor, b: Any) -> None:
        whole = a.dtype == torch.int64 and (
            not isinstance(b, float) if not isinstance(b, Tensor) else b.dtype == a.dtype
        )
        dtype = torch.int64 if whole else torch.float32
        a, b = rec.tensor(a, dtype), rec.tensor(b, dtype)
        rec.compare(op, out, *((b, a) if swapped else (a, b)))
        if negated:
            rec.compare("not", out, out)


_comparison("lt", "less")
_comparison("le", "less_equal")
_comparison("gt", "less", swapped=True)
_comparison("ge", "less_equal", swapped=True)
_comparison("eq", "equal")
_comparison("ne", "equal", negated=True)


@handles("logical_not", "bitwise_not")
def _not(rec: Recorder, out: Tensor, x: Tensor) -> None:
    _need(x.dtype == torch.bool, f"of {x.dtype}")
    rec.compare("not", out, x)
