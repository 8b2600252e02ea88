"""Layers whose weights have a lane axis, and networks of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import dm_env
import numpy as np
import torch
from torch import Tensor, nn

from explore.nn.context import current_lanes, pads
from explore.nn.initialisers import INITIALISERS, check_init
from explore.nn.products import FewOutputs, look_up, takes_gradient

FEW_OUTPUTS = 24  # up to here products are faster with weights of the shape [lanes, outputs, inputs]


class LaneLayer(nn.Module):
    """A layer with parameters `[lanes, ...]`: the base class of layers, which says what the core asks of them.

    The defaults fit any layer; one that knows better overrides them.
    """

    outputs: int = 1
    """The numbers it gives for an observation; 1 where they are not known (see `find_safe_rows`)."""
    table: str | None = None
    """The name of a parameter `[lanes, inputs, outputs]` of which only the rows of inputs seen so far are used."""

    def forward_relu(self, x: Tensor) -> Tensor:
        """The outputs as a hidden layer: ReLU is applied, and zeros may follow them."""
        return torch.relu(self(x))

    def count_trained(self) -> int:
        """The numbers that are trained in all lanes, without zeros that fill up."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)


class Linear(LaneLayer):
    """A linear layer per lane. One-hot inputs are integers: their product is a row look-up.

    Widths are rounded up to multiples of 4, with zeros that stay zeros: then matrix products give
    a lane the same bits wherever it lies in memory.
    """

    exact = True  # see `explore.nn.exact`

    def __init__(self, inputs: dm_env.specs.Array | int, outputs: int, init: str = "torch"):
        super().__init__()
        generators, override = current_lanes()
        check_init(override or init)
        self.inputs, self.outputs = num_features(inputs), outputs
        self.one_hot = isinstance(inputs, dm_env.specs.DiscreteArray)
        self.table = "weight" if self.one_hot else None
        self.few_outputs = outputs <= FEW_OUTPUTS and not self.one_hot
        self._missing_inputs = 0 if self.one_hot else -self.inputs % 4
        drawn = [INITIALISERS[override or init](g, self.inputs, outputs) for g in generators]
        weight, bias = (torch.from_numpy(np.stack(arrays).astype(np.float32)) for arrays in zip(*drawn))
        weight = nn.functional.pad(weight, (0, -outputs % 4, 0, self._missing_inputs))
        self.weight = nn.Parameter(weight.transpose(1, 2).contiguous() if self.few_outputs else weight)
        self.bias = nn.Parameter(nn.functional.pad(bias, (0, -outputs % 4)).unsqueeze(1))

    @property
    def matrix(self) -> Tensor:
        """The weights as `[lanes, inputs, outputs]`, however they are stored."""
        weight = self.weight.transpose(1, 2) if self.few_outputs else self.weight
        return weight[:, : self.inputs, : self.outputs]

    def without_bias(self) -> Linear:
        """The same layer, with a bias that is 0 and not trained."""
        self.bias.requires_grad_(False).zero_()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """`[lanes, batch, ...]`, or if one-hot integers `[lanes, batch]` -> `[lanes, batch, outputs]`"""
        return self.forward_padded(x)[..., : self.outputs]

    def forward_padded(self, x: Tensor) -> Tensor:
        """The same followed by zeros up to a multiple of 4; takes such inputs too."""
        if self.one_hot and not x.is_floating_point():
            return look_up(self.weight, x).add_(self.bias)
        if x.dim() > 3:
            x = x.flatten(2)
        if x.shape[1] % 2 and pads():  # a product of an odd number of rows depends on where the lane lies in memory
            return self.forward_padded(torch.cat([x, x[:, :1]], 1))[:, :-1]
        if self._missing_inputs and x.shape[-1] == self.inputs:
            x = nn.functional.pad(x, (0, self._missing_inputs))
        if not self.few_outputs:
            return torch.baddbmm(self.bias, x, self.weight)
        if takes_gradient(self.weight):
            return FewOutputs.apply(x, self.weight, self.bias)
        return torch.baddbmm(self.bias, x, self.weight.transpose(1, 2))

    def forward_relu(self, x: Tensor) -> Tensor:
        return torch.relu_(self.forward_padded(x))

    def count_trained(self) -> int:
        inputs = self.inputs * self.weight.requires_grad + self.bias.requires_grad
        return len(self.weight) * inputs * self.outputs


class MLP(nn.Module):
    """Linear layers with ReLU between them."""

    exact = True

    def __init__(self, inputs: dm_env.specs.Array | int, hidden: Sequence[int], outputs: int, init: str = "torch"):
        super().__init__()
        if any(width < 1 for width in hidden):
            raise ValueError(f"hidden must be a list of positive layer widths such as (50, 50), got {hidden!r}")
        self.layers = nn.ModuleList()
        for width in (*hidden, outputs):
            self.layers.append(Linear(inputs, width, init))
            inputs = width

    def forward(self, x: Tensor) -> Tensor:
        """`[lanes, batch, ...]` -> `[lanes, batch, outputs]`"""
        *body, last = self.layers
        return last(apply_hidden(body, x))


def apply_hidden(layers: Iterable[nn.Module], x: Tensor) -> Tensor:
    """The outputs of layers with ReLU after each, `[lanes, batch, width]`, and zeros after them (see `Linear`)."""
    for layer in layers:
        x = layer.forward_relu(x) if isinstance(layer, LaneLayer) else torch.relu(layer(x))
    return x


def zeros(*shape: int) -> Tensor:
    """Zeros `[lanes, *shape]`, for a buffer of a `Memory`."""
    return torch.zeros(len(current_lanes()[0]), *shape)


def num_features(inputs: dm_env.specs.Array | int) -> int:
    """How many inputs a layer has for an observation spec (or for a number, that number)."""
    if isinstance(inputs, dm_env.specs.DiscreteArray):
        return int(inputs.num_values)
    return math.prod(inputs.shape) if isinstance(inputs, dm_env.specs.Array) else inputs


def count_parameters(network: nn.Module) -> int:
    """The numbers that are trained in all lanes, without the zeros that fill layers up."""
    layers = [module for module in network.modules() if isinstance(module, LaneLayer)]
    of_layers = {id(parameter) for layer in layers for parameter in layer.parameters()}
    others = [p.numel() for p in network.parameters() if p.requires_grad and id(p) not in of_layers]
    return sum(others) + sum(layer.count_trained() for layer in layers)
