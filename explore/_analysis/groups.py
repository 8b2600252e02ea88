"""Runs read from their folders, grouped into configurations that are named by what differs in them.

Runs whose configurations differ in their seeds only are one configuration. Everything is read from
files; nothing is built, and no code of theirs is run.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from explore._analysis.statistics import KaplanMeier, survival
from explore._config.gin_files import read_bindings
from explore._config.same_results import WITHIN_A_CONFIGURATION, relevant_bindings
from explore._storage.run_folder import Run
from explore.errors import UserError
from explore.tasks import TaskDescription

HIGHEST = 1e30  # that a number of a run may be
OPTIONAL = ("solved_at", "score", "normalised_return", "size", "states", "actions", "horizon", "mass")
"""What a seed's entry of `summary.json` may have, beside what every seed's has."""


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
    def decides(self) -> bool:
        """Whether the task has a criterion for solved."""
        return any(run.summary["overall"].get("share_solved") is not None for run in self.runs)

    @property
    def description(self) -> TaskDescription:
        """What its environment says of the task."""
        return self.runs[0].description

    def numbers(self, entry: str) -> list[float]:
        """An entry of each seed's summary, in the order of `seeds`; nothing unless all have it."""
        values = [seed.get(entry) for seed in self.seeds.values()]
        return [] if None in values else [float(value) for value in values]  # type: ignore[arg-type]

    def ranking(self) -> list[tuple[float, ...]]:
        """What says which of two seeds did better: the score, then who solved the task sooner, then the mean return.

        The mean return comes last, as it depends on how many episodes a seed was run.
        """
        sooner = [-(seed.get("solved_at") or math.inf) for seed in self.seeds.values()]
        return list(zip(self.numbers("score") or sooner, sooner, self.numbers("mean_return")))

    def survival(self) -> KaplanMeier:
        """Episodes to solve; a seed that has not solved the task is a censored observation."""
        solved = [seed["solved_at"] for seed in self.seeds.values() if seed.get("solved_at")]
        return survival(solved, [seed["episodes"] for seed in self.seeds.values() if not seed.get("solved_at")])


def run_folders(folders: Iterable[str | Path]) -> list[Path]:
    """The folders of runs among these and one level below, each once."""
    found: dict[Path, Path] = {}
    for folder in map(Path, folders):
        if not os.path.isdir(folder):
            raise UserError(f"there is no folder {folder}")
        cells = sorted((path.parent for path in folder.glob("*/run.json")), key=lambda cell: by_number(cell.name))
        inside = [folder] if (folder / "run.json").exists() else cells
        if not inside and (folder / "sweep.toml").exists():
            raise UserError(
                f"no cell of the sweep in {folder} has begun; run it: explore sweep {folder / 'sweep.toml'}"
            )
        if not inside:
            raise UserError(
                f"{folder} is the folder of neither a run nor a sweep: there is no run.json in it or one level below"
            )
        found |= {one.resolve(): one for one in inside}
    return list(found.values())


def by_number(name: str) -> list[tuple[float, str]]:
    """Sorts size=8 before size=10."""
    parts = re.split(r"([0-9]+(?:\.[0-9]+)?)", name)  # every second is a number
    return [(float(part), "") if i % 2 else (math.inf, part) for i, part in enumerate(parts)]


def read_finished_runs(folders: Iterable[Path]) -> tuple[list[Run], list[str]]:
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
    whole = whole and isinstance(summary["overall"].get("cost", {}), dict)
    if not whole or not summary["seeds"] or not all(map(_is_judged, summary["seeds"].values())):
        raise UserError(f"{run.folder / 'summary.json'} is damaged: it lacks what is compared")
    read_bindings(run.config)


def _is_judged(seed: Any) -> bool:
    if not isinstance(seed, dict):
        return False
    there = {name: seed[name] for name in OPTIONAL if seed.get(name) is not None}
    needed = {name: seed.get(name) for name in ("episodes", "mean_return")}
    return all(map(_is_number, (needed | there).values()))


def _is_number(value: Any) -> bool:
    """Whether it can be computed with, and drawn."""
    return isinstance(value, int | float) and abs(value) < HIGHEST


def configurations(runs: Sequence[Run]) -> list[Configuration]:
    """The configurations of runs, named; raises `UserError` if a seed of one is there twice."""
    found: dict[tuple[tuple[str, str], ...], Configuration] = {}
    for run in runs:
        bindings = relevant_bindings(run.config, WITHIN_A_CONFIGURATION)
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
    return {name: amount for name, amount in cost.items() if _is_number(amount)}


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
    shown = {name: _shorten_references({one[name] for one in configurations if name in one}) for name in chosen}
    return [
        ", ".join(f"{short[name]} = {shown[name][one[name]]}" for name in chosen if name in one)
        for one in configurations
    ]


def _shorten_references(values: Collection[str]) -> dict[str, str]:
    """`@selection.MeanArgmax` is MeanArgmax, unless another of the values would be that too."""
    short = {value: value.rpartition(".")[2] if value.startswith("@") else value for value in values}
    known = [*short.values()]
    return {value: name if known.count(name) == 1 else value for value, name in short.items()}
