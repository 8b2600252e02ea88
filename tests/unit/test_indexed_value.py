"""The indexed value function is the sum of its parts at an index."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from building import CELLS, FLOATS, PINS
from explore_plugins.deterministic import Deterministic
from explore_plugins.ensemble import Ensemble
from explore_plugins.mean_net import MLP
from explore_plugins.priors import Additive, NoPrior
from explore_plugins.softplus_heads import SoftplusHeads
from torch import nn

from explore import nn as lane_nn
from explore._learning.preflight import check_values
from explore._values.indexed_value import IndexedValue
from explore.interfaces import (
    GaussianAtHead,
    IndexDistribution,
    ScaleModule,
    UncertaintyModule,
    ValueNetwork,
    ValueWrapper,
)
from explore.streams import stream

SEEDS = (0, 5)
HEADS = partial(SoftplusHeads, heads=3, hidden=(7,))
MEMBERS = partial(Ensemble, size=4)
PARTS = {"one": [Deterministic], "heads": [HEADS], "members": [MEMBERS], "both": [HEADS, MEMBERS]}


def function(parts, prior=PINS["prior"], spec=FLOATS, value=PINS["value"]):
    return IndexedValue(spec, SEEDS, value, parts, prior())


def observations(batch=6):
    return torch.randn(2, batch, 2, 2, generator=torch.Generator().manual_seed(0))


def generators():
    return [stream(seed, "test") for seed in SEEDS]


def test_pins_add_a_head_times_z_and_both_priors():
    q = function([HEADS])
    obs = observations()
    z, head = torch.tensor([0.7, -1.3]), torch.tensor([2, 0])
    index = (torch.ones(2, 1, 1, 1), (z[:, None] * nn.functional.one_hot(head, 3))[:, None, None])
    mean, scale = q.stacks
    expected = []
    for lane in range(2):
        nu, nu_bar = mean.trained(obs)[lane, :, :, 0], mean.prior(obs)[lane, :, :, 0]
        m, m_bar = scale.trained(obs)[lane, :, :, head[lane]], scale.prior(obs)[lane, :, :, head[lane]]
        expected.append(nu + 2.0 * nu_bar + (m + 3.0 * m_bar) * z[lane])
    torch.testing.assert_close(q.values(q.acting_features(obs), index).squeeze(2), torch.stack(expected))


def test_an_ensemble_at_an_index_is_that_member_and_on_average_the_mean():
    q = function([MEMBERS])
    features = q.acting_features(observations())
    members = torch.stack([q.values(features, (nn.functional.one_hot(torch.tensor(k), 4).float()[None, None, None],))
                           for k in range(4)])  # fmt: skip
    for k in range(4):
        torch.testing.assert_close(members[k].squeeze(2), features[0][..., k])
    torch.testing.assert_close(q.values(features, q.indexer.mean()), members.mean(0))


def test_members_are_independent_networks():
    q = function([MEMBERS])
    values = q.acting_features(observations())[0]
    assert len({tuple(row) for row in values.detach().movedim(-1, 0).flatten(1).tolist()}) == 4


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("prior", [PINS["prior"], NoPrior], ids=["prior", "no prior"])
def test_std_and_mean_are_those_of_the_values_over_indices(parts, prior):
    q = function(parts, prior)
    features = q.acting_features(observations(3))
    values = q.values(features, q.indexer.draw(generators(), 3, 40_000)).expand(-1, -1, 40_000, -1)
    torch.testing.assert_close(values.std(2), q.std(features), rtol=0.03, atol=1e-6)
    error = (values.mean(2) - q.values(features, q.indexer.mean()).squeeze(2)).abs()
    assert (error <= 5 * q.std(features) / 200 + 1e-6).all()


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_uncertainty_is_never_negative(parts):
    q = function(parts)
    features = q.acting_features(100 * observations(200))
    assert (q.std(features) >= 0).all()
    assert all((f >= 0).all() for part, f in zip(q.parts, features) if isinstance(part, ScaleModule))


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("prior", [PINS["prior"], NoPrior], ids=["prior", "no prior"])
@pytest.mark.parametrize("spec", [FLOATS, CELLS], ids=["floats", "cells"])
def test_acting_learning_and_target_features_are_the_same_before_learning(parts, prior, spec):
    q = function(parts, prior, spec)
    obs = observations(5) if spec is FLOATS else torch.arange(10).view(2, 5) % 9
    frozen = q.prior_features(obs) if q.prior.has_twin else torch.zeros(2, 5, 0)
    assert frozen.shape[2:] == q.prior_shape
    action = torch.arange(10).view(2, 5) % 3
    taken = (
        frozen.gather(2, action[:, :, None, None].expand(-1, -1, 1, frozen.shape[-1])) if q.prior.has_twin else frozen
    )
    acting, target = q.acting_features(obs), q.target_features(obs, frozen)
    for a, t, trained in zip(acting, target, q.trained_features(obs, taken, action), strict=True):
        torch.testing.assert_close(a, t)
        torch.testing.assert_close(a.gather(2, action[:, :, None, None].expand_as(trained)), trained)


def test_an_index_is_drawn_from_its_distribution():
    member, scaled = function(PARTS["both"]).indexer.draw(generators(), 30_000)
    assert (member.sum(-1) == 1).all() and (scaled.count_nonzero(-1) == 1).all()
    torch.testing.assert_close(member.mean(1), torch.full((2, 4), 0.25), atol=0.02, rtol=0)
    torch.testing.assert_close((scaled != 0).float().mean(1), torch.full((2, 3), 1 / 3), atol=0.02, rtol=0)
    z = scaled.sum(-1)
    assert (z.mean(1).abs() < 0.03).all() and ((z.std(1) - 1).abs() < 0.03).all()


def test_heads_to_learn_are_uniform_among_the_set_bits_or_among_all_if_none_is_set():
    distribution = GaussianAtHead(3)
    mask = torch.tensor([[1, 0, 1], [0, 1, 0], [0, 0, 0]]).float().repeat_interleave(6000, 0)[None]
    columns, _ = distribution.draw_columns([stream(0, "heads")], mask)
    drawn = columns.squeeze(2).unflatten(1, (3, -1)).mean(2)[0]
    expected = torch.tensor([[0.5, 0, 0.5], [0, 1, 0], [1 / 3, 1 / 3, 1 / 3]])
    torch.testing.assert_close(drawn, expected, atol=0.02, rtol=0)
    assert drawn[0, 1] == drawn[1, 0] == drawn[1, 2] == 0


def test_an_index_in_words():
    q = function(PARTS["both"])
    index = (torch.eye(4)[[1, 3]].view(2, 1, 1, 4), torch.tensor([[0, -0.5, 0], [1.25, 0, 0]]).view(2, 1, 1, 3))
    assert q.indexer.describe(index) == ["member=1 z=-0.5000 head=1", "member=3 z=1.2500 head=0"]
    one = function([Deterministic])
    assert one.indexer.describe(one.indexer.draw(generators(), 1, 1)) == ["", ""]


def test_priors_are_random_twins_with_their_own_streams():
    q = function(PARTS["both"])
    for stack in q.stacks:
        trained, prior, target = stack.buffer
        assert torch.equal(trained, target)
        assert not torch.equal(trained, prior)


def test_a_prior_can_have_its_own_initialiser():
    q = function([HEADS], partial(Additive, init="glorot_uniform"))
    for stack in q.stacks:
        biases = {copy: [m.bias.any() for m in getattr(stack, copy).modules() if isinstance(m, lane_nn.Linear)]
                  for copy in ("trained", "prior")}  # fmt: skip
        assert all(biases["trained"]) and not any(biases["prior"])


def test_no_prior_has_no_twin():
    assert all(len(stack.buffer) == 2 for stack in function([HEADS], NoPrior).stacks)


def all_values(q, obs):
    frozen = q.prior_features(obs)
    index = q.indexer.mean()
    return {
        "parts": q.values(q.trained_features(obs, frozen), index).detach(),
        "target_parts": q.values(q.target_features(obs, frozen), index),
        "prior_parts": q.values(q.prior_only_features(obs), index),
    }


@pytest.mark.parametrize("tabulate", [False, True])
@pytest.mark.parametrize("name", ["parts", "target_parts", "prior_parts"])
def test_who_changes_a_network_under_its_name_changes_its_values(name, tabulate):
    q = IndexedValue(CELLS, SEEDS, PINS["value"], [HEADS], PINS["prior"](), tabulate_targets=tabulate)
    obs = torch.arange(10).view(2, 5) % 9
    before = all_values(q, obs)
    with torch.no_grad():
        getattr(q, name)[0].network.net.layers[-1].bias[1] += 1
    q.copy_to_target([]) if name == "target_parts" else None
    after = all_values(q, obs)
    changed = {one for one in after if not torch.equal(before[one], after[one])}
    assert changed == ({name} if name != "prior_parts" else set(after))
    assert all(torch.equal(before[one][0], after[one][0]) for one in after), "the other seed's"


def test_what_was_built_is_what_is_trained_or_the_prior_and_nothing_else():
    built = []

    def keeping(factory):
        def build(spec):
            built.append(factory(spec))
            return built[-1]

        return build

    q = function([keeping(HEADS)], value=keeping(PINS["value"]))
    networks = [q.parts[1], q.parts[0].network, q.prior_parts[0].network, q.prior_parts[1]]
    assert [id(module) for module in built[:4]] == [id(module) for module in networks]


def test_two_replications_of_the_value_network_are_refused():
    with pytest.raises(ValueError, match=r"uncertainty has Ensemble and Deterministic: .* only one can be named"):
        function([MEMBERS, Deterministic])


class Misshapen(ValueNetwork):
    def __init__(self, spec):
        super().__init__()
        self.net = lane_nn.MLP(spec.observation, (4,), spec.num_actions + 1)

    def forward(self, obs):
        return self.net(obs)


class FlatHeads(ScaleModule):
    def __init__(self, spec):
        super().__init__(2)
        self.net = lane_nn.MLP(spec.observation, (4,), spec.num_actions * 2)

    def forward(self, obs):
        return self.net(obs).exp()


class NegativeHeads(FlatHeads):
    def forward(self, obs):
        return self.net(obs).unflatten(-1, (-1, self.heads))


class TupleHeads(FlatHeads):
    def forward(self, obs):
        return (self.net(obs),)


class FailingHeads(FlatHeads):
    def forward(self, obs):
        return self.net(obs[..., :1])


@pytest.mark.parametrize(
    "value, parts, message",
    [
        (
            Misshapen,
            [HEADS],
            r"Misshapen gives values of shape \[2, 32, 4\], expected \[lanes, batch, actions\] = \[2, 32, 3\]",
        ),
        (MLP, [FlatHeads], r"FlatHeads gives values of shape \[2, 32, 6\], expected .*heads\] = \[2, 32, 3, 2\]"),
        (MLP, [NegativeHeads], "NegativeHeads gives negative uncertainties; they must be at least 0"),
        (MLP, [TupleHeads], "TupleHeads must return a tensor, got tuple"),
        (MLP, [FailingHeads], r"FailingHeads fails on observations of shape \[2, 32, 2, 2\]: "),
    ],
)
def test_a_network_with_wrong_outputs_is_refused(value, parts, message):
    with pytest.raises(ValueError, match=message):
        check_values(function(parts, value=value))


def test_negative_scales_are_counted():
    q = function([HEADS])
    mean, scale = q.acting_features(observations())
    assert not q.count_negative_scales((mean, scale)).any()
    scale = scale.clone()
    scale[1, 3, 2, :2] -= 100
    expected = torch.zeros(scale.shape[:2])
    expected[1, 3] = 2
    assert torch.equal(q.count_negative_scales((mean, scale)).float(), expected)


class OnCircle(IndexDistribution):
    """A third party's index, on the unit circle."""

    size = 2

    def draw(self, generators, *shape):
        angle = torch.from_numpy(np.stack([g.uniform(0, 2 * np.pi, shape) for g in generators])).float()
        return torch.stack([angle.cos(), angle.sin()], -1)

    def variance(self, features):
        return features.square().sum(-1) / 2


class Circle(UncertaintyModule):
    """A third party's module, whose values are features · index."""

    distribution = OnCircle

    def __init__(self, spec):
        super().__init__()
        self.index = self.distribution()
        self.net = lane_nn.MLP(spec.observation, (4,), spec.num_actions * 2)

    def forward(self, obs):
        return self.net(obs).unflatten(-1, (-1, 2))


def test_modules_of_third_parties_add_up_with_the_built_in():
    q = function([HEADS, Circle, MEMBERS])
    assert [type(part) for part in q.parts] == [Ensemble, SoftplusHeads, Circle]
    features = q.acting_features(observations(2))
    index = q.indexer.draw(generators(), 2, 20_000)
    parts = [part.index.combine(f, i) for part, f, i in zip(q.parts, features, index)]
    torch.testing.assert_close(q.values(features, index), sum(parts))
    torch.testing.assert_close(q.values(features, index).std(2), q.std(features), rtol=0.03, atol=0)


def with_index(distribution):
    """`Circle` at another index."""
    return type(Circle.__name__, (Circle,), {"distribution": distribution})


class Unknown(IndexDistribution):
    """Of which nobody says how values vary."""

    size = 2
    draw = OnCircle.draw


def test_a_variance_that_is_not_known_is_estimated_from_a_few_indices():
    known, estimated = function([Circle]), function([with_index(Unknown)])
    obs = observations(200)
    std, other = (q.std(q.acting_features(obs)) for q in (known, estimated))
    assert torch.equal(other, estimated.std(estimated.acting_features(obs))), "the same each time"
    assert (other >= 0).all()
    np.testing.assert_allclose((other / std).mean(), 1, atol=0.1)
    assert (other / std).min() > 0.5 and (other / std).max() < 1.5  # 16 indices


class Unattached(ValueWrapper):
    def attach(self, build_network, spec):
        self.layers()


class Forgetful(ValueWrapper):
    def __init__(self, spec):
        super().__init__()

    def attach(self, build_network, spec):
        self.index = OnCircle()


class Indexless(Circle):
    def __init__(self, spec):
        super().__init__(spec)
        del self.index


class Short(OnCircle):
    def draw(self, generators, *shape):
        return super().draw(generators, *shape)[..., :1]


class Centred(OnCircle):
    def mean(self):
        return torch.zeros(1)


class Varied(OnCircle):
    def variance(self, features):
        return features.square()


class Listed(Circle):
    def __init__(self, spec):
        super().__init__(spec)
        self.nets = [self.net]


@pytest.mark.parametrize(
    "module, message",
    [
        (lambda spec: Unattached(), r"Unattached\.attach must begin with super\(\)\.attach\(build_network, spec\)"),
        (Forgetful, r"Forgetful\.attach must begin with super\(\)\.attach\(build_network, spec\)"),
        (Indexless, r"Indexless has no index: set self\.index, such as explore\.interfaces\.Gaussian\(8\)"),
        (
            with_index(Short),
            r"Short draws indices of shape \[2, 2, 3, 1\], expected \[lanes, \*shape, size\] = \[2, 2, 3, 2\]",
        ),
        (with_index(Centred), r"Centred has a mean of shape \[1\], expected \[size\] = \[2\]"),
        (with_index(Varied), r"Circle gives a variance of shape \[2, 32, 3, 2\], expected .* = \[2, 32, 3\]"),
        (Listed, r"Listed keeps layers in a plain list, nets; use torch\.nn\.ModuleList"),
    ],
)
def test_a_module_that_forgets_something_is_told_what(module, message):
    check_values(function([Circle]))
    with pytest.raises(ValueError, match=message):
        check_values(function([module]))


def test_an_index_that_nobody_draws_cannot_be_made():
    class Undrawn(IndexDistribution):
        size = 2

    with pytest.raises(TypeError, match="abstract method"):
        Undrawn()
