"""Standard deviations from heads that share nothing."""

import torch
from explore import hookimpl
from explore.interfaces import ScaleModule
from explore.nn import MLP, softplus


class MyPlugin(ScaleModule):
    """Standard deviations from heads that share nothing: each is a network of its own.

    Args:
      heads: number of heads.
      width: units in the hidden layer of a head.
    """

    def __init__(self, spec, heads: int = 4, width: int = 50):
        super().__init__(heads)
        if width < 1:
            raise ValueError(f"width must be at least 1, got {width!r}")
        self.nets = torch.nn.ModuleList(MLP(spec.observation, (width,), spec.num_actions) for _ in range(heads))

    def forward(self, obs):  # [lanes, batch, ...] -> [lanes, batch, actions, heads], never negative
        return softplus(torch.stack([net(obs) for net in self.nets], -1))


@hookimpl
def explore_uncertainty_modules():
    return [MyPlugin]
