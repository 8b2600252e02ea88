"""Epistemic neural networks: an epinet beside the value network."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import ModuleList

from explore import hookimpl
from explore.interfaces import Gaussian, Spec, UncertaintyModule, ValueNetwork, ValueWrapper
from explore.nn import Linear, apply_hidden, check_init, exact


@exact
class Epinet(ValueWrapper):
    """A small network of observation, last hidden layer and index: Q_z(s, a) = μ(s, a) + σ(s, sg[φ(s)], z)_a · z.

    μ is the value network and φ its last hidden layer, to which no gradient flows from σ; z ~ N(0, I).
    The frozen prior is linear in the observation, Σ_i z_i p_i(s, a), with p_i of standard deviation 1
    over one-hot observations, or over others of that standard deviation.

    Osband et al. 2023 (https://arxiv.org/abs/2107.08924, https://arxiv.org/abs/2302.09205).

    Args:
      dimension: the length of z.
      hidden: widths of the epinet's hidden layers.
      init: initialiser: torch, glorot_uniform, glorot_normal, he_normal or truncated_normal.
    """

    def __init__(self, spec: Spec, dimension: int = 2, hidden: Sequence[int] = (50,), init: str = "torch"):
        super().__init__()
        if dimension < 1:
            raise ValueError(f"dimension must be at least 1, got {dimension!r}")
        if not hidden or any(width < 1 for width in hidden):
            raise ValueError(f"hidden must be a list of positive layer widths such as (50,), got {hidden!r}")
        check_init(init)
        self.index = Gaussian(dimension)
        self.hidden, self.init = tuple(hidden), init

    def attach(self, build_network: Callable[..., ValueNetwork], spec: Spec) -> None:
        super().attach(build_network, spec)
        # The first layer takes all three, and is kept as three: two of them do not depend on the index.
        width, *widths = self.hidden
        self.of_obs = Linear(spec.observation, width, self.init)
        self.of_hidden = Linear(self.head.inputs, width, self.init).without_bias()
        self.of_index = Linear(self.index.size, width, self.init).without_bias()
        first = (self.of_obs, self.of_hidden, self.of_index)
        for layer in first:
            layer.matrix.data.mul_(math.sqrt(layer.inputs / sum(layer.inputs for layer in first)))
        outputs = [*widths, spec.num_actions * self.index.size]
        self.rest = ModuleList(Linear(n, m, self.init) for n, m in zip(self.hidden, outputs))

    def forward(self, obs: Tensor) -> Tensor:
        """μ and what the first layer of the epinet gets from observation and hidden layer, side by side."""
        phi = self.trunk(obs)
        return torch.cat(
            [self.head(phi), self.of_obs.forward_padded(obs) + self.of_hidden.forward_padded(phi.detach())], -1
        )

    def values(self, features: Tensor, index: Tensor) -> Tensor:
        rows = index.shape[1:3]  # [batch, draws]
        x = self.of_index.forward_padded(index.flatten(1, 2)).unflatten(1, rows)
        mean, first = features.unsqueeze(2).split([features.shape[-1] - x.shape[-1], x.shape[-1]], -1)
        *body, last = self.rest
        sigma = last(apply_hidden(body, torch.relu(x + first).flatten(1, 2)))
        sigma = sigma.unflatten(-1, (-1, self.index.size)).unflatten(1, rows)  # [lanes, batch, draws, actions, size]
        return mean + (sigma * index.unsqueeze(3)).sum(-1)

    def build_twin(self, spec: Spec) -> UncertaintyModule:
        return EpinetPrior(spec, self.index.size)


@exact
class EpinetPrior(UncertaintyModule):
    """Linear functions p_i of the observation, one for each number of the index."""

    def __init__(self, spec: Spec, dimension: int):
        super().__init__()
        self.index = Gaussian(dimension)
        self.net = Linear(spec.observation, spec.num_actions * dimension, "truncated_normal").without_bias()
        if self.net.one_hot:  # of which a function with weights of variance 1 / inputs has that variance
            self.net.weight.data.mul_(math.sqrt(self.net.inputs))

    def forward(self, obs: Tensor) -> Tensor:
        return self.net(obs).unflatten(-1, (-1, self.index.size))


@hookimpl
def explore_uncertainty_modules() -> list[type]:
    return [Epinet]
