"""check_uncertainty: every promise that an uncertainty module breaks is reported."""

import numpy as np
import pytest
import torch
from explore_plugins.hypermodel import Hypermodel
from sample_components import QUICK, Directions, Net

from explore import nn as lane_nn
from explore.interfaces import Gaussian, ScaleModule
from explore.streams import normal
from explore.testing import Nonconformance, Options, check_uncertainty


class Heads(ScaleModule):
    def __init__(self, spec, heads: int = 2):
        super().__init__(heads)
        self.net = lane_nn.MLP(spec.observation, (8,), spec.num_actions * heads)

    def forward(self, obs):
        return lane_nn.softplus(self.net(obs)).unflatten(-1, (-1, self.heads))


class NegativeHeads(Heads):
    def forward(self, obs):
        return self.net(obs).unflatten(-1, (-1, self.heads))


class NegativeLater(Heads):
    def forward(self, obs):
        return 30 + self.net(obs).unflatten(-1, (-1, self.heads))


def along(distribution):
    """A module with such an index."""
    return type(distribution.__name__, (Directions,), {"distribution": distribution})


@along
class WrongVariance(Gaussian):
    def variance(self, features):
        return features.square().mean(-1)


@along
class WrongMean(Gaussian):
    def draw(self, generators, *shape):
        return 1 + super().draw(generators, *shape)


@along
class DrawsTorch(Gaussian):
    def draw(self, generators, *shape):
        return torch.randn(len(generators), *shape, self.size)


@along
class DrawsFromTheFirst(Gaussian):
    def draw(self, generators, *shape):
        return normal([generators[0]] * len(generators), *shape, self.size)


@along
class NeedsEveryGenerator(Gaussian):
    def draw(self, generators, *shape):
        return torch.from_numpy(np.stack([g.normal(size=(*shape, self.size)) for g in generators])).float()


@along
class FlipsTheIndex(Gaussian):
    def combine(self, features, index):
        return super().combine(features, index.neg_())


@along
class OneIndex(Gaussian):
    def draw(self, generators, *shape):
        return torch.ones(len(generators), *shape, self.size)

    def mean(self):
        return torch.ones(self.size)

    def variance(self, features):
        return 0 * features.sum(-1)


@along
class ForgetsAnAxis(Gaussian):
    def draw_to_learn(self, generators, bits, draws):
        return normal(generators, draws, self.size)


@along
class NegativeWeights(Gaussian):
    def weigh(self, bits, draws):
        return -super().weigh(bits, draws)


@along
class Numbers(Gaussian):
    def describe(self, index):
        return float(index[0])


@along
class Undescribed(Gaussian):
    """Keeps every promise; its variance is estimated."""

    variance = property()


class Buffers(Directions):
    def __init__(self, spec):
        super().__init__(spec)
        self.register_buffer("scale", torch.ones(1))


class Bent(Directions):
    """Computes its values itself, and so does what its prior would be built like."""

    def values(self, features, index):
        return self.index.combine(features, index).square()


BROKEN_MODULES = [
    (NegativeHeads, "NegativeHeads gives negative uncertainties; they must be at least 0"),
    (NegativeLater, "NegativeLater gives a negative uncertainty for some parameters .*: let its output go through"),
    (WrongVariance, "WrongVariance says its values vary by .*: variance must be that of features"),
    (WrongMean, r"WrongMean has another mean over drawn indices than at the mean index: mean\(\) of an index"),
    (DrawsTorch, "DrawsTorch draws from the global generator of torch"),
    (
        DrawsFromTheFirst,
        "DrawsFromTheFirst does not draw the index of a seed from that seed's generator in draw: draw with",
    ),
    (NeedsEveryGenerator, r"fails in draw where a generator is None, as of a lane that waits \(.*py:\d+\): Attribute"),
    (FlipsTheIndex, "FlipsTheIndex changes the index that is held for the episode: do not assign to the index"),
    (OneIndex, "OneIndex draws the same index for every episode: draw must take fresh numbers"),
    (ForgetsAnAxis, r"ForgetsAnAxis gives an index of shape .* in draw_to_learn: it must be \[lanes, batch"),
    (NegativeWeights, r"NegativeWeights weighs 3 indices with .*, from -1 on: weigh must give \[lanes, batch, draws\]"),
    (Numbers, "Numbers describes an index as .*: describe must return a string"),
    (Buffers, r"networks must keep their tensors in parameters or in a Memory, not in buffers \(scale\)"),
    (Bent, r"the prior of Bent must be frozen, and its values features · index.*; give Bent a method build_twin"),
]


@pytest.mark.parametrize("cls", [Heads, Undescribed, Directions])
def test_a_module_that_keeps_its_promises_passes(cls):
    check_uncertainty(cls, QUICK)


@pytest.mark.parametrize(("cls", "message"), BROKEN_MODULES, ids=lambda one: getattr(one, "__name__", ""))
def test_an_uncertainty_module_that_breaks_a_promise_is_reported(cls, message):
    with pytest.raises(Nonconformance, match=message):
        check_uncertainty(cls, QUICK)


def test_a_module_that_looks_inside_the_value_network_needs_one_that_shows_its_layers():
    with pytest.raises(Nonconformance, match=r"Hypermodel looks at the layers of the value network, which value.Net"):
        check_uncertainty(Hypermodel, Options(agent={"value": Net}))
