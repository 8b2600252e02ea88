"""`explore run --resume`: goes on to the byte, says what it does, and refuses what would break the promise."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import explore
from explore._cli.main import main
from explore._running import interrupts, provenance
from explore._storage import files
from explore._storage.checkpoints import Checkpoints, Damaged, StoredArray
from explore._storage.files import Lock
from explore._storage.run_folder import Run
from explore.errors import UserError

DEEP_SEA = (
    "experiment.seeds = (0, 1)",
    "environment.DeepSea.size = 4",
    "agent.Indexed.min_replay = 4",
    "agent.Indexed.batches_per_episode = 2",
    "agent.Indexed.target_period = 2",
    "value.MLP.hidden = (16,)",
)
SWING = (
    "experiment.seeds = (0, 1)",
    "environment.CartpoleSwingup.max_time = 0.2",
    "agent.Indexed.min_replay = 1",
    "agent.Indexed.batches_per_episode = 2",
)
STOPPING = """
    import os
    import signal

    from explore import hookimpl

    @hookimpl
    def explore_episode_finished(run, rows):
        if rows[0]["episode"] == {episode} and not run.resumed_after:
            os.kill(os.getpid(), signal.{signal})
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def start(*options, recipe="pins_deep_sea", bindings=(), episodes=6, out="out"):
    """The exit code of a run that begins."""
    tiny = SWING if "cartpole" in recipe else DEEP_SEA
    return main(["run", recipe, *bound(*tiny, f"experiment.episodes = {episodes}", *bindings), "--out", out, *options])


def resume(*options, out="out"):
    """The exit code of a run that goes on."""
    return main(["run", "--resume", out, "--quiet", *options])


def bound(*bindings):
    return [word for binding in bindings for word in ("-b", binding)]


def plugin(text, name="mine.py"):
    Path(name).write_text(textwrap.dedent(text))
    return "-p", name


def stopping(episode=3, signal="SIGINT"):
    return plugin(STOPPING.format(episode=episode, signal=signal), "stopping.py")


def outcome(out):
    """All that a run leaves but the wall clock: rows, summary, and the state after its last episode."""
    run = Run.open(Path(out))
    rows = [line.rpartition(",")[0] for line in (run.folder / "episodes.csv").read_text().splitlines()]
    last = run.checkpoints.episodes()[0]
    state = run.checkpoints.read(last)
    del state["rows"], state["config"]
    return rows, (run.folder / "summary.json").read_text(), last, plain(state)


def plain(tree):
    if isinstance(tree, dict):
        return {key: plain(entry) for key, entry in tree.items()}
    if isinstance(tree, list):
        return [plain(entry) for entry in tree]
    return (str(tree.dtype), tree.shape, np.asarray(tree).tobytes()) if isinstance(tree, StoredArray) else tree


def errors(capsys):
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("explore: error: ")]


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
    "compiled": ("pins_cartpole", ["agent.Indexed.compile = True", "agent.Indexed.batches_per_episode = 6"]),
}


@pytest.mark.parametrize(("recipe", "bindings"), PARTS.values(), ids=PARTS)
def test_a_run_that_was_stopped_ends_as_if_it_had_not_been(recipe, bindings, only_traced):
    stop = stopping()
    assert start("--quiet", *stop, recipe=recipe, bindings=bindings) == 130
    assert resume(*stop) == 0
    Path("stopping.py").write_text(Path("stopping.py").read_text().replace("== 3", "== 0"))
    assert start("--quiet", *stop, recipe=recipe, bindings=bindings, out="whole") == 0
    assert outcome("out") == outcome("whole")
    assert Run.open(Path("out")).info["resumed"][0]["after_episode"] == 3


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
    line = "explore: interrupted: saved after episode 2 of 6; to go on: "
    assert told == f"{line}explore run --resume out -p stopping.py"
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


# Refused


@pytest.fixture
def stopped():
    """A run of 3 of its 6 episodes."""
    assert start("--quiet", *stopping()) == 130
    return Run.open(Path("out"))


GIVEN = ("-p", "stopping.py")


def test_another_configuration_is_named_and_refused(stopped, capsys):
    before = {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}
    assert resume(*GIVEN, *bound("agent.Indexed.learning_rate = 0.5", "experiment.threads = 2")) == 2
    [line] = errors(capsys)
    assert "agent.Indexed.learning_rate = 0.001 (now 0.5)" in line
    assert "experiment.threads = 1 (now 2)" in line
    assert line.endswith("Undo that, or resume it all the same with --force")
    assert {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()} == before


def test_an_edited_configuration_is_named_and_refused(stopped, capsys):
    text = Path("out/config.gin").read_text()
    Path("out/config.gin").write_text(text.replace("discount            = 0.99", "discount = 0.5"))
    assert text != Path("out/config.gin").read_text()
    assert resume(*GIVEN) == 2
    assert "agent.Indexed.discount = 0.99 (now 0.5)" in errors(capsys)[0]


def test_another_version_of_torch_is_named_and_refused(stopped, capsys, monkeypatch):
    version = provenance.metadata.version
    monkeypatch.setattr(provenance.metadata, "version", lambda name: "3.0" if name == "torch" else version(name))
    assert resume(*GIVEN) == 2
    assert f"torch {version('torch')} (now 3.0)" in errors(capsys)[0]


def test_edited_code_of_explore_is_named_and_refused(stopped, capsys, monkeypatch):
    monkeypatch.setattr(provenance, "_own_code", lambda: "other")
    assert resume(*GIVEN) == 2
    assert "it was made with explore (edited since)" in errors(capsys)[0]


def test_another_processor_is_named_and_refused(stopped, capsys, monkeypatch):
    monkeypatch.setattr(provenance, "machine", lambda: "abacus")
    assert resume(*GIVEN) == 2
    assert "(now abacus)" in errors(capsys)[0]


def test_an_edited_plugin_is_named_and_refused(stopped, capsys):
    with open("stopping.py", "a") as file:
        file.write("# now in better style\n")
    assert resume(*GIVEN) == 2
    assert "plugin stopping (edited since)" in errors(capsys)[0]


def test_code_that_a_plugin_imports_is_part_of_it(capsys, monkeypatch):
    monkeypatch.syspath_prepend(Path.cwd())
    Path("scales_of_mine.py").write_text("SCALE = 1.0\n")
    Path("unrelated_of_mine.py").write_text("")
    options = plugin("import scales_of_mine\n" + textwrap.dedent(STOPPING.format(episode=3, signal="SIGINT")))
    assert start("--quiet", *options) == 130
    Path("unrelated_of_mine.py").write_text("# changed")
    Path("scales_of_mine.py").write_text("SCALE = 2.0\n")
    assert resume(*options) == 2
    assert "plugin mine (edited since)" in errors(capsys)[0]


def test_a_plugin_must_be_given_again(stopped, capsys):
    assert resume() == 2
    assert errors(capsys) == ["explore: error: out was made with the plugin stopping; add -p stopping.py"]


def test_force_goes_on_and_is_recorded(stopped):
    assert resume(*GIVEN, "--force", *bound("agent.Indexed.learning_rate = 0.5")) == 0
    run = Run.open(Path("out"))
    assert run.info["resumed"][0]["forced"] == ["agent.Indexed.learning_rate = 0.001 (now 0.5)"]
    assert "learning_rate       = 0.5" in run.config
    assert len(run.episodes["seed"]) == 12


def test_even_force_cannot_put_a_state_where_it_does_not_fit(stopped, capsys):
    for binding in ("value.MLP.hidden = (8,)", "experiment.seeds = (0, 1, 2)", "environment.DeepSea.size = 5"):
        assert resume(*GIVEN, "--force", *bound(binding)) == 2
        assert "the checkpoint of episode 3 in out does not fit the configuration: " in errors(capsys)[0]
    assert resume(*GIVEN, "--force", *bound("experiment.evaluate_every = 2")) == 2
    assert "out cannot be resumed: episodes.csv would have other columns" in errors(capsys)[0]
    assert resume(*GIVEN) == 0


def test_episodes_that_are_over_cannot_be_taken_back(stopped, capsys):
    assert resume(*GIVEN, *bound("experiment.episodes = 2")) == 2
    assert "out has 3 episodes already, experiment.episodes = 2" in errors(capsys)[0]


def test_a_folder_with_a_run_is_not_overwritten(stopped, capsys):
    assert start("--quiet") == 2
    assert errors(capsys) == [
        "explore: error: out holds a run already; resume it with --resume, or choose another with --out"
    ]


def test_of_two_that_begin_at_once_one_is_refused(monkeypatch, capsys):
    acquire = Lock.acquire

    def late(lock):
        monkeypatch.setattr(Lock, "acquire", acquire)
        assert start("--quiet", out=str(lock.folder)) == 0  # in the moment before we have the lock
        acquire(lock)

    monkeypatch.setattr(Lock, "acquire", late)
    assert start("--quiet", bindings=["experiment.seeds = (5,)"]) == 2
    assert "out holds a run already" in errors(capsys)[0]
    assert Run.open(Path("out")).info["seeds"] == [0, 1]
    monkeypatch.setattr(Lock, "acquire", late)
    assert start("--quiet", "--resume", out="other") == 0
    assert "other is done, with 6 episodes" in capsys.readouterr().err


def test_two_processes_cannot_run_in_one_folder(stopped, capsys):
    with Lock(Path("out")):
        assert resume(*GIVEN) == 2
        assert f"out is being run by process {os.getpid()}" in errors(capsys)[0]
        assert Run.open(Path("out")).status == "interrupted"
    assert resume(*GIVEN) == 0


def test_a_run_that_is_going_is_running_and_one_that_was_killed_is_not(stopped):
    info = json.loads(Path("out/run.json").read_text())
    Path("out/run.json").write_text(json.dumps(info | {"status": "running"}))
    assert Run.open(Path("out")).status == "killed"
    with Lock(Path("out")):
        assert Run.open(Path("out")).status == "running"


# What to resume


def test_the_same_command_begins_and_goes_on(capsys):
    stop = stopping()
    assert start("--quiet", "--resume", *stop) == 130
    assert "explore: note: there is nothing to resume yet: the run begins in out" in capsys.readouterr().err
    assert start("--quiet", "--resume", *stop) == 0
    assert "explore: note: out is resumed after episode 3 of 6" in capsys.readouterr().err
    assert start("--quiet", "--resume", *stop) == 0


def test_without_a_folder_it_is_the_latest_of_the_name(capsys):
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
        (["--resume", "out.gin"], "there is no configuration 'out.gin'"),
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


# Damage


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_the_checkpoint_before_is_used_if_the_newest_is_damaged(capsys):
    stop = stopping(5)
    assert start("--quiet", *stop, bindings=["experiment.checkpoint_every = 3"]) == 130
    damage(Path("out/checkpoint/000000005.state"))
    assert resume(*stop) == 0
    told = capsys.readouterr().err
    assert "note: the checkpoint of episode 5 cannot be used: out/checkpoint/000000005.state is damaged" in told
    assert "note: out is resumed after episode 3 of 6" in told
    plugin(STOPPING.format(episode=0, signal="SIGINT"), "stopping.py")
    assert start("--quiet", *stop, bindings=["experiment.checkpoint_every = 3"], out="whole") == 0
    assert outcome("out") == outcome("whole")


def test_a_run_of_which_no_checkpoint_is_whole_is_not_begun_anew(stopped, capsys):
    for path in Path("out/checkpoint").glob("*.state"):
        damage(path)
    before = Path("out/episodes.csv").read_bytes()
    assert resume(*GIVEN) == 2
    [line] = capsys.readouterr().err.splitlines()
    for episode in (3, 1):
        assert f"the checkpoint of episode {episode} cannot be used: out/checkpoint/00000000{episode}.state" in line
    assert line.endswith("to begin again: explore run out/config.gin")
    assert Path("out/episodes.csv").read_bytes() == before


def test_rows_beyond_the_checkpoint_are_cut_and_come_again(stopped):
    with open("out/episodes.csv", "a") as file:
        file.write("0,4,torn ro")
    assert len(Run.open(Path("out")).episodes["seed"]) == 6
    assert resume(*GIVEN) == 0
    assert Run.open(Path("out")).episodes["episode"].tolist() == [n for n in range(1, 7) for _ in range(2)]


def test_rows_that_were_changed_are_noticed(stopped, capsys):
    path = Path("out/episodes.csv")
    first, *lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([first, *lines[:3]]))  # that of episode 1 has them still
    assert resume(*GIVEN) == 0
    told = capsys.readouterr().err
    assert "the checkpoint of episode 3 cannot be used: out/episodes.csv has lost or changed rows" in told
    assert "is resumed after episode 1 of 6" in told


# Environments that cannot be saved

WALK = """
    import dm_env
    import numpy as np
    from dm_env import specs
    from explore import hookimpl

    class Walk(dm_env.Environment):
        def __init__(self, seed: int):
            self.random = np.random.RandomState(seed)
            self.weather = self.changing()

        def changing(self):
            while True:
                yield self.random.normal()

        def reset(self):
            self.left = 5
            return dm_env.restart(np.float32([self.left, next(self.weather)]))

        def step(self, action):
            self.left -= 1
            end = dm_env.transition if self.left else dm_env.termination
            return end(float(action), np.float32([self.left, next(self.weather)]))

        def observation_spec(self):
            return specs.Array((2,), np.float32)

        def action_spec(self):
            return specs.DiscreteArray(2)

    @hookimpl
    def explore_environments():
        return [Walk]
"""


def test_an_environment_that_cannot_be_saved_is_refused_before_the_run(capsys):
    options = plugin(WALK, "walk.py")
    bindings = ["experiment.environment = @environment.Walk"]
    assert start("--quiet", *options, bindings=bindings) == 2
    [line] = errors(capsys)
    assert (
        "weather is a generator, which cannot be saved; give the object that holds it state_dict and load_state_dict"
        in line
    )
    assert line.endswith('or do without checkpoints: -b "experiment.checkpoint_minutes = None"')
    assert not Path("out").exists()


def test_an_end_without_a_summary_is_none(monkeypatch):
    assert start("--quiet", episodes=3) == 0
    write = files.write

    def full(path, *content):
        if path.name == "summary.json":
            raise OSError(28, "No space left on device")
        write(path, *content)

    with monkeypatch.context() as patch:
        patch.setattr(files, "write", full)
        assert resume(*bound("experiment.episodes = 6")) == 1
    assert not Path("out/summary.json").exists()
    assert resume() == 0
    assert Run.open(Path("out")).summary["seeds"]["0"]["episodes"] == 6


def test_a_run_resumed_once_without_checkpoints_goes_on_from_the_one_before(stopped, capsys):
    off = bound("experiment.checkpoint_minutes = None", "experiment.episodes = 8")
    assert resume(*GIVEN, *off) == 0
    assert resume(*GIVEN, *bound("experiment.checkpoint_minutes = 5.0", "experiment.episodes = 9")) == 0
    assert "the checkpoint of episode 8 cannot be used: it holds the agent only" in capsys.readouterr().err
    assert start("--quiet", *GIVEN, bindings=["experiment.seeds = (0, 1)"], episodes=9, out="whole") == 130
    assert resume(*GIVEN, out="whole") == 0
    assert outcome("out") == outcome("whole")


def test_a_run_without_checkpoints_keeps_its_agent_and_cannot_be_resumed(capsys):
    options = plugin(WALK, "walk.py")
    bindings = ["experiment.environment = @environment.Walk", "experiment.checkpoint_minutes = None"]
    assert start("--quiet", *options, bindings=bindings) == 0
    assert explore.load_agent("out", plugins=["walk.py"]).values(np.zeros((3, 2))).shape == (2, 3, 2)
    assert resume(*options, *bound("experiment.episodes = 9")) == 2
    assert "holds the agent only: checkpoints were switched off" in errors(capsys)[0]


LAZY = """
    from explore import hookimpl
    from explore.interfaces import Agent

    class Table:
        def __init__(self):
            self.visits = 0

    class Lazy(Agent):
        def __init__(self, spec, streams, device):
            self.table = None

        def begin_episode(self, observations, progress):
            self.table = self.table or Table()

        def act(self, observations, active):
            self.table.visits += 1
            return [self.table.visits % 2] * len(active)

        evaluate = act

        def observe(self, actions, timesteps, active):
            pass

    @hookimpl
    def explore_agents():
        return [Lazy]
"""


def test_an_agent_that_could_not_be_put_back_is_told_at_its_first_checkpoint(capsys):
    assert start("--quiet", *plugin(LAZY, "lazy.py"), bindings=["experiment.agent = @agent.Lazy"]) == 1
    [line] = errors(capsys)
    assert "the state after episode 1 cannot be saved: agent.table holds a Table where a newly built one has" in line
    Path("lazy.py").write_text(Path("lazy.py").read_text().replace("self.table = None", "self.table = Table()"))
    assert start("--quiet", "-p", "lazy.py", bindings=["experiment.agent = @agent.Lazy"], out="again") == 0


def test_a_run_whose_seeds_have_all_solved_their_task_has_nothing_left_to_do(capsys):
    solved = ["experiment.stop_when_solved = True", "environment.DeepSea.size = 3", "experiment.seeds = (8, 9)"]
    assert start("--quiet", recipe="bsp5_deep_sea", bindings=solved, episodes=60) == 0
    assert resume(*bound("experiment.episodes = 90")) == 0
    assert "out is done, since every seed had solved its task by episode" in capsys.readouterr().err


def test_a_log_on_a_full_disk_does_not_end_a_run():
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full here")
    words = [sys.executable, "-m", "explore", "run", "pins_deep_sea", *bound(*DEEP_SEA, "experiment.episodes = 3")]
    with open("/dev/full", "w") as full:
        assert subprocess.run([*words, "--out", "out"], stdout=full, stderr=full).returncode == 0
    assert Run.open(Path("out")).status == "done"


# Disks


FULL = """
    set -e
    mkdir disk && mount -t tmpfs -o size=4m tmpfs disk
    {explore} {run} --out disk/run || echo first $?
    test -e disk/run/checkpoint/*.part && echo part left
    mount -o remount,size=64m disk
    {explore} run --resume disk/run --quiet || echo second $?
    cp -r disk/run out
"""


def test_a_full_disk_ends_the_run_in_one_line_and_loses_nothing(folder):
    trial = subprocess.run(["unshare", "-rm", "true"], capture_output=True) if shutil.which("unshare") else None
    if trial is None or trial.returncode:
        pytest.skip("no leave to mount a small disk here")
    wide = ["value.MLP.hidden = (96,)", "experiment.checkpoint_every = 1", "environment.DeepSea.size = 8"]
    words = ["run", "pins_deep_sea", "--quiet", *bound(*DEEP_SEA, "experiment.episodes = 40", *wide)]
    run = " ".join(f"'{word}'" for word in words)
    script = FULL.format(explore=f"{sys.executable} -m explore", run=run)
    done = subprocess.run(["unshare", "-rm", "sh", "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert done.stdout == "first 1\n", done
    failed, resumed = done.stderr.splitlines()
    assert failed.startswith("explore: error: cannot write ")
    assert failed.endswith("No space left on device")
    assert resumed.startswith("explore: note: disk/run is resumed after episode ")
    assert main([*words, "--out", "whole"]) == 0
    assert outcome("out") == outcome("whole")


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
