"""Epistemic neural networks: an epinet beside the value network."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import ModuleList

from explore import hookimpl
from explore.interfaces import Spec, UncertaintyModule, ValueNetwork, ValueWrapper
from explore.nn import Linear, apply_hidden, check_init
from explore.streams import Generators, normal


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

    exact = True
    linear = False

    def __init__(self, spec: Spec, dimension: int = 2, hidden: Sequence[int] = (50,), init: str = "torch"):
        super().__init__()
        if dimension < 1:
            raise ValueError(f"dimension must be at least 1, got {dimension!r}")
        if not hidden or any(width < 1 for width in hidden):
            raise ValueError(f"hidden must be a list of positive layer widths such as (50,), got {hidden!r}")
        check_init(init)
        self.size, self.hidden, self.init = dimension, tuple(hidden), init

    def attach(self, network: ValueNetwork, spec: Spec) -> None:
        super().attach(network, spec)
        _, last = self.body_and_last()
        # The first layer takes all three, and is kept as three: two of them do not depend on the index.
        width, *widths = self.hidden
        self.of_obs = Linear(spec.observation, width, self.init)
        self.of_hidden = Linear(last.inputs, width, self.init).without_bias()
        self.of_index = Linear(self.size, width, self.init).without_bias()
        first = (self.of_obs, self.of_hidden, self.of_index)
        for layer in first:
            layer.matrix.data.mul_(math.sqrt(layer.inputs / sum(layer.inputs for layer in first)))
        outputs = [*widths, spec.num_actions * self.size]
        self.rest = ModuleList(Linear(n, m, self.init) for n, m in zip(self.hidden, outputs))

    def forward(self, obs: Tensor) -> Tensor:
        """μ and what the first layer of the epinet gets from observation and hidden layer, side by side."""
        body, last = self.body_and_last()
        phi = apply_hidden(body, obs)
        return torch.cat([last(phi), self.of_obs.forward_padded(obs) + self.of_hidden.forward_padded(phi.detach())], -1)

    def values(self, features: Tensor, index: Tensor) -> Tensor:
        rows = index.shape[1:3]  # [batch, draws]
        x = self.of_index.forward_padded(index.flatten(1, 2)).unflatten(1, rows)
        mean, first = features.unsqueeze(2).split([features.shape[-1] - x.shape[-1], x.shape[-1]], -1)
        *body, last = self.rest
        sigma = last(apply_hidden(body, torch.relu(x + first).flatten(1, 2)))
        sigma = sigma.unflatten(-1, (-1, self.size)).unflatten(1, rows)  # [lanes, batch, draws, actions, size]
        return mean + (sigma * index.unsqueeze(3)).sum(-1)

    def draw(self, generators: Generators, *shape: int) -> Tensor:
        return normal(generators, *shape, self.size)

    def twin(self, spec: Spec) -> UncertaintyModule:
        return EpinetPrior(spec, self.size)


class EpinetPrior(UncertaintyModule):
    """Linear functions p_i of the observation, one for each number of the index."""

    exact = True

    def __init__(self, spec: Spec, dimension: int):
        super().__init__()
        self.size = dimension
        self.net = Linear(spec.observation, spec.num_actions * dimension, "truncated_normal").without_bias()
        if self.net.one_hot:  # of which a function with weights of variance 1 / inputs has that variance
            self.net.weight.data.mul_(math.sqrt(self.net.inputs))

    def forward(self, obs: Tensor) -> Tensor:
        return self.net(obs).unflatten(-1, (-1, self.size))

    def draw(self, generators: Generators, *shape: int) -> Tensor:
        return normal(generators, *shape, self.size)

    def variance(self, features: Tensor) -> Tensor:
        return features.square().sum(-1)


@hookimpl
def explore_uncertainty_modules() -> list[type]:
    return [Epinet]
