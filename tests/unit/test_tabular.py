"""Tabular agents against the paper's formulas, plain loops and exact posteriors."""

from functools import partial

import dm_env
import numpy as np
import pytest
import torch
from building import live
from explore_plugins.deep_sea import DeepSea
from explore_plugins.random_mdp import RandomMDP
from explore_plugins.schedules import Linear
from explore_plugins.tabular import UCBVI, TabularPSRL, TabularQLearning, TabularRLSVI
from explore_plugins.tabular_wtd import TabularWTD, nearest_normal, squared_distance
from scipy import stats
from scipy.optimize import minimize

import explore
from explore._analysis.compare import compare
from explore._analysis.report.regret import bound
from explore._cli.main import main
from explore._config.configuration import load
from explore._config.discovery import discover
from explore._running.regret import best_values
from explore.interfaces import Spec
from explore.streams import Streams, stream

SMALL = partial(RandomMDP, states=3, actions=2, horizon=3)
AGENTS = [TabularWTD, TabularRLSVI, TabularPSRL, UCBVI, TabularQLearning]
RECIPES = ["wtd", "rlsvi", "psrl", "ucbvi", "egreedy"]
THREE_STATES = [f"environment.RandomMDP.{name} = {n}" for name, n in {"states": 3, "actions": 2, "horizon": 3}.items()]


def build(kind, seeds=(0,), environment=SMALL, **settings):
    task = environment(seed=0)
    actions = task.action_spec().num_values
    spec = Spec(task.observation_spec(), actions, task.reward_spec(), task.true_model().observations)
    return kind(spec, Streams(seeds), torch.device("cpu"), **settings)


NUMBERS = SMALL(0).belief_map()


def tell(agent, stage, state, action, outcomes, numbers=NUMBERS):
    """Shows the agent's only lane what followed an action, each outcome a reward and a next state."""
    after = min(stage + 1, len(numbers) - 1)
    for reward, following in outcomes:
        agent.act(numbers[stage, [state]], [True])
        agent.observe([action], [dm_env.transition(reward, numbers[after, following])], [True])


class Diary(RandomMDP):
    """Writes down what happened at each (stage, state, action)."""

    def __init__(self, seed, **settings):
        super().__init__(seed, **({"states": 3, "actions": 2, "horizon": 3} | settings))
        self.seen = {}
        self.steps = []

    def step(self, action):
        here = (self._stage, self._state, action)
        timestep = super().step(action)
        self.steps.append((here, timestep.reward, self._state))
        self.seen.setdefault(here, []).append((timestep.reward, self._state))
        return timestep


def live_in_diary(agent, episodes, each_episode):
    """Lets the agent live; calls `each_episode(values, seen)` with what it acted on and what it knew before."""
    diaries, known = [], {}

    def environment(seed):
        diaries.append(Diary(seed))
        return diaries[-1]

    def measure(episode):
        each_episode(agent.values[0], {place: [*outcomes] for place, outcomes in known.items()})
        known.update({place: [*outcomes] for place, outcomes in diaries[0].seen.items()})
        return {}

    live(agent, episodes, environment, measure)


# Wasserstein TD: closed forms


def test_the_mean_and_the_deviation_are_the_closed_forms():
    agent = build(TabularWTD, sigma=2.0, prior_mean=5.0, beta=4.0)  # so the prior's deviation is 1
    tell(agent, 2, 0, 1, [(1, 0), (0, 2), (1, 0)])
    tell(agent, 1, 2, 0, [(1, 0), (0, 0), (0, 1), (0, 1)])
    values = agent.plan(0.0)[0]
    assert agent.mean[0, 2, 0, 1] == pytest.approx((2 + 4 * 5) / 7)
    assert agent.std[0, 2, 0, 1] == pytest.approx((np.sqrt(3) * 2 + 4 * 1) / 7)
    ahead = 2 * values[2, 0].max() + 2 * values[2, 1].max()
    assert agent.mean[0, 1, 2, 0] == pytest.approx((1 + ahead + 4 * 5) / 8)
    assert agent.std[0, 1, 2, 0] == pytest.approx((2 * 2 + 4 * 1) / 8)
    assert (agent.mean[0, 0], agent.std[0, 0]) == (pytest.approx(5.0), pytest.approx(1.0))


def test_without_settings_they_are_those_of_theorem_1():
    agent = build(TabularWTD)
    assert (agent.sigma**2, agent.prior_mean, agent.beta) == (pytest.approx(27), 3, 3.0)
    assert agent.prior_sigma**2 == pytest.approx(9)


def test_of_sigma_beta_and_the_prior_s_deviation_two_give_the_third():
    assert build(TabularWTD, sigma=2.0, prior_sigma=0.5).beta == 16
    assert build(TabularWTD, sigma=2.0, beta=16.0).prior_sigma == 0.5
    agent = build(TabularWTD, sigma=2.0, beta=4.0, prior_sigma=3.0)  # an ablation: a prior that weighs something else
    tell(agent, 2, 0, 0, [(1, 0)])
    agent.plan(0.0)
    assert agent.std[0, 2, 0, 0] == pytest.approx((2 + 4 * 3) / 5)


@pytest.mark.parametrize("p", [1, 2, 4])
def test_deviations_vanish_with_visits_unless_the_noise_does_not_decay(p):
    def deviation(visits, decay):
        agent = build(TabularWTD, decay=decay, p=p)
        here = (0, 2, 0, 0)
        agent.visits[here], agent.counts[*here, 0] = visits, visits
        agent.plan(0.0)
        return agent.std[here] / agent.sigma

    decayed = [deviation(10**k, decay=True) for k in range(1, 9, 2)]
    assert decayed == sorted(decayed, reverse=True)
    assert decayed[-1] < 2e-3
    assert deviation(10**7, decay=False) == pytest.approx(1, abs=1e-2)


# Wasserstein TD: the loss, with distances by quantile functions

LEVELS = stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000)


def distance(p, first, second):
    """W_p of two normal distributions (mean, deviation): how far apart their quantiles are."""
    quantiles = [mean + deviation * LEVELS for mean, deviation in (first, second)]
    return np.mean(np.abs(quantiles[0] - quantiles[1]) ** p) ** (1 / p)


def loss_at(agent, values, stage, state, action, outcomes, at):
    """The paper's L_p + psi_p, outcome by outcome."""
    noise = agent.sigma / np.sqrt(len(outcomes)) if agent.decay else agent.sigma
    ahead = values[stage + 1].max(-1) if stage < 2 else np.zeros(3)
    total = agent.beta * distance(agent.p, at, (agent.prior_mean, agent.prior_sigma)) ** 2
    return total + sum(distance(agent.p, at, (reward + ahead[x], noise)) ** 2 for reward, x in outcomes)


@pytest.mark.parametrize("decay", [True, False])
@pytest.mark.parametrize("p", [1, 2, 4])
def test_mean_and_deviation_minimise_the_papers_loss(p, decay):
    agent = build(TabularWTD, p=p, decay=decay, sigma=2.0, prior_mean=2.0, beta=3.0)
    data = {(2, 0, 1): [(1, 0), (0, 2), (1, 0)], (1, 2, 0): [(1, 0), (0, 0), (0, 1), (0, 1), (1, 2)]}
    for place, outcomes in data.items():
        tell(agent, *place, outcomes)
    values = agent.plan(0.0)[0]
    for place, outcomes in data.items():
        found = np.array([agent.mean[0][place], agent.std[0][place]])
        loss = partial(loss_at, agent, values, *place, outcomes)
        least = loss(found)
        for angle in np.arange(0, 2 * np.pi, np.pi / 4):
            assert loss(found + 0.05 * np.array([np.cos(angle), np.sin(angle)])) > least
        best = minimize(loss, found + 0.3, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-10})
        np.testing.assert_allclose(found, best.x, atol=1e-2)
        assert least <= best.fun * (1 + 1e-6)


def random_problems(sigma, count=300, outcomes=6, each=3.0):
    """Distributions to be near to: outcomes that came so often each, on average, and a prior."""
    random = np.random.default_rng(0)
    weights = np.hstack([random.poisson(each, (count, outcomes)) + np.eye(outcomes)[0], np.full((count, 1), 3.0)])
    noise = sigma / np.sqrt(weights[:, :-1].sum(-1, keepdims=True))
    means = np.hstack([random.normal(5, 2, (count, outcomes)), np.full((count, 1), 10.0)])
    stds = np.hstack([np.repeat(noise, outcomes, 1), np.full((count, 1), sigma / np.sqrt(3))])
    weigh = partial(np.average, axis=1, weights=weights)
    return means, stds, weights, (weigh(means), weigh(stds))


@pytest.mark.parametrize("p", [1, 4])
@pytest.mark.parametrize("sigma", [10.0, 1.0, 0.01])
def test_no_other_normal_distribution_is_nearer(p, sigma):
    """Against scipy's search. Losses are compared: with p = 1 and little noise they do not tell deviations apart."""
    means, stds, weights, start = random_problems(sigma)
    found = np.stack(nearest_normal(p, means, stds, weights, start), -1)
    for problem in range(0, 300, 20):

        def loss(at, problem=problem):
            parts = squared_distance(p, at[0] - means[problem], at[1] - stds[problem])
            return (weights[problem] * parts[0]).sum()

        search = {"method": "Nelder-Mead", "options": {"xatol": 1e-8, "fatol": 1e-12}}
        best = min(minimize(loss, at, **search).fun for at in (found[problem], np.array(start)[:, problem]))
        assert loss(found[problem]) <= best * (1 + 1e-9)


@pytest.mark.parametrize("p", [1, 4])
def test_a_step_to_any_side_leads_away_even_where_plain_newton_steps_fail(p):
    means, stds, weights, start = random_problems(3.0, count=2000, outcomes=20, each=0.5)
    found = nearest_normal(p, means, stds, weights, start)

    def loss(a, b):
        return (weights * squared_distance(p, (found[0] + a)[:, None] - means, (found[1] + b)[:, None] - stds)[0]).sum(
            -1
        )

    least = loss(0, 0)
    for radius in (1e-3, 1e-2, 0.1, 1.0):
        for angle in np.arange(0, 2 * np.pi, np.pi / 8):
            assert (loss(radius * np.cos(angle), radius * np.sin(angle)) >= least * (1 - 1e-9)).all()


def test_newton_s_method_gives_the_closed_form_where_there_is_one():
    means, stds, weights, closed = random_problems(2.0)
    anywhere = (np.full(300, -4.0), np.full(300, 9.0))
    np.testing.assert_allclose(nearest_normal(2, means, stds, weights, anywhere), closed, rtol=1e-9)


@pytest.mark.parametrize("p", [1, 4])
def test_newton_s_method_gets_there_from_any_start(p):
    means, stds, weights, start = random_problems(10.0)
    near = nearest_normal(p, means, stds, weights, start)
    far = nearest_normal(p, means, stds, weights, (start[0] + 50, start[1] + 80))
    np.testing.assert_allclose(near, far, rtol=1e-5)


@pytest.mark.parametrize("p", [1, 4])
def test_one_normal_distribution_is_nearest_to_itself(p):
    same = np.full((2, 3), 1.5), np.full((2, 3), 0.5), np.ones((2, 3))
    found = nearest_normal(p, *same, (np.full(2, 1.5), np.full(2, 0.5)))
    assert np.array(found).tolist() == [[1.5, 1.5], [0.5, 0.5]]
    found = nearest_normal(p, *same, (np.full(2, 4.0), np.full(2, 0.7)))
    np.testing.assert_allclose(found, [[1.5, 1.5], [0.5, 0.5]], atol=1e-4)


@pytest.mark.parametrize("p", [1, 2, 4])
def test_distances_are_those_of_quantiles_and_derivatives_those_of_differences(p):
    random, step = np.random.default_rng(0), 1e-5
    a, b = random.normal(size=(2, 20))
    parts = squared_distance(p, a, b)
    quantiles = [distance(p, (0, 2), (x, 2 + y)) ** 2 for x, y in zip(a, b)]
    np.testing.assert_allclose(parts[0], quantiles, rtol=1e-2)
    by_a, by_b = (
        (squared_distance(p, a + x, b + y)[:3] - squared_distance(p, a - x, b - y)[:3]) / (2 * step)
        for x, y in ((step, 0), (0, step))
    )
    np.testing.assert_allclose(parts[1:], [by_a[0], by_b[0], by_a[1], by_a[2], by_b[2]], atol=1e-6)


@pytest.mark.parametrize("p", [1, 4])
def test_distances_are_finite_at_all_extremes(p):
    a, b = np.array([[0, 0, 1, 1, 1, 1e-12, 0], [0, 1, 0, 1e-250, -1e-9, 1, 1e-250]], float)
    with np.errstate(all="raise", under="ignore"):
        assert np.isfinite(squared_distance(p, a, b)).all()


@pytest.mark.parametrize("p", [1, 4])
def test_where_rewards_follow_from_the_transition_they_need_not_be_binary(p):
    agent = build(TabularWTD, environment=partial(DeepSea, size=3), sigma=0.3, prior_mean=1.0, p=p)
    tell(agent, 2, 0, 1, [(-0.25, 0)] * 3 + [(0.5, 1)], DeepSea(0, size=3).cells())
    agent.plan(0.0)
    means, noise = np.array([-0.25, 0.5, 1.0]), 0.3 / np.sqrt(4)
    stds = np.array([noise, noise, agent.prior_sigma])

    def loss(at):
        return (np.array([3, 1, 3]) * squared_distance(p, at[0] - means, at[1] - stds)[0]).sum()

    search = {"method": "Nelder-Mead", "options": {"xatol": 1e-7, "fatol": 1e-12}}
    assert loss([agent.mean[0, 2, 0, 1], agent.std[0, 2, 0, 1]]) <= minimize(loss, [0.5, 0.2], **search).fun + 1e-9


@pytest.mark.parametrize("p", [1, 4])
def test_where_there_is_one_outcome_p_does_not_matter(p):
    """The nearest to two points lies between them, as far from each as their weights say, by any norm."""
    agents = [build(TabularWTD, p=p, sigma=0.7) for p in (2, p)]
    for agent in agents:
        tell(agent, 2, 0, 1, [(1, 0)] * 5)
        agent.plan(0.0)
    for name in ("mean", "std"):
        np.testing.assert_allclose(*(getattr(agent, name)[0] for agent in agents), rtol=1e-7)


# Planning, against plain loops over what was seen


def normal_reference(mean_and_deviation, prior):
    """Backward induction with values mean + deviation z at each (h, x, a); `seen` may lack some."""

    def plan(seen, z):
        values = np.zeros((4, 3, 2))
        for h in (2, 1, 0):
            for x in range(3):
                for a in range(2):
                    targets = [r + (values[h + 1, after].max() if h < 2 else 0) for r, after in seen.get((h, x, a), [])]
                    mean, deviation = mean_and_deviation(targets) if targets else prior
                    values[h, x, a] = mean + deviation * z[h, x, a]
        return values[:3]

    return plan


def wtd(targets, decay=True):
    n, sigma, prior_sigma, beta, prior_mean = len(targets), 1.2, 0.6, 4.0, 2.0
    noise = sigma / np.sqrt(n) if decay else sigma
    return (sum(targets) + beta * prior_mean) / (n + beta), (n * noise + beta * prior_sigma) / (n + beta)


def rlsvi(targets):
    """A normal posterior: precisions add up."""
    precision = len(targets) / 1.2**2 + 1 / 0.6**2
    return (sum(targets) / 1.2**2 + 2.0 / 0.6**2) / precision, 1 / np.sqrt(precision)


@pytest.mark.parametrize(
    ("kind", "settings", "reference"),
    [
        (TabularWTD, {}, wtd),
        (TabularWTD, {"decay": False}, partial(wtd, decay=False)),
        (TabularWTD, {"shared_index": True}, wtd),
        (TabularRLSVI, {}, rlsvi),
    ],
)
def test_plans_are_those_of_algorithm_1_in_plain_loops(kind, settings, reference):
    agent = build(kind, seeds=(5,), sigma=1.2, prior_sigma=0.6, prior_mean=2.0, **settings)
    random, plan, episodes = stream(5, "index"), normal_reference(reference, prior=(2.0, 0.6)), []

    def check(values, seen):
        shape = (1, 1, 1) if agent.shared_index else (3, 3, 2)
        z = np.broadcast_to(random.standard_normal(shape), (3, 3, 2))
        np.testing.assert_allclose(values, plan(seen, z), rtol=1e-12)
        acted_on = np.take_along_axis(values, agent.greedy[0][..., None], -1)[..., 0]
        np.testing.assert_array_equal(acted_on, values.max(-1))
        episodes.append(seen)

    live_in_diary(agent, 40, check)
    assert sum(map(len, episodes[-1].values())) == 39 * 3


def test_a_shared_index_is_one_number_for_all():
    agent = build(TabularWTD, seeds=(0, 1), shared_index=True)
    z = (agent.plan(0.0) - agent.mean) / agent.std
    for lane in z:
        np.testing.assert_allclose(lane, lane[0, 0, 0])
    assert z[0, 0, 0, 0] != z[1, 0, 0, 0]
    agent = build(TabularWTD)
    assert len(np.unique((agent.plan(0.0) - agent.mean) / agent.std)) == 18


def test_ucbvi_in_plain_loops():
    agent, episodes = build(UCBVI, scale=0.3, delta=0.2), []

    def check(values, seen):
        episodes.append(seen)
        expected = np.zeros((4, 3, 2))
        for h in (2, 1, 0):
            for x in range(3):
                for a in range(2):
                    outcomes, left = seen.get((h, x, a), []), 3 - h
                    if outcomes:
                        mean = np.mean([r + (expected[h + 1, after].max() if h < 2 else 0) for r, after in outcomes])
                        bonus = 0.3 * left * np.sqrt(np.log(5 * 3 * 2 * 3 * len(episodes) / 0.2) / len(outcomes))
                        expected[h, x, a] = min(mean + bonus, left)
                    else:
                        expected[h, x, a] = left
        np.testing.assert_allclose(values, expected[:3])

    live_in_diary(agent, 60, check)
    assert agent.values[0].min() < 0.9  # some bonus is small enough to matter


def best_action_values(models):
    transitions, rewards = np.stack([m.transitions for m in models]), np.stack([m.rewards for m in models])
    later = np.concatenate([best_values(transitions, rewards)[:, 1:], np.zeros((len(models), 1, 3))], 1)
    return rewards + (transitions * later[:, :, None, None]).sum(-1)


def test_ucbvi_is_optimistic():
    seeds = range(40)
    agent, best = build(UCBVI, seeds), best_action_values([SMALL(seed).true_model() for seed in seeds])
    too_low = []
    live(agent, 300, SMALL, lambda episode: too_low.append((agent.values < best - 1e-9).any((1, 2, 3))) or {})
    assert np.mean(too_low) < 0.1  # delta


# PSRL


def test_psrl_draws_rewards_from_their_beta_posterior():
    agent = build(TabularPSRL, mass=4.0)
    tell(agent, 2, 0, 0, [(1, 0), (1, 2), (0, 1), (1, 0)])
    drawn = np.array([agent.plan(0.0)[0, 2, 0, 0] for _ in range(3000)])
    assert stats.kstest(drawn, stats.beta(3 + 2, 1 + 2).cdf).pvalue > 1e-3


def test_psrl_draws_transitions_from_their_dirichlet_posterior():
    agent = build(TabularPSRL, mass=3.0)
    tell(agent, 1, 0, 0, [(1, 0), (1, 2), (0, 2), (0, 2), (0, 0)])
    drawn = np.array([agent._drawn()[0][0, 1, 0, 0] for _ in range(3000)])
    parameters = np.array([2, 0, 3]) + 1  # a third of the mass each
    posterior = stats.dirichlet(parameters)
    np.testing.assert_allclose(drawn.sum(-1), 1)
    np.testing.assert_allclose(drawn.mean(0), posterior.mean(), atol=5 * np.sqrt(posterior.var().max() / 3000))
    np.testing.assert_allclose(drawn.var(0), posterior.var(), rtol=0.15)


def test_psrl_acts_on_the_best_policy_of_its_draw():
    agent = build(TabularPSRL)
    models = []
    draw = agent._drawn
    agent._drawn = lambda: models.append(draw()) or models[-1]
    values = agent.plan(0.0)
    [(transitions, rewards)] = models
    np.testing.assert_allclose(values.max(-1), best_values(transitions, rewards))


def test_psrl_counts_rewards_between_bounds_as_shares():
    agent = build(TabularPSRL, environment=partial(DeepSea, size=3, unscaled_move_cost=3.0))  # from -1 to 1
    tell(agent, 2, 0, 0, [(-1.0, 0), (1.0, 0), (0.5, 0)], DeepSea(0, size=3).cells())
    assert agent.ones[0, 2, 0, 0, 0] == pytest.approx(0 + 1 + 0.75)
    for _ in range(50):
        values = agent.plan(0.0)
        assert (np.abs(values[0, 2]) <= 1).all()


# Q-learning


def test_q_learning_by_hand():
    agent = build(TabularQLearning, initial=0.5, learning_rate=0.25, epsilon=0.0)
    tell(agent, 2, 1, 0, [(1, 0)])
    assert agent.values[0, 2, 1].tolist() == [0.5 + 0.25 * (1 - 0.5), 0.5]
    tell(agent, 1, 0, 1, [(0, 1)])
    assert agent.values[0, 1, 0].tolist() == [0.5, 0.5 + 0.25 * (0.625 - 0.5)]


def test_q_learning_forgets_its_start_and_then_slows_down():
    agent = build(TabularQLearning, initial=9.0)
    tell(agent, 2, 0, 0, [(1, 0)])
    assert agent.values[0, 2, 0, 0] == pytest.approx(1)  # (H + 1) / (H + 1)
    tell(agent, 2, 0, 0, [(0, 0)])
    assert agent.values[0, 2, 0, 0] == pytest.approx(1 - 4 / 5)  # (H + 1) / (H + 2)


class Falling(Linear):
    def __init__(self):
        super().__init__(start=0.6, end=0.2)


def test_dithering_is_part_of_the_policy():
    agent = build(TabularQLearning, epsilon=Falling)
    agent.begin_episode(np.zeros(1, int), progress=0.0)
    policy = agent.policy(np.arange(9))[0]
    np.testing.assert_allclose(np.sort(policy, -1), [[0.3, 0.7]] * 9)
    actions = [agent.act(np.zeros(1, int), [True])[0] for _ in range(4000)]
    assert np.mean(actions) == pytest.approx(policy[0, 1], abs=0.04)
    agent.begin_evaluation()
    assert agent.evaluate(np.zeros(1, int), [True]) == [agent.values[0, 0, 0].argmax()]


# What all share


@pytest.mark.parametrize("kind", [UCBVI, TabularQLearning])
def test_ties_are_broken_evenly(kind):
    agent = build(kind, seeds=range(300))  # every value is tied at first
    agent.begin_episode(np.zeros(300, int), 0.0)
    assert agent.greedy.mean() == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(300 * 9))


@pytest.mark.parametrize("kind", AGENTS)
def test_a_lane_that_waits_learns_nothing_and_draws_nothing(kind):
    agent, other = build(kind, (0, 1)), build(kind, (0, 1))
    for one in (agent, other):
        one.begin_episode(np.zeros(2, int), 0.0)
    for _ in range(5):
        actions = agent.act(np.array([0, 4]), [True, False])
        agent.observe(actions, [dm_env.transition(1.0, np.int32(4))] * 2, [True, False])
    assert (agent.visits[0].sum(), agent.visits[1].sum()) == (5, 0)
    assert agent.counts[1].sum() == agent.rewards[1].sum() == 0
    assert (agent.values[1] == other.values[1]).all()
    states = [{name: lanes[1] for name, lanes in one.streams.state_dict().items()} for one in (agent, other)]
    for name, state in states[0].items():
        assert state == states[1].get(name, dict(stream(1, name).bit_generator.state))


@pytest.mark.parametrize("kind", AGENTS)
def test_states_that_cannot_be_reached_stay_as_they_were(kind):
    agent = build(kind, environment=partial(DeepSea, size=4))
    rows = live(agent, 30, partial(DeepSea, size=4))[0]
    above = np.triu(np.ones((4, 4), bool), 1)
    assert agent.visits[0][above].sum() == 0
    assert agent.visits[0][~above].sum() == 4 * len(rows)
    assert np.isfinite(agent.values).all()


def rows_of(recipe, seeds, bindings, episodes=15):
    settings = [f"experiment.episodes = {episodes}", f"experiment.seeds = {tuple(seeds)}", *bindings]
    rows = [row for lanes in load(recipe, settings, discover()).build().train() for row in lanes]
    return {seed: [row for row in rows if row["seed"] == seed] for seed in seeds}


@pytest.mark.parametrize(
    ("recipe", "bindings"),
    [
        *((f"{name}_random_mdp", []) for name in RECIPES),
        *((f"{name}_deep_sea", ["environment.DeepSea.size = 7"]) for name in RECIPES),
        *(("wtd_random_mdp", [f"agent.TabularWTD.{change}"]) for change in ("p = 1", "p = 4", "shared_index = True")),
        ("wtd_random_mdp", ["environment.RandomMDP.states = 1", "environment.RandomMDP.actions = 1"]),
    ],
)
def test_a_seed_is_the_same_alone_and_in_company(recipe, bindings):
    alone = rows_of(recipe, [3], bindings)[3]
    for company in ([0, 1, 2, 3, 4], [7, 3], [3, 9, 8]):
        assert rows_of(recipe, company, bindings)[3] == alone


@pytest.mark.parametrize("name", [*RECIPES, "wtd_p"])
def test_a_run_that_is_resumed_is_the_same_to_the_byte(name, tmp_path):
    recipe = f"{name.removesuffix('_p')}_random_mdp"
    more = ["agent.TabularWTD.p = 4"] if name == "wtd_p" else []
    bindings = [*THREE_STATES, *more, "experiment.checkpoint_every = 5"]

    def run(out, episodes):
        changed = [*bindings, f"experiment.episodes = {episodes}"]
        return explore.run(recipe, bindings=changed, seeds=(0, 1, 2), out=tmp_path / out, quiet=True)

    whole, _ = run("whole", 24), run("parts", 12)
    parts = explore.run(bindings=["experiment.episodes = 24"], out=tmp_path / "parts", resume=True, quiet=True)
    files = [{path.name: path.read_bytes() for path in (run.folder / "snapshots").iterdir()} for run in (whole, parts)]
    assert files[0] == files[1]
    texts = [(run.folder / "episodes.csv").read_text().splitlines() for run in (whole, parts)]
    assert texts[0][0].endswith(",regret,seconds")
    first, second = ([line.rpartition(",")[0] for line in lines] for lines in texts)  # but for the seconds
    assert first == second


def test_tabular_agents_are_swept_and_compared_like_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bindings = [*THREE_STATES, "experiment.episodes = 5"]
    recipes = ["wtd_random_mdp", "psrl_random_mdp"]
    runs = explore.sweep(recipes, bindings=bindings, seeds=(0, 1), out="out", jobs=1, quiet=True).values()
    rows = compare([run.folder for run in runs]).rows()
    assert [row["seeds"] for row in rows] == [2, 2]
    assert sorted(row["parameters"] for row in rows) == [18, 36]


@pytest.mark.parametrize("kind", [TabularWTD, TabularRLSVI])
def test_evaluation_acts_on_means(kind):
    agent = build(kind, sigma=100.0)
    tell(agent, 2, 0, 1, [(1, 0)] * 5)
    for _ in range(20):
        agent.begin_episode(np.zeros(1, int), progress=0.0)
        agent.begin_evaluation()
        assert agent.evaluate(np.array([6]), [True]) == [agent.mean[0, 2, 0].argmax()]
    assert len({int(agent.greedy[0, 2, 0]), *(int(draw) for draw in _greedy(agent, 20))}) == 2  # acting is drawn


def _greedy(agent, times):
    for _ in range(times):
        agent.begin_episode(np.zeros(1, int), progress=0.0)
        yield agent.greedy[0, 2, 0]


def test_evaluation_of_psrl_acts_on_the_mean_model():
    agent = build(TabularPSRL, mass=3.0)
    tell(agent, 2, 0, 1, [(1, 0)] * 3)
    agent.begin_evaluation()
    assert agent.evaluate(np.array([6]), [True]) == [1]
    # three rewards of 1 and a prior of 3 outcomes that is half of them
    assert agent.best_guess()[0, 2, 0].tolist() == pytest.approx([0.5, (3 + 1.5) / 6])


def test_bounds_of_rewards_are_known_through_bsuites_ids():
    ids = ["experiment.environment = @environment.Bsuite", "environment.Bsuite.id = 'deep_sea/0'"]
    rows = rows_of("psrl_random_mdp", [0], [*ids, "experiment.episodes = 2"])
    assert [row["regret"] for row in rows[0]] == pytest.approx([0.99] * 2, abs=0.02)


def test_psrl_knows_rewards_between_other_bounds():
    low, high = -2.0, 6.0
    agent = build(TabularPSRL, mass=3.0)
    agent.low, agent.high = low, high
    tell(agent, 2, 0, 1, [(high, 0)] * 3)
    assert agent.best_guess()[0, 2, 0].tolist() == pytest.approx([low + 8 * 0.5, low + 8 * 4.5 / 6])


def test_evaluation_episodes_are_recorded():
    rows = rows_of("wtd_random_mdp", [0, 1], [*THREE_STATES, "experiment.evaluate_every = 5"])
    assert [row["episode"] for row in rows[0] if row.get("evaluation") is not None] == [5, 10, 15]


# Mistakes


@pytest.mark.parametrize(
    ("recipe", "binding", "message"),
    [
        ("pins_cartpole", "experiment.agent = @agent.TabularWTD", "environment must have stages for TabularWTD"),
        ("psrl_deep_sea", "environment.DeepSea.deterministic = False", "between which bounds rewards lie, for Tabular"),
        ("ucbvi_deep_sea", "environment.DeepSea.deterministic = False", "between which bounds rewards lie, for UCBVI"),
        ("wtd_random_mdp", "agent.TabularWTD.sigma = 0.0", "sigma must be None or above 0 and finite, got 0.0"),
        ("wtd_random_mdp", "agent.TabularWTD.beta = -1.0", "beta must be None or above 0 and finite, got -1.0"),
        ("wtd_random_mdp", "agent.TabularWTD.prior_sigma = 1e999", "prior_sigma must be None or above 0"),
        ("wtd_random_mdp", "agent.TabularWTD.prior_mean = 1e999", "prior_mean must be None or finite, got inf"),
        ("wtd_random_mdp", "agent.TabularWTD.p = 3", "p must be 1, 2 or 4, got 3"),
        (
            "rlsvi_random_mdp",
            "agent.TabularRLSVI.prior_sigma = 1.0",
            "beta must be sigma^2 / prior_sigma^2, which is 3",
        ),
        ("wtd_random_mdp", "environment.RandomMDP.states = 0", "states must be at least 1, got 0"),
        ("psrl_random_mdp", "agent.TabularPSRL.mass = 0.0", "mass must be from 0.1 to 1e9, got 0.0"),
        ("ucbvi_random_mdp", "agent.UCBVI.delta = 1.0", "delta must be between 0 and 1, got 1.0"),
        ("ucbvi_random_mdp", "agent.UCBVI.scale = -1.0", "scale must be at least 0 and finite, got -1.0"),
        ("egreedy_random_mdp", "agent.TabularQLearning.epsilon = 2.0", "epsilon"),
        (
            "egreedy_random_mdp",
            "agent.TabularQLearning.learning_rate = 0.0",
            "learning_rate must be None or from 0 to 1",
        ),
        ("wtd_random_mdp", "experiment.stop_when_solved = True", "nobody says when RandomMDP is solved"),
    ],
)
def test_a_mistake_is_told_in_one_line(recipe, binding, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = main(["run", recipe, "-b", binding, "-b", "experiment.episodes = 2"])
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert message in err
    assert [*tmp_path.iterdir()] == []


def test_noise_without_bounds_is_learned_from_where_only_sums_matter():
    stochastic = partial(DeepSea, size=4, deterministic=False)
    rows = live(build(TabularWTD, environment=stochastic), 5, stochastic)
    assert len(rows[0]) == 5
    with pytest.raises(ValueError, match="for TabularWTD with p = 4"):
        build(TabularWTD, environment=stochastic, p=4)


# The theory


def stop_loss(mean, deviation, levels):
    """E max(X - c, 0) of a normal distribution at each level c."""
    k = (mean - levels) / deviation
    return deviation * stats.norm.pdf(k) + (mean - levels) * stats.norm.cdf(k)


def violations(agent, mdp, later, stage, draws=20_000):
    """By how many standard errors E max(F_M Q - c, 0) exceeds E max(F_l Q - c, 0), at most, over (x, a) and c.

    E max(X - c, 0) at all c decide on all convex increasing functions. F_M Q is drawn from the posterior.
    """
    random, states = np.random.default_rng(0), len(later)
    mean, deviation = (part[0] for part in agent.fit(stage, later[None]))
    worth = np.concatenate([later, 1 + later])
    levels = np.linspace(worth.min() - 1, worth.max() + 1, 40)
    worst = -np.inf
    for (x, a), _ in np.ndenumerate(mean):
        outcomes = np.zeros(2 * states)
        for reward, after in mdp.seen.get((stage, x, a), []):
            outcomes[int(reward) * states + after] += 1
        truth = random.dirichlet(mdp.mass / (2 * states) + outcomes, draws) @ worth
        excess = np.maximum(truth[:, None] - levels, 0)
        optimistic = stop_loss(mean[x, a], deviation[x, a], levels)
        errors = (excess.mean(0) - optimistic) / (excess.std(0) / np.sqrt(draws) + 1e-9)
        worst = max(worst, errors.max())
    return worst


@pytest.mark.parametrize("episodes", [0, 3, 60])
def test_wasserstein_td_is_stochastically_optimistic(episodes):
    """Lemma 6: for Q of span at most H and values at most H, given any history."""
    agent, mdps = build(TabularWTD), []
    live(agent, episodes, lambda seed: mdps.append(Diary(seed)) or mdps[-1])
    for stage in range(3):
        later = np.random.default_rng(stage).uniform(0, 2, 3) * (stage < 2)
        assert violations(agent, mdps[0], later, stage) < 4


def test_with_less_noise_and_a_low_prior_it_is_not():
    agent, mdps = build(TabularWTD, sigma=0.1, prior_mean=0.0), []
    live(agent, 3, lambda seed: mdps.append(Diary(seed)) or mdps[-1])
    assert violations(agent, mdps[0], np.array([0.0, 1.0, 2.0]), 1) > 10


def regrets(recipe, *bindings, mdps=100, episodes=2000):
    """Regret `[episodes, mdps]` of small MDPs."""
    settings = [*THREE_STATES, f"experiment.seeds = {mdps}", f"experiment.episodes = {episodes}", *bindings]
    experiment = load(recipe, settings, discover()).build()
    return np.array([[row["regret"] for row in rows] for rows in experiment.train()])


def quarters(regret):
    """The mean regret of an episode in the first and in the last quarter."""
    quarter = len(regret) // 4
    return regret[:quarter].mean(), regret[-quarter:].mean()


@pytest.fixture(scope="module")
def wtd_regret():
    return regrets("wtd_random_mdp", episodes=4000)


@pytest.mark.learning
def test_bayes_regret_lies_below_the_bound_at_every_episode(wtd_regret):
    total = wtd_regret.cumsum(0)
    upper = total.mean(1) + 4 * total.std(1) / np.sqrt(total.shape[1])
    assert (upper < bound(3, 2, 3, 3.0, np.arange(1, 4001))).all()


@pytest.mark.learning
def test_regret_grows_slower_than_linearly(wtd_regret):
    first, last = quarters(wtd_regret)
    assert 0.25 < first < 0.35  # 0.30
    assert 0.10 < last < 0.17  # 0.13


@pytest.mark.learning
def test_with_less_noise_than_the_theorem_s_regret_is_far_lower(wtd_regret):
    first, last = quarters(regrets("wtd_random_mdp", "agent.TabularWTD.sigma = 0.52"))
    assert first < quarters(wtd_regret)[0] / 2
    assert last < first / 4


@pytest.mark.learning
def test_the_regret_of_psrl_is_no_more_than_that_of_rlsvi():
    psrl, rlsvi = (regrets(f"{name}_random_mdp") for name in ("psrl", "rlsvi"))
    assert psrl.sum(0).mean() < 0.3 * rlsvi.sum(0).mean()
    assert quarters(psrl)[1] < 0.02


def seas(recipe, episodes):
    experiment = load(recipe, [f"experiment.episodes = {episodes}"], discover()).build()
    for _ in experiment.train():
        pass
    return [judge.summary() for judge in experiment.judges]


@pytest.mark.learning
@pytest.mark.parametrize("name", ["wtd", "rlsvi", "psrl", "ucbvi"])
def test_those_that_explore_solve_deep_sea(name):
    assert all(seed["solved_at"] and seed["learned"] for seed in seas(f"{name}_deep_sea", 2000))


@pytest.mark.learning
def test_epsilon_greedy_never_sees_the_treasure_of_deep_sea():
    assert [seed["first_treasure"] for seed in seas("egreedy_deep_sea", 2000)] == [None] * 5
