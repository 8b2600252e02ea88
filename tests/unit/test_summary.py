"""What `summary.json` says of the seeds of a run."""

import json

import pytest

from explore._running.summary import summarise
from explore.interfaces import Judge


def judged(*returns, solved_at=None, **entries):
    class Entries(Judge):
        decides = True

        def summary(self):
            return super().summary() | entries

    judge = Entries(None)
    for value in returns:
        judge.episode(value)
    judge.solved_at = solved_at
    return judge


def test_a_task_that_defines_no_criterion_for_solved_has_no_share():
    assert summarise({0: Judge(None)}, task="t", steps=1)["overall"]["share_solved"] is None


def test_the_summary_holds_each_seed_and_all_of_them():
    summary = summarise(
        {0: judged(1.0, 3.0, learned=True), 7: judged(0.0, learned=False)},
        task="DeepSea",
        steps=40,
    )
    assert summary["task"] == "DeepSea"
    assert summary["seeds"]["0"]["mean_return"] == 2.0
    overall = summary["overall"]
    assert (overall["seeds"], overall["steps"]) == (2, 40)
    assert [overall[kind]["mean_return"] for kind in ("mean", "min", "max")] == [1.0, 0.0, 2.0]
    assert [overall[kind]["learned"] for kind in ("mean", "min", "max")] == [0.5, 0, 1]
    json.dumps(summary, allow_nan=False)


@pytest.mark.parametrize(
    ("solved_at", "share", "median"),
    [
        ([10, 30, 20], 1.0, 20),
        ([10, None, 20], 2 / 3, 20),
        ([10, None, None], 1 / 3, None),
        ([10, 20, 30, None], 0.75, 25),
        ([10, 20, None, None], 0.5, None),
        ([None], 0.0, None),
    ],
)
def test_seeds_that_never_solve_are_censored_not_solved_at_the_end(solved_at, share, median):
    judges = {seed: judged(1.0, solved_at=at) for seed, at in enumerate(solved_at)}
    overall = summarise(judges, task="t", steps=1)["overall"]
    assert (overall["share_solved"], overall["median_solved_at"]) == (pytest.approx(share), median)


def test_an_entry_that_some_seed_lacks_has_no_mean():
    judges = {0: judged(1.0, first_treasure=5), 1: judged(1.0, first_treasure=None)}
    overall = summarise(judges, task="t", steps=1)["overall"]
    assert "first_treasure" not in overall["mean"]
    assert "best_return" in overall["mean"]


def test_a_run_stopped_before_its_first_episode_has_a_summary():
    summary = summarise({0: judged()}, task="t", steps=0)
    assert summary["seeds"]["0"]["mean_return"] is None
    assert summary["overall"]["median_solved_at"] is None
