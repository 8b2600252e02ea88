"""How PyTorch's operations are executed by the kernels: those that make tensors and work on each element.

A handler gets the recorder, what PyTorch returned, and the arguments; it emits instructions that give the same. The
handlers of sums and products are in `reductions.py`, those of what is found by its place in `indexing.py`.
"""

from __future__ import annotations

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


def need(condition: bool, what: str) -> None:
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
    need(source.dtype == out.dtype, f"from {plain(source.dtype)} to {plain(out.dtype)}")
    rec.emit("copy", out, source)


@handles("zeros", "zeros_like", "new_zeros", "zero")
def _zeros(rec: Recorder, out: Tensor, *_: Any, **__: Any) -> None:
    fill(rec, out, 0.0)


@handles("ones", "ones_like", "new_ones")
def _ones(rec: Recorder, out: Tensor, *_: Any, **__: Any) -> None:
    fill(rec, out, 1.0)


@handles("full", "full_like", "new_full", "scalar_tensor", "arange", "eye", "lift_fresh")
def _constant(rec: Recorder, out: Tensor, *args: Any, **_: Any) -> None:
    need(not any(isinstance(arg, Tensor) for arg in args[1:]), "of a number that is not fixed")
    rec.emit("copy", out, rec.constant(out))


@handles("fill")
def fill(rec: Recorder, out: Tensor, *args: Any) -> None:
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
    need(len(dims) == 1, "along other than one dimension")
    (dim,), (shift,) = dims, shifts
    size = x.shape[dim]
    shift %= size
    for start, source, length in ((shift, 0, size - shift), (0, size - shift, shift)):
        if length:
            rec.emit("copy", out.narrow(dim, start, length), x.narrow(dim, source, length))


@handles("constant_pad_nd")
def _pad(rec: Recorder, out: Tensor, x: Tensor, pad: Sequence[int], value: float = 0) -> None:
    fill(rec, out, float(value))
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
    fill(rec, out, 0.0)
    rec.emit("copy", torch.ops.aten.slice.Tensor(out, dim, start, end, step), gradient)


@handles("select_backward")
def _select_backward(rec: Recorder, out: Tensor, gradient: Tensor, _: Any, dim: int, index: int) -> None:
    fill(rec, out, 0.0)
    rec.emit("copy", out.select(dim, index), gradient)


# Element by element.


def _elementwise(op: str, *names: str) -> None:
    @handles(*names)
    def handler(rec: Recorder, out: Tensor, *args: Any, **_: Any) -> None:
        need(out.dtype == torch.float32, f"of {plain(out.dtype)}")
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
    need(out.dtype != torch.bool, "of bool")
    rec.emit("add", out, a, times(rec, b, alpha))


@handles("sub")
def _sub(rec: Recorder, out: Tensor, a: Tensor, b: Any, alpha: float = 1) -> None:
    rec.emit("subtract", out, a, times(rec, b, alpha))


@handles("rsub")
def _rsub(rec: Recorder, out: Tensor, a: Tensor, b: Any, alpha: float = 1) -> None:
    rec.emit("subtract", out, b, times(rec, a, alpha))


@handles("mul")
def _mul(rec: Recorder, out: Tensor, a: Tensor, b: Any) -> None:
    if out.dtype == torch.bool:
        return _and(rec, out, a, b)
    rec.emit("multiply", out, a, b)


def times(rec: Recorder, b: Any, alpha: float) -> Any:
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
    need(out.dtype == torch.float32 and isinstance(x, Tensor), "of other than floats")
    need(not isinstance(exponent, Tensor) and abs(exponent) in (0.5, 0, 1, 2, 3, 4), "with this exponent")
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
    need(threshold == 20, "with another threshold than 20")
    rec.emit("softplus", out, times(rec, x, beta))
    if beta != 1:
        rec.emit("divide", out, out, beta)


@handles("softplus_backward")
def _softplus_backward(rec: Recorder, out: Tensor, gradient: Tensor, x: Tensor, beta: float, threshold: float) -> None:
    slope = rec.new(out.shape)
    rec.emit("sigmoid", slope, times(rec, x, beta))
    rec.emit("multiply", out, gradient, slope)


@handles("threshold_backward")
def _threshold_backward(rec: Recorder, out: Tensor, gradient: Tensor, x: Tensor, threshold: float) -> None:
    need(threshold == 0, "at another threshold than 0")
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


# Truths.


@handles("where")
def _where(rec: Recorder, out: Tensor, condition: Tensor, a: Any, b: Any) -> None:
    rec.compare("where", out, condition, rec.tensor(a, out.dtype), rec.tensor(b, out.dtype))


def _comparison(name: str, op: str, swapped: bool = False, negated: bool = False) -> None:
    @handles(name)
    def handler(rec: Recorder, out: Tensor, a: Tensor, b: Any) -> None:
        need(out.dtype == torch.bool, "in place")
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
    need(x.dtype == torch.bool, f"of {plain(x.dtype)}")
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
    need(all(isinstance(one, Tensor) and one.dtype == torch.bool for one in tensors), "of other than bool")
