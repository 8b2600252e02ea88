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

import torch
from torch import Tensor, nn

from explore.interfaces import UncertaintyModule
from explore.nn import LaneLayer

# Gradients are views of one buffer on purpose; torch would prefer them dense, and says so once.
HARMLESS = "grad and param do not obey the gradient layout contract"
warnings.filterwarnings("ignore", HARMLESS)

ALIGNMENT = 16  # floats: fused Adam rounds the rest of a tensor differently


class Stack:
    """Copies of one network: trained, its frozen prior (if any) and target, in this order.

    `lanes` are the seeds; a network with several members for each has more `rows`.
    """

    def __init__(
        self,
        trained: UncertaintyModule,
        prior: UncertaintyModule | None,
        lanes: int,
        rows: int,
        device: torch.device,
    ):
        _refuse_buffers(trained)
        self.lanes = lanes
        self.trainable = [name for name, parameter in trained.named_parameters() if parameter.requires_grad]
        self.layout: dict[str, tuple[int, torch.Size]] = {}  # parameter -> where in a row, shape in a lane
        width = self._lay_out(trained)
        networks = [trained, trained] if prior is None else [trained, prior, trained]
        self.buffer = torch.zeros(len(networks), rows, width, device=device)  # [copies, lanes * members, row]
        for block, network in zip(self.buffer, networks):
            self._fill(block, network)
        self.gradient = torch.zeros_like(self.buffer[0])
        self.target = self._bind(copy.deepcopy(trained), self.buffer[-1:])
        self.with_prior = self._bind(copy.deepcopy(trained), self.buffer[:-1])  # as one, with twice the lanes
        # In place, so that nobody holds a network that looks alike and is not used.
        self.prior = None if prior is None else self._bind(prior, self.buffer[1:-1])
        self.trained = self._bind(trained, self.buffer[:1], self.gradient)

    def _lay_out(self, network: nn.Module) -> int:
        """Gives each parameter its place in a row; returns the width of rows. Those looked up come last, to be cut."""
        parameters = dict(network.named_parameters())
        layers = [(name, module) for name, module in network.named_modules() if isinstance(module, LaneLayer)]
        tables = {f"{name}.{layer.table}" for name, layer in layers if layer.table}
        width = 0
        for name in sorted(parameters, key=lambda name: name in tables):
            self.layout[name] = (width, parameters[name].shape[1:])
            width = _round_up(width + parameters[name][0].numel(), ALIGNMENT)
        self._ends_with_table = bool(tables)
        # So that the rows of all lanes are one matrix, see `explore.nn.products.look_up`.
        return _round_up(width, math.lcm(ALIGNMENT, *(parameters[name].shape[-1] for name in tables)))

    def _fill(self, rows: Tensor, network: nn.Module) -> None:
        for name, parameter in network.named_parameters():
            self._view(rows, name).copy_(parameter.detach())

    @property
    def bound(self) -> list[UncertaintyModule]:
        """All modules whose parameters are views of the buffer."""
        return [self.trained, self.with_prior, *([self.prior] if self.prior is not None else []), self.target]

    def trained_width(self, seen: int) -> int:
        """How much of a row can have been changed by training if observations below `seen` were one-hot inputs.

        The weights of the others never had a gradient, so there is nothing for Adam to do there.
        """
        if not self._ends_with_table:
            return self.buffer.shape[-1]
        start, (_, outputs) = list(self.layout.values())[-1]
        return _round_up(start + seen * outputs, ALIGNMENT)

    def view_parameters(self, rows: Tensor) -> dict[str, Tensor]:
        """Rows as the parameters they hold, by name."""
        return {name: self._view(rows, name) for name in self.layout}

    def pack_row(self, parameters: dict[str, Tensor]) -> Tensor:
        """The reverse of `view_parameters`."""
        if not self.layout:
            return self.gradient
        starts = [start for start, _ in self.layout.values()] + [self.buffer.shape[-1]]
        flat = [parameters[name].flatten(1) for name in self.layout]
        room = [end - start - one.shape[1] for one, start, end in zip(flat, starts, starts[1:])]
        return torch.cat([nn.functional.pad(one, (0, more)) for one, more in zip(flat, room)], 1)

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

    def _bind(self, module: UncertaintyModule, blocks: Tensor, gradient: Tensor | None = None) -> UncertaintyModule:
        """The module, its parameters replaced by views of these copies."""
        for name, original in list(module.named_parameters()):
            parameter = nn.Parameter(self._view(blocks.flatten(0, 1), name), requires_grad=False)
            if gradient is not None and original.requires_grad:
                parameter.requires_grad_()
                parameter.grad = self._view(gradient, name)
            owner, _, leaf = name.rpartition(".")
            setattr(module.get_submodule(owner), leaf, parameter)
        return module


def _refuse_buffers(network: nn.Module) -> None:
    if buffers := [name for name, _ in network.named_buffers()]:
        raise ValueError(f"networks must keep their tensors in parameters, not in buffers ({', '.join(buffers)})")


def _round_up(number: int, of: int) -> int:
    """The next multiple of `of`."""
    return -(-number // of) * of
