"""`explore run --resume` goes on to the byte, and says what it does."""

import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from resuming import DEEP_SEA, GIVEN, STOPPING, bound, errors, outcome, plugin, resume, start, start_and_stop, stopping

import explore
from explore._cli.main import main
from explore._native.library import without_kernels
from explore._running import interrupts
from explore._storage.checkpoints import Checkpoints, Damaged
from explore._storage.files import Lock
from explore._storage.run_folder import Run
from explore.errors import UserError


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def stopped():
    """A run of 3 of its 6 episodes."""
    return start_and_stop()


# To the byte

PARTS = {
    "PINs": ("pins_deep_sea", []),
    "stochastic": ("pins_deep_sea", ["environment.DeepSea.deterministic = False", "experiment.evaluate_every = 2"]),
    "ensemble": ("bsp5_deep_sea", []),
    "noise": ("bsp5_deep_sea", ["objective.SampledTD.noise = 0.1"]),
    "no prior": ("bs10_deep_sea", []),
    "DQN": ("dqn_deep_sea", []),
    "swing-up": ("pins_cartpole", ["environment.CartpoleSwingup.x_threshold = 0.05"]),
    "swing-up ensemble": ("bsp5_cartpole", []),
    "a ring that has closed": ("pins_deep_sea", ["agent.Indexed.replay_capacity = 10"]),
    "learning in each step": ("pins_deep_sea", ["agent.Indexed.learn_every = 1"]),
    "masked heads": ("pins_deep_sea", ["uncertainty.SoftplusHeads.train_heads = 'masked'"]),
    "TD at indices": ("pins_deep_sea", ["agent.Indexed.objective = @objective.SampledTD"]),
    "optimism": ("pins_deep_sea", ["agent.Indexed.target = @selection.OptimisticArgmax"]),
    "dithering": ("pins_deep_sea", ["agent.Indexed.acting = @selection.Boltzmann"]),
    "heads on an ensemble": (
        "pins_deep_sea",
        ["agent.Indexed.uncertainty = [@uncertainty.Ensemble, @uncertainty.SoftplusHeads]"],
    ),
    "schedules": (
        "pins_deep_sea",
        [
            "agent.Indexed.acting = @selection.EpsilonGreedy",
            "selection.EpsilonGreedy.epsilon = @schedule.Linear",
            "schedule.Linear.start = 0.9",
            "schedule.Linear.end = 0.1",
        ],
    ),
    "stopping when solved": (
        "bsp5_deep_sea",
        [
            "experiment.stop_when_solved = True",
            "experiment.episodes = 60",
            "environment.DeepSea.size = 3",
            "experiment.seeds = (2,)",  # solved at episode 56
        ],
    ),
    "bsuite": (
        "pins_deep_sea",
        ["experiment.environment = @environment.Bsuite", "environment.Bsuite.id = 'cartpole_noise/3'"],
    ),
}


@pytest.mark.parametrize(("recipe", "bindings"), PARTS.values(), ids=PARTS)
def test_a_run_that_was_stopped_ends_as_if_it_had_not_been(recipe, bindings):
    stop = stopping()
    assert start("--quiet", *stop, recipe=recipe, bindings=bindings) == 130
    assert resume(*stop) == 0
    Path("stopping.py").write_text(Path("stopping.py").read_text().replace("== 3", "== 0"))
    assert start("--quiet", *stop, recipe=recipe, bindings=bindings, out="whole") == 0
    assert outcome("out") == outcome("whole")
    assert Run.open(Path("out")).info["resumed"][0]["after_episode"] == 3


@pytest.mark.parametrize("part", ["PINs", "swing-up ensemble", "TD at indices", "learning in each step"])
def test_a_run_by_pytorch_that_was_stopped_ends_as_if_it_had_not_been(part):
    with without_kernels():
        test_a_run_that_was_stopped_ends_as_if_it_had_not_been(*PARTS[part])
    assert "PyTorch" in Run.open(Path("out")).info["execution"]


def test_a_run_that_was_extended_is_one_that_was_long_from_the_start():
    assert start("--quiet", episodes=3) == 0
    assert resume(*bound("experiment.episodes = 6")) == 0
    assert start("--quiet", out="whole") == 0
    assert outcome("out") == outcome("whole")
    assert Path("out/config.gin").read_text() == Path("whole/config.gin").read_text()


def test_how_often_checkpoints_are_written_changes_nothing():
    settings = ("checkpoint_minutes = 0.0", "checkpoint_every = 2", "checkpoint_every = 100")
    for number, setting in enumerate(settings):
        assert start("--quiet", bindings=[f"experiment.{setting}"], out=f"run{number}") == 0
    assert outcome("run0") == outcome("run1") == outcome("run2")
    assert [Run.open(Path(f"run{n}")).checkpoints.episodes() for n in range(3)] == [[6, 5], [6, 4], [6, 1]]


COUNTING = """
    import random

    import numpy as np
    import torch
    from explore import hookimpl
    from explore.interfaces import Judge, Selection, ScaleModule
    from explore.nn import MLP
    from explore.streams import uniform
    from explore_plugins.deep_sea import DeepSea

    class Restless(Selection):
        '''Keeps things of all sorts, and draws from everybody's generators.'''

        def __init__(self):
            self.calls, self.seen, self.average = 0, {}, torch.zeros(2)
            self.own = np.random.default_rng(7)

        def scores(self, beliefs):
            self.calls += 1
            self.seen[self.calls % 3] = self.seen.get(self.calls % 3, 0) + 1
            scores = beliefs.values()
            self.average = 0.9 * self.average + scores.mean((0, 1, 2))
            left = random.random() + np.random.random()
            right = torch.rand(1).item() + self.own.random()
            return scores - self.average * len(self.seen) + 100 * torch.tensor([left, right])

    class Growing(ScaleModule):
        '''Its spread depends on how often it was drawn.'''

        def __init__(self, spec):
            super().__init__(heads=2)
            self.net = MLP(spec.observation, (8,), spec.num_actions * 2)
            self.drawn = 0

        def forward(self, obs):
            return self.net(obs).abs().unflatten(-1, (-1, 2))

        def draw(self, generators, *shape):
            self.drawn += 1
            return super().draw(generators, *shape) * (1 + 0.1 * self.drawn)

    @hookimpl
    def explore_selections():
        return [Restless]

    @hookimpl
    def explore_uncertainty_modules():
        return [Growing]
"""


def test_what_a_component_keeps_is_kept():
    options = [*plugin(COUNTING, "counting.py"), *stopping()]
    bindings = ["agent.Indexed.acting = @selection.Restless", "agent.Indexed.uncertainty = @uncertainty.Growing"]
    assert start("--quiet", *options, bindings=bindings) == 130
    assert resume(*options) == 0
    plugin(STOPPING.format(episode=0, signal="SIGINT"), "stopping.py")
    assert start("--quiet", *options, bindings=bindings, out="whole") == 0
    assert outcome("out") == outcome("whole")


def test_nothing_is_left_to_do_for_a_run_that_is_done(capsys):
    assert start("--quiet") == 0
    before = {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}
    assert resume() == 0
    assert {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()} == before
    assert 'out is done, with 6 episodes; to extend it, add for example -b "experiment.episodes = 12"' in (
        capsys.readouterr().err
    )


def test_a_run_killed_before_its_summary_was_written_is_finished():
    assert start("--quiet") == 0
    expected = outcome("out")
    Path("out/summary.json").unlink()
    info = json.loads(Path("out/run.json").read_text())
    Path("out/run.json").write_text(json.dumps(info | {"status": "running"}))
    assert Run.open(Path("out")).status == "killed"
    assert resume() == 0
    assert outcome("out") == expected
    assert Run.open(Path("out")).status == "done"


def test_a_run_without_a_checkpoint_yet_begins_again():
    assert start("--quiet") == 0
    expected = outcome("out")
    shutil.rmtree("out/checkpoint")
    lines = Path("out/episodes.csv").read_text().splitlines(keepends=True)
    Path("out/episodes.csv").write_text("".join(lines[:3]))
    info = json.loads(Path("out/run.json").read_text())
    Path("out/run.json").write_text(json.dumps(info | {"status": "running"}))
    assert resume() == 0
    assert outcome("out") == expected


def test_seconds_go_on_too():
    stop = stopping()
    assert start("--quiet", *stop) == 130
    assert resume(*stop) == 0
    run = Run.open(Path("out"))
    assert (np.diff(run.episodes["seconds"]) >= 0).all()
    assert run.info["seconds"] >= run.episodes["seconds"][-1]


def test_a_run_that_has_lost_its_checkpoints_keeps_its_rows(capsys):
    assert start("--quiet") == 0
    rows = Path("out/episodes.csv").read_bytes()
    shutil.rmtree("out/checkpoint")
    assert resume(*bound("experiment.episodes = 9")) == 2
    expected = "out has 6 episodes but no checkpoint to resume from; to begin again: explore run out/config.gin"
    assert errors(capsys) == [f"explore: error: {expected}"]
    assert Path("out/episodes.csv").read_bytes() == rows


# Signals


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_ends_the_episode_saves_and_tells_how_to_go_on(capfd, name, code):
    assert start("--quiet", *stopping(2, name)) == code
    run = Run.open(Path("out"))
    assert run.status == "interrupted"
    assert run.checkpoints.episodes()[0] == 2
    assert len(run.episodes["seed"]) == 4
    asked, told = capfd.readouterr().err.split("\n", 1)[1].splitlines()
    assert asked == "explore: ends the episode at hand and writes a checkpoint; once more to stop at once"
    line = "explore: interrupted: saved after episode 2 of 6; to resume: "
    assert told == f"{line}explore resume out -p stopping.py"
    assert main(told.removeprefix(f"{line}explore ").split()) == 0


def test_a_second_signal_stops_at_once_and_the_last_checkpoint_counts(capfd, monkeypatch):
    monkeypatch.setattr(interrupts, "TOGETHER", 0.0)
    twice = STOPPING.format(episode=4, signal="SIGTERM") + "            os.kill(os.getpid(), signal.SIGTERM)\n"
    options = plugin(twice)
    assert start("--quiet", *options, bindings=["experiment.checkpoint_every = 3"]) == 143
    assert "interrupted: saved after episode 3 of 6" in capfd.readouterr().err
    plugin(twice.replace("== 4", "== 0"))
    assert start("--quiet", *options, bindings=["experiment.checkpoint_every = 3"], out="whole") == 0
    assert resume("--force", *options) == 0
    assert outcome("out") == outcome("whole")


def test_signals_mean_what_they_did_before_once_the_run_is_over():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    assert start("--quiet") == 0
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


# What to resume


def test_the_same_command_begins_and_goes_on(capsys):
    stop = stopping()
    assert start("--quiet", "--resume", *stop) == 130
    assert "explore: note: there is nothing to resume yet: the run begins in out" in capsys.readouterr().err
    assert start("--quiet", "--resume", *stop) == 0
    assert "explore: note: out is resumed after episode 3 of 6" in capsys.readouterr().err
    assert start("--quiet", "--resume", *stop) == 0


def test_without_a_folder_it_is_the_latest_of_the_name():
    command = ["run", "pins_deep_sea", *bound(*DEEP_SEA, "experiment.episodes = 6"), "--quiet", *stopping()]
    assert [main(command), main(command)] == [130, 130]
    assert main([*command, "--resume"]) == 0
    assert [Run.open(Path("runs", name)).status for name in ("pins_deep_sea", "pins_deep_sea-2")] == [
        "interrupted",
        "done",
    ]


def test_resume_may_stand_anywhere(stopped):
    words = ["run", "--quiet", *GIVEN, *bound(*DEEP_SEA, "experiment.episodes = 6")]
    assert main([*words, "pins_deep_sea", "--resume", "out"]) == 0
    assert main([*words, "--resume", "pins_deep_sea", "--out", "out"]) == 0
    assert main([*words, "--resume", "--out", "out"]) == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--resume"], "--resume what? Name the folder of the run: explore run --resume DIR"),
        (["--resume", "nowhere"], "there is no run folder nowhere"),
        (["--resume", "."], ". is not the folder of a run: it has no run.json"),
        (["--resume", "a", "pins_deep_sea", "--out", "b"], "--resume a and --out b name two folders; one is enough"),
        (["--force", "pins_deep_sea"], "--force goes with --resume"),
        (["--resume", "out.gin"], "there is no run folder out.gin"),
    ],
)
def test_what_cannot_be_meant_is_refused(capsys, words, expected):
    assert main(["run", *words]) == 2
    [line] = errors(capsys)
    assert expected in line
    assert list(Path().iterdir()) == []


def test_a_folder_in_which_a_run_was_killed_before_it_began_is_used(folder):
    Path("out").mkdir()
    for name in (".lock", "config.gin", "run.json.part"):
        Path("out", name).touch()
    assert start("--quiet") == 0
    Path("theirs").mkdir()
    Path("theirs/config.gin").touch()
    assert start("--quiet", out="theirs") == 2


def test_rows_are_on_the_disk_before_the_checkpoint_that_refers_to_them(monkeypatch):
    moments = []
    fsync, replace = os.fsync, os.replace
    name_of = lambda descriptor: Path(os.readlink(f"/proc/self/fd/{descriptor}")).name  # noqa: E731
    monkeypatch.setattr(os, "fsync", lambda fd: (moments.append(name_of(fd)), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda old, new: (moments.append(Path(new).name), replace(old, new)))
    assert start("--quiet", episodes=1) == 0
    assert moments.index("000000001.state") > len(moments) - 1 - moments[::-1].index("episodes.csv")


# From Python


def test_a_run_goes_on_from_python_too(stopped):
    run = explore.run(out="out", resume=True, plugins=["stopping.py"], quiet=True)
    assert (run.status, run.resumed_after, len(run.episodes["seed"])) == ("done", 3, 12)
    with pytest.raises(UserError, match="name a configuration to run, or a folder to resume"):
        explore.run()


def test_an_agent_is_loaded_though_checkpoints_are_replaced_meanwhile(stopped, monkeypatch):
    info = json.loads(Path("out/run.json").read_text())
    Path("out/run.json").write_text(json.dumps(info | {"status": "running"}))
    read, calls = Checkpoints.read, []

    def replaced(self, episode):
        calls.append(episode)
        if len(calls) <= 4:  # the states that were listed are gone
            raise Damaged("it is missing")
        return read(self, episode)

    monkeypatch.setattr(Checkpoints, "read", replaced)
    with Lock(Path("out")):
        assert explore.load_agent("out", plugins=["stopping.py"]).values(np.arange(16)).shape == (2, 16, 2)
    calls.clear()
    with pytest.raises(UserError, match="cannot be used: it is missing"):  # nobody runs it: so it is damaged
        explore.load_agent("out", plugins=["stopping.py"])


def test_an_agent_can_be_asked_while_its_run_goes_on(stopped):
    assert explore.load_agent("out", plugins=["stopping.py"]).values(np.arange(16)).shape == (2, 16, 2)
