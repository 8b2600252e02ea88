"""The mean network of PINs, and the member of an ensemble: a multi-layer perceptron."""

from collections.abc import Sequence

from torch import Tensor
from torch.nn import Module

from explore import hookimpl, nn
from explore.interfaces import Spec, ValueNetwork


@nn.exact
class MLP(ValueNetwork):
    """A multi-layer perceptron with ReLU units, ν(s, a).

    Args:
      hidden: widths of the hidden layers.
      init: initialiser: torch, glorot_uniform, glorot_normal, he_normal or truncated_normal.
    """

    def __init__(self, spec: Spec, hidden: Sequence[int] = (50, 50, 50), init: str = "torch"):
        super().__init__()
        self.net = nn.MLP(spec.observation, hidden, spec.num_actions, init)

    def forward(self, obs: Tensor) -> Tensor:
        return self.net(obs)

    def as_layers(self) -> Sequence[Module]:
        return list(self.net.layers)


@hookimpl
def explore_value_networks() -> list[type]:
    return [MLP]
