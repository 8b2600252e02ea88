"""What an environment says of its task, so that no report, table or display needs to know it by name.

An environment may have a method `describe_task()`:

    class Grid(dm_env.Environment):
        def belief_map(self):
            return np.arange(self.size**2).reshape(self.size, self.size)

        def describe_task(self):
            return TaskDescription(
                score="the share of episodes that reached the goal",
                markers=(Marker(self.size - 1, self.size - 1, "goal"),),
                columns=(Column("goal", "goals", "sum"),),
            )

A run records it in its `run.json`, where `explore report`, `explore watch` and the live display find it as
`run.description`. Only data is recorded: reading a run executes no code of its plugins.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from numbers import Integral, Real
from typing import Any, TypeVar

__all__ = ["Column", "Marker", "Size", "TaskDescription", "Trace"]

CURVES = ("sum", "mean", "max")
SUMMARIES = ("latest", "sum", "mean", "best", "first")
HIGHEST = 1e30  # number that can be drawn
LONGEST = 1000  # characters of a text
MOST = 100  # markers, traces or columns

Rule = tuple[Callable[[Any], bool], str]
Part = TypeVar("Part")


def _is_string(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST


def _is_count(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and 0 <= int(value) < 2**31


def _is_number(value: Any, highest: float = HIGHEST) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and abs(value) < highest  # type: ignore[operator]


TEXT: Rule = (_is_string, f"a string of at most {LONGEST:,} characters")
NAME: Rule = (lambda value: _is_string(value) and bool(value.strip()), "a string that is not empty")
COUNT: Rule = (_is_count, "an integer of at least 0")
BOUND: Rule = (lambda value: value is None or _is_number(value), "None or a finite number")


@dataclass(frozen=True)
class Marker:
    """A cell of the map that pictures mark with a star."""

    row: int
    column: int
    name: str

    def __post_init__(self) -> None:
        _check(self, row=COUNT, column=COUNT, name=NAME)


@dataclass(frozen=True)
class Trace:
    """A number of the observation that is drawn, step by step, along the best episode of a seed."""

    name: str
    index: int  # in the flattened observation
    low: float | None = None  # ends of the axis; None: where the numbers end
    high: float | None = None

    def __post_init__(self) -> None:
        _check(self, name=NAME, index=COUNT, low=BOUND, high=BOUND)
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"Trace.low must be below Trace.high, got {self.low!r} and {self.high!r}")


@dataclass(frozen=True)
class Column:
    """A column of `episodes.csv` in the live display, summed up over the episodes of a seed.

    `summary` is the "latest" number, the "sum" of all, the "mean" of the last 100, the "best" (highest), or
    the "first" episode in which it was not 0.
    """

    name: str
    title: str
    summary: str = "latest"

    def __post_init__(self) -> None:
        _check(self, name=NAME, title=NAME, summary=(SUMMARIES.__contains__, f"one of {SUMMARIES}"))


@dataclass(frozen=True)
class Size:
    """How large a task is, of a family in which larger ones are harder: reports draw episodes to solve against it."""

    number: float
    parameters: tuple[str, ...] = ("size",)  # those of the environment that set the size and nothing else
    dithering: float | None = None  # episodes that exploration by random actions is expected to need
    formula: str = ""  # for `dithering`, such as "2^N"
    family: str = ""  # tells families apart that one environment class has beside each other

    def __post_init__(self) -> None:
        positive = (lambda value: _is_number(value) and value > 0, "a finite number above 0")
        expected = (
            lambda value: value is None or (_is_number(value, 1e200) and value > 0),
            "None or a finite number above 0",
        )
        names = (lambda value: isinstance(value, tuple) and all(map(_is_string, value)), "a tuple of strings")
        _check(self, number=positive, parameters=names, dithering=expected, formula=TEXT, family=TEXT)


@dataclass(frozen=True)
class TaskDescription:
    """Describes a task to reports, tables and displays; every part may be left out.

    `score` and `solved` say in words what the judge's score is and when a seed has solved the task; the notes are
    sentences beneath the curves of learning and beside the maps. Markers belong to the map that the
    environment's `belief_map()` lays its observations on, traces to environments without a map.
    The last three fields are filled in by the run.
    """

    score: str = ""
    solved: str = ""
    curve_note: str = ""
    map_note: str = ""
    markers: tuple[Marker, ...] = ()
    traces: tuple[Trace, ...] = ()
    columns: tuple[Column, ...] = ()
    size: Size | None = None
    name: str = ""  # of the task: the environment's attribute `task`, or the name of its class
    curve: tuple[str, str] = ("return", "mean")  # that of the judge
    map_shape: tuple[int, int] | None = None  # rows and columns

    def __post_init__(self) -> None:
        _check(self, **dict.fromkeys(("score", "solved", "curve_note", "map_note", "name"), TEXT))
        _check(self, curve=(_is_curve, f"a column of episodes.csv and one of {CURVES}"))
        _check(self, map_shape=(_is_shape, "None or the numbers of rows and columns"))
        _check(self, size=(lambda value: isinstance(value, Size | None), "a Size or None"))
        for name, kind in PARTS.items():
            parts = getattr(self, name)
            if not isinstance(parts, tuple) or len(parts) > MOST or not all(isinstance(part, kind) for part in parts):
                wanted = f"a tuple of at most {MOST} {kind.__name__}"
                raise ValueError(f"TaskDescription.{name} must be {wanted}, got {parts!r:.80}")
        rows, columns = self.map_shape or (math.inf, math.inf)
        for marker in self.markers:
            if marker.row >= rows or marker.column >= columns:
                raise ValueError(f"there is no cell for {marker} on a map of {rows} rows and {columns} columns")

    def to_json(self) -> dict[str, Any]:
        """What `run.json` holds."""
        return json.loads(json.dumps(asdict(self), default=lambda number: number.item()))

    @classmethod
    def from_json(cls, content: Any) -> TaskDescription:
        """What `to_json` gave, which may come from a stranger's file; raises `ValueError`."""
        values = _values(cls, content)
        for name, kind in PARTS.items():
            if not isinstance(values[name], tuple):
                raise ValueError(f"TaskDescription.{name} must be a list, got {values[name]!r:.80}")
            values[name] = tuple(kind(**_values(kind, part)) for part in values[name])
        if values["size"] is not None:
            values["size"] = Size(**_values(Size, values["size"]))
        return cls(**values)


PARTS: dict[str, type] = {"markers": Marker, "traces": Trace, "columns": Column}


def _is_curve(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and _is_string(value[0]) and value[1] in CURVES


def _is_shape(value: Any) -> bool:
    return value is None or (isinstance(value, tuple) and len(value) == 2 and all(map(_is_count, value)))


def _check(one: Any, **rules: Rule) -> None:
    for name, (fits, wanted) in rules.items():
        if not fits(value := getattr(one, name)):
            raise ValueError(f"{type(one).__name__}.{name} must be {wanted}, got {value!r:.80}")


def _values(kind: type, content: Any) -> dict[str, Any]:
    """The fields of an object in JSON, lists as tuples."""
    names = [field.name for field in fields(kind)]
    if not isinstance(content, dict) or content.keys() != set(names):
        raise ValueError(f"{kind.__name__} must be an object with {', '.join(names)}, got {content!r:.80}")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in content.items()}
