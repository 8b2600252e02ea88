"""Runs side by side: one row per configuration, named by what differs in it.

Runs whose configurations differ in their seeds only are one configuration. Everything is read from
the folders of runs; nothing is built, and no code of theirs is run.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from explore.errors import UserError
from explore.gin_files import bindings_in
from explore.record import Run
from explore.statistics import Interval, KaplanMeier, log_rank, mean_interval, probability_of_improvement, survival

NO_DIFFERENCE = ("experiment.seeds", "experiment.checkpoint_minutes", "experiment.checkpoint_every")
"""Parameters in which runs of one configuration may differ."""


ENDS = ("low", "estimate", "high")


@dataclass
class Configuration:
    """The seeds of one configuration, from one run or several."""

    bindings: dict[str, str]
    task: str
    name: str = ""
    runs: list[Run] = field(default_factory=list)
    seeds: dict[str, dict[str, Any]] = field(default_factory=dict)  # as in summary.json
    cost: dict[str, float] = field(default_factory=dict)  # of all its seeds

    @property
    def score_name(self) -> str:
        """What is compared: what the task's judge calls a score, or else the mean return."""
        return "score" if all("score" in seed for seed in self.seeds.values()) else "mean_return"

    @property
    def scores(self) -> list[float]:
        return [seed[self.score_name] for seed in self.seeds.values()]

    @property
    def decides(self) -> bool:
        """Whether somebody says when the task is solved."""
        return any(run.summary["overall"].get("share_solved") is not None for run in self.runs)

    def survival(self) -> KaplanMeier:
        """Episodes to solve; a seed that has not solved the task is a censored observation."""
        solved = [seed["solved_at"] for seed in self.seeds.values() if seed.get("solved_at")]
        return survival(solved, [seed["episodes"] for seed in self.seeds.values() if not seed.get("solved_at")])


@dataclass
class Comparison:
    """Configurations of one task, the first being the one that others are compared with."""

    configurations: list[Configuration]
    left_out: list[str]  # runs that are not over or damaged, each in a line

    @property
    def differing(self) -> list[str]:
        return differences([one.bindings for one in self.configurations])

    def rows(self) -> list[dict[str, Any]]:
        """The table: plain data, one row per configuration; intervals are [low, estimate, high]."""
        first = self.configurations[0]
        return [self._row(one, first) for one in self.configurations]

    def json(self) -> str:
        """The rows, with the values of all parameters in which they differ."""
        rows = [
            {**row, "differs": {name: one.bindings.get(name) for name in self.differing}}
            for row, one in zip(self.rows(), self.configurations)
        ]
        return json.dumps({"configurations": rows, "left_out": self.left_out}, indent=2, allow_nan=False)

    def csv(self) -> str:
        """The table with a column for each end of an interval."""
        flat = []
        for row in self.rows():
            ends = {f"{key}_{end}": x for key, v in row.items() if isinstance(v, list) for end, x in zip(ENDS, v)}
            flat.append({key: v for key, v in row.items() if not isinstance(v, list)} | ends)
        text = io.StringIO()
        writer = csv.DictWriter(text, dict.fromkeys(key for row in flat for key in row), lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
        return text.getvalue()

    def table(self) -> list[list[str]]:
        """The table as text, its header first; columns that nobody has are left out."""
        rows = self.rows()
        names = [
            name
            for name in dict.fromkeys(name for row in rows for name in row)
            if any(row.get(name) is not None for row in rows)
        ]
        return [[name.replace("_", " ") for name in names], *([_cell(row.get(name)) for name in names] for row in rows)]

    def foot(self) -> list[str]:
        """What must be said with the table."""
        lines = [f"left out: {line}" for line in self.left_out]
        named = " ".join(one.name for one in self.configurations)
        unnamed = [name for name in self.differing if f"{name.rpartition('.')[2]} = " not in named]
        lines += [f"They differ in {', '.join(unnamed)}, too."] if unnamed else []
        told = "Intervals are 95%: bootstrap over seeds; episodes to solve by Kaplan-Meier, unsolved seeds censored."
        return [*lines, told]

    def _row(self, one: Configuration, first: Configuration) -> dict[str, Any]:
        row: dict[str, Any] = {"configuration": one.name, "seeds": len(one.seeds)}
        row[one.score_name] = _listed(mean_interval(one.scores))
        if one.decides:
            curve = one.survival()
            row["solved"] = len(curve.solved_at) / curve.seeds
            row["episodes_to_solve"] = _listed(curve.median)
        better = None if one is first else probability_of_improvement([one.scores], [first.scores])
        row["better_than_first"] = better and _listed(better)
        if one.decides:
            row["log_rank_p"] = None if one is first else log_rank(one.survival(), first.survival())
        return row | {name: one.cost.get(name) for name in ("parameters", "updates", "samples", "steps", "seconds")}


def compare(folders: Sequence[str | Path]) -> Comparison:
    """The runs in these folders, each that of a run or of a sweep; raises `UserError`."""
    runs, left_out = _finished(_run_folders(folders))
    if not runs:
        reasons = f": {'; '.join(left_out)}" if left_out else ""
        raise UserError(f"there is no finished run to compare{reasons}")
    configurations = _configurations(runs)
    tasks = {one.task: one for one in configurations}
    if len(tasks) > 1:
        where = ", ".join(f"{task} ({one.runs[0].folder})" for task, one in tasks.items())
        raise UserError(f"these are runs of different tasks, which have no common score: {where}; compare them apart")
    return Comparison(configurations, left_out)


def _run_folders(folders: Iterable[str | Path]) -> list[Path]:
    """The folders of runs among these and one level below, each once."""
    found: dict[Path, Path] = {}
    for folder in map(Path, folders):
        if not os.path.isdir(folder):
            raise UserError(f"there is no folder {folder}")
        inside = [folder] if (folder / "run.json").exists() else sorted(p.parent for p in folder.glob("*/run.json"))
        if not inside:
            raise UserError(f"{folder} is the folder of neither a run nor a sweep: there is no run.json in it or below")
        found |= {one.resolve(): one for one in inside}
    return list(found.values())


def _finished(folders: Iterable[Path]) -> tuple[list[Run], list[str]]:
    """The runs that are done and whole, and a line about each of the others."""
    runs, left_out = [], []
    for folder in folders:
        try:
            run = Run.open(folder)
            if run.status != "done":
                left_out.append(f"{folder} is {run.status}")
                continue
            _check(run)
            runs.append(run)
        except UserError as error:
            left_out.append(str(error))
    return runs, left_out


def _check(run: Run) -> None:
    """Raises `UserError` unless the summary of a run has what is compared."""
    summary = run.summary
    parts = {"task": str, "seeds": dict, "overall": dict}
    whole = all(isinstance(summary.get(name), kind) for name, kind in parts.items())
    if not whole or not summary["seeds"] or not all(map(_is_judged, summary["seeds"].values())):
        raise UserError(f"{run.folder / 'summary.json'} is damaged: it lacks what is compared")
    bindings_in(run.config)


def _is_judged(seed: Any) -> bool:
    return isinstance(seed, dict) and all(
        isinstance(seed.get(name), int | float) for name in ("episodes", "mean_return", *({"score"} & seed.keys()))
    )


def _configurations(runs: Sequence[Run]) -> list[Configuration]:
    found: dict[tuple[tuple[str, str], ...], Configuration] = {}
    for run in runs:
        bindings = {name: value for name, value in bindings_in(run.config).items() if name not in NO_DIFFERENCE}
        one = found.setdefault(tuple(sorted(bindings.items())), Configuration(bindings, run.summary["task"]))
        for seed in run.summary["seeds"]:
            if seed in one.seeds:
                raise UserError(f"{one.runs[0].folder} and {run.folder} both hold seed {seed} of one configuration")
        one.runs.append(run)
        one.seeds |= run.summary["seeds"]
        for name, amount in _cost(run).items():
            one.cost[name] = amount if name == "parameters" else one.cost.get(name, 0) + amount
    configurations = list(found.values())
    names = names_by_difference([one.bindings for one in configurations])
    for one, name in zip(configurations, names):
        one.name = name or str(one.runs[0].folder)
    return configurations


def _cost(run: Run) -> dict[str, float]:
    overall = run.summary["overall"]
    cost = {**overall.get("cost", {}), "steps": overall.get("steps"), "seconds": run.info.get("seconds")}
    return {name: amount for name, amount in cost.items() if isinstance(amount, int | float)}


def differences(configurations: Sequence[Mapping[str, str]]) -> list[str]:
    """The parameters in which configurations differ; first those that all of them have."""
    every = dict.fromkeys(name for one in configurations for name in one)
    differing = [name for name in every if len({one.get(name) for one in configurations}) > 1]
    return sorted(differing, key=lambda name: any(name not in one for one in configurations))


def names_by_difference(configurations: Sequence[Mapping[str, str]]) -> list[str]:
    """What to call each of several configurations: as many of the parameters in which they differ as tell them apart.

    A parameter goes by its last name where that is clear: `size = 10`, `target = MeanArgmax`.
    """
    chosen: list[str] = []
    groups = 1
    for name in differences(configurations):
        apart = len({tuple(one.get(each) for each in (*chosen, name)) for one in configurations})
        if apart > groups:
            chosen, groups = [*chosen, name], apart
    last = [name.rpartition(".")[2] for name in chosen]
    short = {name: end if last.count(end) == 1 else name for name, end in zip(chosen, last)}
    return [
        ", ".join(f"{short[name]} = {_shown(one[name])}" for name in chosen if name in one) for one in configurations
    ]


def _shown(value: str) -> str:
    """`@selection.MeanArgmax` is MeanArgmax."""
    return value.rpartition(".")[2] if value.startswith("@") else value


def _cell(value: Any) -> str:
    if isinstance(value, list):
        low, estimate, high = value
        return _cell(estimate) if low is None and high is None else f"{_cell(estimate)} ({_cell(low)} to {_cell(high)})"
    if value is None or isinstance(value, str):
        return value or "-"
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:.3g}"


def _listed(interval: Interval) -> list[float | None]:
    return [None if end is None else float(np.asarray(end)) for end in interval]
