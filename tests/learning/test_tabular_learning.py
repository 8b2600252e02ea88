"""Tabular agents explore as theory says: their regret, and Deep-sea."""

import numpy as np
import pytest
from explore_plugins.regret_section import bound
from tabular import THREE_STATES

from explore._config.discovery import discover
from explore._running.experiment import load


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


def test_bayes_regret_lies_below_the_bound_at_every_episode(wtd_regret):
    total = wtd_regret.cumsum(0)
    upper = total.mean(1) + 4 * total.std(1) / np.sqrt(total.shape[1])
    assert (upper < bound(3, 2, 3, 3.0, np.arange(1, 4001))).all()


def test_regret_grows_slower_than_linearly(wtd_regret):
    first, last = quarters(wtd_regret)
    assert 0.25 < first < 0.35  # 0.30
    assert 0.10 < last < 0.17  # 0.13


def test_with_less_noise_than_the_theorem_s_regret_is_far_lower(wtd_regret):
    first, last = quarters(regrets("wtd_random_mdp", "agent.TabularWTD.sigma = 0.52"))
    assert first < quarters(wtd_regret)[0] / 2
    assert last < first / 4


def test_the_regret_of_psrl_is_no_more_than_that_of_rlsvi():
    psrl, rlsvi = (regrets(f"{name}_random_mdp") for name in ("psrl", "rlsvi"))
    assert psrl.sum(0).mean() < 0.3 * rlsvi.sum(0).mean()
    assert quarters(psrl)[1] < 0.02


def seas(recipe, episodes):
    experiment = load(recipe, [f"experiment.episodes = {episodes}"], discover()).build()
    for _ in experiment.train():
        pass
    return [judge.summary() for judge in experiment.judges]


@pytest.mark.parametrize("name", ["wtd", "rlsvi", "psrl", "ucbvi"])
def test_those_that_explore_solve_deep_sea(name):
    assert all(seed["solved_at"] and seed["learned"] for seed in seas(f"{name}_deep_sea", 2000))


def test_epsilon_greedy_never_sees_the_treasure_of_deep_sea():
    assert [seed["first_treasure"] for seed in seas("egreedy_deep_sea", 2000)] == [None] * 5
