"""Tabular Wasserstein TD against the paper's formulas: closed forms, the loss, and stochastic optimism (Lemma 6)."""

from functools import partial

import numpy as np
import pytest
from building import live
from explore_plugins.deep_sea import DeepSea
from explore_plugins.tabular_wtd import TabularWTD, nearest_normal, squared_distance
from scipy import stats
from scipy.optimize import minimize
from tabular import Diary, build, tell

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


# Stochastic optimism


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
