"""`explore extend` adds seeds as if all had been run at once, or refuses to."""

import os
import shutil
import signal
from itertools import groupby
from pathlib import Path

import pytest
from killing import at, fork, watch
from resuming import GIVEN, bound, errors, plugin, resume, start, stopping

import explore
from explore._cli.main import main
from explore._native.library import SETTING
from explore._running import provenance
from explore._storage.run_folder import Run
from explore.errors import UserError

TIMES = ("started", "finished", "seconds", "command", "extended", "resumed")
"""Entries of `run.json` that tell when, and by which commands."""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def extend(*options, seeds="5,3", out="out"):
    return main(["extend", out, "--seeds", seeds, "--quiet", *options])


def files(out):
    """All that a run shows, but for the wall clock."""
    run = Run.open(Path(out))
    rows = [line.rpartition(",")[0] for line in (run.folder / "episodes.csv").read_text().splitlines()]
    info = {name: entry for name, entry in run.info.items() if name not in TIMES}
    snapshots = {path.name: path.read_bytes() for path in (run.folder / "snapshots").glob("*")}
    return rows, info, snapshots, *(Path(out, name).read_text() for name in ("config.gin", "summary.json"))


def contents(out="out"):
    return {path: path.read_bytes() for path in Path(out).rglob("*") if path.is_file() and path.name != ".lock"}


PARTS = {
    "PINs": ("pins_deep_sea", []),
    "stochastic": ("pins_deep_sea", ["environment.DeepSea.deterministic = False"]),
    "swing-up": (
        "bsp5_cartpole",
        ["environment.CartpoleSwingup.max_time = 0.5", "environment.CartpoleSwingup.x_threshold = 0.06"],
    ),
    "tabular": ("wtd_random_mdp", []),
}
EVALUATED = "experiment.evaluate_every = 2"


def begin(recipe="pins_deep_sea", bindings=(), seeds="(0, 1)", out="out", episodes=6):
    """A finished run."""
    tiny = [f"experiment.seeds = {seeds}", *bindings]
    if "random" in recipe:
        words = ["run", recipe, *bound(*tiny, f"experiment.episodes = {episodes}"), "--out", out, "--quiet"]
        assert main(words) == 0
    else:
        assert start("--quiet", recipe=recipe, bindings=tiny, episodes=episodes, out=out) == 0


@pytest.mark.parametrize(("recipe", "bindings"), PARTS.values(), ids=PARTS)
def test_an_extended_run_is_one_of_all_seeds(recipe, bindings):
    begin(recipe, [*bindings, EVALUATED])
    begin(recipe, [*bindings, EVALUATED], seeds="(0, 1, 5, 3, 9)", out="whole")
    assert extend() == 0
    assert extend(seeds="9") == 0
    assert files("out") == files("whole")
    assert [entry["seeds"] for entry in Run.open("out").info["extended"]] == [[5, 3], [9]]


def test_seconds_are_those_of_all_parts():
    begin()
    before = Run.open("out")
    assert extend() == 0
    run, parts = Run.open("out"), [Run.open(f"out/parts/{number}") for number in (1, 2)]
    assert run.info["seconds"] == sum(part.info["seconds"] for part in parts) > before.info["seconds"]
    last = [part.episodes["seconds"][-1] for part in (run, *parts)]
    assert last[0] == pytest.approx(last[1] + last[2])


def test_an_extended_run_can_go_on_for_more_episodes(capsys):
    begin(bindings=[EVALUATED])
    begin(bindings=[EVALUATED], seeds="(0, 1, 5, 3)", out="whole", episodes=9)
    assert extend() == 0
    assert resume() == 0
    assert "out is done, with 6 episodes of 4 seeds" in capsys.readouterr().err
    assert resume(*bound("experiment.episodes = 9")) == 0
    assert files("out") == files("whole")
    assert resume(*bound("agent.Indexed.discount = 0.5")) == 2
    assert resume(*bound("experiment.seeds = (0, 1)")) == 2
    assert [line.partition("was made with ")[2][:40] for line in errors(capsys)] == [
        "agent.Indexed.discount = 0.99 (now 0.5).",
        "experiment.seeds = (0, 1, 5, 3) (now (0,",
    ]


def test_the_agents_of_an_extended_run_are_in_its_parts():
    begin()
    assert extend() == 0
    with pytest.raises(UserError, match="load the agent of a part, such as out/parts/1"):
        explore.load_agent("out")
    assert explore.load_agent("out/parts/2").streams.seeds == (5, 3)


# Killed


def end_at(blow):
    """Whether a child that extends the run ended well, and was not killed by this blow."""

    def work():
        watch(lambda moment: blow(moment) and os.kill(os.getpid(), signal.SIGKILL))
        return extend()

    return os.waitstatus_to_exitcode(os.waitpid(fork(work, Path("log")), 0)[1]) == 0


def test_extending_can_be_killed_at_any_moment():
    begin(episodes=2)
    begin(seeds="(0, 1, 5, 3)", out="whole", episodes=2)
    old, new = files("out"), files("whole")
    shutil.copytree("out", "kept")
    with Path("moments").open("w", buffering=1) as file:
        assert end_at(lambda moment: print(moment, file=file))
    moments = [moment for moment in Path("moments").read_text().splitlines() if moment.startswith("point")]
    struck = [number for number, moment in enumerate(moments, 1) if moment.endswith(("copied", "renamed", "removed"))]
    statuses = []
    for number in struck:
        shutil.rmtree("out")
        shutil.copytree("kept", "out")
        assert not end_at(at(number, "point"))
        statuses.append(Run.open("out").status)
        whole = statuses[-1] == "done"
        assert not whole or files("out") in (old, new)
        if whole and number % 2:
            expected = 2 if files("out") == new else 0
            assert extend() == expected
        else:
            assert main(["resume", "out", "--quiet"]) == 0
            if files("out") == old:  # nothing of the new seeds was there to resume
                assert extend() == 0
        assert files("out") == new, moments[number - 1]
    assert [status for status, _ in groupby(statuses)] == ["done", "killed", "done"]


def test_extending_that_was_interrupted_is_resumed_with_the_run(capsys):
    begin()
    old = files("out")
    assert extend(*stopping()) == 130
    assert "saved after episode 3 of 6; to resume: explore resume out -p stopping.py" in capsys.readouterr().err
    assert files("out") == old
    assert extend(seeds="3,4") == 2
    assert errors(capsys) == [
        "explore: error: out cannot be extended: it has seed 3 already, not to its end; first: explore resume out"
    ]
    assert main(["resume", "out", "--quiet", *GIVEN]) == 0
    begin(seeds="(0, 1, 5, 3)", out="whole")
    assert files("out")[0] == files("whole")[0]


# Refused

SIGMA = ("WassersteinTD.sigma = @schedule.Linear", "schedule.Linear.start = 2.0", "schedule.Linear.end = 1.0")
REFUSED = {
    "stop when solved": (["experiment.stop_when_solved = True"], (), "5", "every seed runs until all have solved"),
    "a seed twice": ([], (), "1,5", "cannot be extended: it has seed 1 already"),
    "no checkpoints": (["experiment.checkpoint_minutes = None"], (), "5", "without checkpoints it is not known"),
    "schedules": (
        [f"objective.{SIGMA[0]}", *SIGMA[1:]],
        ["experiment.episodes = 9"],
        "5",
        "its schedules began with other episodes than 9",
    ),
    "other snapshots": (
        [],
        ["experiment.snapshots = 1", "experiment.episodes = 9"],
        "5",
        "its snapshots are not those that experiment.snapshots asks for",
    ),
    "forced": ([], ["agent.Indexed.discount = 0.5", "experiment.episodes = 9"], "5", "resumed with --force"),
}


@pytest.mark.parametrize(("bindings", "resumed", "seeds", "expected"), REFUSED.values(), ids=REFUSED)
def test_what_would_not_be_a_run_of_all_seeds_is_refused(bindings, resumed, seeds, expected, capsys):
    begin(bindings=bindings)
    if resumed:
        assert resume("--force", *bound(*resumed)) == 0
    check_refused(expected, capsys, seeds)


def test_an_unfinished_run_is_refused(capsys):
    assert start("--quiet", *stopping()) == 130
    check_refused("it is interrupted; first: explore resume out", capsys, given=GIVEN)


def test_another_version_or_execution_is_refused(capsys, monkeypatch):
    begin()
    with monkeypatch.context() as patched:
        patched.setattr(provenance, "_digest_own_code", lambda: "other")
        check_refused("it was made with explore (edited since)", capsys)
    native = Run.open("out").execution.startswith("native")
    monkeypatch.setenv(SETTING, "off")
    if native:
        check_refused("it was made with native kernels", capsys)


DRAWING = """
    import torch
    from explore import hookimpl
    from explore_plugins.selections import SampledArgmax

    class Restless(SampledArgmax):
        '''Draws from a generator of all.'''

        def __init__(self):
            super().__init__()
            {building}

        def scores(self, beliefs):
            {acting}
            return super().scores(beliefs)

    @hookimpl
    def explore_selections():
        return [Restless]
"""


@pytest.mark.parametrize(("building", "acting"), [("torch.rand(1)", "pass"), ("pass", "torch.rand(1)")])
def test_components_that_draw_from_global_generators_are_refused(building, acting, capsys):
    given = plugin(DRAWING.format(building=building, acting=acting))
    assert start("--quiet", *given, bindings=["agent.Indexed.acting = @selection.Restless"]) == 0
    check_refused("components draw from global generators", capsys, given=given)


def check_refused(expected, capsys, seeds="5", given=()):
    before = contents()
    capsys.readouterr()
    assert extend(*given, seeds=seeds) == 2
    [line] = errors(capsys)
    assert expected in line
    assert contents() == before
