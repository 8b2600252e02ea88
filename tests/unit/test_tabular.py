"""Tabular agents against plain loops and exact posteriors."""

from functools import partial

import dm_env
import numpy as np
import pytest
from building import live
from explore_plugins.deep_sea import DeepSea
from explore_plugins.schedules import Linear
from explore_plugins.tabular import UCBVI, TabularPSRL, TabularQLearning, TabularRLSVI
from explore_plugins.tabular_wtd import TabularWTD
from scipy import stats
from tabular import AGENTS, RECIPES, SMALL, THREE_STATES, build, live_in_diary, rows_of, tell

import explore
from explore._analysis.compare import compare
from explore._cli.main import main
from explore._running.regret import best_values
from explore.streams import stream

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
    drawn = np.array([agent._draw_model()[0][0, 1, 0, 0] for _ in range(3000)])
    parameters = np.array([2, 0, 3]) + 1  # a third of the mass each
    posterior = stats.dirichlet(parameters)
    np.testing.assert_allclose(drawn.sum(-1), 1)
    np.testing.assert_allclose(drawn.mean(0), posterior.mean(), atol=5 * np.sqrt(posterior.var().max() / 3000))
    np.testing.assert_allclose(drawn.var(0), posterior.var(), rtol=0.15)


def test_psrl_acts_on_the_best_policy_of_its_draw():
    agent = build(TabularPSRL)
    models = []
    draw = agent._draw_model
    agent._draw_model = lambda: models.append(draw()) or models[-1]
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


def test_tabular_agents_are_swept_and_compared_like_others(tmp_path, monkeypatch, forked_cells):
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
        ("wtd_random_mdp", "experiment.stop_when_solved = True", "RandomMDP defines no criterion for solved"),
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
