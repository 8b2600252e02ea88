"""What was run, how it differs, and how it scored: the tables of a report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from explore._analysis.compare import Comparison
from explore._analysis.groups import differences
from explore._analysis.report.data import WINDOW, ReportData, Result, describe_tasks, split
from explore._analysis.report.drawing import Section
from explore._config.seeds import format_seeds
from explore._storage.run_folder import Run

VERSIONS = ("explore", "torch")


def what_was_run(data: ReportData) -> Section:
    """A row for each configuration."""
    header = ["setting", "method", "seeds", "episodes", "begun", "took", "versions", "folder"]
    rows = [_run_row(result) for result in data.results]
    paragraphs = ["This is one configuration: nothing differs."] if len(rows) == 1 else []
    paragraphs += [f"Left out: {line}." for line in data.left_out]
    return Section("What was run", paragraphs, [header, *rows])


def how_they_differ(data: ReportData) -> list[Section]:
    """The parameters in which settings and methods differ, and the value of each."""
    if len(data.results) == 1:
        return []
    parts = [split(result.configuration.bindings) for result in data.results]
    settings = {result.setting: setting for result, (setting, _) in zip(data.results, parts)}
    methods = {result.method: method for result, (_, method) in zip(data.results, parts)}
    return [
        Section(f"How {what} differ", [], _differences(named))
        for what, named in {"settings": settings, "methods": methods}.items()
        if len(named) > 1
    ]


def what_is_common(data: ReportData) -> Section:
    """The parameters that are the same for all, so that the page says what was run."""
    every = [result.configuration.bindings for result in data.results]
    same = [name for name, value in every[0].items() if all(one.get(name) == value for one in every)]
    text = ["These parameters are the same for all."] if len(every) > 1 else []
    return Section("Configuration", text, [["parameter", "value"], *([name, every[0][name]] for name in same)])


def scores(data: ReportData) -> list[Section]:
    """Methods side by side for each setting; where there is one method, its settings."""
    if len(data.methods) > 1:
        return [_scores(setting, data.of(setting), "method") for setting in data.settings]
    by_task = groupby(data.results, key=lambda result: result.configuration.task)
    return [_scores(task, [*results], "setting") for task, results in by_task]


def _run_row(result: Result) -> list[str]:
    one = result.configuration
    episodes = sorted({len(seed) for seed in result.columns["episode"]})
    return [
        result.setting,
        result.method,
        f"{len(result.seeds)} ({format_seeds(result.seeds)})",
        f"{episodes[0]:,}" if len(episodes) == 1 else f"{episodes[0]:,} to {episodes[-1]:,}",
        _join_distinct(_format_start(run) for run in one.runs),
        _join_distinct(_duration(run.info.get("seconds")) for run in one.runs),
        _join_distinct(_versions(run) for run in one.runs),
        _join_distinct(str(run.folder) for run in one.runs),
    ]


def _versions(run: Run) -> str:
    return ", ".join(f"{name} {run.info['versions'].get(name, 'unknown')}" for name in VERSIONS)


def _duration(seconds: Any) -> str:
    if not isinstance(seconds, int | float) or not math.isfinite(seconds):
        return "unknown"
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {whole % 60:02d} s" if minutes else f"{whole} s"


def _join_distinct(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))


def _differences(named: Mapping[str, Mapping[str, str]]) -> list[list[str]]:
    rows = [[name, *(one.get(name, "-") for one in named.values())] for name in differences([*named.values()])]
    return [["parameter", *named], *rows]


def _scores(title: str, results: Sequence[Result], named_by: str) -> Section:
    named = [replace(result.configuration, name=getattr(result, named_by)) for result in results]
    comparison = Comparison(named, [])
    table = comparison.table()
    if named_by == "setting":  # of which none is better than another
        shown = [column for column, name in enumerate(table[0]) if name not in ("better than first", "log rank p")]
        table = [[row[column] for column in shown] for row in table]
    header, *rows = table
    paragraphs = describe_tasks("Score", results, lambda description: description.score) if "score" in header else []
    return Section(f"Scores: {title}", [*comparison.foot()[-1:], *paragraphs], [[named_by, *header[1:]], *rows])


def progress(run: Run, data: ReportData) -> Section:
    """How far a run has come."""
    [result] = data.results
    done = min(map(len, result.columns["episode"]))
    header = ["status", "episodes", "seeds", "begun", "return of the last 100 episodes", "best return"]
    returns = [seed for seed in result.columns["return"] if len(seed)]
    recent = [float(np.mean(seed[-WINDOW:])) for seed in returns]
    row = [
        run.status,
        f"{done:,} of {run.info['episodes']:,}",
        f"{len(result.seeds)} ({format_seeds(result.seeds)})",
        _format_start(run),
        f"{np.mean(recent):.3g} (seeds: {min(recent):.3g} to {max(recent):.3g})" if recent else "-",
        f"{max(seed.max() for seed in returns):.3g}" if returns else "-",
    ]
    paragraphs = [] if run.info.get("reason") is None else [f"It says: {run.info['reason']}"]
    return Section(f"{run.info['name']} on {run.task}", paragraphs, [header, row])


def _format_start(run: Run) -> str:
    return str(run.info.get("started"))[:16].replace("T", " ")
