"""Layers with a lane axis: the networks of all seeds (and ensemble members) as one batch.

They look like torch's. Weights are `[lanes, inputs, outputs]`, and one `baddbmm` computes a layer
for all lanes. How many lanes there are, and from which random streams they are initialised, is
said by the `lanes` context the core builds networks in, so a component never mentions it:

    MLP(spec.observation, (50, 50), spec.num_actions)

`per_lane` lifts an ordinary `torch.nn.Module` instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import dm_env
import numpy as np
import torch
from torch import Tensor, nn

from explore.nn.initialisers import INITIALISERS, check_init
from explore.nn.products import FewOutputs, look_up, takes_gradient
from explore.streams import stream

Lanes = tuple[Sequence[np.random.Generator], str | None]

_current: ContextVar[Lanes | None] = ContextVar("lanes", default=None)


@contextmanager
def lanes(generators: Sequence[np.random.Generator], init: str | None = None) -> Iterator[None]:
    """Networks built inside have one lane per generator; `init` replaces their own initialiser."""
    token = _current.set((generators, init))
    try:
        yield
    finally:
        _current.reset(token)


_outside: Lanes = ([stream(0, "outside a run")], None)  # a single lane


def _lanes() -> Lanes:
    return _current.get() or _outside


def num_features(inputs: dm_env.specs.Array | int) -> int:
    """How many inputs a layer has for an observation spec (or for a number, that number)."""
    if isinstance(inputs, dm_env.specs.DiscreteArray):
        return int(inputs.num_values)
    return math.prod(inputs.shape) if isinstance(inputs, dm_env.specs.Array) else inputs


class Linear(nn.Module):
    """A linear layer per lane. One-hot inputs are integers: their product is a row look-up.

    Widths are rounded up to multiples of 4, with zeros that stay zeros: then matrix products give
    a lane the same bits wherever it lies in memory.
    """

    def __init__(self, inputs: dm_env.specs.Array | int, outputs: int, init: str = "torch"):
        super().__init__()
        generators, override = _lanes()
        check_init(override or init)
        self.inputs, self.outputs = num_features(inputs), outputs
        self.one_hot = isinstance(inputs, dm_env.specs.DiscreteArray)
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
        """The same layer, whose bias is 0 for ever."""
        self.bias.requires_grad_(False).zero_()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """`[lanes, batch, ...]`, or if one-hot integers `[lanes, batch]` -> `[lanes, batch, outputs]`"""
        return self.forward_padded(x)[..., : self.outputs]

    def forward_padded(self, x: Tensor) -> Tensor:
        """The same with as many zeros after the outputs as make them a multiple of 4; takes such inputs too."""
        if self.one_hot and not x.is_floating_point():
            return look_up(self.weight, x).add_(self.bias)
        if x.dim() > 3:
            x = x.flatten(2)
        if self._missing_inputs and x.shape[-1] == self.inputs:
            x = nn.functional.pad(x, (0, self._missing_inputs))
        if not self.few_outputs:
            return torch.baddbmm(self.bias, x, self.weight)
        if takes_gradient(self.weight):
            return FewOutputs.apply(x, self.weight, self.bias)
        return torch.baddbmm(self.bias, x, self.weight.transpose(1, 2))


def count_parameters(network: nn.Module) -> int:
    """The numbers that are trained in all lanes, without the zeros that fill layers up."""
    layers = [module for module in network.modules() if isinstance(module, Linear) and module.weight.requires_grad]
    of_layers = {id(parameter) for layer in layers for parameter in layer.parameters()}
    others = [p.numel() for p in network.parameters() if p.requires_grad and id(p) not in of_layers]
    inputs = [layer.inputs + layer.bias.requires_grad for layer in layers]
    return sum(others) + sum(len(layer.weight) * many * layer.outputs for layer, many in zip(layers, inputs))


FEW_OUTPUTS = 24  # up to here products are faster with weights of the shape [lanes, outputs, inputs]


class MLP(nn.Module):
    """Linear layers with ReLU between them."""

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
        x = torch.relu_(layer.forward_padded(x)) if isinstance(layer, Linear) else torch.relu(layer(x))
    return x


def per_lane(factory: Callable[[], nn.Module]) -> nn.Module:
    """An ordinary module for every lane: `factory` is called once a lane, seeded by the lane.

        self.net = per_lane(lambda: torch.nn.Sequential(torch.nn.Linear(8, 50), torch.nn.Tanh()))

    Slower than `Linear` and `MLP`, with no change to the module. It sees one lane's `[batch, ...]`.
    That a seed gives the same bits in any company is sure only if the widths of the module's layers
    are multiples of 4.
    """
    return Lifted(factory)


class Lifted(nn.Module):
    """What `per_lane` gives."""

    def __init__(self, factory: Callable[[], nn.Module]):
        super().__init__()
        modules = [self._build_seeded(factory, generator) for generator in _lanes()[0]]
        frozen = {name for name, parameter in modules[0].named_parameters() if not parameter.requires_grad}
        parameters, buffers = torch.func.stack_module_state(modules)
        if buffers:
            raise ValueError(f"per_lane modules must not have buffers, got {', '.join(buffers)}")
        self.names = list(parameters)
        self.stacked = nn.ParameterList(
            nn.Parameter(parameters[name].detach(), requires_grad=name not in frozen) for name in self.names
        )
        self.template = [modules[0].to("meta")]  # in a list, so that its parameters are not ours

    @staticmethod
    def _build_seeded(factory: Callable[[], nn.Module], generator: np.random.Generator) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(generator.integers(2**63)))
            return factory()

    def forward(self, x: Tensor) -> Tensor:
        def one_lane(parameters: dict[str, Tensor], x: Tensor) -> Any:
            return torch.func.functional_call(self.template[0], parameters, (x,))

        return torch.func.vmap(one_lane, randomness="error")(dict(zip(self.names, self.stacked)), x)


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), whose bits do not depend on where in the tensor a number stands."""
    short = -x.numel() % VECTOR
    if not short:
        return nn.functional.softplus(x.contiguous())
    return nn.functional.softplus(nn.functional.pad(x.flatten(), (0, short)))[: x.numel()].view(x.shape)


VECTOR = 32  # floats that torch's element-wise kernels take at a time; the rest may be rounded differently


def find_safe_rows(module: nn.Module) -> int:
    """Batches of a multiple of this many rows are computed alike in every lane, to the bit.

    Matrix products are irregular for an odd number of rows a lane, and exp, tanh and the like for
    the last numbers of a tensor that is no multiple of 32 floats. A module whose class says
    `exact = True`, and whose value network's does if it holds one, uses only `explore.nn`, sums,
    products and ReLU, and avoids the second.
    """
    told = [part.exact for part in module.modules() if hasattr(part, "exact")]
    if told and all(told):
        return 2
    widths = [layer.outputs for layer in module.modules() if isinstance(layer, Linear)]
    lifted = any(isinstance(layer, Lifted) for layer in module.modules())
    return VECTOR if lifted else max(2, VECTOR // math.gcd(VECTOR, *widths))
