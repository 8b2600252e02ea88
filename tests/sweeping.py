"""Sweeps of tiny runs by the command line, in the working folder."""

import textwrap
from pathlib import Path

from explore._cli.main import main

SIZES = "environment.DeepSea.size = [4, 5]"
TINY = (
    "experiment.episodes = 6",
    "agent.Indexed.min_replay = 4",
    "agent.Indexed.batches_per_episode = 2",
    "agent.Indexed.target_period = 2",
    "value.MLP.hidden = (16,)",
)


def bound(*bindings):
    return [word for binding in bindings for word in ("-b", binding)]


def varied(*texts):
    return [word for text in texts for word in ("--vary", text)]


def start(*words, recipes=("pins_deep_sea",), bindings=TINY, out="out"):
    """The exit code of a tiny sweep."""
    return main(["sweep", *recipes, *bound(*bindings), "--out", out, *words])


def results(run):
    """All of a run that is the same in every repeat of it."""
    rows = [line.rpartition(",")[0] for line in (run / "episodes.csv").read_text().splitlines()]
    chunks = sorted(path.name for path in (run / "checkpoint" / "chunks").iterdir())
    return rows, (run / "summary.json").read_text(), (run / "config.gin").read_text(), chunks


def write_plugin(name, text):
    Path(name).write_text(textwrap.dedent(text))
