"""Random MDPs are what the paper assumes, and models of environments tell the truth about their steps."""

from collections import Counter
from functools import partial

import dm_env
import numpy as np
import pytest
from explore_plugins.deep_sea import DeepSea
from explore_plugins.random_mdp import RandomMDP, RandomMDPJudge
from scipy.stats import chisquare

SMALL = partial(RandomMDP, states=2, actions=2, horizon=3)


def episode(environment, choose):
    """The steps of an episode: (stage, observation, action, reward, next observation)."""
    timestep, steps = environment.reset(), []
    while not timestep.last():
        before, action = timestep.observation, choose(timestep.observation)
        timestep = environment.step(action)
        steps.append((len(steps), int(before), action, timestep.reward, int(timestep.observation)))
    return steps


def aimless(environment, episodes, seed=0):
    random = np.random.RandomState(seed)
    actions = environment.action_spec().num_values
    return [step for _ in range(episodes) for step in episode(environment, lambda _: int(random.randint(actions)))]


def test_outcomes_come_as_often_as_their_probabilities_say():
    mdp = SMALL(5)
    seen = Counter((number, action, reward, after % 2) for _, number, action, reward, after in aimless(mdp, 8000))
    for (stage, state, action), _ in np.ndenumerate(mdp.outcomes[..., 0]):
        here = [seen[stage * 2 + state, action, reward, after] for reward in (0, 1) for after in (0, 1)]
        if stage == 0 and state == 1:
            assert sum(here) == 0  # episodes start in state 0
        else:
            assert chisquare(here, sum(here) * mdp.outcomes[stage, state, action]).pvalue > 1e-4


def test_rewards_are_binary_and_every_step_leads_to_the_next_stage():
    mdp = RandomMDP(0, states=4, actions=3, horizon=5)
    for stage, before, _, reward, after in aimless(mdp, 100):
        assert before // 4 == stage
        assert after // 4 == min(stage + 1, 4)
        assert reward in (0, 1)
        mdp.observation_spec().validate(np.int32(after))
        mdp.reward_spec().validate(reward)


@pytest.mark.parametrize("mass", [3.0, 12.0])
def test_probabilities_have_the_moments_of_the_dirichlet_prior(mass):
    outcomes = np.stack([SMALL(seed, mass=mass).outcomes for seed in range(400)]).reshape(-1, 4)
    mean, count = 1 / 4, len(outcomes)
    variance = mean * (1 - mean) / (mass + 1)
    np.testing.assert_allclose(outcomes.sum(-1), 1)
    np.testing.assert_allclose(outcomes.mean(0), mean, atol=5 * np.sqrt(variance / count))
    np.testing.assert_allclose(outcomes.var(0), variance, rtol=0.08)
    covariance = np.cov(outcomes.T)[~np.eye(4, dtype=bool)]
    np.testing.assert_allclose(covariance, -(mean**2) / (mass + 1), rtol=0.15)


def test_probabilities_of_different_places_are_independent():
    outcomes = np.stack([SMALL(seed).outcomes[..., 0].ravel() for seed in range(1000)])
    correlations = np.corrcoef(outcomes.T)[~np.eye(12, dtype=bool)]
    assert np.abs(correlations).max() < 5 / np.sqrt(1000)


def test_an_mdp_and_what_happens_in_it_follow_from_the_seed():
    def life(seed):
        mdp = SMALL(seed)
        return mdp.outcomes.tolist(), aimless(mdp, 20)

    assert life(3) == life(3)
    (model, steps), (other_model, other_steps) = life(3), life(4)
    assert model != other_model and steps != other_steps


def test_the_first_step_and_one_after_the_end_are_resets():
    mdp = SMALL(0)
    assert mdp.step(0) == dm_env.restart(0)
    assert [mdp.step(0).last() for _ in range(3)] == [False, False, True]
    assert mdp.step(1) == dm_env.restart(0)


def test_the_summary_names_the_size_of_the_mdp():
    judge = RandomMDPJudge(RandomMDP(0, states=4, actions=2, horizon=5, mass=6.0))
    assert judge.summary().items() >= {"states": 4, "actions": 2, "horizon": 5, "mass": 6.0}.items()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"states": 0}, "states must be at least 1, got 0"),
        ({"actions": -1}, "actions must be at least 1, got -1"),
        ({"horizon": 0}, "horizon must be at least 1, got 0"),
        ({"mass": 0.0}, "mass must be from 0.1 to 1e9, got 0.0"),
        ({"mass": float("nan")}, "mass must be from 0.1 to 1e9, got nan"),
        ({"mass": float("inf")}, "mass must be from 0.1 to 1e9, got inf"),
    ],
)
def test_an_mdp_that_cannot_be_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        RandomMDP(0, **settings)


def test_the_least_and_the_greatest_mass_give_probabilities():
    for mass in (0.1, 1e9):
        np.testing.assert_allclose(RandomMDP(0, mass=mass).true_model().transitions.sum(-1), 1)


# Models


def assert_model_is_true(environment, steps):
    """Next states and mean rewards of steps agree with the model within five standard errors."""
    model, seen = environment.true_model(), {}
    for stage, before, action, reward, after in steps:
        seen.setdefault((stage, before, action), []).append((reward, after))
    checked = 0
    for (stage, before, action), outcomes in seen.items():
        [state] = np.flatnonzero(model.observations[stage] == before)
        rewards, after = np.array(outcomes).T
        n, chances = len(rewards), model.transitions[stage, state, action]
        rare = 10 / n  # what is too rare to have been seen
        assert abs(rewards.mean() - model.rewards[stage, state, action]) <= 5 * rewards.std() / np.sqrt(n) + rare
        ahead = model.observations[min(stage + 1, len(model.observations) - 1)]
        found = np.array([(after == number).mean() if number >= 0 else 0 for number in ahead])
        if stage + 1 < len(model.observations):
            assert found.sum() == pytest.approx(1)
            assert (np.abs(found - chances) <= 5 * np.sqrt(chances * (1 - chances) / n) + rare).all()
            checked += n >= 200
    assert checked > 10


def test_the_model_of_a_random_mdp_is_what_happens():
    mdp = RandomMDP(1, states=3, actions=2, horizon=4)
    assert_model_is_true(mdp, aimless(mdp, 3000))
    assert mdp.true_model().start.tolist() == [1, 0, 0]


@pytest.mark.parametrize("charged", ["diagonal", "every"])
def test_the_model_of_stochastic_deep_sea_is_what_happens(charged):
    sea = DeepSea(2, size=5, deterministic=False, unscaled_move_cost=0.5, move_costs=charged)
    assert_model_is_true(sea, aimless(sea, 4000))


@pytest.mark.parametrize("charged", ["diagonal", "every"])
@pytest.mark.parametrize("cost", [0.01, -0.5, 3.0])
def test_the_model_of_deep_sea_is_what_happens_to_the_last_bit(cost, charged):
    sea = DeepSea(3, size=5, unscaled_move_cost=cost, move_costs=charged)
    model = sea.true_model()
    for stage, before, action, reward, after in aimless(sea, 200):
        [state] = np.flatnonzero(model.observations[stage] == before)
        assert model.rewards[stage, state, action] == pytest.approx(reward, abs=1e-15)
        if stage < 4:
            [following] = np.flatnonzero(model.observations[stage + 1] == after)
            assert model.transitions[stage, state, action].tolist() == np.eye(5)[following].tolist()
        low, high = (float(getattr(sea.reward_spec(), end)) for end in ("minimum", "maximum"))
        assert low <= reward <= high
