"""Exact regret against brute force and against what really happened; Theorem 1's bound."""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from explore_plugins.deep_sea import DeepSea
from explore_plugins.random_mdp import RandomMDP
from explore_plugins.regret_section import bound

from explore._config.discovery import discover
from explore._running.experiment import load
from explore._running.regret import Regret, best_values, policy_values

TINY = partial(RandomMDP, states=2, actions=2, horizon=3)


def worth(model, policy, stage=0, state=0):
    """The mean return of a policy `[stages, states, actions]`, by following every path."""
    if stage == len(model.rewards):
        return 0.0
    total = 0.0
    for action, chance in enumerate(policy[stage, state]):
        total += chance * model.rewards[stage, state, action]
        for following, probability in enumerate(model.transitions[stage, state, action]):
            if chance * probability:
                total += chance * probability * worth(model, policy, stage + 1, following)
    return total


def values_of(function, models, *more):
    return function(np.stack([m.transitions for m in models]), np.stack([m.rewards for m in models]), *more)


class Acting:
    """An agent with this policy, `[lanes, stages, states, actions]`."""

    def __init__(self, policy, observations):
        self.chosen = dict(zip(observations.ravel().tolist(), np.moveaxis(policy.reshape(len(policy), -1, 2), 1, 0)))

    def policy(self, observations):
        return np.stack([self.chosen[number] for number in observations.tolist()], 1)


def test_the_best_values_are_those_of_the_best_of_all_policies():
    models = [TINY(seed).true_model() for seed in range(4)]
    found = values_of(best_values, models)[:, 0, 0]
    for model, value in zip(models, found, strict=True):
        policies = (np.eye(2)[list(choice)].reshape(3, 2, 2) for choice in product((0, 1), repeat=6))
        assert value == pytest.approx(max(worth(model, policy) for policy in policies))


def test_the_values_of_a_policy_are_those_of_all_its_paths():
    models = [TINY(seed).true_model() for seed in range(4)]
    policy = np.random.default_rng(0).dirichlet([1, 1], (4, 3, 2))
    found = values_of(policy_values, models, policy)
    for lane, model in enumerate(models):
        for stage, state in product(range(3), range(2)):
            assert found[lane, stage, state] == pytest.approx(worth(model, policy[lane], stage, state))


def test_regret_is_what_a_policy_lacks_where_episodes_start():
    model = replace(TINY(0).true_model(), start=np.array([0.25, 0.75]))
    policy = np.random.default_rng(1).dirichlet([1, 1], (1, 3, 2))
    best = values_of(best_values, [model])[0, 0]
    expected = sum(model.start[state] * (best[state] - worth(model, policy[0], 0, state)) for state in (0, 1))
    assert Regret([model]).of(Acting(policy, model.observations)) == pytest.approx([expected])


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("size", [2, 5, 20])
def test_the_best_value_of_deep_sea_is_that_of_diving_to_the_treasure(size, deterministic):
    seas = [DeepSea(seed, size=size, deterministic=deterministic) for seed in range(3)]
    regret = Regret([sea.true_model() for sea in seas])
    np.testing.assert_allclose(regret.best, seas[0].best_return)
    if deterministic:
        np.testing.assert_allclose(regret.best, 0.99)


def test_an_agent_that_always_goes_left_misses_all_of_deep_sea():
    sea = DeepSea(0, size=5)
    model = sea.true_model()
    left = 1 - np.eye(2)[np.array(sea._right)]
    assert Regret([model]).of(Acting(left[None], model.observations)) == pytest.approx([0.99])
    assert Regret([model]).of(Acting(1 - left[None], model.observations)) == pytest.approx([0.0])


@pytest.mark.parametrize("recipe", ["wtd", "psrl", "egreedy"])
@pytest.mark.parametrize("task", ["random_mdp", "deep_sea"])
def test_exact_regret_is_what_returns_lack_on_average(recipe, task):
    """Given its policy, an episode's return has the mean best - regret: what is left is noise of mean 0."""
    bindings = [
        "experiment.episodes = 400", "experiment.seeds = 20", "environment.DeepSea.size = 4",
        "agent.TabularQLearning.epsilon = 0.5",
        "environment.RandomMDP.states = 3", "environment.RandomMDP.actions = 2", "environment.RandomMDP.horizon = 3",
    ]  # fmt: skip
    experiment = load(f"{recipe}_{task}", bindings, discover()).build()
    rows = list(experiment.train())
    regret, returns = (np.array([[row[name] for row in lanes] for lanes in rows]) for name in ("regret", "return"))
    noise = experiment.regret.best - returns - regret
    assert regret.min() > -1e-12
    assert (np.abs(noise.mean(0)) <= 4.5 * noise.std(0) / np.sqrt(400) + 1e-12).all()  # of each lane
    assert abs(noise.mean()) <= 4 * noise.std() / np.sqrt(noise.size) + 1e-12
    assert regret.std() > 0.01


def test_a_deterministic_policy_in_a_deterministic_sea_gets_what_its_regret_says():
    bindings = ["experiment.episodes = 50", "environment.DeepSea.size = 5"]
    experiment = load("wtd_deep_sea", bindings, discover()).build()
    for rows in experiment.train():
        for row in rows:
            assert row["regret"] == pytest.approx(0.99 - row["return"], abs=1e-12)


def test_the_bound_is_that_of_theorem_1():
    # X = 10, A = 3, H = 10, beta = 3, L = 2000: 5 H^2 sqrt(beta X A L log(2 X A H L)) log(1 + L / (X A))
    logarithms = np.log(1_200_000), np.log(1 + 2000 / 30)
    expected = 500 * np.sqrt(3 * 30 * 2000 * logarithms[0]) * logarithms[1]
    assert bound(10, 3, 10, 3.0, np.array([2000])) == pytest.approx([expected])
    # the logarithms are at least 1: here log(2) and log(2)
    assert bound(1, 1, 1, 4.0, np.array([1])) == pytest.approx([5 * np.sqrt(4)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": np.zeros((3, 2, 3))}, "arrays of fitting shapes"),
        ({"start": np.array([1.0])}, "arrays of fitting shapes"),
        ({"start": np.array([0.5, 0.4])}, "at least 0 and sum to 1"),
        ({"transitions": np.zeros((3, 2, 2, 2))}, "at least 0 and sum to 1"),
        ({"transitions": np.full((3, 2, 2, 2), [-1.0, 2.0])}, "at least 0 and sum to 1"),
        ({"rewards": np.full((3, 2, 2), np.nan)}, "rewards that are finite numbers"),
        ({"rewards": [[[0.0]]]}, "arrays of numbers"),
        ({"observations": np.arange(6).reshape(3, 2)[::-1]}, "the same observations and actions for every seed"),
    ],
)
def test_what_is_no_model_is_refused(change, message):
    good = TINY(0).true_model()
    with pytest.raises(ValueError, match=message):
        Regret([good, replace(good, **change)])
