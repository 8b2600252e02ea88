"""Objectives train every value function that makes sense, and refuse the others with a sentence.

That their targets and losses are the paper's is shown in test_learner.py.
"""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from building import build, live
from explore_plugins.deterministic import Deterministic
from explore_plugins.ensemble import Ensemble
from explore_plugins.information_directed import InformationDirected
from explore_plugins.objectives import SampledTD, WassersteinTD
from explore_plugins.priors import Additive, NoPrior
from explore_plugins.schedules import Constant, Linear
from explore_plugins.selections import Boltzmann, EpsilonGreedy, MeanArgmax, OptimisticArgmax, SampledArgmax
from explore_plugins.softplus_heads import SoftplusHeads

from explore.interfaces import Normals

HEADS = partial(SoftplusHeads, heads=2, hidden=(5,))
MEMBERS = partial(Ensemble, size=2)
SELECTIONS = [MeanArgmax, SampledArgmax, OptimisticArgmax, EpsilonGreedy, Boltzmann, InformationDirected]


class Sinking(Linear):
    def __init__(self):
        super().__init__(start=1.0, end=-1.0)


@pytest.mark.parametrize("target", SELECTIONS)
@pytest.mark.parametrize(
    "uncertainty, objective",
    [
        (HEADS, WassersteinTD),
        ([MEMBERS, HEADS], WassersteinTD),
        (HEADS, partial(SampledTD, indices=3)),
        (HEADS, partial(SampledTD, noise=1.0)),
        (MEMBERS, partial(SampledTD, noise=1.0)),
        ([MEMBERS, HEADS], partial(SampledTD, noise=1.0, indices=3)),
        ([HEADS, HEADS], SampledTD),
        (Deterministic, SampledTD),
    ],
)
def test_every_combination_that_makes_sense_learns(uncertainty, objective, target):
    agent = build(uncertainty=uncertainty, objective=objective, target=target, acting=target)
    before = [stack.buffer[0].clone() for stack in agent.function.stacks]
    for rows in live(agent, 6).values():
        assert all(math.isfinite(rows[-1][name]) for name in (*agent.objective.losses, "uncertainty"))
    for stack, old in zip(agent.function.stacks, before):
        assert (stack.buffer[0] != old).any(1).all()


@pytest.mark.parametrize("prior", [Additive, NoPrior])
@pytest.mark.parametrize("uncertainty", [MEMBERS, Deterministic, [HEADS, HEADS]])
def test_wasserstein_td_needs_standard_deviations(uncertainty, prior):
    with pytest.raises(ValueError, match=r"needs one uncertainty module with scales .*; use objective\.SampledTD"):
        build(uncertainty=uncertainty, objective=WassersteinTD, prior=prior)


@pytest.mark.parametrize("uncertainty", [Deterministic, partial(Ensemble, size=1)])
def test_reward_noise_needs_an_index_to_differ_by(uncertainty):
    with pytest.raises(ValueError, match="noise perturbs the values of different indices differently"):
        build(uncertainty=uncertainty, objective=partial(SampledTD, noise=0.1))


def test_noise_is_stored_only_where_it_is_used():
    def numbers(**settings):
        replay = build(uncertainty=MEMBERS, objective=partial(SampledTD, **settings)).replay
        return [one.count for one in replay.stored if isinstance(one, Normals)]

    assert numbers() == []
    assert numbers(noise=0.1) == [2]


@pytest.mark.parametrize(
    "objective, message",
    [
        (partial(WassersteinTD, sigma=-1), "sigma must be at least 0, got -1"),
        (partial(WassersteinTD, sigma=Sinking), "sigma must be at least 0, got -1"),
        (partial(SampledTD, noise=-0.5), "noise must be at least 0 and finite, got -0.5"),
        (partial(SampledTD, indices=0), "indices must be at least 1, got 0"),
    ],
)
def test_parameters_out_of_range_are_refused(objective, message):
    with pytest.raises(ValueError, match=message):
        objective()


def test_schedules():
    assert [Constant(3.0)(progress) for progress in (0, 0.5, 1)] == [3.0] * 3
    falling = Linear(start=2.0, end=1.0, until=0.9)
    assert [falling(progress) for progress in (0, 0.45, 0.9, 1)] == pytest.approx([2.0, 1.5, 1.0, 1.0])
    with pytest.raises(ValueError, match="until must be above 0 and at most 1, got 0"):
        Linear(1.0, 0.0, until=0)


def test_unmasked_members_are_not_trained():
    agent = build(uncertainty=MEMBERS, objective=SampledTD, mask_probability=0.0)
    before = agent.function.stacks[0].buffer.clone()
    live(agent, 6)
    assert agent.phases[0] > 0
    assert torch.equal(agent.function.stacks[0].buffer, before)
