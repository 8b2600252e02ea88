"""What keeps the last bits of a lane the same wherever it lies in a tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from explore.nn.context import pads
from explore.nn.layers import LaneLayer

Class = TypeVar("Class", bound=type[nn.Module])
CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential, nn.ParameterList)
VECTOR = 32  # floats that torch's element-wise kernels take at a time; the rest may be rounded differently


def apply_elementwise(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """An element-wise function such as `torch.cos`, with bits that do not depend on where a number stands."""
    short = -x.numel() % VECTOR
    if not short or not pads():
        return function(x.contiguous())
    return function(nn.functional.pad(x.flatten(), (0, short)))[: x.numel()].view(x.shape)


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), with bits that do not depend on where in the tensor a number stands."""
    return apply_elementwise(nn.functional.softplus, x)


def pad_rows(tensor: Tensor, multiple: int) -> Tensor:
    """A tensor `[lanes, batch, ...]` with rows added to make their number a multiple."""
    short = -tensor.shape[1] % multiple if pads() else 0
    return torch.cat([tensor, tensor[:, :1].expand(-1, short, *tensor.shape[2:])], 1) if short else tensor


def evaluate_in_chunks(evaluate: Callable[[Tensor], Tensor], obs: Tensor, rows: int) -> Tensor:
    """What a function gives for observations `[lanes, batch, ...]`, so many of them at a time.

    The last bits of a row may depend on how many there are: pad them first if their number depends on other lanes.
    """
    return torch.cat([evaluate(chunk) for chunk in obs.split(rows, 1)], 1)


def exact(network: Class) -> Class:
    """Marks a class of networks that use only `explore.nn`, sums, products and ReLU, apart from other networks that
    they hold. It makes them faster, see `find_safe_rows`; without it they are right too."""
    network.exact = True  # type: ignore[attr-defined]
    return network


def find_safe_rows(module: nn.Module) -> int:
    """Batches of a multiple of this many rows are computed alike in every lane, to the bit.

    Matrix products are irregular for an odd number of rows a lane, and exp, tanh and the like for
    the last numbers of a tensor that is no multiple of 32 floats, which networks marked as `exact` avoid.
    """
    parts = [part for part in module.modules() if not isinstance(part, CONTAINERS)]
    if all(vars(type(part)).get("exact", False) for part in parts):  # a subclass has to say so again
        return 2
    outputs = [layer.outputs for layer in module.modules() if isinstance(layer, LaneLayer)]
    return max(2, VECTOR // math.gcd(VECTOR, *outputs))
