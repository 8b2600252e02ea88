"""Products whose gradients autograd would compute more slowly.

They add the gradient of a parameter to its `grad` themselves, so they are used only where it has one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def takes_gradient(weight: Tensor) -> bool:
    """Whether to add the weight's gradient to its `grad` ourselves, which is faster than autograd's way."""
    return (
        torch.is_grad_enabled()
        and weight.requires_grad
        and weight.grad is not None
        and not torch.compiler.is_compiling()
    )


class FewOutputs(torch.autograd.Function):
    """A layer of few outputs, with the products of its gradient in the order that is fastest for it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.parameters = weight, bias
        return torch.baddbmm(bias, x, weight.transpose(1, 2))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None]:
        (x,), (weight, bias) = ctx.saved_tensors, ctx.parameters
        weight.grad += torch.bmm(gradient.transpose(1, 2), x)
        if bias.grad is not None:
            bias.grad += gradient.sum(1, keepdim=True)
        return torch.bmm(gradient, weight) if ctx.needs_input_grad[0] else None, None, None


def look_up(weight: Tensor, x: Tensor) -> Tensor:
    """Rows of each lane's weights, `[lanes, inputs, outputs]` at `[lanes, batch]`."""
    lane = torch.arange(len(x), device=x.device).unsqueeze(1)
    if torch.compiler.is_compiling() or weight.stride(0) % weight.stride(1):
        return weight[lane, x]
    row = x + lane * (weight.stride(0) // weight.stride(1))  # in `_all_rows`
    if takes_gradient(weight):
        return _LookUp.apply(weight, row)
    return nn.functional.embedding(row, _all_rows(weight))


def _all_rows(weight: Tensor) -> Tensor:
    """The rows of all lanes, and what lies between them in memory, as one matrix."""
    lanes, inputs, outputs = weight.shape
    return weight.as_strided(((lanes - 1) * (weight.stride(0) // outputs) + inputs, outputs), (outputs, 1))


class _LookUp(torch.autograd.Function):
    """Adds the gradient of the rows to the weight's own, without a tensor as large as the weight."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, row: Tensor) -> Tensor:
        ctx.weight, ctx.row = weight, row.flatten()
        return nn.functional.embedding(row, _all_rows(weight))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None]:
        _all_rows(ctx.weight.grad).index_add_(0, ctx.row, gradient.flatten(0, 1))
        return None, None
