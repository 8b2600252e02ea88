"""Noise inside the value network, as index: NoisyNet and Monte Carlo dropout."""

import math
from collections.abc import Callable

import dm_env
import numpy as np
import torch
from torch import Tensor
from torch.nn import ModuleList

from explore import hookimpl
from explore.interfaces import IndexDistribution, Members, Spec, ValueNetwork, ValueWrapper
from explore.nn import Linear, exact
from explore.streams import Generators, normal, uniform


class FactorisedNoise(IndexDistribution):
    """f(e) = sign(e) √|e| of e ~ N(0, 1); in learning one draw for all transitions."""

    def __init__(self, size: int):
        self.size = size

    def draw(self, generators: Generators, *shape: int) -> Tensor:
        e = normal(generators, *shape, self.size)
        return e.sign() * e.abs().sqrt()

    def draw_batch(self, generators: Generators, batch: int, draws: int) -> Tensor:
        return self.draw(generators, 1, draws)

    def describe(self, index: np.ndarray) -> str:
        return f"{super().describe(index[:3])} ..."


@exact
class NoisyNet(ValueWrapper):
    """Factorised Gaussian noise on every layer of the value network: y = W x + b + ε_out ∘ (Σ (ε_in ∘ x) + σ_b).

    W, b, Σ and σ_b are trained. The index holds the ε's of all layers, f(e) = sign(e) √|e| of e ~ N(0, 1).
    It is held for the episode, or drawn at each step with agent.Indexed.redraw_probability = 1, as in the
    paper. A learning phase uses one draw for all its transitions, and with a target index that is fresh
    another for their targets. The mean is the network without noise, and so is the prior.

    Fortunato et al. 2018 (https://arxiv.org/abs/1706.10295).

    Args:
      sigma: σ_0; Σ and σ_b of a layer are σ_0 / √inputs at first.
    """

    def __init__(self, spec: Spec, sigma: float = 0.5):
        super().__init__()
        if not 0 <= sigma < math.inf:
            raise ValueError(f"sigma must be at least 0 and finite, got {sigma!r}")
        self.sigma = sigma

    def attach(self, build_network: Callable[..., ValueNetwork], spec: Spec) -> None:
        super().attach(build_network, spec)
        layers = self.linear_layers()
        inputs = [spec.observation, *(layer.inputs for layer in layers[1:])]
        self.noise = ModuleList(_constant_layer(n, layer.outputs, self.sigma) for n, layer in zip(inputs, layers))
        self.index = FactorisedNoise(sum(layer.inputs + layer.outputs for layer in layers))

    def forward(self, obs: Tensor) -> Tensor:
        """The observations: all the rest depends on the noise."""
        return obs

    def values(self, features: Tensor, index: Tensor) -> Tensor:
        rows = index.shape[1:3]  # [batch, draws]
        x = features.flatten(2) if features.dim() > 2 else features
        x = x.unsqueeze(2).expand(-1, -1, rows[1], *x.shape[2:]).flatten(1, 2)
        layers = self.linear_layers()
        start = 0
        for layer, noise in zip(layers, self.noise):
            assert isinstance(noise, Linear)
            if layer is not layers[0]:
                x = torch.relu(x)
            middle, end = start + layer.inputs, start + layer.inputs + layer.outputs
            e_in, e_out = index[..., start:middle], index[..., middle:end].flatten(1, 2)
            if x.is_floating_point():
                noisy = noise(x * e_in.flatten(1, 2))
            else:  # Σ (ε_in ∘ x) is a row of Σ times one number
                bias = noise.bias[..., : layer.outputs]
                noisy = (noise(x) - bias) * e_in.gather(-1, x.unflatten(1, rows).unsqueeze(-1)).flatten(1, 2) + bias
            x = layer(x) + e_out * noisy
            start = end
        return x.unflatten(1, rows)

    def build_twin(self, spec: Spec) -> Members:
        return Members(1)


def _constant_layer(inputs: dm_env.specs.Array | int, outputs: int, sigma: float) -> Linear:
    """Σ and σ_b of a layer."""
    layer = Linear(inputs, outputs)
    scale = sigma / math.sqrt(layer.inputs)
    layer.matrix.data.fill_(scale)
    layer.bias.data[..., :outputs] = scale
    return layer


class KeptUnits(IndexDistribution):
    """For each unit 0 with probability `rate`, else 1 / (1 - rate)."""

    def __init__(self, size: int, rate: float):
        self.size, self.rate = size, rate

    def draw(self, generators: Generators, *shape: int) -> Tensor:
        return (uniform(generators, *shape, self.size) >= self.rate) / (1 - self.rate)

    def mean(self) -> Tensor:
        return torch.ones(self.size)

    def describe(self, index: np.ndarray) -> str:
        return f"kept={np.count_nonzero(index)}"


@exact
class McDropout(ValueWrapper):
    """Dropout in the value network, whose index is which hidden units are left out (Gal and Ghahramani 2016).

    Units are dropped with a probability, and those that stay are scaled by 1 / (1 - rate), in acting as in
    learning, where each transition has its own. The mean is the network with all units; the prior is a value
    network without dropout.

    Args:
      rate: probability that a hidden unit is left out.
    """

    def __init__(self, spec: Spec, rate: float = 0.1):
        super().__init__()
        if not 0 <= rate < 1:
            raise ValueError(f"rate must be at least 0 and below 1, got {rate!r}")
        self.rate = rate

    def attach(self, build_network: Callable[..., ValueNetwork], spec: Spec) -> None:
        super().attach(build_network, spec)
        self.widths = [layer.outputs for layer in self.linear_layers() if layer is not self.head]
        self.index = KeptUnits(sum(self.widths), self.rate)

    def forward(self, obs: Tensor) -> Tensor:
        """The first hidden layer."""
        return torch.relu(self.linear_layers()[0](obs))

    def values(self, features: Tensor, index: Tensor) -> Tensor:
        first, *others = index.split(self.widths, -1)
        x = (features.unsqueeze(2) * first).flatten(1, 2)
        *body, last = self.linear_layers()[1:]
        for layer, kept in zip(body, others):
            x = torch.relu(layer(x)) * kept.flatten(1, 2)
        return last(x).unflatten(1, index.shape[1:3])

    def build_twin(self, spec: Spec) -> Members:
        return Members(1)


@hookimpl
def explore_uncertainty_modules() -> list[type]:
    return [NoisyNet, McDropout]
