"""Ordinary modules of torch, one for each lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from explore.nn.context import current_lanes
from explore.nn.layers import LaneLayer


def per_lane(factory: Callable[[], nn.Module]) -> nn.Module:
    """An ordinary module for every lane: `factory` is called once a lane, seeded by the lane.

        self.net = per_lane(lambda: torch.nn.Sequential(torch.nn.Linear(8, 50), torch.nn.Tanh()))

    Slower than `Linear` and `MLP`, with no change to the module. It sees one lane's `[batch, ...]`.
    That a seed gives the same bits in any company is sure only if the widths of the module's layers
    are multiples of 4, or if it has convolutions.
    """
    return Lifted(factory)


CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


class Lifted(LaneLayer):
    """What `per_lane` gives."""

    template: nn.Module

    def __init__(self, factory: Callable[[], nn.Module]):
        super().__init__()
        modules = [_build_seeded(factory, generator) for generator in current_lanes()[0]]
        frozen = {name for name, parameter in modules[0].named_parameters() if not parameter.requires_grad}
        parameters, buffers = torch.func.stack_module_state(modules)
        if buffers:
            raise ValueError(f"per_lane modules must not have buffers, got {', '.join(buffers)}")
        self.names = list(parameters)
        self.stacked = nn.ParameterList(
            nn.Parameter(parameters[name].detach(), requires_grad=name not in frozen) for name in self.names
        )
        object.__setattr__(self, "template", modules[0].to("meta"))  # not as a submodule: its parameters are not ours
        # All lanes' convolutions as one are rounded differently if there is one lane only, and slower for images.
        self.one_by_one = any(isinstance(part, CONVOLUTIONS) for part in self.template.modules())

    def forward(self, x: Tensor) -> Tensor:
        def one_lane(parameters: dict[str, Tensor], x: Tensor) -> Any:
            return torch.func.functional_call(self.template, parameters, (x,))

        if self.one_by_one:
            # How convolutions are rounded may depend on where numbers lie: those of a lane, and their gradients, get
            # memory of their own.
            lanes = zip(*([one.clone() for one in stacked] for stacked in (*self.stacked, x)))
            return torch.stack([one_lane(dict(zip(self.names, own)), own[-1]) * 1 for own in lanes])
        return torch.func.vmap(one_lane, randomness="error")(dict(zip(self.names, self.stacked)), x)


def _build_seeded(factory: Callable[[], nn.Module], generator: np.random.Generator) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(generator.integers(2**63)))
        return factory()
