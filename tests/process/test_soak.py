"""A run that is killed at any moment, again and again, and resumed ends with the bytes of one that never was."""

import random
import re
import shlex
import signal
from collections import Counter
from dataclasses import replace
from functools import cache

import bsuite.bsuite  # noqa: F401  # once here, rather than in every child
import pytest
from killing import (
    RESUMED,
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
    once_of_a_step,
)

from explore._running import interrupts
from explore._storage import checkpoints as checkpoint
from explore._storage.run_folder import Run

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
            "experiment.seeds = (0, 20)",
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
SHORT = replace(PINS, name="PINs, 4 episodes", bindings=(*PINS.bindings, "experiment.episodes = 4"))

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
    """They learn, forget, evaluate, end early; lanes wait for each other; chunks come and go."""
    outcomes = {task.name: uninterrupted(task)[0] for task in TASKS}
    for task in TASKS:
        loss = "loss" if task.name == "ensemble" else "mean_loss"
        assert sum(map(bool, column(outcomes[task.name], loss))) > 4, task.name
    assert {"point chunk: renamed", "point chunk removed"} <= {*uninterrupted(PINS)[1]}
    assert [*found("full", outcomes["PINs"].state)] == [[True, True]]
    assert any(column(outcomes["stochastic"], "evaluation"))
    assert len({*column(outcomes["swing-up"], "length")}) > 1
    assert len({*column(outcomes["noisy cartpole"], "length")}) > 1
    assert 4 < outcomes["within episodes"].state["episode"] < 40


def found(key, tree):
    """All that a tree has under a key."""
    if isinstance(tree, dict) and key in tree:
        yield tree[key]
    for entry in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from found(key, entry)


# Killed in writing


@pytest.mark.parametrize(
    ("task", "sort"),
    [(TASKS[1], once_of_a_kind), *((task, once_of_a_step) for task in TASKS[2:5])],
    ids=lambda one: getattr(one, "name", ""),
)
def test_killed_in_turn_at_points_of_all_kinds(task, sort, begin, uninterrupted):
    """The folder's creation, chunks, states, removals, JSON files, and all of it again when resumed."""
    history = begin(task)
    kill_in_turn(history, set(), sort)
    passed, struck = (
        {sort(moment.removesuffix(RESUMED), 1)[0] for moment in moments}
        for moments in (points(uninterrupted(task)), history.struck)
    )
    assert passed <= struck
    history.check_end()


def test_killed_in_turn_at_all_points_of_its_writing(begin, uninterrupted):
    """One history cannot have them all: killed after a state has its name, a run goes on with the next."""
    seen, before = set(), -1
    while len(seen) > before:
        before = len(seen)
        history = begin(SHORT)
        kill_in_turn(history, seen, once_each)
        history.check_end()
    assert {*points(uninterrupted(SHORT))} <= {moment.removesuffix(RESUMED) for moment, _ in seen}


def test_killed_once_in_its_writing(begin, uninterrupted):
    numbered = [*enumerate(points(uninterrupted(PINS)), start=1)]
    for number, point in random.Random(0).sample(numbered, 16):
        history = begin(PINS)
        history.live(at(number, "point"))
        assert history.struck == [point]
        assert history.live() == 0, history
        history.check_end()


def kill_in_turn(history, seen, sort):
    """Kills a run at the first point of a sort that was not seen, until there is none any more."""
    while history.live(at_new_points(seen, sort)):
        moment = history.struck[-1]
        before = [time for name, time in seen if name == sort(moment, 1)[0]]
        seen.add(sort(moment, max(before, default=0) + 1))


def points(twin):
    return [moment for moment in twin[1] if moment.startswith("point")]


# Killed at work


@every_task
@pytest.mark.parametrize("seed", range(2))
def test_killed_at_random_moments(task, seed, begin, uninterrupted):
    """Before, after and amid calls, the writing of rows among them, or in writing; in resumed runs, too."""
    chance = random.Random(f"{task.name} {seed}")
    moments = uninterrupted(task)[1]
    history = begin(task)
    for _ in range(6):
        among = chance.choice(
            ["call", "point", "call before Learner", "call after Indexed", "call amid RunWriter.add_rows"]
        )
        number = chance.randint(1, 1 + sum(moment.startswith(among) for moment in moments) // 2)
        if history.live(at(number, among)) == 0:
            break
    else:
        assert history.live() == 0, history
    assert history.struck
    history.check_end()


@pytest.mark.parametrize("episode", [1, 2, 6])
def test_killed_while_a_row_is_being_written(episode, begin):
    history = begin(PINS)
    history.live(at(episode, "call amid RunWriter.add_rows"))
    torn = (history.folder / "episodes.csv").read_bytes()
    assert not torn.endswith(b"\n")
    assert len(Run.open(history.folder).episodes["seed"]) == 2 * episode - 1
    assert history.live() == 0, history
    history.check_end()


# Struck from outside, and asked to stop


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize("task", [PINS, TASKS[3]], ids=lambda task: task.name)
def test_struck_from_outside_at_random_times(task, number, begin):
    chance = random.Random(f"{task.name} {number}")
    history, saved = begin(task), 0
    for _ in range(6):
        if saved >= 4:
            break
        rows = chance.randint(2 * saved + 1, 2 * 4)  # of 4 of the 6 episodes: more there are not while it is held
        code = history.strike_from_outside(number, rows, hold=5 - saved)
        assert code == (-number if number == signal.SIGKILL else 128 + number), history
        run = Run.open(history.folder)
        before, saved = saved, max(run.checkpoints.episodes(), default=0)
        if number != signal.SIGKILL:
            assert saved > before, history
            assert count_rows(history.folder) == 2 * saved, "what was played is not saved"
    assert history.live() == 0, history
    history.check_end()


@every_task
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_asked_to_stop_and_resumed_with_the_command_that_it_prints(task, number, begin):
    history = begin(task)
    call = random.Random(f"{task.name} {number}").randrange(1, 9)
    assert history.live(at(call, "call after Indexed.observe", number)) == 128 + number
    run = Run.open(history.folder)
    assert run.status == "interrupted"
    assert count_rows(history.folder) == 2 * run.checkpoints.episodes()[0]
    assert history.live(command=printed_command(history)) == 0, history
    history.check_end()


@pytest.mark.parametrize("call", [1, 6, 14])
def test_asked_twice_it_stops_at_once_and_is_resumed_with_the_command_that_it_prints(call, begin, monkeypatch):
    monkeypatch.setattr(interrupts, "TOGETHER", 0.0)
    history = begin(PINS)
    twice = (at(n, "call after Indexed.observe", signal.SIGINT) for n in (call, call + 1))
    assert history.live(in_turn(*twice)) == 130
    assert history.live(command=printed_command(history)) == 0, history
    history.check_end()


@every_task
def test_killed_in_writing_after_it_was_asked_to_stop(task, begin):
    """The checkpoint, the summary and `run.json` of an interrupted run are as safe as those of others."""
    chance = random.Random(task.name)
    history = begin(task)
    asked = at(1, "call after Indexed.observe", signal.SIGTERM)
    assert history.live(in_turn(asked, at(chance.randrange(20, 34), "point"))) == -signal.SIGKILL, history
    assert history.live() == 0, history
    history.check_end()


def printed_command(history):
    *_, line = history.log.read_text().splitlines()
    match = re.fullmatch(r"explore: interrupted: .*; to (?:resume|begin again): explore (resume .*)", line)
    assert match, line
    return shlex.split(match[1])
