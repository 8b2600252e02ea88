"""How each of PyTorch's operations is executed by the kernels.

A handler gets the recorder, what PyTorch returned, and the arguments; it emits instructions that give the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from explore._native.program import plain

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


@handles("clone", "copy", "_to_copy", "contiguous", "convert_element_type", "copy_to")
def _copy(rec: Recorder, out: Tensor, *args: Any, **_: Any) -> None:
    source = args[1] if len(args) > 1 and isinstance(args[1], Tensor) else args[0]
    source = rec.tensor(source, out.dtype)
    _need(source.dtype == out.dtype, f"from {plain(source.dtype)} to {plain(out.dtype)}")
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
    if not isinstance(value, Tensor):
        value = rec.constant(torch.tensor(value, dtype=out.dtype))
    rec.emit("copy", out, value)


@handles("cat", "stack")
def _join(rec: Recorder, out: Tensor, tensors: Sequence[Tensor], dim: int = 0) -> None:
    start = 0
    is_stack = out.dim() > tensors[0].dim()
    for tensor in tensors:
        part = tensor.unsqueeze(dim) if is_stack else tensor
        if part.numel():
            rec.emit("copy", out.narrow(dim, start, part.shape[dim]), part)
            start += part.shape[dim]


@handles("flip", "rev")
def _flip(rec: Recorder, out: Tensor, x: Tensor, dims: Sequence[int]) -> None:
    for k, dim in enumerate(dims):
        if k:
            x, apart = rec.new(out.shape), out
            rec.emit("copy", x, apart)
        for one, other in zip(out.unbind(dim), reversed(x.unbind(dim))):
            rec.emit("copy", one, other)


@handles("roll")
def _roll(rec: Recorder, out: Tensor, x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> None:
    _need(len(dims) == 1, "along other than one dimension")
    (dim,), (shift,) = dims, shifts
    size = x.shape[dim]
    shift %= size
    for start, source, length in ((shift, 0, size - shift), (0, size - shift, shift)):
        if length:
            rec.emit("copy", out.narrow(dim, start, length), x.narrow(dim, source, length))


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
        _need(out.dtype == torch.float32, f"of {plain(out.dtype)}")
        rec.emit(op, out, *args)


for _name in (
    "maximum", "minimum", "exp", "log", "cos", "sin", "tanh", "sigmoid", "relu", "erf", "expm1", "log1p"
):  # fmt: skip
    _elementwise(_name, _name)
for _op, _names in {
    "absolute": ("abs",), "sign": ("sign", "sgn"), "square": ("square",), "square_root": ("sqrt",),
    "negate": ("neg",), "divide": ("div", "true_divide"),
}.items():  # fmt: skip
    _elementwise(_op, *_names)


@handles("add")
def _add(rec: Recorder, out: Tensor, a: Tensor, b: Any, alpha: float = 1) -> None:
    _need(out.dtype != torch.bool, "of bool")
    rec.emit("add", out, a, _times(rec, b, alpha))


@handles("sub")
def _sub(rec: Recorder, out: Tensor, a: Tensor, b: Any, alpha: float = 1) -> None:
    rec.emit("subtract", out, a, _times(rec, b, alpha))


@handles("rsub")
def _rsub(rec: Recorder, out: Tensor, a: Tensor, b: Any, alpha: float = 1) -> None:
    rec.emit("subtract", out, b, _times(rec, a, alpha))


@handles("mul")
def _mul(rec: Recorder, out: Tensor, a: Tensor, b: Any) -> None:
    if out.dtype == torch.bool:
        return _and(rec, out, a, b)
    rec.emit("multiply", out, a, b)


def _times(rec: Recorder, b: Any, alpha: float) -> Any:
    if alpha == 1:
        return b
    if not isinstance(b, Tensor):
        return b * alpha
    product = rec.new(b.shape, b.dtype)
    rec.emit("multiply", product, b, alpha)
    return product


@handles("rsqrt")
def _rsqrt(rec: Recorder, out: Tensor, x: Tensor) -> None:
    rec.emit("square_root", out, x)
    rec.emit("divide", out, 1.0, out)


@handles("reciprocal")
def _reciprocal(rec: Recorder, out: Tensor, x: Tensor) -> None:
    rec.emit("divide", out, 1.0, x)


@handles("pow")
def _pow(rec: Recorder, out: Tensor, x: Tensor, exponent: float) -> None:
    _need(out.dtype == torch.float32 and isinstance(x, Tensor), "of other than floats")
    _need(not isinstance(exponent, Tensor) and abs(exponent) in (0.5, 0, 1, 2, 3, 4), "with this exponent")
    power, start = rec.new(out.shape), rec.tensor(x, torch.float32)
    rec.emit("square_root" if abs(exponent) == 0.5 else "copy", power, start if exponent else 1.0)
    for _ in range(int(abs(exponent)) - 1):
        rec.emit("multiply", power, power, start)
    rec.emit("divide" if exponent < 0 else "copy", out, *([1.0] if exponent < 0 else []), power)


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
    _need(threshold == 20, "with another threshold than 20")
    rec.emit("softplus", out, _times(rec, x, beta))
    if beta != 1:
        rec.emit("divide", out, out, beta)


@handles("softplus_backward")
def _softplus_backward(rec: Recorder, out: Tensor, gradient: Tensor, x: Tensor, beta: float, threshold: float) -> None:
    slope = rec.new(out.shape)
    rec.emit("sigmoid", slope, _times(rec, x, beta))
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
    whole = _keep_dims(out, x, dims, keepdim)
    if out.dtype == torch.float32:
        rec.emit_sum(whole, rec.tensor(x, torch.float32))
    else:  # of integers or truths: how many there are
        _need(out.dtype == torch.int64, f"of {plain(out.dtype)}")
        rec.accumulate("add", whole, 0, rec.tensor(x, torch.int64))


@handles("prod")
def _prod(rec: Recorder, out: Tensor, x: Tensor, dims: Any = None, keepdim: bool = False, **_: Any) -> None:
    _need(out.dtype == x.dtype == torch.float32, f"of {plain(x.dtype)}")
    dims = [dims] if isinstance(dims, int) else dims
    rec.accumulate("multiply", _keep_dims(out, x, dims, keepdim), 1.0, x)


@handles("mean")
def _mean(
    rec: Recorder, out: Tensor, x: Tensor, dims: Sequence[int] | None = None, keepdim: bool = False, **_: Any
) -> None:
    rec.emit_sum(_keep_dims(out, x, dims, keepdim), x)
    rec.emit("divide", out, out, x.numel() / max(1, out.numel()))


@handles("var")
def _var(
    rec: Recorder, out: Tensor, x: Tensor, dims: Sequence[int] | None = None, correction: float | None = None,
    keepdim: bool = False,
) -> None:  # fmt: skip
    whole = _keep_dims(out, x, dims, keepdim)
    count, mean, apart = x.numel() / max(1, out.numel()), rec.new(whole.shape), rec.new(x.shape)
    rec.emit_sum(mean, x)
    rec.emit("divide", mean, mean, count)
    rec.emit("subtract", apart, x, mean)
    rec.emit("square", apart, apart)
    rec.emit_sum(whole, apart)
    rec.emit("divide", out, out, count - (1 if correction is None else correction))


@handles("amax")
def _amax(rec: Recorder, out: Tensor, x: Tensor, dims: Sequence[int] = (), keepdim: bool = False) -> None:
    _need(x.dtype == torch.float32, f"of {plain(x.dtype)}")
    rec.accumulate("maximum", _keep_dims(out, x, dims, keepdim), -math.inf, x)


@handles("amin")
def _amin(rec: Recorder, out: Tensor, x: Tensor, dims: Sequence[int] = (), keepdim: bool = False) -> None:
    _need(x.dtype == torch.float32, f"of {plain(x.dtype)}")
    rec.accumulate("minimum", _keep_dims(out, x, dims, keepdim), math.inf, x)


@handles("argmax")
def _argmax(rec: Recorder, out: Tensor, x: Tensor, dim: int | None = None, keepdim: bool = False) -> None:
    _need(x.dtype == torch.float32, f"of {plain(x.dtype)}")
    rec.emit_argmax(out, x if dim is None else x.movedim(dim, -1), x.numel() if dim is None else x.shape[dim])


@handles("argmin")
def _argmin(rec: Recorder, out: Tensor, x: Tensor, dim: int | None = None, keepdim: bool = False) -> None:
    _need(x.dtype == torch.float32, f"of {plain(x.dtype)}")
    negative = rec.new(x.shape)
    rec.emit("negate", negative, x)
    _argmax(rec, out, negative, dim)


@handles("max")
def _max(rec: Recorder, out: Any, x: Tensor, dim: int | None = None, keepdim: bool = False) -> None:
    _choose_one(rec, _argmax, _amax, out, x, dim)


@handles("min")
def _min(rec: Recorder, out: Any, x: Tensor, dim: int | None = None, keepdim: bool = False) -> None:
    _choose_one(rec, _argmin, _amin, out, x, dim)


def _choose_one(rec: Recorder, find: Handler, reduce: Handler, out: Any, x: Tensor, dim: int | None) -> None:
    """The best along a dimension and where it is, or the best of all."""
    if dim is None:
        return reduce(rec, out, x)
    _need(isinstance(dim, int), "of two tensors; use maximum or minimum")
    values, places = out
    find(rec, places, x, dim)
    place = places.view([size for d, size in enumerate(x.shape) if d != dim % x.dim()]).unsqueeze(dim)
    _gather(rec, values.view(place.shape), x, dim, place)


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


@handles("scatter")
def _scatter(rec: Recorder, out: Tensor, x: Tensor, dim: int, index: Tensor, values: Any) -> None:
    if out.data_ptr() != x.data_ptr():
        rec.emit("copy", out, x)
    values = rec.tensor(values, out.dtype)
    values = values[tuple(slice(size) for size in index.shape)] if values.dim() else values
    rec.emit_places("set", index.shape, values, _without(out, dim), out, [(index, out.stride(dim), out.shape[dim])])


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
    if out.data_ptr() != x.data_ptr():
        rec.emit("copy", out, x)
    place = index.view([-1 if d == dim % x.dim() else 1 for d in range(x.dim())])
    places = [(place, out.stride(dim), out.shape[dim])]
    rec.emit_places("put", values.shape, _times(rec, values, alpha), _without(out, dim), out, places)


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
    if out.data_ptr() != x.data_ptr():
        rec.emit("copy", out, x)
    shape = _index_shape(x, indices)
    op = "put" if accumulate else "set"
    rec.emit_places(op, shape, values, *_index_places(out, indices, len(shape)))


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
    _need(all(index.dtype == torch.int64 for index in given), "with a mask; use where")
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
    rec.compare("where", out, condition, rec.tensor(a, out.dtype), rec.tensor(b, out.dtype))


def _comparison(name: str, op: str, swapped: bool = False, negated: bool = False) -> None:
    @handles(name)
    def handler(rec: Recorder, out: Tensor, a: Tensor, b: Any) -> None:
        _need(out.dtype == torch.bool, "in place")
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
    _need(x.dtype == torch.bool, f"of {plain(x.dtype)}")
    rec.compare("not", out, x)


@handles("logical_and", "bitwise_and", "__and__")
def _and(rec: Recorder, out: Tensor, a: Tensor, b: Tensor) -> None:
    _need_truths(out, a, b)
    rec.compare("where", out, a, b, a)


@handles("logical_or", "bitwise_or", "__or__")
def _or(rec: Recorder, out: Tensor, a: Tensor, b: Tensor) -> None:
    _need_truths(out, a, b)
    rec.compare("where", out, a, a, b)


def _need_truths(*tensors: Any) -> None:
    _need(all(isinstance(one, Tensor) and one.dtype == torch.bool for one in tensors), "of other than bool")
