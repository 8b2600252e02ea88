"""Runs that are stopped and resumed from the command line, and what they leave."""

import textwrap
from pathlib import Path

import numpy as np

from explore._cli.main import main
from explore._storage.checkpoints import StoredArray
from explore._storage.run_folder import Run

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
GIVEN = ("-p", "stopping.py")


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


def start_and_stop():
    """A run of 3 of its 6 episodes."""
    assert start("--quiet", *stopping()) == 130
    return Run.open(Path("out"))
