"""Information-directed sampling takes the mixture of actions with the least regret² / information."""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from building import BSP, FLOATS, PINS, build, live
from explore_plugins.deterministic import Deterministic
from explore_plugins.ensemble import Ensemble
from explore_plugins.information_directed import NOTHING, InformationDirected, mixtures
from explore_plugins.selections import MeanArgmax

from explore._learning.preflight import make_up_observations
from explore._values.indexed_value import IndexedValue
from explore.interfaces import Beliefs
from explore.streams import stream

KINDS = ["optimal_action", "value"]
BATCH = 6000

# Action 0 is worth 0. Action 1 is worth 1 on average if it is the best, else -5. So its mean is -2, and the
# regrets are 1/2 and 5/2. It tells 9 of the optimal action, and its value varies by 9 + 1/8.
RISK = [[0.0, 0.5], [0.0, 1.5], [0.0, -5.0], [0.0, -5.0]]


def drawn(values, batch=1, generators=None):
    """Beliefs whose draws are `[draws][actions]` at every observation, or `[lanes, batch, draws, actions]`."""
    values = torch.as_tensor(values, dtype=torch.float32)
    values = values.expand(1, batch, *values.shape) if values.dim() == 2 else values
    return SimpleNamespace(draw=lambda count: values, generators=generators or [stream(0, "acting")] * len(values))


def real(uncertainty, lanes=1, batch=5, generators=None, **parts):
    """Beliefs of networks that have not learned yet."""
    parts, seeds = PINS | parts, range(lanes)
    function = IndexedValue(FLOATS, seeds, parts["value"], [uncertainty], parts["prior"]())
    obs = make_up_observations(FLOATS, [stream(seed, "obs") for seed in seeds], batch)
    generators = generators or [stream(seed, "acting") for seed in seeds]
    return Beliefs(function, function.acting_features(obs), (), generators, 0.0)


REAL = {
    "PINs": partial(real, PINS["uncertainty"]),
    "BSP": partial(real, BSP["uncertainty"]),
    "one value function": partial(real, Deterministic),
}


def frequencies(selection, values):
    actions = selection.select(drawn(values, BATCH))
    assert actions.shape == (1, BATCH, 1)
    return (torch.bincount(actions.flatten(), minlength=len(values[0])) / BATCH).tolist()


def numbers(tensor):
    return tensor.flatten().tolist()


# In plain loops


def mean(values):
    return sum(values) / len(values)


def loop_regret(draws, action):
    return mean([max(draw) - draw[action] for draw in draws])


def loop_information(draws, action, kind):
    average = mean([draw[action] for draw in draws])
    if kind == "value":
        return mean([(draw[action] - average) ** 2 for draw in draws])
    told = 0.0
    for optimal in range(len(draws[0])):
        weights = [(draw[optimal] == max(draw)) / draw.count(max(draw)) for draw in draws]
        if sum(weights):
            given = sum(weight * draw[action] for weight, draw in zip(weights, draws)) / sum(weights)
            told += mean(weights) * (given - average) ** 2
    return told


def loop_least_ratio(regret, information):
    """Over all pairs of actions and a fine grid of q."""
    q, least = np.linspace(0, 1, 10001), math.inf
    for one in range(len(regret)):
        for other in range(len(regret)):
            cost, gain = ((1 - q) * each[one] + q * each[other] for each in (regret, information))
            least = min(least, (cost**2 / gain).min())
    return least


def some_draws(seed, draws, actions, ties):
    random = np.random.default_rng(seed)
    values = random.normal(size=(draws, actions)) * random.gamma(1.0, size=actions) + random.normal(size=actions)
    return (values.round() if ties else values).astype(np.float32).tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("draws, actions", [(1, 2), (2, 1), (7, 2), (30, 3), (100, 5)])
def test_regret_and_information_are_those_of_plain_loops(draws, actions, ties, kind):
    for seed in range(20):
        values = some_draws(seed, draws, actions, ties)
        regret, information = InformationDirected(draws, kind).estimates(drawn(values))
        assert regret.shape == information.shape == (1, 1, 1, actions)
        assert numbers(regret) == pytest.approx([loop_regret(values, a) for a in range(actions)], abs=1e-12)
        told = [loop_information(values, a, kind) for a in range(actions)]
        assert numbers(information) == pytest.approx(told, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("uncertainty", REAL)
@pytest.mark.parametrize("kind", KINDS)
def test_they_are_those_of_the_draws_of_a_value_function(uncertainty, kind):
    regret, information = InformationDirected(40, kind).estimates(REAL[uncertainty](lanes=2))
    values = REAL[uncertainty](lanes=2).draw(40)  # the same, from a stream at its beginning
    for lane in range(2):
        for row in range(5):
            draws = values[lane, row].tolist()
            assert numbers(regret[lane, row]) == pytest.approx([loop_regret(draws, a) for a in range(3)], abs=1e-9)
            told = [loop_information(draws, a, kind) for a in range(3)]
            assert numbers(information[lane, row]) == pytest.approx(told, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("actions", [2, 3, 4])
def test_no_pair_in_a_fine_grid_has_a_smaller_ratio(actions):
    mixed = 0
    for seed in range(60):
        regret, information = torch.tensor(np.random.default_rng(seed).gamma([[1.0], [0.2]], size=(2, actions)))
        first, second, share, ratio = mixtures(regret, information)
        best = int(ratio.argmin())
        one, other, q = int(first[best]), int(second[best]), float(share[best])
        cost, gain = ((1 - q) * each[one] + q * each[other] for each in (regret, information))
        assert float(cost**2 / gain) == pytest.approx(float(ratio[best]))
        grid = loop_least_ratio(regret.tolist(), information.tolist())
        assert 0.999 * grid < float(ratio[best]) < (1 + 1e-12) * grid
        mixed += one != other
    assert 10 < mixed < 50  # in some the best is a mixture, in others an action alone


def test_no_mixture_of_more_actions_has_a_smaller_ratio():
    random = np.random.default_rng(0)
    for _ in range(50):
        regret, information = random.gamma(0.5, size=(2, 5))
        policies = random.dirichlet([0.3] * 5, size=2000)
        found = mixtures(torch.tensor(regret), torch.tensor(information))[-1].min()
        assert found <= ((policies @ regret) ** 2 / (policies @ information)).min()


def test_the_ratio_is_never_above_the_number_of_actions():
    """Thompson sampling's is not (Russo and Van Roy 2016), and it is one of the mixtures."""
    for seed in range(200):
        beliefs = drawn(some_draws(seed, 50, 4, ties=seed % 2))
        assert mixtures(*InformationDirected().estimates(beliefs))[-1].min() <= 4


# By hand


@pytest.mark.parametrize("kind, told", [("optimal_action", 9.0), ("value", 9.125)])
def test_two_actions_by_hand(kind, told):
    selection = InformationDirected(4, kind)
    regret, information = selection.estimates(drawn(RISK))
    assert numbers(regret) == [0.5, 2.5]
    assert numbers(information) == [NOTHING, told]
    first, second, share, ratio = mixtures(regret, information)
    assert (first.tolist(), second.tolist()) == ([0, 0, 1], [0, 1, 1])
    assert numbers(share) == [0, 0.25, 0]  # (1/2 + 2 q)² / (told q) is least at q = 1/4
    assert numbers(ratio) == pytest.approx([0.25 / NOTHING, 4 / told, 6.25 / told])


@pytest.mark.parametrize("kind, told", [("optimal_action", 9.0), ("value", 9.125)])
def test_scores_are_the_ratios_of_actions_alone(kind, told):
    scores = InformationDirected(4, kind).scores(drawn(RISK, batch=3))
    assert scores.shape == (1, 3, 1, 2)
    assert numbers(scores[0, 2]) == pytest.approx([-0.25 / NOTHING, -6.25 / told])


def test_actions_are_drawn_from_the_mixture():
    assert frequencies(InformationDirected(), RISK) == pytest.approx([0.75, 0.25], abs=0.02)
    # The same with the actions exchanged, and with an action between them that is never the best.
    flipped = [[risk, -9.0, safe] for safe, risk in RISK]
    assert frequencies(InformationDirected(), flipped) == pytest.approx([0.25, 0, 0.75], abs=0.02)


def test_what_is_told_of_the_optimal_action_need_not_be_what_varies():
    """Action 2 varies most but whether action 1 is better than action 0 is known from action 1 alone."""
    values = [[0.0, 1.0, -9.0], [0.0, 1.0, -1.0], [0.0, -1.0, -9.0], [0.0, -1.0, -1.0]]
    told = numbers(InformationDirected(4).estimates(drawn(values))[1])
    assert told == [NOTHING, 1, NOTHING]
    assert numbers(InformationDirected(4, "value").estimates(drawn(values))[1]) == [NOTHING, 1, 16]


# Where there is nothing to weigh


@pytest.mark.parametrize("kind", KINDS)
def test_an_action_without_regret_is_taken_outright(kind):
    assert frequencies(InformationDirected(2, kind), [[-9.0, 1.0, -3.0], [0.5, 1.0, -3.0]]) == [0, 1, 0]
    tied = [[2.0, 0.0, 2.0, 2.0], [3.0, 1.0, 3.0, 3.0]]
    found = frequencies(InformationDirected(2, kind), tied)
    assert found == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3], abs=0.03)


@pytest.mark.parametrize("kind", KINDS)
def test_one_value_function_gives_its_best_action(kind):
    beliefs = REAL["one value function"](lanes=2, batch=50)
    assert torch.equal(InformationDirected(100, kind).select(beliefs), MeanArgmax().select(beliefs))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("draws", [3, 100, 1001])
def test_draws_that_are_all_the_same_tell_exactly_nothing(draws, kind):
    values = [[0.1, 1 / 3, -2.7, 0.1]] * draws
    information = InformationDirected(draws, kind).estimates(drawn(values))[1]
    assert numbers(information) == [NOTHING] * 4


def test_without_information_the_least_regret_decides():
    regret, information = torch.tensor([[3.0, 2.0, 2.0, 4.0], [NOTHING] * 4], dtype=torch.float64)
    ratio = mixtures(regret, information)[-1]
    first, second = torch.triu_indices(4, 4)
    least = ratio == ratio.min()
    assert (first[least].tolist(), second[least].tolist()) == ([1, 2], [1, 2])


def test_ties_are_broken_uniformly_at_random():
    assert frequencies(InformationDirected(), [[2.0] * 3] * 5) == pytest.approx([1 / 3] * 3, abs=0.03)
    # Nothing tells these two apart, and each alone has the least ratio.
    assert frequencies(InformationDirected(), [[1.0, 0.0], [0.0, 1.0]]) == pytest.approx([0.5, 0.5], abs=0.03)


@pytest.mark.parametrize("kind", KINDS)
def test_actions_of_the_same_values_are_tied_to_the_bit(kind):
    """However many there are: where sums round depends on their place in a tensor of another layout."""
    values = torch.tensor(some_draws(0, 99, 2, ties=False)).repeat_interleave(20, 1)
    for estimate in InformationDirected(99, kind).estimates(drawn(values)):
        assert len(set(numbers(estimate))) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_single_action(kind):
    assert frequencies(InformationDirected(3, kind), [[1.0], [2.0], [0.0]]) == [1]


def test_one_draw_is_thompson_sampling_in_each_step():
    beliefs, again = (REAL["PINs"](batch=BATCH) for _ in range(2))
    assert torch.equal(InformationDirected(draws=1).select(beliefs), again.draw(1).argmax(-1))


@pytest.mark.parametrize("kind", KINDS)
def test_values_of_any_size_give_numbers(kind):
    random = np.random.default_rng(0)
    for _ in range(300):
        values = random.normal(size=(6, 4)) * 10.0 ** random.choice([-45, -40, -20, 0, 20, 37], size=(1, 4))
        values = np.where(random.random(size=(6, 4)) < 0.3, 0.0, values)
        regret, information = InformationDirected(6, kind).estimates(drawn(values))
        _, _, share, ratio = mixtures(regret, information)
        assert regret.isfinite().all() and information.isfinite().all() and not ratio.isnan().any()
        assert ratio.min().isfinite() and share.min() >= 0 and share.max() < 1


# In an agent


def test_a_waiting_lane_draws_nothing_and_does_not_disturb_the_other():
    for beliefs in REAL.values():
        alone = InformationDirected(20).select(beliefs(lanes=2, generators=[None, stream(1, "acting")]))
        both = InformationDirected(20).select(beliefs(lanes=2))
        assert torch.equal(alone[1], both[1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parts", [PINS, BSP, BSP | {"uncertainty": Deterministic}])
def test_an_agent_acts_learns_and_is_evaluated_with_it(parts, kind):
    selection = partial(InformationDirected, draws=5, information=kind)
    agent = build(**parts | {"acting": selection, "target": selection, "evaluation": selection})
    for rows in live(agent, 6).values():
        assert all(math.isfinite(rows[-1][loss]) for loss in agent.objective.losses)
    actions = agent.actions(np.zeros((40, 2, 2), np.float32))
    assert actions.shape == (2, 40) and set(actions.flat) <= {0, 1, 2}


def test_an_ensemble_is_judged_by_its_members():
    """With many draws every member counts alike."""
    beliefs = real(partial(Ensemble, size=4), batch=3)
    regret, information = InformationDirected(draws=20000).estimates(beliefs)
    members = beliefs.function.values(beliefs.features, (torch.eye(4)[None, None],))  # [1, 3, members, actions]
    expected = InformationDirected().estimates(drawn(members))
    assert torch.allclose(regret, expected[0], rtol=0.1, atol=0.02)
    assert torch.allclose(information, expected[1], rtol=0.1, atol=0.02)


@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"draws": 0}, "draws must be at least 1, got 0"),
        ({"information": "entropy"}, "information must be 'optimal_action' or 'value', got 'entropy'"),
    ],
)
def test_parameters_out_of_range_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        InformationDirected(**parameters)
