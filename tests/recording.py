"""Run folders written by hand, and what a report makes of them."""

from pathlib import Path

import numpy as np

from explore._analysis import groups
from explore._analysis.report import data
from explore._storage.episodes_csv import EVERY_RUN, WALL_CLOCK, episode_columns
from explore._storage.run_writer import RunWriter
from explore.tasks import Marker, Size, TaskDescription, Trace

COLUMNS = episode_columns(("index", "mean_loss"), ("treasure",), ("evaluation",))
SEA = {"experiment.environment": "@environment.DeepSea", "environment.DeepSea.size": 4}
PINS = {"experiment.agent": "@agent.Indexed", "agent.Indexed.target": "@selection.MeanArgmax"}
HEIGHT = Trace("height of the pole, cos θ", 3, low=-1, high=1)


def describe(task, curve, bindings):
    """What environments of these names say of their tasks."""
    size = bindings.get("environment.DeepSea.size")
    known = {
        "DeepSea": {
            "map_shape": (4, 4),
            "markers": (Marker(3, 3, "treasure"),),
            "map_note": "The frontier moves down.",
            "score": "1 or 0",
            "solved": "few are bad",
            "size": Size(size, dithering=2.0**size, formula="2^N") if size else None,
        },
        "Maze": {"map_shape": (4, 4)},
        "CartpoleSwingup": {"traces": (HEIGHT,), "curve_note": "The paper shows something else."},
    }
    return TaskDescription(name=task, curve=curve, **known.get(task, {}))


def record(
    folder, bindings, returns, *, entries=None, status="done", task="DeepSea", curve=("return", "sum"), **columns
):
    """Writes the folder of a run by hand: returns are those of each seed, and so are more columns."""
    writer = RunWriter.create(
        folder,
        name="by_hand",
        config="\n".join(f"{name} = {value}" for name, value in bindings.items()) + "\n",
        task=describe(task, curve, bindings),
        columns=[*EVERY_RUN, *columns, *WALL_CLOCK],
        seeds=list(range(len(returns))),
        episodes=max(map(len, returns)),
        versions={"explore": "0.1.0", "torch": "2.4"},
        plugins=[],
        command=[],
        quiet=True,
    )
    for seed, own in enumerate(returns):
        for i, episode_return in enumerate(own):
            more = {name: values[seed][i] for name, values in columns.items()}
            known = {"seed": seed, "episode": i + 1, "return": episode_return, "length": 4, "steps": 4 * i + 4}
            writer.add_rows([known | more | {"seconds": 0.1}])
    seeds = {
        str(seed): {"episodes": len(own), "mean_return": float(np.mean(own or [0]))} | (entries or [{}] * 99)[seed]
        for seed, own in enumerate(returns)
    }
    solved = [entry.get("solved_at") is not None for entry in seeds.values()]
    share = float(np.mean(solved)) if any("solved_at" in entry for entry in seeds.values()) else None
    cost = {"parameters": 100, "updates": 60, "samples": 600}
    if status == "done":
        overall = {"share_solved": share, "steps": 40, "cost": cost}
        writer.finish("done", {"task": task, "seeds": seeds, "overall": overall}, seconds=30.0)
    writer.close()
    return writer.run


def material_in(folder):
    return data.material(*groups.finished(groups.run_folders([folder])))


def create(folder=None, **changes):
    """The writer of a new run of two seeds."""
    facts = {
        "name": "pins",
        "config": "experiment.episodes = 3\n",
        "task": TaskDescription(name="DeepSea", curve=("return", "sum")),
        "columns": COLUMNS,
        "seeds": [0, 7],
        "episodes": 3,
        "command": ["explore", "run", "pins.gin"],
        "versions": {"torch": "2.13.0"},
        "plugins": [{"name": "mine", "version": "1.0", "source": "mine.py"}],
    }
    return RunWriter.create(folder and Path(folder), **facts | changes)


def row(seed=0, episode=1, **values):
    return {"seed": seed, "episode": episode, "return": 0.5, "length": 10, "steps": 10 * episode} | values
