"""Selections pick actions as their names say."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from building import FLOATS, PINS
from explore_plugins.ensemble import Ensemble
from explore_plugins.schedules import Linear as LinearSchedule
from explore_plugins.selections import Boltzmann, EpsilonGreedy, MeanArgmax, OptimisticArgmax, SampledArgmax

from explore._values.indexed_value import IndexedValue
from explore.interfaces import Beliefs
from explore.streams import normal, stream, uniform

DRAWS = 6000
FUNCTION = IndexedValue(FLOATS, (0,), PINS["value"], [partial(Ensemble, size=3)], PINS["prior"]())
HEADS = IndexedValue(FLOATS, (0,), PINS["value"], [PINS["uncertainty"]], PINS["prior"]())


def ensemble(values, batch=1, member=0, progress=0.0):
    """Beliefs of an ensemble whose members have these values `[actions][members]` at every observation."""
    features = torch.tensor(values, dtype=torch.float32).expand(1, batch, -1, -1)
    index = torch.eye(3)[member].view(1, 1, 1, 3)
    return Beliefs(FUNCTION, (features,), (index,), [stream(0, "acting")], progress)


def frequencies(selection, beliefs):
    actions = selection.select(beliefs)
    return (torch.bincount(actions.flatten(), minlength=3) / actions.numel()).tolist()


VALUES = [[9.0, 0.0, 0.0], [4.0, 4.0, 4.0], [0.0, 0.0, 10.0]]  # means 3, 4, 3.33


def test_the_mean_of_an_ensemble_is_that_of_its_members():
    assert MeanArgmax().select(ensemble(VALUES)).item() == 1


@pytest.mark.parametrize("member, best", [(0, 0), (1, 1), (2, 2)])
def test_the_sampled_argmax_is_that_of_the_index(member, best):
    assert SampledArgmax().select(ensemble(VALUES, member=member)).item() == best


def test_the_mean_of_pins_is_that_of_the_mean_network():
    mean, scale = normal([stream(0, "mean")], 50, 3, 1), 10 * uniform([stream(0, "scale")], 50, 3, 3)
    index = (torch.ones(1, 1, 1, 1), torch.tensor([0.0, -2.0, 0.0]).view(1, 1, 1, 3))
    beliefs = Beliefs(HEADS, (mean, scale), index, [stream(0, "acting")], 0.0)
    assert torch.equal(MeanArgmax().select(beliefs)[..., 0], mean[..., 0].argmax(-1))
    assert torch.equal(SampledArgmax().select(beliefs)[..., 0], (mean[..., 0] - 2 * scale[..., 1]).argmax(-1))


@pytest.mark.parametrize("selection", [MeanArgmax, SampledArgmax])
def test_ties_are_broken_uniformly_at_random(selection):
    tied = ensemble([[1.0] * 3, [0.0] * 3, [1.0] * 3], batch=DRAWS)
    assert frequencies(selection(), tied) == pytest.approx([0.5, 0.0, 0.5], abs=0.03)
    assert frequencies(selection(), ensemble([[2.0] * 3] * 3, batch=DRAWS)) == pytest.approx([1 / 3] * 3, abs=0.03)


def test_only_lanes_with_ties_draw_random_numbers():
    features = torch.stack([torch.tensor(VALUES), torch.zeros(3, 3)]).unsqueeze(1)
    generators = [stream(lane, "acting") for lane in range(2)]
    MeanArgmax().select(Beliefs(FUNCTION, (features,), (), generators, 0.0))
    assert generators[0].random() == stream(0, "acting").random()
    assert generators[1].random() != stream(1, "acting").random()


def test_optimism_takes_the_maximum_over_draws():
    # With this many draws every member is drawn, and the best value of any of them wins.
    assert OptimisticArgmax(draws=100).select(ensemble(VALUES)).item() == 2


def test_optimism_with_few_draws_is_the_maximum_of_these():
    # The action 0 wins where a draw of two is member 0 and none is member 2: 3 of 9 pairs.
    won = frequencies(OptimisticArgmax(draws=2), ensemble(VALUES, batch=DRAWS))
    assert won == pytest.approx([3 / 9, 1 / 9, 5 / 9], abs=0.03)


def test_a_quantile_of_a_half_is_the_median():
    # Medians 0, 4, 0.
    assert OptimisticArgmax(draws=301, quantile=0.5).select(ensemble(VALUES)).item() == 1
    assert OptimisticArgmax(draws=301, quantile=0.9).select(ensemble(VALUES)).item() == 2


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_epsilon_greedy_is_random_that_often(epsilon):
    found = frequencies(EpsilonGreedy(epsilon), ensemble(VALUES, batch=DRAWS))
    assert found == pytest.approx([epsilon / 3, 1 - 2 * epsilon / 3, epsilon / 3], abs=0.03)


def test_epsilon_greedy_on_thompson_sampling():
    found = frequencies(EpsilonGreedy(0.3, greedy=SampledArgmax), ensemble(VALUES, batch=DRAWS, member=2))
    assert found == pytest.approx([0.1, 0.1, 0.8], abs=0.03)


class Fading(LinearSchedule):
    def __init__(self):
        super().__init__(start=1.0, end=0.0, until=0.5)


def test_epsilon_follows_its_schedule():
    later = frequencies(EpsilonGreedy(Fading), ensemble(VALUES, batch=DRAWS, progress=0.25))
    assert later == pytest.approx([0.5 / 3, 2 / 3, 0.5 / 3], abs=0.03)
    assert frequencies(EpsilonGreedy(Fading), ensemble(VALUES, batch=DRAWS, progress=0.5)) == [0, 1, 0]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_boltzmann_draws_from_the_softmax_of_the_mean(temperature):
    mean = torch.tensor([3.0, 4.0, 10 / 3])
    found = frequencies(Boltzmann(temperature), ensemble(VALUES, batch=DRAWS))
    assert found == pytest.approx((mean / temperature).softmax(0).tolist(), abs=0.03)


@pytest.mark.parametrize("selection", [MeanArgmax, SampledArgmax, OptimisticArgmax, EpsilonGreedy, Boltzmann])
def test_a_waiting_lane_draws_nothing_and_does_not_disturb_the_other(selection):
    features = torch.zeros(2, 4, 3, 3)
    index = (torch.full((2, 1, 1, 3), 1 / 3),)
    waiting = Beliefs(FUNCTION, (features,), index, [None, stream(1, "acting")], 0.0)
    both = Beliefs(FUNCTION, (features,), index, [stream(0, "acting"), stream(1, "acting")], 0.0)
    assert torch.equal(selection().select(waiting)[1], selection().select(both)[1])


@pytest.mark.parametrize(
    "build, message",
    [
        (partial(OptimisticArgmax, draws=0), "draws must be at least 1, got 0"),
        (partial(OptimisticArgmax, quantile=1.5), "quantile must be between 0 and 1, got 1.5"),
        (partial(EpsilonGreedy, epsilon=1.1), "epsilon must be between 0 and 1, got 1.1"),
        (partial(Boltzmann, temperature=0), "temperature must be at least"),
    ],
)
def test_parameters_out_of_range_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
