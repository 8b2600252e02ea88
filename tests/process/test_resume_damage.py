"""Runs whose files are damaged, whose state cannot be saved, or whose disk is full."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from resuming import DEEP_SEA, GIVEN, STOPPING, bound, errors, outcome, plugin, resume, start, start_and_stop, stopping

import explore
from explore._cli.main import main
from explore._storage import files
from explore._storage.run_folder import Run


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def stopped():
    """A run of 3 of its 6 episodes."""
    return start_and_stop()


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
    sea = ["environment.DeepSea.size = 3", "agent.Indexed.batches_per_episode = 10", "value.MLP.hidden = (50,)"]
    solved = ["experiment.stop_when_solved = True", *sea]
    assert start("--quiet", recipe="bsp5_deep_sea", bindings=solved, episodes=300) == 0
    assert resume(*bound("experiment.episodes = 400")) == 0
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
