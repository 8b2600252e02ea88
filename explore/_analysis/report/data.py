"""What pictures need of runs: the episodes of each seed, and what is task and what is method in a configuration.

A configuration's bindings are its *setting* (the environment and the experiment around it) and its
*method* (the agent and all its parts). Pictures have a panel for each setting and a line for each
method, which keeps its name and its look over the whole page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from explore._analysis.groups import Configuration, by_number, configurations, names_by_difference
from explore._analysis.statistics import smooth
from explore._config.gin_files import strip_scope
from explore._storage.episodes_csv import EVERY_RUN, WALL_CLOCK
from explore._storage.run_folder import Run
from explore.errors import UserError
from explore.tasks import TaskDescription

WINDOW = 100  # episodes that a smoothed curve looks back
EVALUATION = "evaluation"

Columns = list[np.ndarray]
"""A column of `episodes.csv`: the numbers of each seed's episodes; seeds may differ in length."""


class Curve(NamedTuple):
    """What a line shows of each seed's episodes."""

    values: Columns
    label: str
    smoothing: str = ""  # which may not be left unsaid


@dataclass
class Result:
    """A configuration and its episodes."""

    configuration: Configuration
    setting: str
    method: str
    columns: dict[str, Columns]  # the numbers of `episodes.csv`, seeds in the order of `seeds`
    seeds: list[int]

    @property
    def judged(self) -> bool:
        """Whether it is over, and its environment decides which seeds have solved the task."""
        return bool(self.configuration.seeds) and self.configuration.decides

    @property
    def reported(self) -> list[str]:
        """The columns that the agent and the judge add, where they hold numbers."""
        known = {*EVERY_RUN, *WALL_CLOCK, EVALUATION}
        any_number = {name: any(np.isfinite(seed).any() for seed in seeds) for name, seeds in self.columns.items()}
        return [name for name in self.columns if name not in known and any_number[name]]


@dataclass
class ReportData:
    """All that a page is about."""

    results: list[Result]
    left_out: list[str] = field(default_factory=list)  # runs that are not over or damaged, each in a line

    @property
    def settings(self) -> list[str]:
        """Those of a task together, by the numbers in their names."""
        tasks = {result.setting: result.configuration.task for result in self.results}
        first = list(tasks.values())
        return sorted(tasks, key=lambda setting: (first.index(tasks[setting]), by_number(setting)))

    @property
    def methods(self) -> list[str]:
        """In the order in which they were found, which decides how they look."""
        return list(dict.fromkeys(result.method for result in self.results))

    def of(self, setting: str) -> list[Result]:
        """The results of a setting."""
        return [result for result in self.results if result.setting == setting]

    def by_setting(self, results: Sequence[Result]) -> dict[str, list[Result]]:
        """Some of the results, by their settings, which are in the order of the page."""
        found = {setting: [result for result in results if result.setting == setting] for setting in self.settings}
        return {setting: own for setting, own in found.items() if own}

    def curves(self, setting: str) -> list[tuple[Result, Curve]]:
        """How learning is shown, for all runs of a setting alike."""
        results = self.of(setting)
        column, how = results[0].configuration.description.curve
        found = [(one, curve(one.columns[column], column, how)) for one in results if column in one.columns]
        return [(result, shown) for result, shown in found if shown.values]

    def place(self, result: Result) -> int:
        """The number of a result's method, which decides how it looks."""
        return self.methods.index(result.method)


def gather(runs: Sequence[Run], left_out: Iterable[str] = ()) -> ReportData:
    """Finished runs, without those whose episodes are damaged."""
    left = [*left_out]
    read: dict[Path, dict[str, Columns]] = {}
    for run in runs:
        try:
            read[run.folder] = _read_finished(run)
        except UserError as error:
            left.append(str(error))
    found = configurations([run for run in runs if run.folder in read])
    parts = [split(one.bindings) for one in found]
    tasks = [one.task for one in found]
    names = _name_apart([setting for setting, _ in parts], tasks)
    settings = [", ".join(filter(None, both)) for both in zip(tasks, names)]
    names = _name_apart([method for _, method in parts], [""] * len(parts))
    methods = [name or found[0].runs[0].info["name"] for name in names]  # one that is alone goes by its run's name
    results = []
    for one, setting, method in zip(found, settings, methods):
        each = [read[run.folder] for run in one.runs]
        common = [name for name in each[0] if all(name in columns for columns in each)]
        columns = {name: [seed for columns in each for seed in columns[name]] for name in common}
        seeds = [seed for run in one.runs for seed in run.info["seeds"]]
        results.append(Result(one, setting, method, columns, seeds))
    order = ReportData(results).settings
    return ReportData(sorted(results, key=lambda result: order.index(result.setting)), left)


def gather_running(run: Run) -> ReportData:
    """A run that may be going on, as it is now; raises `UserError` if its episodes are damaged."""
    columns = _read(run)
    configuration = Configuration({}, run.task, run.info["name"], [run])
    return ReportData([Result(configuration, run.task, run.info["name"], columns, run.info["seeds"])])


def describe_tasks(what: str, results: Iterable[Result], describe: Callable[[TaskDescription], str]) -> list[str]:
    """What the tasks of some results say of themselves, a sentence each."""
    texts = {one.configuration.task.partition("/")[0]: describe(one.configuration.description) for one in results}
    return [f"{what} ({task}): {text}." for task, text in texts.items() if text]


def split(bindings: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The setting and the method in a configuration."""
    setting = {
        name: value
        for name, value in bindings.items()
        if strip_scope(name).startswith(("environment.", "experiment.")) and name != "experiment.agent"
    }
    return setting, {name: value for name, value in bindings.items() if name not in setting}


def _name_apart(parts: Sequence[Mapping[str, str]], groups: Sequence[str]) -> list[str]:
    """A name for each part of a configuration by what differs in its group; the same for those that are equal."""
    keys = [(group, *sorted(part.items())) for group, part in zip(groups, parts)]
    names: dict[Any, str] = {}
    for group in dict.fromkeys(groups):
        distinct = {key: part for key, part in zip(keys, parts) if key[0] == group}
        names |= dict(zip(distinct, names_by_difference([*distinct.values()])))
    return [names[key] for key in keys]


def _read(run: Run) -> dict[str, Columns]:
    """The numbers of `episodes.csv`, by column and seed; of a run that is going some seeds may be an episode ahead.

    Raises `UserError` unless learning can be shown: all numbers, and none so large that their sum is none.
    """
    path, found = run.folder / "episodes.csv", run.episodes
    own = [np.flatnonzero(found["seed"] == seed) for seed in run.info["seeds"]]
    if any(not np.array_equal(found["episode"][rows], np.arange(1, len(rows) + 1)) for rows in own):
        raise UserError(f"{path} is damaged: the episodes of a seed are not 1, 2, 3, ...")
    columns = {name: [column[rows] for rows in own] for name, column in found.items() if column.dtype.kind == "f"}
    column, how = run.description.curve
    with np.errstate(over="ignore"):
        known = column in columns and all(np.isfinite(seed).all() for seed in columns[column])
        if not known or not all(np.isfinite(seed).all() for seed in curve(columns[column], column, how).values):
            raise UserError(f"{path} is damaged: not all of column {column} are numbers")
    return columns


def _read_finished(run: Run) -> dict[str, Columns]:
    """The episodes of a run that is done; raises `UserError` if they are not those of its summary."""
    columns, summary = _read(run), run.summary["seeds"]
    lengths = {str(seed): len(rows) for seed, rows in zip(run.info["seeds"], columns["episode"])}
    if lengths != {seed: entry["episodes"] for seed, entry in summary.items()}:
        raise UserError(
            f"{run.folder / 'episodes.csv'} is damaged: its episodes are not those that summary.json tells of"
        )
    if any(not 1 <= (summary[seed].get("solved_at") or 1) <= length for seed, length in lengths.items()):
        raise UserError(f"{run.folder / 'summary.json'} is damaged: a seed solved its task when it was not run")
    return columns


def curve(seeds: Columns, column: str, how: str) -> Curve:
    """A column's sum so far, or its mean or maximum over the last episodes."""
    seeds = [seed for seed in seeds if len(seed)]
    if how == "sum":
        return Curve([np.cumsum(seed) for seed in seeds], f"cumulative {column}")
    smoothing = f"{'mean' if how == 'mean' else 'maximum'} of the last {WINDOW} episodes"
    return Curve([smooth(seed, WINDOW, cast(Literal["mean", "max"], how)) for seed in seeds], column, smoothing)


def reported_curve(seeds: Columns, column: str) -> Curve:
    """The mean of the last episodes that have a number in a column; NaN before the first."""
    seeds = [seed for seed in seeds if len(seed)]
    with np.errstate(invalid="ignore", over="ignore"):
        values = [
            smooth(np.where(known, seed, 0), WINDOW) / smooth(known, WINDOW)
            for seed, known in zip(seeds, map(np.isfinite, seeds))
        ]
    return Curve(values, column.replace("_", " "), f"mean of the last {WINDOW} episodes")
