"""bsuite's scores are bsuite's, to the last digit that counts."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from bsuite.utils import wrappers
from data.record_bsuite_scores import FILE, bad_flags, digest, episodes_of, returns
from explore_plugins.bsuite_scores import deep_sea_solved_at, list_logged, score, swingup_score
from explore_plugins.cartpole_swingup import CartpoleSwingupJudge
from explore_plugins.deep_sea import DeepSeaJudge

RECORDED = json.loads(FILE.read_text())["cases"]
DEEP_SEA = [case for case in RECORDED if case["task"].startswith("deep_sea")]


def name_of(case):
    return f"{case['task']}, {case['name']}"


@pytest.mark.parametrize("case", RECORDED, ids=name_of)
def test_scores_are_those_of_bsuites_own_analysis(case):
    episodes = episodes_of(case)
    assert digest(episodes) == case["digest"], "the episodes are not those that were recorded"
    assert score(case["task"], episodes) == pytest.approx(case["score"], abs=1e-12)


@pytest.mark.parametrize("case", DEEP_SEA, ids=name_of)
def test_a_size_is_solved_when_bsuite_says_so(case):
    solved_at = [deep_sea_solved_at(case["task"], bad) for bad in episodes_of(case).values()]
    assert solved_at == [None if episode == "left out" else episode for episode in case["solved_at"]]


def test_logged_episodes_are_those_of_bsuites_wrapper():
    assert list_logged(20_000).tolist() == [e for e in range(1, 20_001) if wrappers._logarithmic_logging(e)]
    assert list_logged(1).tolist() == [1]
    assert list_logged(19).tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17]


def deep_sea_judge(task, bad, size=10):
    """Who has seen these episodes."""
    sea = SimpleNamespace(deterministic=task == "deep_sea", treasure=False, bad=False, size=size)
    judge = DeepSeaJudge(sea)
    for flag in bad:
        sea.bad = bool(flag)
        judge.episode(0.0)
    return judge


@pytest.mark.parametrize("task", ["deep_sea", "deep_sea_stochastic"])
@pytest.mark.parametrize("pattern", ["at once", "late", "slowly", "never", "lucky", "lucky until 100", "forgotten"])
def test_explores_judge_looks_at_every_episode(task, pattern):
    bad = bad_flags(pattern, 6000, seed=3)
    judge = deep_sea_judge(task, bad)
    assert judge.solved_at == deep_sea_solved_at(task, bad, every_episode=True)


@pytest.mark.parametrize("task", ["deep_sea", "deep_sea_stochastic"])
@pytest.mark.parametrize("size", [2, 9, 12, 50])
def test_the_deep_sea_judge_gives_the_score_of_every_episode(task, size):
    for bad_episodes in (0, 92, 93, 100, 500, 4000, 8000, 8999, 9000, 10_000):
        bad = [1] * bad_episodes + [0] * 3000
        assert deep_sea_judge(task, bad, size).score() == score(task, {size: bad}, every_episode=True)


def test_what_is_solved_between_two_logged_episodes_counts_from_the_next_or_never():
    late, forgotten = [True] * 4000 + [False] * 6000, bad_flags("forgotten", 10_000, seed=0)
    assert deep_sea_solved_at("deep_sea", late, every_episode=True) == 4445  # 4000 / 4445 < 0.9
    assert deep_sea_solved_at("deep_sea", late) == 5000
    assert deep_sea_solved_at("deep_sea", forgotten, every_episode=True) == 2889  # 2600 / 2889 < 0.9
    assert deep_sea_solved_at("deep_sea", forgotten) is None


def test_a_share_of_exactly_the_threshold_is_not_enough():
    assert deep_sea_solved_at("deep_sea", [1] * 9 + [0]) is None
    assert deep_sea_solved_at("deep_sea_stochastic", [1] * 80 + [0] * 20) is None
    assert deep_sea_solved_at("deep_sea_stochastic", [1] * 79 + [0] * 21) == 100


def test_deep_sea_must_be_solved_sooner_than_by_dithering():
    sooner, not_sooner = [1] * 92 + [0] * 20, [1] * 93 + [0] * 20  # at episodes 103 and 104 = 2^2 + 100
    assert score("deep_sea", {2: sooner}, every_episode=True) == 1
    assert score("deep_sea", {2: not_sooner}, every_episode=True) == 0
    assert score("deep_sea", {2: not_sooner, 3: not_sooner}, every_episode=True) == 0.5


def test_runs_too_short_to_be_judged_are_left_out():
    assert score("deep_sea_stochastic", {10: [0] * 99}) is None
    assert score("deep_sea_stochastic", {10: [0] * 99, 12: [0] * 100}) == 1
    assert score("deep_sea", {10: [0]}) == 1


@pytest.mark.parametrize("pattern", ["still", "learns early", "learns late", "exactly 100", "too late"])
def test_the_swingup_judge_gives_the_score_of_every_episode(pattern):
    for episodes in (3000, 1000, 777):
        values = returns(pattern, episodes, seed=1)
        judge = CartpoleSwingupJudge(SimpleNamespace(upright=0))
        for value in values:
            judge.episode(float(value))
        assert judge.score() == pytest.approx(swingup_score(values, every_episode=True))
        if episodes != 777:
            assert judge.score() == pytest.approx(swingup_score(values)), "1,000 is a logged episode"


def test_half_of_swingups_score_is_one_good_episode():
    assert swingup_score([0, 0, 140]) == pytest.approx(0.5 * 140 / 3 / 700 + 0.5)
    assert swingup_score([0, 0, 100]) == pytest.approx(0.5 * 100 / 3 / 700)
    assert swingup_score([-50] * 10) == 0
    assert swingup_score([900] * 10) == 1
    assert swingup_score([0] * 10 + [900]) == 0, "episode 11 is not logged"
    assert score("cartpole_swingup", {0.0: [900], 0.5: [0]}) == 0.5


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(ValueError, match=r"no score of 'catch'; there is one of deep_sea, deep_sea_stochastic"):
        score("catch", {10: [1]})
    with pytest.raises(ValueError, match="at least one run"):
        score("deep_sea", {})
    for nonsense in ([], [[1]], [np.nan], [0.5]):
        with pytest.raises(ValueError):
            score("deep_sea", {10: nonsense})
    for nonsense in ([], [np.nan], [np.inf]):
        with pytest.raises(ValueError):
            swingup_score(nonsense)
