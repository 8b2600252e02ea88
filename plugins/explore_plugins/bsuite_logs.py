"""Runs in the format of bsuite's own logging, for its analysis: a CSV file per experiment, with the episodes it logs.

    OUT/bsuite_id_-_deep_sea-5.csv           all seeds, told apart by the column `run_seed`
        seed_0/bsuite_id_-_deep_sea-5.csv    if there are several: one run per id, as bsuite's analysis expects

Everything is read from the folders of runs; no code of theirs is run.
"""

from __future__ import annotations

import ast
import csv
import difflib
import io
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bsuite.bsuite import EXPERIMENT_NAME_TO_ENVIRONMENT
from bsuite.sweep import SETTINGS

from explore import Run
from explore.commands import note
from explore.errors import UserError
from explore.reports import finished_runs, read_bindings, write_files
from explore_plugins.bsuite_scores import list_logged

SEED = "run_seed"
"""Not `seed`, which is a setting of some of bsuite's experiments: `csv_load` would rename both."""

SWINGUP = {
    "theta_dot_threshold": 1.0, "x_dot_threshold": None, "move_cost": 0.1, "x_threshold": 3.0, "timescale": 0.01,
    "max_time": 10.0, "init_range": 0.05,
}  # fmt: skip
"""What all settings of bsuite's swing-up have in common."""

Reported = Mapping[str, tuple[str, Callable[[np.ndarray], np.ndarray]]]
DEEP_SEA: Reported = {"total_bad_episodes": ("bad", np.cumsum), "denoised_return": ("treasure", np.cumsum)}
REPORTED: dict[str, Reported] = {
    "deep_sea": DEEP_SEA,
    "deep_sea_stochastic": DEEP_SEA,
    "cartpole_swingup": {
        "raw_return": ("return", np.cumsum),
        "total_upright": ("upright", np.cumsum),
        "best_episode": ("return", lambda returns: np.maximum.accumulate(returns.clip(0))),
    },
}
"""What bsuite's environments report of themselves where explore has its own: from which column, and how."""

Rows = list[dict[str, Any]]


def export_bsuite(folders: Sequence[str | Path], out: str | Path) -> list[Path]:
    """Writes the runs in these folders, each that of a run or of a sweep, to a new folder; returns the files.

    Raises `UserError`, and then leaves nothing behind.
    """
    out = Path(out)
    _check_free(out)
    runs, left_out = finished_runs(folders)
    if not runs:
        raise UserError(f"there is no finished run to export: {'; '.join(left_out) or 'no folder is named'}")
    found: dict[str, dict[int, Rows]] = {}
    folder_of: dict[tuple[str, int], Path] = {}
    for run in runs:
        id = bsuite_id(run)
        for seed, rows in _rebuild_log(run, id).items():
            if (id, seed) in folder_of:
                both = f"{folder_of[id, seed]} and {run.folder} both hold seed {seed} of {id}"
                raise UserError(f"{both}; bsuite knows one agent per folder: export them apart")
            folder_of[id, seed] = run.folder
            found.setdefault(id, {})[seed] = rows
    for line in left_out:
        note(f"left out: {line}")
    return write_files(out, _texts(found))


def bsuite_id(run: Run) -> str:
    """The id under which bsuite has the task of a run; raises `UserError` if it has none."""
    bindings = read_bindings(run.config)
    environment = bindings.get("experiment.environment", "").removeprefix("@")
    prefix = f"{environment}."
    values = {name.removeprefix(prefix): v for name, v in bindings.items() if name.startswith(prefix)}
    parameters = {name: _value(text) for name, text in values.items()}
    component = environment.rpartition("/")[2]
    if component == "environment.Bsuite":
        return _check_id(parameters.get("id"), run)
    candidates = _settings(component)
    if not candidates:
        raise UserError(
            f"{run.folder} is a run of {component or 'no environment'}, which bsuite does not have; it has those of "
            "environment.Bsuite, and environment.DeepSea and environment.CartpoleSwingup with its settings"
        )
    differing = {
        id: [f"{name} = {value!r}" for name, value in settings.items() if not _same(parameters.get(name, ...), value)]
        for id, settings in candidates.items()
    }
    nearest = min(differing, key=lambda id: len(differing[id]))
    if differing[nearest]:
        raise UserError(
            f"{run.folder} is a run of {component} with settings that bsuite does not have; "
            f"for {nearest}, say, it would need {', '.join(differing[nearest])}"
        )
    return nearest


def _check_id(id: Any, run: Run) -> str:
    if id not in [*SETTINGS] or id.startswith("mnist"):  # a list, as what a file says may have no hash
        nearest = ", ".join(difflib.get_close_matches(str(id), SETTINGS, cutoff=0.0))
        raise UserError(f"{run.folder} is a run of {id!r}, which is no id of bsuite's; the nearest are {nearest}")
    return id


def _settings(component: str) -> dict[str, dict[str, Any]]:
    """The ids of bsuite that an environment of explore can be, with the parameters that make it the same task.

    The mapping of Deep-sea's actions is not among them: all are equally hard.
    """
    if component == "environment.DeepSea":
        costs = {"unscaled_move_cost": 0.01, "move_costs": "every"}
        return {
            id: {"size": own["size"], "deterministic": id.startswith("deep_sea/")} | costs
            for id, own in SETTINGS.items()
            if id.startswith("deep_sea")
        }
    if component == "environment.CartpoleSwingup":
        return {id: SWINGUP | own for id, own in SETTINGS.items() if id.startswith("cartpole_swingup")}
    return {}


def _rebuild_log(run: Run, id: str) -> dict[int, Rows]:
    """What bsuite would have logged of each seed of a run."""
    experiment = id.partition("/")[0]
    reports = EXPERIMENT_NAME_TO_ENVIRONMENT[experiment](**SETTINGS[id]).bsuite_info()
    own = REPORTED.get(experiment, {name: (f"bsuite_{name}", np.asarray) for name in reports})
    columns = ["return", "length", "steps", *(column for column, _ in own.values())]
    found = {}
    for seed, episodes in _split_by_seed(run, columns).items():
        returns = episodes["return"]
        table = {
            "steps": episodes["steps"].astype(int),
            "episode": np.arange(1, len(returns) + 1),
            "total_return": np.cumsum(returns),
            "episode_len": episodes["length"].astype(int),
            "episode_return": returns,
            **{name: own[name][1](episodes[own[name][0]]) for name in reports},
        }
        at = list_logged(len(returns)) - 1
        found[seed] = [dict(zip(table, row)) for row in zip(*(column[at].tolist() for column in table.values()))]
    return found


def _split_by_seed(run: Run, names: Iterable[str]) -> dict[int, dict[str, np.ndarray]]:
    """Columns of `episodes.csv`, an entry per episode of a seed."""
    seeds, columns, path = run.info["seeds"], run.episodes, run.folder / "episodes.csv"
    for name in names:
        if name not in columns:
            raise UserError(f"{path} has no column {name}: an earlier version of explore made it; run it again")
        if columns[name].dtype.kind != "f" or not (np.abs(columns[name]) < 2**53).all():
            raise UserError(f"{path} is damaged: column {name} holds other things than numbers, or too large ones")
    episodes = len(columns["seed"]) // len(seeds)
    expected = {
        "seed": np.tile([float(str(seed)) for seed in seeds], episodes),  # as in the file: an int may be too large
        "episode": np.repeat(np.arange(1, episodes + 1), len(seeds)),
    }
    if not episodes or not all(np.array_equal(columns[name], numbers) for name, numbers in expected.items()):
        raise UserError(f"{path} is damaged: its rows are not all episodes of the seeds that run.json lists, in order")
    return {seed: {name: columns[name][lane :: len(seeds)] for name in names} for lane, seed in enumerate(seeds)}


def _texts(found: Mapping[str, Mapping[int, Rows]]) -> dict[Path, str]:
    """The content of each file, by its path within the folder."""
    seeds = sorted({seed for runs in found.values() for seed in runs})
    texts = {}
    for id, runs in found.items():
        name = file_name(id)
        texts[Path(name)] = _csv([{**row, SEED: seed} for seed in sorted(runs) for row in runs[seed]])
        if len(seeds) > 1:
            texts |= {Path(f"seed_{seed}", name): _csv(runs[seed]) for seed in sorted(runs)}
    return texts


def file_name(id: str) -> str:
    """Where bsuite logs an experiment."""
    return f"bsuite_id_-_{id.replace('/', '-')}.csv"


def _csv(rows: Rows) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _check_free(out: Path) -> None:
    try:
        taken = os.path.lexists(out) and bool(os.listdir(out))
    except OSError as error:
        raise UserError(f"cannot write to {out}: {error.strerror}; choose another folder with --out") from error
    if taken:
        raise UserError(f"the folder {out} is not empty; choose another with --out")


def _same(one: Any, other: Any) -> bool:
    """Whether two values are, as people write them: one of bsuite's is 1 - 19 / 20, which is not quite 0.05."""
    return one == other or (isinstance(one, float) and isinstance(other, float) and math.isclose(one, other))


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text  # a reference
