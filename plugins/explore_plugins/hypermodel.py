"""Linear hypermodels of the last layer: HyperAgent and HyperDQN."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from explore import hookimpl
from explore.interfaces import Spec, Sphere, ValueNetwork, ValueWrapper, WithMean
from explore.nn import Linear, exact


@exact
class Hypermodel(ValueWrapper):
    """The weights of the value network's last layer depend on the index: Q_z(s, a) = ⟨h(s), A_a z + c_a⟩.

    h is the last hidden layer of the value network, and c its last layer, without bias; z is uniform on
    the unit sphere of R^d. In the frozen prior each row of A has length 1, and so has c as one vector.

    Li et al. 2022 (HyperDQN) and 2024 (HyperAgent, https://arxiv.org/abs/2402.10228).

    Args:
      dimension: d, the length of z.
    """

    def __init__(self, spec: Spec, dimension: int = 4):
        super().__init__()
        if dimension < 1:
            raise ValueError(f"dimension must be at least 1, got {dimension!r}")
        self.dimension = dimension
        self.index: WithMean = WithMean(Sphere(dimension))  # (z, 1)

    def attach(self, build_network: Callable[..., ValueNetwork], spec: Spec) -> None:
        super().attach(build_network, spec)
        last = self.head.without_bias()
        self.hyper = Linear(last.inputs, spec.num_actions * self.dimension, "glorot_normal").without_bias()
        # Glorot's initialisation of A as a layer from z to the weights, not from h to (action, z).
        fans, own = self.dimension + last.inputs * spec.num_actions, last.inputs + spec.num_actions * self.dimension
        self.hyper.matrix.data.mul_(math.sqrt(own / fans))

    def forward(self, obs: Tensor) -> Tensor:
        h = self.trunk(obs)
        varying = self.hyper(h).unflatten(-1, (-1, self.dimension))  # h A, [lanes, batch, actions, d]
        return torch.cat([varying, self.head(h).unsqueeze(-1)], -1)

    def means(self, features: Tensor) -> Tensor:
        return features[..., -1:]

    def scales(self, features: Tensor) -> Tensor:
        return (self.index.variance(features) + 1e-12).sqrt().unsqueeze(-1)  # which has a gradient at 0

    def build_twin(self, spec: Spec) -> "HypermodelPrior":
        return HypermodelPrior(spec, self.dimension)


@exact
class HypermodelPrior(Hypermodel):
    """The frozen twin: rows of A, and c as one vector, of length 1."""

    def attach(self, build_network: Callable[..., ValueNetwork], spec: Spec) -> None:
        super().attach(build_network, spec)
        for lane in self.hyper.matrix.data.unflatten(-1, (-1, self.dimension)):
            lane /= lane.norm(dim=-1, keepdim=True)
        for lane in self.head.matrix.data:
            lane /= lane.norm()


@hookimpl
def explore_uncertainty_modules() -> list[type]:
    return [Hypermodel]
