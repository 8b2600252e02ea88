"""Run folders written by hand, and what a report makes of them."""

import math
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
TILDE = PINS | {"agent.Indexed.target": "@selection.SampledArgmax"}
FIVE = (0, 1, 2, 3, 4)
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


def report_data(folder):
    return data.gather(*groups.read_finished_runs(groups.run_folders([folder])))


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


def treasure_map(unvisited=0, uncertainty=1.0, mean=0.0):
    """A snapshot of five seeds on a grid of 4 x 4: the last so many rows not visited, and beliefs about two actions."""
    outside = ~np.tri(4, dtype=bool)
    visits = np.broadcast_to(np.where(np.arange(4)[:, None] < 4 - unvisited, 8, 0), (5, 4, 4)).copy()
    visits[:, outside] = -1
    beliefs = {}
    for name, value in {"mean": mean, "uncertainty": uncertainty}.items():
        beliefs[name] = np.broadcast_to(np.asarray(value, np.float32), (5, 4, 4))[..., None] * np.ones(2, np.float32)
        beliefs[name][:, outside] = np.nan
    return {"visits": visits.astype(np.int64), **beliefs}


def record_grid(folder):
    """Two methods at two sizes, with maps, and one of another task with best episodes."""
    for number, (size, method) in enumerate((size, method) for size in (10, 4) for method in (PINS, TILDE)):
        returns = [[0.0, 0.5, 1.0, 1.0][: 4 - (seed == 4)] for seed in FIVE]
        entries = [
            {"solved_at": 2 + seed if seed < 3 else None, "size": size, "score": float(seed < 3)}
            | {"normalised_return": 0.2 * number + 0.1 * seed}
            for seed in FIVE
        ]
        losses = [[math.nan, 4.0, 2.0, 1.0]] * 5
        bindings = SEA | {"environment.DeepSea.size": size} | method
        run = record(folder / f"cell{number}", bindings, returns, entries=entries, loss=losses)
        for episode, unvisited in {1: 3, 2: 2, 3: 0}.items():
            run.snapshots.write(episode, treasure_map(unvisited, uncertainty=0.5 + unvisited))
    swing = {"experiment.environment": "@environment.CartpoleSwingup"} | PINS
    run = record(folder / "swing", swing, [[1, 5, 3]] * 2, task="CartpoleSwingup", curve=("return", "max"))
    run.snapshots.write(2, swung())
    run.snapshots.write(3, swung())
    return folder


def swung():
    """A snapshot of the best episodes of two seeds, of 3 and of 2 steps."""
    beyond = np.array([[False, False, False], [False, False, True]])
    observations = np.zeros((2, 3, 1, 8), np.float32)
    observations[:, :, 0, 3] = [[-1, 0, 1], [-1, -0.5, -0.5]]
    beliefs = np.arange(18, dtype=np.float32).reshape(2, 3, 3)
    return {
        "best_episode": np.array([2, 2]),
        "best_return": np.array([5.0, 4.0]),
        "lengths": np.array([3, 2]),
        "observations": observations,
        "actions": np.where(beyond, -1, [[0, 2, 1], [1, 1, 1]]),
        "rewards": np.where(beyond, np.nan, [[0.0, 1.0, 4.0], [0.0, 4.0, 0.0]]),
        "mean": beliefs,
        "uncertainty": 100 + beliefs,
    }


def pictures(found):
    return [picture for section in found for picture in section.pictures]
