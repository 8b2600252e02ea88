"""Rows and elements that are taken, stored or added up by their places, which are numbers in tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from explore._native.operations import fill, handles, need, times

if TYPE_CHECKING:
    from explore._native.recorder import Recorder


@handles("gather")
def gather(rec: Recorder, out: Tensor, x: Tensor, dim: int, index: Tensor, sparse_grad: bool = False) -> None:
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
    need(padding < 0 and not scale, "with padding or scaling")
    fill(rec, out, 0.0)
    _take_rows(rec, "put", gradient, out, index)


@handles("index_add")
def _index_add(
    rec: Recorder, out: Tensor, x: Tensor, dim: int, index: Tensor, values: Tensor, alpha: float = 1
) -> None:
    if out.data_ptr() != x.data_ptr():
        rec.emit("copy", out, x)
    place = index.view([-1 if d == dim % x.dim() else 1 for d in range(x.dim())])
    places = [(place, out.stride(dim), out.shape[dim])]
    rec.emit_places("put", values.shape, times(rec, values, alpha), _without(out, dim), out, places)


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
    need(numbers == list(range(first, first + count)), "with tensors of indices that are apart")
    given = [index for index in indices if index is not None]
    need(all(index.dtype == torch.int64 for index in given), "with a mask; use where")
    width = max(index.dim() for index in given)
    after = x.dim() - first - count
    strides = [*x.stride()[:first], *[0] * width, *x.stride()[first + count :]]
    need(len(strides) == dims, "of this form")
    places = [
        (index.reshape(*[1] * (width - index.dim()), *index.shape, *[1] * after), x.stride(d), x.shape[d])
        for d, index in zip(numbers, given)
    ]
    return strides, x, places
