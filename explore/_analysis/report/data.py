"""What pictures need of runs: the episodes of each seed, and what is task and what is method in a configuration.

A configuration's bindings are its *setting* (the environment and the experiment around it) and its
*method* (the agent and all its parts). Pictures have a panel for each setting and a line for each
method, which keeps its name and its look over the whole page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, cast

import numpy as np

from explore._analysis.groups import Configuration, by_number, configurations, names_by_difference
from explore._analysis.statistics import Band, mean_band, smoothed
from explore._config.gin_files import strip_scope
from explore._storage.episodes_csv import EVERY_RUN, WALL_CLOCK
from explore._storage.run_folder import Run
from explore.errors import UserError
from explore.tasks import TaskDescription

WINDOW = 100  # episodes that a smoothed curve looks back
POINTS = 600  # of a line that is drawn: more than a page has room for
EVALUATION = "evaluation"

Traces = list[np.ndarray]
"""Numbers of each episode, one array per seed; seeds may differ in length."""


@dataclass
class Result:
    """A configuration and its episodes."""

    configuration: Configuration
    setting: str
    method: str
    columns: dict[str, Traces]  # the numbers of `episodes.csv`, seeds in the order of `seeds`
    seeds: list[int]

    @property
    def judged(self) -> bool:
        """Whether it is over, and somebody says which seeds have solved the task."""
        return bool(self.configuration.seeds) and self.configuration.decides

    @property
    def reported(self) -> list[str]:
        """The columns that the agent and the judge add, where they hold numbers."""
        known = {*EVERY_RUN, *WALL_CLOCK, EVALUATION}
        return [name for name in self.columns if name not in known and _any_number(self.columns[name])]


@dataclass
class Material:
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
        return list(dict.fromkeys(result.method for result in self.results))

    def of(self, setting: str) -> list[Result]:
        return [result for result in self.results if result.setting == setting]

    def curves(self, setting: str) -> list[tuple[Result, Curve]]:
        """How learning is shown, for all runs of a setting alike."""
        results = self.of(setting)
        column, how = results[0].configuration.description.curve
        found = [(one, curve(one.columns, column, how)) for one in results if column in one.columns]
        return [(result, shown) for result, shown in found if shown.values]

    def place(self, result: Result) -> int:
        """The number of a result's method, which decides how it looks."""
        return self.methods.index(result.method)


def material(runs: Sequence[Run], left_out: Iterable[str] = ()) -> Material:
    """Finished runs, without those whose episodes are damaged."""
    left, whole = [*left_out], []
    read: dict[Path, dict[str, Traces]] = {}
    for run in runs:
        try:
            read[run.folder] = _whole(run)
            whole.append(run)
        except UserError as error:
            left.append(str(error))
    found = configurations(whole)
    parts = [split(one.bindings) for one in found]
    settings = setting_names([setting for setting, _ in parts], [one.task for one in found])
    methods = method_names([method for _, method in parts], found)
    results = [
        Result(one, setting, method, *_together(one.runs, read))
        for one, setting, method in zip(found, settings, methods)
    ]
    unordered = Material(results, left)
    return Material([result for setting in unordered.settings for result in unordered.of(setting)], left)


def say_of_tasks(what: str, results: Iterable[Result], say: Callable[[TaskDescription], str]) -> list[str]:
    """What the tasks of some results say of themselves, a sentence each."""
    told = {result.configuration.task.partition("/")[0]: say(result.configuration.description) for result in results}
    return [f"{what} ({task}): {text}." for task, text in told.items() if text]


def going(run: Run) -> Material:
    """A run that may be going on, as it is now; raises `UserError` if its episodes are damaged."""
    columns = traces(run)
    _check_curve(run, columns)
    configuration = Configuration({}, run.task, run.info["name"], [run])
    return Material([Result(configuration, run.task, run.info["name"], columns, run.info["seeds"])])


def split(bindings: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The setting and the method in a configuration."""
    setting = {
        name: value
        for name, value in bindings.items()
        if strip_scope(name).startswith(("environment.", "experiment.")) and name != "experiment.agent"
    }
    return setting, {name: value for name, value in bindings.items() if name not in setting}


def setting_names(settings: Sequence[Mapping[str, str]], tasks: Sequence[str]) -> list[str]:
    """The task, and where there are several settings of it what differs between them."""
    names = list(tasks)
    for task in set(tasks):
        own = [i for i, one in enumerate(tasks) if one == task]
        for i, name in zip(own, _named([settings[i] for i in own])):
            names[i] = f"{task}, {name}" if name else task
    return names


def method_names(methods: Sequence[Mapping[str, str]], found: Sequence[Configuration]) -> list[str]:
    """What differs between methods; one that is alone goes by its run's name."""
    return [name or found[0].runs[0].info["name"] for name in _named(methods)]


def _named(parts: Sequence[Mapping[str, str]]) -> list[str]:
    """A name for each, the same for those that are equal."""
    distinct = list({tuple(sorted(part.items())): part for part in parts}.values())
    names = dict(zip((tuple(sorted(part.items())) for part in distinct), names_by_difference(distinct)))
    return [names[tuple(sorted(part.items()))] for part in parts]


def traces(run: Run) -> dict[str, Traces]:
    """The numbers of `episodes.csv`, by column and seed; of a run that is going some seeds may be an episode ahead."""
    columns = run.episodes
    own = [np.flatnonzero(columns["seed"] == seed) for seed in run.info["seeds"]]
    if any(not np.array_equal(columns["episode"][rows], np.arange(1, len(rows) + 1)) for rows in own):
        raise UserError(f"{run.folder / 'episodes.csv'} is damaged: the episodes of a seed are not 1, 2, 3, ...")
    return {name: [column[rows] for rows in own] for name, column in columns.items() if column.dtype.kind == "f"}


def _whole(run: Run) -> dict[str, Traces]:
    """The episodes of a run that is done; raises `UserError` if they are not those of its summary."""
    columns = traces(run)
    told = run.summary["seeds"]
    lengths = {str(seed): len(rows) for seed, rows in zip(run.info["seeds"], columns["episode"])}
    if lengths != {seed: entry["episodes"] for seed, entry in told.items()}:
        raise UserError(
            f"{run.folder / 'episodes.csv'} is damaged: its episodes are not those that summary.json tells of"
        )
    if any(not 1 <= (told[seed].get("solved_at") or 1) <= length for seed, length in lengths.items()):
        raise UserError(f"{run.folder / 'summary.json'} is damaged: a seed solved its task when it was not run")
    _check_curve(run, columns)
    return columns


def _check_curve(run: Run, columns: Mapping[str, Traces]) -> None:
    """Raises `UserError` unless learning can be shown: all numbers, and none so large that their sum is none."""
    column, how = run.description.curve
    with np.errstate(over="ignore"):
        known = column in columns and all(np.isfinite(seed).all() for seed in columns[column])
        if not known or not all(np.isfinite(seed).all() for seed in curve(columns, column, how).values):
            raise UserError(f"{run.folder / 'episodes.csv'} is damaged: not all of column {column} are numbers")


def _together(runs: Sequence[Run], read: Mapping[Path, dict[str, Traces]]) -> tuple[dict[str, Traces], list[int]]:
    """The columns that all runs of a configuration have, and all their seeds."""
    each = [read[run.folder] for run in runs]
    common = [name for name in each[0] if all(name in columns for columns in each)]
    seeds = [seed for run in runs for seed in run.info["seeds"]]
    return {name: [seed for columns in each for seed in columns[name]] for name in common}, seeds


class Curve(NamedTuple):
    """What a line shows of each seed's episodes."""

    values: Traces
    label: str
    smoothing: str = ""  # which may not be left unsaid


def curve(columns: Mapping[str, Traces], column: str, how: str) -> Curve:
    """A column's sum so far, or its mean or maximum over the last episodes."""
    seeds = [seed for seed in columns[column] if len(seed)]
    if how == "sum":
        return Curve([np.cumsum(seed) for seed in seeds], f"cumulative {column}")
    smooth = [smoothed(seed, WINDOW, by=cast(Literal["mean", "max"], how)) for seed in seeds]
    return Curve([one.values for one in smooth], column, smooth[0].caption if smooth else "")


def reported(columns: Mapping[str, Traces], column: str) -> Curve:
    """The mean of the last episodes that have a number in a column; NaN before the first."""
    seeds = [seed for seed in columns[column] if len(seed)]
    there = [np.isfinite(seed) for seed in seeds]
    with np.errstate(invalid="ignore", over="ignore"):
        values = [
            smoothed(np.where(known, seed, 0), WINDOW).values / smoothed(known, WINDOW).values
            for seed, known in zip(seeds, there)
        ]
    return Curve(values, column.replace("_", " "), f"mean of the last {WINDOW} episodes")


class Line(NamedTuple):
    """A mean over seeds with its band, at these episodes."""

    episodes: np.ndarray
    band: Band


def mean_line(values: Traces) -> Line:
    """The mean over seeds as far as all of them go, from where all have a number."""
    common = min(map(len, values))
    known = np.flatnonzero(np.isfinite([seed[:common] for seed in values]).all(0))
    at = known[drawn(len(known))]
    if not at.size:
        return Line(at, Band(*np.empty((3, 0))))
    return Line(at + 1, mean_band(np.array([seed[at] for seed in values])))


def drawn(count: int) -> np.ndarray:
    """Which of so many points are drawn: evenly spaced, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, POINTS)).round().astype(int))


def _any_number(seeds: Traces) -> bool:
    return any(np.isfinite(seed).any() for seed in seeds)
