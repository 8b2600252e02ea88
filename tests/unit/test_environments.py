"""The built-in environments are bsuite's, step for step, or the paper's, and judged by bsuite's definitions."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import dm_env
import numpy as np
import pytest
from bsuite import sweep
from bsuite.bsuite import EXPERIMENT_NAME_TO_ENVIRONMENT
from bsuite.environments.deep_sea import DeepSea as BsuiteDeepSea
from bsuite.experiments.cartpole_swingup.cartpole_swingup import CartpoleSwingup as BsuiteCartpoleSwingup
from dm_env import specs
from explore_plugins.bsuite import Bsuite, BsuiteJudge
from explore_plugins.cartpole_swingup import CartpoleSwingup, CartpoleSwingupJudge
from explore_plugins.deep_sea import DeepSea, DeepSeaJudge

from explore.interfaces import Judge
from explore.streams import integer_seed

EXPERIMENTS = [name for name in EXPERIMENT_NAME_TO_ENVIRONMENT if not name.startswith("mnist")]
WITHOUT_CHANCE = {"bandit", "bandit_scale", "deep_sea", "discounting_chain"}  # given the id
PAPER = {"height_threshold": 0.95, "move_cost": 0.05, "x_threshold": 5.0}  # where bsuite's defaults differ
EASY = {"height_threshold": 0.0, "theta_dot_threshold": 5.0, "x_reward_threshold": 3.0}


def assert_same_step(one: dm_env.TimeStep, other: dm_env.TimeStep) -> None:
    assert one.step_type == other.step_type
    assert one.reward == other.reward
    assert one.discount == other.discount
    np.testing.assert_array_equal(one.observation, other.observation)


def pump(observation: np.ndarray, rng: np.random.RandomState) -> int:
    """An action that often adds energy to the pole, so that it gets up."""
    cos, theta_dot = observation[0, 3:5]
    return int(rng.randint(3)) if rng.rand() < 0.6 else 1 - int(np.sign(cos * theta_dot))


def episodes_of_both(seed: int, **settings: Any) -> Iterator[tuple[DeepSea, BsuiteDeepSea, list]]:
    """Episodes of Deep-sea beside bsuite's, from aimless to straight to the right."""
    ours = DeepSea(seed, **settings)
    mapping_seed = settings.pop("mapping_seed", integer_seed(seed, "mapping"))
    theirs = BsuiteDeepSea(seed=integer_seed(seed, "transitions"), mapping_seed=mapping_seed, **settings)
    rng = np.random.RandomState(seed)
    steps = [(ours.reset(), theirs.reset())]
    for episode in range(60):
        while not steps[-1][0].last():
            right = theirs._action_mapping[theirs._row, theirs._column]
            action = right if rng.rand() < (0.5, 0.9, 1.0)[episode % 3] else 1 - right
            steps.append((ours.step(action), theirs.step(action)))
        yield ours, theirs, steps
        steps = [(ours.step(0), theirs.step(0))]


def test_cells_that_can_be_reached_are_numbered_first() -> None:
    assert DeepSea(0, size=3).cells().tolist() == [[0, 6, 7], [1, 2, 8], [3, 4, 5]]


def test_the_map_of_deep_sea_lacks_the_cells_that_cannot_be_reached() -> None:
    assert DeepSea(0, size=3).belief_map().tolist() == [[0, -1, -1], [1, 2, -1], [3, 4, 5]]


def costs_of_moves(size: int, cost: float, charged: str) -> list[list[float]]:
    """What a move to the right costs in each cell: in bsuite everywhere, in the paper on the diagonal but its end."""
    costs = [[cost if charged == "every" else 0.0] * size for _ in range(size)]
    if charged == "diagonal":
        for step in range(size - 1):
            costs[step][step] = cost
    return costs


def best_mean_return(size: int, deterministic: bool, unscaled_move_cost: float, charged: str) -> float:
    """By backward induction over all cells; the noise of rewards has mean 0."""
    success, last = 1.0 if deterministic else 1 - 1 / size, size - 1
    costs = costs_of_moves(size, unscaled_move_cost / size, charged)
    values = np.zeros(size)
    for row in reversed(range(size)):  # the treasure is in the column that only the last one reaches
        column = np.arange(size)
        to_right, to_left = values[np.minimum(column + 1, last)], values[np.maximum(column - 1, 0)]
        right = (column == last) - np.array(costs[row]) + success * to_right + (1 - success) * values
        values = np.maximum(right, to_left)
    return float(values[0])


@pytest.mark.parametrize("charged", ["diagonal", "every"])
@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("cost", [0.01, 0.3, 0.0, -0.5, 5.0])
def test_the_best_return_of_deep_sea_is_that_of_the_best_policy(cost: float, deterministic: bool, charged: str) -> None:
    for size in (2, 3, 10):
        sea = DeepSea(0, size, deterministic, unscaled_move_cost=cost, move_costs=charged)
        assert sea.best_return == pytest.approx(best_mean_return(size, deterministic, cost, charged), abs=1e-12)


@pytest.mark.parametrize("size", [2, 3, 7])
@pytest.mark.parametrize("charged", ["diagonal", "every"])
def test_deep_sea_pays_in_every_cell_what_the_paper_or_bsuite_says(charged: str, size: int) -> None:
    costs, visited = costs_of_moves(size, 0.01 / size, charged), set()
    for moves in product((-1, 1), repeat=size):
        sea = DeepSea(4, size, move_costs=charged)
        sea.reset()
        column = 0
        for row, move in enumerate(moves):
            reward = sea.step(sea._right[row][column] if move == 1 else 1 - sea._right[row][column]).reward
            treasure = float(row == column == size - 1)
            assert reward == (treasure - costs[row][column] if move == 1 else 0.0)
            sea.reward_spec().validate(np.float64(reward))
            visited.add((row, column))
            column = max(column + move, 0)
    assert len(visited) > size


def test_the_best_return_with_the_papers_costs_is_just_above_0_99() -> None:
    assert DeepSea(0, size=20, move_costs="diagonal").best_return == pytest.approx(1 - 0.01 * 19 / 20)
    assert DeepSea(0, size=20, move_costs="every").best_return == pytest.approx(0.99)


@pytest.mark.parametrize("deterministic", [True, False])
def test_which_moves_cost_changes_nothing_but_rewards(deterministic: bool) -> None:
    paper, bsuite = (DeepSea(2, 6, deterministic, move_costs=charged) for charged in ("diagonal", "every"))
    rewards: set[float] = set()
    for action in np.random.RandomState(0).randint(2, size=700).tolist():
        one, other = paper.step(action), bsuite.step(action)
        rewards.add(round((one.reward or 0.0) - (other.reward or 0.0), 6))
        assert_same_step(one._replace(reward=None), other._replace(reward=None))
        assert (paper.treasure, paper.bad) == (bsuite.treasure, bsuite.bad)
    assert rewards == {0.0, round(0.01 / 6, 6)}


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("size", [2, 3, 10, 21])
def test_deep_sea_equals_bsuite_step_by_step(size: int, deterministic: bool) -> None:
    for seed in range(3):
        info = {"total_bad_episodes": 0, "denoised_return": 0}
        treasures = 0
        for ours, theirs, steps in episodes_of_both(seed, size=size, deterministic=deterministic):
            assert len(steps) == size + 1
            for one, other in steps:
                if not other.last():
                    assert one.observation == ours.cells()[other.observation == 1]
                assert_same_step(one._replace(observation=0), other._replace(observation=0))
                ours.observation_spec().validate(one.observation)
            info["total_bad_episodes"] += ours.bad
            info["denoised_return"] += ours.treasure
            treasures += ours.treasure
            assert theirs.bsuite_info() == info
        assert 0 < treasures < 60


def test_the_last_observation_of_deep_sea_is_the_cell_of_the_last_row_where_it_ended() -> None:
    for ours, theirs, steps in episodes_of_both(seed=1, size=7):
        assert steps[-1][0].observation == ours.cells()[-1, theirs._column]


def test_a_mapping_seed_fixes_which_action_is_right_whatever_the_seed() -> None:
    for seed in (0, 5):
        for _, _, steps in episodes_of_both(seed, size=10, mapping_seed=42, unscaled_move_cost=0.5):
            assert all(one.reward == other.reward for one, other in steps)


def test_the_mapping_differs_between_seeds_unless_it_is_given() -> None:
    def rewards(seed: int, mapping_seed: int | None) -> list[float | None]:
        sea = DeepSea(seed, mapping_seed=mapping_seed)
        return [sea.step(0).reward for _ in range(11)]

    assert rewards(0, None) == rewards(0, None) != rewards(1, None)
    assert rewards(0, 42) == rewards(1, 42)


def test_deep_sea_names_its_cells_by_one_integer() -> None:
    spec = DeepSea(0, size=12).observation_spec()
    assert isinstance(spec, specs.DiscreteArray)
    assert spec.num_values == 144


@pytest.mark.parametrize(
    "settings", [PAPER, PAPER | EASY, EASY | {"init_range": 2.0, "timescale": 0.0625, "max_time": 3.0}]
)
def test_cartpole_swingup_equals_bsuite_step_by_step(settings: dict[str, float]) -> None:
    rewarded = upright = 0
    for seed in range(3):
        ours = CartpoleSwingup(seed, **{"move_cost": 0.1, "x_threshold": 3.0} | settings)
        theirs = BsuiteCartpoleSwingup(seed=integer_seed(seed, "environment"), **settings)
        rng = np.random.RandomState(seed)
        one = ours.reset()
        assert_same_step(one, theirs.reset())
        for _ in range(4000):
            action = pump(one.observation, rng)
            one = ours.step(action)
            assert_same_step(one, theirs.step(action))
            ours.observation_spec().validate(one.observation)
            rewarded += (one.reward or 0) > 0
            if one.last():
                upright += ours.upright
                assert upright == theirs.bsuite_info()["total_upright"]
        upright = 0
    assert rewarded or settings is PAPER


def test_the_thresholds_of_the_paper_s_code_are_the_defaults() -> None:
    parameters = inspect.signature(CartpoleSwingup).parameters
    defaults = {name: parameters[name].default for name in parameters if name != "seed"}
    bsuite = inspect.signature(BsuiteCartpoleSwingup).parameters
    assert defaults == {"x_dot_threshold": None} | {
        name: PAPER.get(name, bsuite[name].default) for name in bsuite if name != "seed"
    }


def test_a_slow_cart_is_asked_for_exactly_where_x_dot_threshold_says_so() -> None:
    plain = BsuiteCartpoleSwingup(seed=integer_seed(0, "environment"), **PAPER | EASY)
    ours = CartpoleSwingup(0, x_dot_threshold=1.0, **PAPER | EASY)
    rng = np.random.RandomState(0)
    one = ours.reset()
    assert_same_step(one, plain.reset())
    withheld = granted = 0
    for _ in range(8000):
        action = pump(one.observation, rng)
        one, other = ours.step(action), plain.step(action)
        if (other.reward or 0) > 0:
            fast = abs(plain._state.x_dot) >= 1.0
            other = other._replace(reward=-0.05 * abs(action - 1)) if fast else other
            withheld += fast
            granted += not fast
        assert_same_step(one, other)
    assert withheld > 50
    assert granted > 50


def trajectory(environment: dm_env.Environment, steps: int = 150) -> list[dm_env.TimeStep]:
    actions = np.random.RandomState(0).randint(environment.action_spec().num_values, size=steps)
    return [environment.step(action) for action in actions.tolist()]


def differ(one: list[dm_env.TimeStep], other: list[dm_env.TimeStep]) -> bool:
    pairs = zip(one, other, strict=True)
    return any(a.reward != b.reward or np.any(a.observation != b.observation) for a, b in pairs)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_bsuite_id_is_reproducible_from_the_seed_and_random_between_seeds(experiment: str) -> None:
    first = trajectory(Bsuite(3, f"{experiment}/2"))
    np.random.seed(1)
    assert not differ(first, trajectory(Bsuite(3, f"{experiment}/2")))
    assert differ(first, trajectory(Bsuite(4, f"{experiment}/2"))) == (experiment not in WITHOUT_CHANCE)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_bsuite_id_is_bsuite_s_own_environment_with_the_seed(experiment: str) -> None:
    id = f"{experiment}/2"
    settings = dict(sweep.SETTINGS[id])
    if experiment.startswith("deep_sea"):
        settings |= {"deterministic": experiment == "deep_sea", "seed": integer_seed(3, "transitions")}
        theirs = BsuiteDeepSea(**settings)
    else:
        seeded = experiment not in ("bandit", "discounting_chain")
        theirs = EXPERIMENT_NAME_TO_ENVIRONMENT[experiment](
            **settings | ({"seed": integer_seed(3, "environment")} if seeded else {})
        )
    environment = Bsuite(3, id)
    for one, other in zip(trajectory(environment), trajectory(theirs), strict=True):
        if experiment.startswith("deep_sea"):
            assert other.last() or one.observation == environment.cells()[other.observation == 1]
            one, other = one._replace(observation=0), other._replace(observation=0)
        assert_same_step(one, other)


def test_every_bsuite_id_but_those_of_mnist_is_built_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    for id in sweep.SWEEP:
        if not id.startswith("mnist"):
            environment = Bsuite(0, id)
            environment.observation_spec().validate(environment.reset().observation)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("id", "judge"),
    [
        ("deep_sea/0", DeepSeaJudge),
        ("deep_sea_stochastic/0", DeepSeaJudge),
        ("cartpole_swingup/0", CartpoleSwingupJudge),
        ("catch_noise/0", BsuiteJudge),
    ],
)
def test_a_bsuite_id_has_the_judge_of_its_task(id: str, judge: type[Judge]) -> None:
    environment = Bsuite(0, id)
    judge_of_seed = getattr(environment, "judge", Judge)(environment)
    assert type(judge_of_seed) is judge
    trajectory(environment, steps=11)
    assert tuple(judge_of_seed.episode(0.0)) == judge_of_seed.columns


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_what_bsuite_reports_of_its_environments_is_written_down(experiment: str) -> None:
    environment = Bsuite(0, f"{experiment}/0")
    judge = environment.judge(environment)
    if type(judge) is BsuiteJudge:
        trajectory(environment)
        report = {f"bsuite_{name}": number for name, number in environment.bsuite_info().items()}
        assert judge.episode(0.0) == report
        assert judge.columns == tuple(report)
        assert report or experiment == "discounting_chain"
    assert judge.curve[0] == "return"


def test_bsuite_is_imported_only_for_its_ids() -> None:
    modules = "explore_plugins.deep_sea, explore_plugins.cartpole_swingup, explore_plugins.bsuite"
    code = f"import sys, {modules}; sys.exit('bsuite' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


@dataclass
class Sea:
    """What the judge sees of Deep-sea."""

    deterministic: bool = True
    treasure_chance: float = 1.0
    best_return: float = 0.99
    size: int = 10
    treasure: bool = False
    bad: bool = False


def judged(episodes: str, sea: Sea | None = None) -> DeepSeaJudge:
    """Episodes as letters: `t` treasure, `b` bad, `-` neither (a fall from the diagonal by chance)."""
    sea = sea or Sea()
    judge = DeepSeaJudge(sea)  # type: ignore[arg-type]
    for episode in episodes:
        sea.treasure, sea.bad = episode == "t", episode == "b"
        assert judge.episode(float(sea.treasure)) == {"treasure": sea.treasure, "bad": sea.bad}
    return judge


def test_deep_sea_is_solved_when_fewer_than_nine_in_ten_episodes_were_bad() -> None:
    assert judged("t").solved_at == 1
    assert judged("b" * 50).solved_at is None
    assert judged("b" * 9 + "t").solved_at is None  # 9/10 is not below 0.9
    assert judged("b" * 9 + "tt").solved_at == 11  # 9/11
    assert judged("b" * 9 + "tt" + "b" * 100).solved_at == 11


def test_stochastic_deep_sea_is_solved_below_eight_in_ten_from_episode_100_on() -> None:
    def solved_at(episodes: str) -> int | None:
        return judged(episodes, Sea(deterministic=False, treasure_chance=0.4)).solved_at

    assert solved_at("-" * 99) is None
    assert solved_at("-" * 100) == 100
    assert solved_at("b" * 80 + "-" * 20) is None  # 80/100 is not below 0.8
    assert solved_at("b" * 80 + "-" * 21) == 101  # 80/101
    assert solved_at("-" * 20 + "b" * 85) is None  # 79/99 is below 0.8, but too early


def test_deep_sea_is_learned_when_half_of_the_last_hundred_episodes_reach_the_treasure() -> None:
    assert judged("t" * 200 + "b" * 51 + "t" * 49).summary()["learned"] is False
    assert judged("b" * 200 + "b" * 50 + "t" * 50).summary()["learned"] is True
    assert judged("bt").summary()["learned"] is True
    assert judged("").summary()["learned"] is False


def test_where_chance_keeps_the_best_policy_from_the_treasure_half_of_its_share_is_enough() -> None:
    sea = DeepSea(0, size=10, deterministic=False)
    assert sea.treasure_chance == pytest.approx(0.9**9)  # 0.387
    stochastic = Sea(deterministic=False, treasure_chance=sea.treasure_chance)
    assert judged("b" * 81 + "t" * 19, stochastic).summary()["learned"] is False
    assert judged("b" * 80 + "t" * 20, stochastic).summary()["learned"] is True


def test_the_summary_of_deep_sea_names_the_first_treasure_and_counts_them() -> None:
    assert judged("bb-tbt").summary().items() >= {"first_treasure": 4, "treasures": 2, "episodes": 6}.items()
    assert judged("bbb").summary().items() >= {"first_treasure": None, "treasures": 0}.items()


def test_the_score_of_deep_sea_is_1_if_it_is_solved_sooner_than_by_dithering() -> None:
    sooner, not_sooner = "b" * 92 + "t" * 20, "b" * 93 + "t" * 20  # at episodes 103 and 104 = 2^2 + 100
    assert judged(sooner, Sea(size=2)).summary()["score"] == 1.0
    assert judged(not_sooner, Sea(size=2)).summary()["score"] == 0.0
    assert judged(not_sooner, Sea(size=3)).summary()["score"] == 1.0
    assert judged("b" * 200, Sea(size=3)).summary()["score"] == 0.0
    assert judged("").summary()["score"] is None


def test_the_normalised_return_of_deep_sea_is_a_share_of_the_best() -> None:
    assert judged("tb", Sea(best_return=0.8)).summary()["normalised_return"] == pytest.approx(0.5 / 0.8)
    assert judged("tt", Sea(best_return=0.8)).summary()["normalised_return"] == 1.0
    assert judged("bb", Sea(best_return=0.0)).summary()["normalised_return"] is None
    assert judged("").summary()["normalised_return"] is None
    assert judged("t", Sea(size=14)).summary()["size"] == 14


def swung(returns: list[float]) -> CartpoleSwingupJudge:
    judge = CartpoleSwingupJudge(CartpoleSwingup(0))
    for episode_return in returns:
        judge.episode(episode_return)
    return judge


def test_swingup_is_solved_at_the_first_return_above_100() -> None:
    assert swung([-3.0, 100.0]).solved_at is None
    assert swung([-3.0, 100.0, 101.0, 500.0]).solved_at == 3


@pytest.mark.parametrize(
    ("returns", "score"),
    [
        ([], None),
        ([-50.0, 0.0], 0.0),  # the mean is clipped, no good episode
        ([70.0, 70.0], 0.05),  # 0.5 * 70/700
        ([0.0, 350.0], 0.625),  # 0.5 * 175/700 + 0.5
        ([900.0], 1.0),
        ([70.0] * 1000 + [900.0] * 1000, 0.05),  # only the first 1,000 count
    ],
)
def test_the_score_of_swingup_is_bsuite_s(returns: list[float], score: float | None) -> None:
    assert swung(returns).summary()["score"] == (score if score is None else pytest.approx(score))


def test_the_normalised_return_of_swingup_is_a_share_of_700_over_all_episodes() -> None:
    assert swung([70.0] * 1000 + [210.0] * 1000).summary()["normalised_return"] == pytest.approx(0.2)
    assert swung([-50.0]).summary()["normalised_return"] == 0.0
    assert swung([900.0]).summary()["normalised_return"] == 1.0
    assert swung([]).summary()["normalised_return"] is None


def test_learning_is_shown_as_in_the_paper_s_figures() -> None:
    assert DeepSeaJudge.curve == ("return", "sum")
    assert CartpoleSwingupJudge.curve == ("return", "max")
    assert BsuiteJudge.curve == ("return", "mean")


def test_the_summary_of_swingup_has_the_best_of_the_last_100_episodes() -> None:
    assert swung([800.0] + [5.0] * 99 + [7.0]).summary()["best_of_last_100"] == 7.0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: DeepSea(0, size=1), "size must be at least 2, got 1"),
        (lambda: DeepSea(0, mapping_seed=-1), "mapping_seed must be None or from 0 to"),
        (lambda: DeepSea(0, unscaled_move_cost=float("nan")), "unscaled_move_cost must be finite"),
        (lambda: DeepSea(0, move_costs="none"), "move_costs must be 'diagonal' or 'every', got 'none'"),
        (lambda: DeepSea(0, move_costs=True), "move_costs must be 'diagonal' or 'every', got True"),  # type: ignore[arg-type]
        (lambda: CartpoleSwingup(0, height_threshold=1.0), "height_threshold must be below 1"),
        (lambda: CartpoleSwingup(0, timescale=0.0), "timescale must be above 0 and finite, got 0.0"),
        (lambda: CartpoleSwingup(0, max_time=float("inf")), "max_time must be above 0 and finite"),
        (
            lambda: CartpoleSwingup(0, x_dot_threshold=-1.0),
            "x_dot_threshold must be None or above 0",
        ),
        (lambda: CartpoleSwingup(0, move_cost=-0.1), "move_cost must be at least 0"),
        (lambda: Bsuite(0, "cach/0"), "id must be one of bsuite's, got 'cach/0'; the nearest are catch/0"),
        (lambda: Bsuite(0, "catch/20"), "id must be one of bsuite's, got 'catch/20'"),
        (lambda: Bsuite(0, 7), "id must be one of bsuite's, got 7"),  # type: ignore[arg-type]
        (lambda: Bsuite(0, "mnist_noise/0"), "id must be one that needs no download, got 'mnist_noise/0'"),
    ],
)
def test_a_bad_parameter_is_named(build: Callable[[], dm_env.Environment], message: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        build()
