"""How values depend on an index."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from explore.interfaces.index import GaussianAtHead, IndexDistribution, Member, NoIndex
from explore.interfaces.memory import Network
from explore.interfaces.networks import Spec, ValueNetwork
from explore.nn import Linear, apply_hidden, exact

BuildNetwork = Callable[..., ValueNetwork]


class UncertaintyModule(Network):
    """Slot `uncertainty`: an index distribution, and a network whose values vary with the index.

    `forward` gives the features of observations, all that does not depend on the index, and the values are
    features · index. This covers ensembles (the index picks a member), PINs (z at head u, else 0), hypermodels
    and random features. A module may also have

    - values(features, index) -> `[lanes, batch, draws, actions]`: values that are another function of features
      `[lanes, batch, ...]` and index `[lanes, batch or 1, draws, size]`, with parameters (epinets, noise inside a
      network).
    - means(features) and scales(features) -> `[lanes, batch, actions, columns]`: expected values and standard
      deviations over indices, in columns that are trained one by one, for `objective.WassersteinTD`.
    - activate(features): what is still to be done to features once they are joined with the prior's.
    - build_twin(spec): the frozen module of its prior, with an index of the same size, if that is not built like
      the module itself. Its values are features · index.

    Subclass `ScaleModule` for a network of standard deviations, as in PINs, and `ValueWrapper` for a module
    that is built on the value network.

    Example:

        class RandomDirections(UncertaintyModule):
            def __init__(self, spec, size: int = 8):
                super().__init__()
                self.index = Gaussian(size)
                self.net = explore.nn.MLP(spec.observation, (50,), spec.num_actions * size)

            def forward(self, obs):
                return self.net(obs).unflatten(-1, (-1, self.index.size))
    """

    index: IndexDistribution

    def forward(self, obs: Tensor) -> Tensor:
        """`[lanes, batch, ...] -> features [lanes, batch, actions, size]`"""
        raise NotImplementedError


class ScaleModule(UncertaintyModule):
    """Standard deviations m^u(s, a) with `heads` bootstrapped heads, as in PINs.

    Index = (z ~ N(0, 1), head u uniform), which adds m^u(s, a) z to the value; see `GaussianAtHead`.

    Example:

        class WideHeads(ScaleModule):
            def __init__(self, spec, heads: int = 4, width: int = 64):
                super().__init__(heads)
                self.net = explore.nn.MLP(spec.observation, (width,), spec.num_actions * heads)

            def forward(self, obs):
                return softplus(self.net(obs)).unflatten(-1, (-1, self.heads))
    """

    def __init__(self, heads: int, train_heads: str = "one"):
        super().__init__()
        self.index: IndexDistribution = GaussianAtHead(heads, train_heads)
        self.heads = heads

    def forward(self, obs: Tensor) -> Tensor:
        """`[lanes, batch, ...] -> [lanes, batch, actions, heads]`, never negative."""
        raise NotImplementedError

    def scales(self, features: Tensor) -> Tensor:
        """A column for each head."""
        return features


class ValueWrapper(UncertaintyModule):
    """A module that holds the value network, and so decides by itself how values depend on the index.

    Example:

        class Tilted(ValueWrapper):
            def __init__(self, spec):
                super().__init__()
                self.index = WithMean(Gaussian(1))  # (z, 1)

            def attach(self, build_network, spec):
                super().attach(build_network, spec)
                self.tilt = explore.nn.Linear(spec.observation, spec.num_actions)

            def forward(self, obs):
                return torch.stack([self.tilt(obs), self.network(obs)], -1)
    """

    network: ValueNetwork

    def attach(self, build_network: BuildNetwork, spec: Spec) -> None:
        """Builds the value network; and in subclasses what depends on it, such as layers of a fitting shape.

        `build_network(copies)` gives so many networks for each seed, as one with more lanes.
        """
        self.network = build_network()

    # For modules that look inside the value network.

    def layers(self) -> list[nn.Module]:
        """Those that the value network shows; raises `ValueError` if it shows none."""
        layers = self.network.as_layers()
        if not layers:
            raise ValueError(
                f"uncertainty.{type(self).__name__} looks at the layers of the value network, which "
                f"value.{type(self.network).__name__} does not show; give it `as_layers`, or use value.MLP"
            )
        return list(layers)

    def linear_layers(self) -> list[Linear]:
        """The layers, for modules that need to look inside every one of them."""
        layers = self.layers()
        for layer in layers:
            if not isinstance(layer, Linear):
                raise ValueError(
                    f"uncertainty.{type(self).__name__} needs a value network of explore.nn.Linear, and "
                    f"value.{type(self.network).__name__} has a {type(layer).__name__}"
                )
        return layers  # type: ignore[return-value]

    def trunk(self, obs: Tensor) -> Tensor:
        """φ(s), the last hidden layer: `[lanes, batch, ...] -> [lanes, batch, width]`, and zeros after it (see
        `explore.nn.Linear`)."""
        return apply_hidden(self.layers()[:-1], obs)

    @property
    def head(self) -> Linear:
        """The last layer, from φ(s) to the values; its `inputs` are the width of φ."""
        *body, last = self.layers()
        if not body or not isinstance(last, Linear):
            raise ValueError(
                f"uncertainty.{type(self).__name__} needs a value network with a hidden layer, which "
                f"value.{type(self.network).__name__} has not"
            )
        return last


@exact
class Members(ValueWrapper):
    """Independent copies of the value network, of which the index picks one; a single one has no index."""

    def __init__(self, count: int):
        super().__init__()
        if count < 1:
            raise ValueError(f"size must be at least 1, got {count!r}")
        self.index = Member(count) if count > 1 else NoIndex()
        self.count = count

    def attach(self, build_network: BuildNetwork, spec: Spec) -> None:
        self.network = build_network(self.count)

    def forward(self, obs: Tensor) -> Tensor:
        if self.count == 1:
            return self.network(obs).unsqueeze(-1)
        values = self.network(obs.repeat_interleave(self.count, 0))
        return values.unflatten(0, (-1, self.count)).movedim(1, -1)

    def means(self, features: Tensor) -> Tensor:
        """A column for each member."""
        return features
