"""How values depend on an index."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from explore.interfaces.networks import Spec, ValueNetwork
from explore.nn import Linear
from explore.streams import Generators, normal, uniform


class UncertaintyModule(nn.Module):
    """Slot `uncertainty`: how an index is drawn, and how values vary with it.

    `forward` gives the features of observations, all that does not depend on the index, and
    `values` the values at an index. Here they are linear in it, Q_i(s, a) = features(s, a) · i,
    which covers ensembles (i picks a member), PINs (i = z at head u, else 0) and linear
    hypermodels. A linear module with another product overrides `values`, and uses no parameters there.

    With `linear = False` features may have any shape `[lanes, batch, ...]`, and `values` may be any
    function of them and the index, with parameters (epinets, noise inside a network). The mean is then
    the value at the mean index, the variance is estimated at a few indices, and `twin` must
    be linear.

    Subclass `ScaleModule` for a network of standard deviations, as in PINs, and `ValueWrapper` for a module
    that is built on the value network.
    """

    size: int  # the length of an index
    mask_size: int = 0  # bootstrap bits kept with each transition
    random: bool = True  # False: there is only one index
    exact: ClassVar[bool] = False  # see `explore.nn.find_safe_rows`
    continuous: bool = True  # drawn in learning, not enumerated
    shared: bool = False  # drawn once for all transitions of a learning phase, not for each of them
    linear: ClassVar[bool] = True  # values are linear in the index and need no parameters beside features
    has_scales: ClassVar[bool] = False  # has the method `scales`

    def forward(self, obs: Tensor) -> Tensor:
        """`[lanes, batch, ...] -> features [lanes, batch, actions, size]`"""
        raise NotImplementedError

    def finish(self, features: Tensor) -> Tensor:
        """What is still to be done to features, of a linear module, once they are joined with the prior's."""
        return features

    def draw(self, generators: Generators, *shape: int) -> Tensor:
        """Indices from the fixed distribution, `[lanes, *shape, size]`."""
        raise NotImplementedError

    def draw_for_learning(self, generators: Generators, mask: Tensor, draws: int) -> Tensor | None:
        """Indices to learn at, `[lanes, batch or 1, draws, size]`, given masks `[lanes, batch, mask_size]`."""
        return self.draw(generators, 1 if self.shared else mask.shape[1], draws)

    def perturbation(self, noise: Tensor, index: Tensor) -> Tensor:
        """What a transition's normal numbers `[lanes, batch, size]` add to its reward at an index
        `[lanes, batch, draws, size]`, in units of the objective's noise: `[lanes, batch, draws]`."""
        return (noise.unsqueeze(2) * index).sum(-1)

    def mean_index(self) -> Tensor:
        """The expected index, `[size]`."""
        return torch.zeros(self.size)

    def values(self, features: Tensor, index: Tensor) -> Tensor:
        """`features [lanes, batch, actions, size]`, `index [lanes, batch or 1, draws, size]` ->
        `[lanes, batch, draws, actions]`"""
        return (features.unsqueeze(2) * index.unsqueeze(3)).sum(-1)

    def variance(self, features: Tensor) -> Tensor:
        """Variance of the values of a linear module over indices, `[lanes, batch, actions]`."""
        raise NotImplementedError

    def scales(self, features: Tensor) -> Tensor:
        """Standard deviations over indices, `[lanes, batch, actions, heads]`, that an objective may train."""
        raise NotImplementedError

    def twin(self, spec: Spec) -> UncertaintyModule | None:
        """The frozen module of its prior, with indices of the same length, not yet attached to a value network.
        None: built like this one."""
        return None

    def describe_index(self, index: np.ndarray) -> str:
        """The index `[size]` in words, for the column `index` of `episodes.csv`."""
        return " ".join(f"{x:.4f}" for x in index)


class ValueWrapper(UncertaintyModule):
    """A module that holds the value network, and so decides by itself how values depend on the index.

    The core builds the value network, `copies` times for each seed, and attaches the module to it. There
    layers are built whose shape depends on the network.

    Example:

        class Tilted(ValueWrapper):
            def __init__(self, spec):
                super().__init__()
                self.size = 2  # (1, z)

            def attach(self, network, spec):
                super().attach(network, spec)
                self.tilt = explore.nn.Linear(spec.observation, spec.num_actions)

            def forward(self, obs):
                return torch.stack([self.network(obs), self.tilt(obs)], -1)

            def draw(self, generators, *shape):
                z = normal(generators, *shape, 1)
                return torch.cat([torch.ones_like(z), z], -1)

            def mean_index(self):
                return torch.tensor([1.0, 0.0])

            def variance(self, features):
                return features[..., 1].square()
    """

    copies: int = 1
    network: ValueNetwork

    def attach(self, network: ValueNetwork, spec: Spec) -> None:
        """Receives the value network; layers whose shape depends on it are built here."""
        self.network = network

    def means(self, features: Tensor) -> Tensor:
        """Expected values, `[lanes, batch, actions, members]`, a column for each member trained by itself."""
        raise NotImplementedError

    def layers(self) -> list[nn.Module]:
        """Those of the value network, for modules that look inside."""
        layers = self.network.as_layers()
        if not layers:
            raise ValueError(
                f"uncertainty.{type(self).__name__} looks at the layers of the value network, which "
                f"value.{type(self.network).__name__} does not show; give it `as_layers`, or use value.MLP"
            )
        return list(layers)

    def linear_layers(self) -> list[Linear]:
        """The same, for modules that need to look inside every one of them."""
        layers = self.layers()
        for layer in layers:
            if not isinstance(layer, Linear):
                raise ValueError(
                    f"uncertainty.{type(self).__name__} needs a value network of explore.nn.Linear, and "
                    f"value.{type(self.network).__name__} has a {type(layer).__name__}"
                )
        return layers  # type: ignore[return-value]

    def body_and_last(self) -> tuple[list[nn.Module], Linear]:
        """Its hidden layers, of which there must be some, and the last layer."""
        *body, last = self.layers()
        if not body or not isinstance(last, Linear):
            raise ValueError(
                f"uncertainty.{type(self).__name__} needs a value network with a hidden layer, which "
                f"value.{type(self.network).__name__} has not"
            )
        return body, last


class Members(ValueWrapper):
    """Index = a member, uniform over `count` independent copies of the value network.

    The core builds the copies as that many more lanes and puts them in `network`.
    """

    continuous = False
    exact = True

    def __init__(self, count: int):
        super().__init__()
        if count < 1:
            raise ValueError(f"size must be at least 1, got {count!r}")
        self.size = self.copies = count
        self.random = count > 1
        self.mask_size = count if self.random else 0

    def forward(self, obs: Tensor) -> Tensor:
        if not self.random:
            return self.network(obs).unsqueeze(-1)
        values = self.network(obs.repeat_interleave(self.size, 0))
        return values.unflatten(0, (-1, self.size)).movedim(1, -1)

    def draw(self, generators: Generators, *shape: int) -> Tensor:
        if not self.random:
            return torch.ones(len(generators), *shape, 1)
        member = (uniform(generators, *shape) * self.size).long()
        return nn.functional.one_hot(member, self.size).float()

    def draw_for_learning(self, generators: Generators, mask: Tensor, draws: int) -> Tensor | None:
        """Every member in turn, `draws` a multiple of their number; None: each of them once."""
        if draws == self.size:
            return None
        every = torch.eye(self.size, device=mask.device).repeat_interleave(draws // self.size, 0)
        return every.expand(*mask.shape[:2], -1, -1)

    def mean_index(self) -> Tensor:
        return torch.full((self.size,), 1 / self.size)

    def values(self, features: Tensor, index: Tensor | None) -> Tensor:
        if index is None or not self.random:
            return features.movedim(-1, 2)
        return super().values(features, index)

    def perturbation(self, noise: Tensor, index: Tensor | None) -> Tensor:
        if not self.random:
            return torch.zeros_like(noise)
        return noise if index is None else super().perturbation(noise, index)

    def variance(self, features: Tensor) -> Tensor:
        return (features - features.mean(-1, keepdim=True)).square().mean(-1)

    def means(self, features: Tensor) -> Tensor:
        return features

    def describe_index(self, index: np.ndarray) -> str:
        return f"member={index.argmax()}" if self.random else ""


class ScaleModule(UncertaintyModule):
    """Standard deviations m^u(s, a) with `heads` bootstrapped heads, as in PINs.

    Index = (z ~ N(0, 1), head u uniform), which adds m^u(s, a) z to the value. With
    `train_heads = "one"` each sample trains one head drawn among its set mask bits (the paper);
    with `"masked"` it trains all of them.

    Example:

        class WideHeads(ScaleModule):
            def __init__(self, spec, heads: int = 4, width: int = 64):
                super().__init__(heads)
                self.net = explore.nn.MLP(spec.observation, (width,), spec.num_actions * heads)

            def forward(self, obs):
                return softplus(self.net(obs)).unflatten(-1, (-1, self.heads))
    """

    has_scales = True
    signed: ClassVar[bool] = False  # scales may be negative: z is symmetric, so -m means the same as m

    def __init__(self, heads: int, train_heads: str = "one"):
        super().__init__()
        if heads < 1:
            raise ValueError(f"heads must be at least 1, got {heads!r}")
        if train_heads not in ("one", "masked"):
            raise ValueError(f"train_heads must be 'one' or 'masked', got {train_heads!r}")
        self.size = self.mask_size = self.heads = heads
        self.train_heads = train_heads

    def forward(self, obs: Tensor) -> Tensor:
        """`[lanes, batch, ...] -> [lanes, batch, actions, heads]`, never negative once they are finished."""
        raise NotImplementedError

    def scales(self, features: Tensor) -> Tensor:
        return features

    def draw(self, generators: Generators, *shape: int) -> Tensor:
        z = normal(generators, *shape)
        head = (uniform(generators, *shape) * self.heads).long()
        return z.unsqueeze(-1) * nn.functional.one_hot(head, self.heads)

    def draw_for_learning(self, generators: Generators, mask: Tensor, draws: int) -> Tensor:
        z = normal(generators, mask.shape[1], draws, 1).to(mask.device)
        return z * self.draw_heads(generators, mask, draws)

    def draw_heads(self, generators: Generators, mask: Tensor, draws: int) -> Tensor:
        """A head per draw, uniform among the set bits (among all if none is set), one-hot
        `[lanes, batch, draws, heads]`."""
        keys = uniform(generators, mask.shape[1], draws, self.heads).to(mask.device) + mask.unsqueeze(2)
        return nn.functional.one_hot(keys.argmax(-1), self.heads).float()

    def variance(self, features: Tensor) -> Tensor:
        return features.square().mean(-1)

    def describe_index(self, index: np.ndarray) -> str:
        head = np.abs(index).argmax()
        return f"z={index[head]:.4f} head={head}"
