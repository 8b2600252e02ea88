"""Linear hypermodels of the last layer: HyperAgent and HyperDQN."""

import math

import numpy as np
import torch
from torch import Tensor

from explore import hookimpl
from explore.interfaces import Spec, ValueNetwork, ValueWrapper
from explore.nn import Linear, apply_hidden
from explore.streams import Generators, normal


class Hypermodel(ValueWrapper):
    """The weights of the value network's last layer depend on the index: Q_z(s, a) = ⟨h(s), A_a z + c_a⟩.

    h is the last hidden layer of the value network, and c its last layer, without bias; z is uniform on
    the unit sphere of R^d. In the frozen prior each row of A has length 1, and so has c as one vector.

    Li et al. 2022 (HyperDQN) and 2024 (HyperAgent, https://arxiv.org/abs/2402.10228).

    Args:
      dimension: d, the length of z.
    """

    exact = True
    has_scales = True

    def __init__(self, spec: Spec, dimension: int = 4):
        super().__init__()
        if dimension < 1:
            raise ValueError(f"dimension must be at least 1, got {dimension!r}")
        self.dimension = dimension
        self.size = dimension + 1  # the index is (z, 1)

    def attach(self, network: ValueNetwork, spec: Spec) -> None:
        super().attach(network, spec)
        last = self.body_and_last()[1].without_bias()
        self.hyper = Linear(last.inputs, spec.num_actions * self.dimension, "glorot_normal").without_bias()
        # Glorot's initialisation of A as a layer from z to the weights, not from h to (action, z).
        fans, own = self.dimension + last.inputs * spec.num_actions, last.inputs + spec.num_actions * self.dimension
        self.hyper.matrix.data.mul_(math.sqrt(own / fans))

    def forward(self, obs: Tensor) -> Tensor:
        body, last = self.body_and_last()
        h = apply_hidden(body, obs)
        varying = self.hyper(h).unflatten(-1, (-1, self.dimension))  # h A, [lanes, batch, actions, d]
        return torch.cat([varying, last(h).unsqueeze(-1)], -1)

    def draw(self, generators: Generators, *shape: int) -> Tensor:
        z = _normalise(normal(generators, *shape, self.dimension))
        return torch.cat([z, torch.ones(*z.shape[:-1], 1)], -1)

    def mean_index(self) -> Tensor:
        return torch.tensor([0.0] * self.dimension + [1.0])

    def perturbation(self, noise: Tensor, index: Tensor) -> Tensor:
        """ξ·z with ξ on the unit sphere."""
        direction = _normalise(noise[..., :-1]).unsqueeze(2)
        return (direction * index[..., :-1]).sum(-1)

    def means(self, features: Tensor) -> Tensor:
        return features[..., -1:]

    def variance(self, features: Tensor) -> Tensor:
        return features[..., :-1].square().sum(-1) / self.dimension

    def scales(self, features: Tensor) -> Tensor:
        return (self.variance(features) + 1e-12).sqrt().unsqueeze(-1)  # which has a gradient at 0

    def twin(self, spec: Spec) -> "HypermodelPrior":
        return HypermodelPrior(spec, self.dimension)

    def describe_index(self, index: np.ndarray) -> str:
        return super().describe_index(index[:-1])


class HypermodelPrior(Hypermodel):
    """The frozen twin: rows of A, and c as one vector, of length 1."""

    def attach(self, network: ValueNetwork, spec: Spec) -> None:
        super().attach(network, spec)
        for lane in self.hyper.matrix.data.unflatten(-1, (-1, self.dimension)):
            lane /= lane.norm(dim=-1, keepdim=True)
        for lane in self.body_and_last()[1].matrix.data:
            lane /= lane.norm()


def _normalise(vectors: Tensor) -> Tensor:
    """Vectors of length 1; those of lanes that wait stay 0."""
    return vectors / vectors.square().sum(-1, keepdim=True).sqrt().clamp_min(1e-12)


@hookimpl
def explore_uncertainty_modules() -> list[type]:
    return [Hypermodel]
