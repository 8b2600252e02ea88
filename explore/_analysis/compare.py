"""Configurations side by side: a row for each, with intervals, and what it cost."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from explore._analysis.groups import Configuration, configurations, differences, read_finished_runs, run_folders
from explore._analysis.power import (
    FEWEST,
    MOST,
    WANTED,
    differ_as_they_are,
    log_rank_test,
    rank_test,
    seeds_to_tell,
)
from explore._analysis.statistics import (
    Interval,
    confidence_sequence,
    log_rank,
    mean_interval,
    probability_of_improvement,
)
from explore.errors import UserError

FEW = 10
ENDS = Interval._fields
CAUTION = "Those of the bootstrap are too narrow for few seeds: of five they hold the mean in about 83% of cases."
COSTS = ("parameters", "updates", "samples", "steps", "seconds")


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
        content = {"configurations": rows, "not_told_apart": self.not_told_apart(), "left_out": self.left_out}
        return json.dumps(content, indent=2, allow_nan=False)

    def not_told_apart(self) -> list[dict[str, Any]]:
        """The configurations that a test does not tell from the first, and how many seeds of each probably would."""
        first, found = self.configurations[0], []
        for one in self.configurations[1:]:
            counts = len(one.seeds), len(first.seeds)
            by_times = one.decides and bool(len(one.survival().solved_at) + len(first.survival().solved_at))
            if by_times:
                test = log_rank_test(one.survival(), first.survival())
            else:
                test = rank_test(*(each.numbers("score") or each.numbers("mean_return") for each in (one, first)))
            if min(counts) >= FEWEST and not differ_as_they_are(test, *counts):
                by = "episodes_to_solve" if by_times else "score" if one.numbers("score") else "mean_return"
                names = {"configuration": one.name, "other": first.name, "by": by}
                found.append({**names, "seeds": [*counts], "seeds_to_tell": seeds_to_tell(test, *counts)})
        return found

    def csv(self) -> str:
        """The table with a column for each end of an interval."""
        flat, rows = [], self.rows()
        ended = {key for row in rows for key, value in row.items() if isinstance(value, list)}
        for row in rows:
            ends = {f"{key}_{end}": x for key, v in row.items() if isinstance(v, list) for end, x in zip(ENDS, v)}
            flat.append({key: v for key, v in row.items() if key not in ended} | ends)
        text = io.StringIO()
        writer = csv.DictWriter(text, dict.fromkeys(key for row in flat for key in row), lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
        return text.getvalue()

    def table(self) -> list[list[str]]:
        """The table as text, its header first; columns without an entry are left out."""
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
        lines += [_describe_power(pair) for pair in self.not_told_apart()]
        told = "Intervals are 95%: bootstrap over seeds; episodes to solve by Kaplan-Meier, unsolved seeds censored."
        fewest = min(len(one.seeds) for one in self.configurations)
        return [*lines, f"{told} {CAUTION}" if fewest < FEW else told]

    def _row(self, one: Configuration, first: Configuration) -> dict[str, Any]:
        row: dict[str, Any] = {"configuration": one.name, "seeds": len(one.seeds)}
        for name in ("score", "mean_return"):
            if numbers := one.numbers(name):
                row[name] = list(mean_interval(numbers))
        if numbers := one.numbers("score"):
            row["score_any_time"] = _at_any_time(numbers)
        if one.decides:
            curve = one.survival()
            row["solved"] = len(curve.solved_at) / curve.seeds
            row["solved_any_time"] = _at_any_time([1] * len(curve.solved_at) + [0] * len(curve.censored_at))
            row["episodes_to_solve"] = list(curve.median)
        row["better_than_first"] = None if one is first else list(better(one, first))
        if one.decides:
            row["log_rank_p"] = None if one is first else log_rank(one.survival(), first.survival())
        return row | {name: one.cost.get(name) for name in COSTS}


def compare(folders: Sequence[str | Path]) -> Comparison:
    """The runs in these folders, each that of a run or of a sweep; raises `UserError`."""
    runs, left_out = read_finished_runs(run_folders(folders))
    if not runs:
        reasons = f": {'; '.join(left_out)}" if left_out else ""
        raise UserError(f"there is no finished run to compare{reasons}")
    found = configurations(runs)
    tasks = {one.task: one for one in found}
    if len(tasks) > 1:
        where = ", ".join(f"{task} ({one.runs[0].folder})" for task, one in tasks.items())
        raise UserError(f"these are runs of different tasks, which have no common score: {where}; compare them apart")
    return Comparison(found, left_out)


def better(one: Configuration, other: Configuration) -> Interval:
    """How likely a seed of one configuration does better than one of another, both of the same task."""
    ours, theirs = one.ranking(), other.ranking()
    if bool(one.numbers("score")) != bool(other.numbers("score")):  # one was made by another version
        ours, theirs = [seed[1:] for seed in ours], [seed[1:] for seed in theirs]
    rank = {seed: float(place) for place, seed in enumerate(sorted({*ours, *theirs}))}
    return probability_of_improvement([rank[seed] for seed in ours], [rank[seed] for seed in theirs])


def _at_any_time(numbers: Sequence[float]) -> list[float | None] | None:
    """An interval that is valid whenever one looks; None for scores beyond 0 to 1, which are no proper ones."""
    return list(confidence_sequence(numbers)) if min(numbers) >= 0 and max(numbers) <= 1 else None


def _describe_power(pair: Mapping[str, Any]) -> str:
    ours, theirs = pair["seeds"]
    seeds = f"{ours} seeds each" if ours == theirs else f"{ours} and {theirs} seeds"
    told = f"{pair['configuration']} and {pair['other']} cannot be told apart by {pair['by'].replace('_', ' ')}"
    if pair["seeds_to_tell"] is None:
        return f"{told} with {seeds}; even {MOST:,} each probably would not tell, if the difference is what it seems."
    would = f"{pair['seeds_to_tell']:,} each would with probability {WANTED}"
    return f"{told} with {seeds}; {would}, if the difference is what it seems."


def _cell(value: Any) -> str:
    if isinstance(value, list):
        low, estimate, high = value
        return _cell(estimate) if low is None and high is None else f"{_cell(estimate)} ({_cell(low)} to {_cell(high)})"
    if value is None or isinstance(value, str):
        return value or "-"
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:.3g}"
