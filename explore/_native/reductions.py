"""Sums, products, the largest and where it is: operations along dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from explore._native.indexing import gather
from explore._native.operations import Handler, handles, need
from explore._native.program import plain

if TYPE_CHECKING:
    from explore._native.recorder import Recorder


@handles("sum")
def _sum(
    rec: Recorder, out: Tensor, x: Tensor, dims: Sequence[int] | None = None, keepdim: bool = False, **_: Any
) -> None:
    whole = _keep_dims(out, x, dims, keepdim)
    if out.dtype == torch.float32:
        rec.emit_sum(whole, rec.tensor(x, torch.float32))
    else:  # of integers or truths: how many there are
        need(out.dtype == torch.int64, f"of {plain(out.dtype)}")
        rec.accumulate("add", whole, 0, rec.tensor(x, torch.int64))


@handles("prod")
def _prod(rec: Recorder, out: Tensor, x: Tensor, dims: Any = None, keepdim: bool = False, **_: Any) -> None:
    need(out.dtype == x.dtype == torch.float32, f"of {plain(x.dtype)}")
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
    need(x.dtype == torch.float32, f"of {plain(x.dtype)}")
    rec.accumulate("maximum", _keep_dims(out, x, dims, keepdim), -math.inf, x)


@handles("amin")
def _amin(rec: Recorder, out: Tensor, x: Tensor, dims: Sequence[int] = (), keepdim: bool = False) -> None:
    need(x.dtype == torch.float32, f"of {plain(x.dtype)}")
    rec.accumulate("minimum", _keep_dims(out, x, dims, keepdim), math.inf, x)


@handles("argmax")
def _argmax(rec: Recorder, out: Tensor, x: Tensor, dim: int | None = None, keepdim: bool = False) -> None:
    need(x.dtype == torch.float32, f"of {plain(x.dtype)}")
    rec.emit_argmax(out, x if dim is None else x.movedim(dim, -1), x.numel() if dim is None else x.shape[dim])


@handles("argmin")
def _argmin(rec: Recorder, out: Tensor, x: Tensor, dim: int | None = None, keepdim: bool = False) -> None:
    need(x.dtype == torch.float32, f"of {plain(x.dtype)}")
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
    need(isinstance(dim, int), "of two tensors; use maximum or minimum")
    values, places = out
    find(rec, places, x, dim)
    place = places.view([size for d, size in enumerate(x.shape) if d != dim % x.dim()]).unsqueeze(dim)
    gather(rec, values.view(place.shape), x, dim, place)


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
    need(beta == alpha == 1, "with factors")
    start = start.expand(out.shape)
    if start.stride(2) not in (0, 1):
        start, apart = rec.new(out.shape), start
        rec.emit("copy", start, apart)
    rec.emit_product(out, a, b, start)


@handles("addmm")
def _addmm(rec: Recorder, out: Tensor, start: Tensor, a: Tensor, b: Tensor, **factors: float) -> None:
    start = start.expand(out.shape).unsqueeze(0)
    _baddbmm(rec, out.unsqueeze(0), start, a.unsqueeze(0), b.unsqueeze(0), **factors)
