"""Index distributions against many of their own draws, and what learning asks of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from explore.interfaces import Gaussian, GaussianAtHead, IndexDistribution, Member, NoIndex, Sphere, WithMean
from explore.streams import stream, uniform

DRAWS = 40_000
DISTRIBUTIONS = {
    "no index": NoIndex(),
    "members": Member(4),
    "a Gaussian": Gaussian(3),
    "a Gaussian at a head": GaussianAtHead(3),
    "a sphere": Sphere(3),
    "a Gaussian and a mean": WithMean(Gaussian(3)),
    "a Gaussian at a head and a mean": WithMean(GaussianAtHead(3)),
    "a sphere and a mean": WithMean(Sphere(2)),
}
EVERY = pytest.mark.parametrize("index", DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)
HEADS = torch.tensor([[1, 0, 1], [0, 1, 0], [1, 1, 1], [0, 0, 0]]).float()


def generators(*seeds):
    return [stream(seed, "index") for seed in seeds or (0, 1)]


def some_features(index, lanes=2):
    return torch.randn(lanes, 5, 3, index.size, generator=torch.Generator().manual_seed(0))


def some_bits(index, rows=7):
    return (torch.rand(2, rows, index.bits, generator=torch.Generator().manual_seed(1)) < 0.5).float()


@EVERY
def test_mean_and_variance_are_those_of_many_draws(index):
    drawn = index.draw(generators(), DRAWS)
    assert drawn.shape == (2, DRAWS, index.size)
    error = (drawn.mean(1) - index.mean()).abs()
    assert index.mean().shape == (index.size,)
    assert (error <= 5 * drawn.std(1) / DRAWS**0.5 + 1e-6).all()
    features = some_features(index)
    values = torch.einsum("lbas,lds->lbda", features.double(), drawn.double())
    torch.testing.assert_close(values.var(2), index.variance(features).double(), rtol=0.05, atol=1e-6)


@EVERY
def test_features_are_combined_with_an_index_as_a_scalar_product(index):
    features, at = some_features(index), index.draw(generators(), 5, 4)
    found = index.combine(features, at).expand(2, 5, 4, 3)
    for lane in range(2):
        for row in range(5):
            for draw in range(4):
                products = features[lane, row].numpy() @ at[lane, row, draw].numpy()
                np.testing.assert_allclose(found[lane, row, draw], products, rtol=1e-5, atol=1e-6)


@EVERY
def test_a_lane_that_waits_draws_nothing_and_does_not_disturb_the_other(index):
    [waiting, other], [_, both] = (index.draw(own, 6) for own in ([None, *generators(1)], generators(0, 1)))
    assert torch.equal(other, both)
    assert waiting.isfinite().all()
    bits = some_bits(index)
    alone, company = (index.draw_columns(own, bits) for own in ([None, *generators(1)], generators(0, 1)))
    assert torch.equal(alone[1][1], company[1][1]) and torch.equal(alone[0][-1], company[0][-1])


@EVERY
def test_what_learning_asks_has_the_shapes_that_it_expects(index):
    bits, draws = some_bits(index), 2 * (index.count or 1)
    lanes, rows = bits.shape[:2]
    assert index.draw_batch(generators(), rows, 3).expand(lanes, rows, 3, index.size).isfinite().all()
    assert index.draw_to_learn(generators(), bits, draws).expand(lanes, rows, draws, index.size).isfinite().all()
    assert index.weigh(bits, draws).shape == (lanes, rows, draws)
    columns, at = index.draw_columns(generators(), bits)
    assert columns.expand(lanes, rows, 1, columns.shape[-1]).isfinite().all()
    assert at.shape == (lanes, rows, 1, index.size)
    assert index.perturb(torch.ones(lanes, rows, index.size), at).shape == (lanes, rows, 1)


@pytest.mark.parametrize(
    "index, numbers, words",
    [
        (NoIndex(), [1.0], ""),
        (Member(3), [0.0, 0.0, 1.0], "member=2"),
        (Gaussian(2), [0.5, -1.25], "0.5000 -1.2500"),
        (GaussianAtHead(3), [0.0, -0.25, 0.0], "z=-0.2500 head=1"),
        (Sphere(2), [0.6, -0.8], "0.6000 -0.8000"),
        (WithMean(GaussianAtHead(2)), [0.0, 0.5, 1.0], "z=0.5000 head=1"),
    ],
)
def test_an_index_in_words(index, numbers, words):
    assert index.describe(np.array(numbers, np.float32)) == words


# Heads


def test_heads_to_learn_are_drawn_uniformly_among_set_bits():
    index = GaussianAtHead(3)
    bits = HEADS.repeat_interleave(6000, 0)[None]
    drawn = index.draw_to_learn(generators(0), bits, 1).squeeze(2)[0]
    assert (drawn.count_nonzero(-1) == 1).all()
    shares = (drawn != 0).float().unflatten(0, (4, -1)).mean(1)
    expected = torch.tensor([[0.5, 0, 0.5], [0, 1, 0], [1 / 3] * 3, [1 / 3] * 3])
    torch.testing.assert_close(shares, expected, atol=0.03, rtol=0)
    assert ((shares == 0) == (expected == 0)).all(), "never a head whose bit is not set"
    z = drawn.sum(-1)
    assert z.mean().abs() < 0.03 and (z.std() - 1).abs() < 0.03


def test_one_head_of_a_transition_is_trained_and_its_target_is_at_that_head():
    columns, at = GaussianAtHead(3).draw_columns(generators(0), HEADS[None])
    assert torch.equal(columns, (at != 0).float())
    assert torch.equal(columns.sum((2, 3)), torch.ones(1, 4))
    assert (columns.squeeze(2)[0, :3] <= HEADS[:3]).all()


def test_masked_heads_are_all_trained_whose_bit_is_set():
    columns, at = GaussianAtHead(3, "masked").draw_columns(generators(0), HEADS[None])
    assert torch.equal(columns, HEADS[None].unsqueeze(2))
    assert (at.count_nonzero(-1) == 1).all()


def test_heads_out_of_range_are_refused():
    with pytest.raises(ValueError, match="heads must be at least 1, got 0"):
        GaussianAtHead(0)
    with pytest.raises(ValueError, match="train_heads must be 'one' or 'masked', got 'all'"):
        GaussianAtHead(2, "all")


# Members


@pytest.mark.parametrize("draws", [3, 6])
def test_learning_goes_through_every_member_and_weighs_it_by_its_bit(draws):
    index = Member(3)
    assert index.count == index.bits == index.size == 3
    bits = torch.tensor([[[1, 0, 1], [0, 0, 0]]]).float()
    at, weight = index.draw_to_learn(generators(0), bits, draws), index.weigh(bits, draws)
    members = at.expand(1, 2, draws, 3).argmax(-1)
    assert sorted(members[0, 0].tolist()) == sorted([0, 1, 2] * (draws // 3))
    for row in range(2):
        assert weight[0, row].tolist() == [bits[0, row, member] for member in members[0, row]]


def test_a_member_is_drawn_for_the_target_whatever_the_bits():
    bits = torch.zeros(1, 6000, 3)
    columns, at = Member(3).draw_columns(generators(0), bits)
    assert torch.equal(columns.squeeze(2), bits)
    torch.testing.assert_close(at[0, :, 0].mean(0), torch.full((3,), 1 / 3), atol=0.03, rtol=0)


def test_only_what_is_gone_through_has_a_count():
    assert {name for name, index in DISTRIBUTIONS.items() if index.count is not None} == {"no index", "members"}
    assert NoIndex().count == 1


# Noise of rewards


def test_reward_noise_differs_by_index_as_its_scalar_product():
    noise = torch.tensor([3.0, -4.0])[None, None]
    for index in (Gaussian(2), GaussianAtHead(2), Member(2)):
        at = index.draw(generators(0), 1, 5)
        torch.testing.assert_close(index.perturb(noise, at), (noise.unsqueeze(2) * at).sum(-1))
    at = Sphere(2).draw(generators(0), 1, 5)
    on_sphere = torch.tensor([0.6, -0.8])
    torch.testing.assert_close(Sphere(2).perturb(noise, at), (on_sphere * at).sum(-1))
    assert not NoIndex().perturb(torch.ones(1, 4, 1), torch.ones(1, 4, 1, 1)).any()


# A mean beside what varies


def test_with_a_mean_the_last_number_is_one_and_the_others_are_as_without():
    for varying in (Gaussian(2), Sphere(2), GaussianAtHead(2, "masked")):
        index, bits = WithMean(varying), torch.ones(2, 3, varying.bits)
        assert (index.size, index.bits) == (3, varying.bits)
        for method, arguments in [("draw", (4,)), ("draw_batch", (3, 2)), ("draw_to_learn", (bits, 2))]:
            drawn, without = (getattr(one, method)(generators(), *arguments) for one in (index, varying))
            assert torch.equal(drawn[..., :2], without) and (drawn[..., 2] == 1).all()
        [columns, at], [own, without] = (one.draw_columns(generators(), bits) for one in (index, varying))
        assert torch.equal(columns, own) and torch.equal(at[..., :2], without) and (at[..., 2] == 1).all()


def test_a_mean_takes_no_part_in_variance_or_noise():
    index, features = WithMean(Gaussian(2)), some_features(WithMean(Gaussian(2)))
    torch.testing.assert_close(index.variance(features), Gaussian(2).variance(features[..., :2]))
    noise, at = torch.tensor([[[1.0, 2.0, 500.0]]]), torch.tensor([[[[3.0, 4.0, 1.0]]]])
    assert index.perturb(noise, at).item() == 11


# Those of third parties


class Rademacher(IndexDistribution):
    """With `draw` alone."""

    def __init__(self, size):
        self.size = size

    def draw(self, generators, *shape):
        return 2.0 * (uniform(generators, *shape, self.size) < 0.5) - 1


def test_a_draw_is_all_that_a_distribution_must_have():
    index = Rademacher(3)
    bits = torch.zeros(2, 7, 0)
    assert torch.equal(index.mean(), torch.zeros(3)) and not hasattr(index, "variance")
    everything = [index.draw_batch(generators(), 7, 2), index.draw_to_learn(generators(), bits, 2)]
    everything.append(index.draw_columns(generators(), bits)[1])
    assert all(set(drawn.flatten().tolist()) == {-1.0, 1.0} for drawn in everything)
    assert torch.equal(index.weigh(bits, 2), torch.ones(2, 7, 2))
    assert torch.equal(index.draw_columns(generators(), bits)[0], torch.ones(1, 1, 1, 1))
    assert index.describe(np.array([1.0, -1.0, 1.0])) == "1.0000 -1.0000 1.0000"


def test_with_a_mean_nobody_knows_the_variance_of_what_nobody_knows_it():
    assert not hasattr(WithMean(Rademacher(2)), "variance")
