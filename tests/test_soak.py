"""A run that is killed at any moment, again and again, and resumed ends with the bytes of one that never was."""

import random
import re
import shlex
import signal
from collections import Counter
from functools import cache

import bsuite.bsuite  # noqa: F401  # once here, rather than in every child
import numpy as np
import pytest
from killing import (
    History,
    Outcome,
    Task,
    at,
    at_new_points,
    count_rows,
    in_turn,
    kind,
    once_each,
    once_of_a_kind,
)

from explore import checkpoint
from explore.record import Run

SMALL = (
    "experiment.seeds = (0, 1)",
    "experiment.episodes = 6",
    "experiment.checkpoint_every = 1",
    "agent.Indexed.batch_size = 8",
    "agent.Indexed.batches_per_episode = 2",
    "agent.Indexed.min_replay = 4",
    "agent.Indexed.target_period = 2",
    "value.MLP.hidden = (8,)",
)
HEADS = ("uncertainty.SoftplusHeads.hidden = (8,)", "uncertainty.SoftplusHeads.heads = 2")
SEA = (*SMALL, "environment.DeepSea.size = 4")
BSUITE = (*SMALL, *HEADS, "experiment.environment = @environment.Bsuite")

TASKS = [
    Task("PINs", "pins_deep_sea", (*SEA, *HEADS, "agent.Indexed.replay_capacity = 9")),
    Task("ensemble", "bsp5_deep_sea", (*SEA, "experiment.checkpoint_every = 3")),
    Task(
        "stochastic",
        "pins_deep_sea",
        (
            *SEA,
            *HEADS,
            "environment.DeepSea.deterministic = False",
            "experiment.evaluate_every = 2",
            "agent.Indexed.evaluation = @selection.SampledArgmax",
        ),
    ),
    Task(
        "swing-up",
        "pins_cartpole",
        (
            *SMALL,
            *HEADS,
            "experiment.checkpoint_every = 2",
            "environment.CartpoleSwingup.max_time = 0.2",
            "environment.CartpoleSwingup.x_threshold = 0.06",
        ),
    ),
    Task(
        "within episodes",
        "pins_deep_sea",
        (
            *SEA,
            *HEADS,
            "experiment.seeds = (SEEDS)",
            "experiment.episodes = 40",
            "experiment.stop_when_solved = True",
            "experiment.checkpoint_every = 2",
            "environment.DeepSea.size = 3",
            "agent.Indexed.learn_every = 3",
            "agent.Indexed.acting = @selection.EpsilonGreedy",
            "selection.EpsilonGreedy.greedy = @selection.SampledArgmax",
            "selection.EpsilonGreedy.epsilon = @schedule.Linear",
            "schedule.Linear.start = 1.0",
            "schedule.Linear.end = 0.0",
        ),
    ),
    Task("catch", "pins_cartpole", (*BSUITE, "environment.Bsuite.id = 'catch/0'")),
    Task("noisy cartpole", "pins_cartpole", (*BSUITE, "environment.Bsuite.id = 'cartpole_noise/1'")),
]
PINS = TASKS[0]

every_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)


@pytest.fixture(autouse=True, scope="module")
def small_chunks():
    """Networks this small have no chunk of the real size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "CHUNK", 4096)
        yield


@pytest.fixture(scope="module")
def uninterrupted(small_chunks, tmp_path_factory):
    """Given a task, how its run ends if nobody strikes, and the moments that it passes."""

    @cache
    def outcome(task):
        history = History(task, tmp_path_factory.mktemp("uninterrupted") / "history")
        moments = history.moments()
        return Outcome.of(history.folder), moments

    return outcome


@pytest.fixture(scope="module")
def tally():
    """All kills and interrupts by their moments; `pytest -s` shows how many there were."""
    struck = Counter()
    yield struck
    print(f"\n\n{sum(struck.values())} times struck, and no row or bit lost:")
    for moment, times in sorted(struck.items()):
        print(f"{times:6d}  {moment}")


@pytest.fixture
def begin(uninterrupted, tally, tmp_path, record_property):
    """Begins histories; what they went through is counted."""
    histories = []

    def begun(task):
        histories.append(History(task, tmp_path / str(len(histories)), uninterrupted(task)[0]))
        return histories[-1]

    yield begun
    struck = Counter(kind(moment) for history in histories for moment in history.struck)
    tally.update(struck)
    record_property("struck", dict(struck))


def column(outcome, name):
    names, *rows = (row.decode().split(",") for row in outcome.rows)
    return [row[names.index(name)] for row in rows]


def test_the_tasks_do_what_may_go_wrong(uninterrupted):
    """They learn, copy targets, forget, evaluate, end early; lanes wait for each other; chunks come and go."""
    outcomes = {task.name: uninterrupted(task)[0] for task in TASKS}
    for name, outcome in outcomes.items():
        losses = [row for row in column(outcome, "loss" if name == "ensemble" else "mean_loss") if row]
        assert len(losses) > 4, f"{name} learns nothing"
        assert any("chunk: renamed" in moment for task in TASKS for moment in uninterrupted(task)[1]), name
    assert all(outcomes["PINs"].state["agent"]["replay"]["full"])
    assert any(column(outcomes["stochastic"], "evaluation"))
    assert len({*column(outcomes["swing-up"], "length")}) > 1
    assert len({*column(outcomes["noisy cartpole"], "length")}) > 1
    assert 4 < outcomes["within episodes"].state["episode"] < 40
    weights = [entry for entry in arrays(outcomes["PINs"].state["agent"]["function"]) if entry.dtype == np.float32]
    assert sum(entry.size for entry in weights) > 500


def arrays(tree):
    if isinstance(tree, np.ndarray):
        return [tree]
    entries = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return [array for entry in entries for array in arrays(entry)]


# Killed in writing


@every_task
def test_killed_in_turn_at_all_points_of_its_writing(task, begin, uninterrupted):
    """The folder's creation, chunks, states, removals, JSON files, and all of it again when resumed."""
    sort = once_each if task is PINS else once_of_a_kind
    history, seen = begin(task), set()
    while history.live(at_new_points(seen, sort)):
        moment = history.struck[-1]
        times = 1 + max((n for name, n in seen if name == sort(moment, 1)[0]), default=0)
        seen.add(sort(moment, times))
    missed = {kind(moment) for moment in uninterrupted(task)[1] if moment.startswith("point")} - {
        kind(moment.removesuffix(" (resumed)")) for moment in history.struck
    }
    assert not missed
    history.check_end()


def test_killed_once_at_each_point_of_its_writing(begin, uninterrupted):
    points = [moment for moment in uninterrupted(PINS)[1] if moment.startswith("point")]
    for number, point in enumerate(points, start=1):
        history = begin(PINS)
        history.live(at(number, "point"))
        assert history.struck == [point]
        assert history.live() == 0, history
        history.check_end()


# Killed at work


@every_task
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_moments(task, seed, begin, uninterrupted):
    """Before, after and amid calls, the writing of rows among them, or in writing; in resumed runs, too."""
    chance = random.Random(f"{task.name} {seed}")
    moments = len(uninterrupted(task)[1])
    history = begin(task)
    for _ in range(6):
        if history.live(at(chance.randrange(1, moments // 2), chance.choice(["", "call", "point"]))) == 0:
            break
    else:
        assert history.live() == 0, history
    assert history.struck
    history.check_end()


@pytest.mark.parametrize("episode", range(1, 7))
def test_killed_while_a_row_is_being_written(episode, begin):
    history = begin(PINS)
    history.live(at(episode, "call amid Run.add"))
    torn = (history.folder / "episodes.csv").read_bytes()
    assert not torn.endswith(b"\n")
    assert len(Run.open(history.folder).episodes["seed"]) == 2 * episode - 1
    assert history.live() == 0, history
    history.check_end()
