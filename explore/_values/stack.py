"""The trained, frozen and target copies of a network, in one buffer.

All parameters of a lane lie in one row, `[copies, lanes, row]`, each starting at a multiple of 16
floats; the parameters that the layers see are views. So the optimiser is one call, the copy to the
target network one `copy_`, and the trained network and its prior run as one, with twice the lanes.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from explore.interfaces import Memory, Network
from explore.nn import LaneLayer

# Gradients are views of one buffer on purpose; torch would prefer them dense, and says so once.
HARMLESS = "grad and param do not obey the gradient layout contract"
warnings.filterwarnings("ignore", HARMLESS)

ALIGNMENT = 16  # floats: fused Adam rounds the rest of a tensor differently


class Stack:
    """Copies of one network: trained, its frozen prior (if any) and, unless it is a memory, target, in this order.

    `lanes` are the seeds; a network with several members for each has more `rows`.
    """

    def __init__(self, trained: Network, prior: Network | None, lanes: int, device: torch.device):
        parameters = own_parameters(trained)
        self.lanes = lanes
        rates = {module.learning_rate for module in list_networks(trained) if module.learning_rate is not None}
        if len(rates) > 1:
            names = " and ".join(type(module).__name__ for module in list_networks(trained))
            raise ValueError(f"{names} are trained as one, so they need one learning_rate, not {sorted(rates)}")
        self.learning_rate = next(iter(rates), None)
        self.trainable = [name for name, parameter in parameters.items() if parameter.requires_grad]
        self.layout: dict[str, tuple[int, torch.Size]] = {}  # parameter -> where in a row, shape in a lane
        width = self._lay_out(trained, parameters)
        rows = len(next(iter(parameters.values()))) if parameters else lanes
        has_target = not isinstance(trained, Memory)
        networks = [trained, *([prior] if prior is not None else []), *([trained] if has_target else [])]
        self.buffer = torch.zeros(len(networks), rows, width, device=device)  # [copies, lanes * members, row]
        for block, network in zip(self.buffer, networks):
            for name, parameter in own_parameters(network).items():
                self._view(block, name).copy_(parameter.detach())
        self.gradient = torch.zeros_like(self.buffer[0])
        self.target = self._bind(copy.deepcopy(trained), self.buffer[-1:]) if has_target else None
        # As one, with twice the lanes.
        self.with_prior: Any = None if prior is None else self._bind(copy.deepcopy(trained), self.buffer[:2])
        # In place, so that no copy that is not used can be held by mistake.
        self.prior = None if prior is None else self._bind(prior, self.buffer[1:2])
        self.trained = self._bind(trained, self.buffer[:1], self.gradient)

    def _lay_out(self, network: Network, parameters: dict[str, nn.Parameter]) -> int:
        """Gives each parameter its place in a row; returns the width of rows. Those looked up come last, to be cut."""
        layers = [(name, module) for name, module in network.named_modules() if isinstance(module, LaneLayer)]
        named = {f"{name}.{layer.table}" for name, layer in layers if layer.table}
        tables = [name for name in self.trainable if name in named]
        width = 0
        for name in sorted(parameters, key=lambda name: name in tables):
            self.layout[name] = (width, parameters[name].shape[1:])
            width = _round_up(width + parameters[name][0].numel(), ALIGNMENT)
        self.tables = [(self.layout[name][0], *self.layout[name][1]) for name in self.layout if name in tables]
        # So that the rows of all lanes are one matrix, see `explore.nn.products.look_up`.
        return _round_up(width, math.lcm(ALIGNMENT, *(p.shape[-1] for name, p in parameters.items() if name in named)))

    @property
    def bound(self) -> list[Network]:
        """All networks whose parameters are views of the buffer."""
        return [network for network in (self.trained, self.with_prior, self.prior, self.target) if network is not None]

    def trained_width(self, seen: int) -> int:
        """How much of a row can have been changed by training if observations below `seen` were one-hot inputs.

        The weights of the others never had a gradient, so there is nothing for Adam to do there.
        """
        if not self.tables:
            return self.buffer.shape[-1]
        start, _, outputs = self.tables[-1]
        return _round_up(start + seen * outputs, ALIGNMENT)

    def view_parameters(self, rows: Tensor) -> dict[str, Tensor]:
        """Rows as the parameters they hold, by name."""
        return {name: self._view(rows, name) for name in self.layout}

    def copy_to_target(self, lanes: Sequence[int]) -> None:
        """The target network of these lanes becomes the trained one."""
        if len(lanes) == self.lanes:
            self.buffer[-1].copy_(self.buffer[0])
            return
        target, trained = (block.view(self.lanes, -1) for block in (self.buffer[-1], self.buffer[0]))
        for lane in lanes:
            target[lane] = trained[lane]

    def _view(self, rows: Tensor, name: str) -> Tensor:
        start, shape = self.layout[name]
        return rows[:, start : start + shape.numel()].unflatten(1, shape)

    def _bind(self, module: Network, blocks: Tensor, gradient: Tensor | None = None) -> Any:
        """The module, its parameters replaced by views of these copies."""
        for name, original in own_parameters(module).items():
            parameter = nn.Parameter(self._view(blocks.flatten(0, 1), name), requires_grad=False)
            if gradient is not None and original.requires_grad:
                parameter.requires_grad_()
                parameter.grad = self._view(gradient, name)
            owner, _, leaf = name.rpartition(".")
            setattr(module.get_submodule(owner), leaf, parameter)
        return module


def own_parameters(network: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters of a network without those of the memories that it holds."""
    held = {id(p) for memory in list_memories(network) if memory is not network for p in memory.parameters()}
    return {name: parameter for name, parameter in network.named_parameters() if id(parameter) not in held}


def list_memories(network: nn.Module) -> list[Memory]:
    """The memories that a network holds, itself among them if it is one."""
    return [module for module in network.modules() if isinstance(module, Memory)]


def list_networks(network: nn.Module) -> list[Network]:
    """A network and those in it that are trained together with it, which memories are not."""
    held = {id(part) for memory in list_memories(network) if memory is not network for part in memory.modules()}
    return [part for part in network.modules() if isinstance(part, Network) and id(part) not in held]


def _round_up(number: int, of: int) -> int:
    """The next multiple of `of`."""
    return -(-number // of) * of
