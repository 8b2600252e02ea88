"""What sections are made of, and what several pictures share: panels, lines with bands, legends, captions."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from explore._analysis.report import style
from explore._analysis.report.data import Columns, ReportData, Result
from explore._analysis.statistics import Band, mean_band

ACROSS = 3  # panels in a row
FEW = 4  # bands or lines that can lie on each other and still be told apart
EXCEPTIONS = 3  # configurations with another number of seeds that a caption names
POINTS = 600  # of a line that is drawn: more than a page has room for
MARKERS = 7  # on a line
TRACES = 20  # seeds whose own lines are drawn
LONGEST = 95  # characters of a line in a legend
TITLE = 84  # characters of the titles of panels beside each other
CHARACTER, HANDLE, LINE = 0.066, 0.55, 0.155
"""Inches that a legend takes for a character of a name, for what is before it, and for a line."""


@dataclass
class Picture:
    """A figure and what must be said with it."""

    figure: Figure  # made with `new_figure` or `panels`, never pyplot
    caption: str  # says how many seeds, and whatever was smoothed
    folded: bool = False  # shown on demand only
    name: str = ""  # what a folded one is called


@dataclass
class Section:
    """A part of a page with a heading of its own."""

    title: str
    text: Sequence[str] = ()  # paragraphs
    table: Sequence[Sequence[str]] = ()  # header first
    pictures: Sequence[Picture] = ()


def panels(titles: Sequence[str], height: float, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure of panels with these titles, in rows of this height; `options` are those of `Figure.subplots`."""
    columns = 2 if len(titles) == 4 else min(len(titles), ACROSS)
    rows = -(-len(titles) // columns)
    figure, axes = style.new_figure(rows, columns, height=rows * height + 0.4, squeeze=False, **options)
    for unused in axes.flat[len(titles) :]:
        unused.remove()
    used = [*axes.flat[: len(titles)]]
    for panel, title in zip(used, titles):
        whole = title.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
        panel.set_title("\n".join(textwrap.wrap(whole, TITLE // columns)))
    return figure, used


def label_outer(axes: Sequence[Axes], x: str, y: str = "") -> None:
    """Labels the panels that have none below them, and those that have none to their left."""
    bottom = {panel.get_subplotspec().colspan.start: panel for panel in axes}  # type: ignore[union-attr]
    for panel in bottom.values():
        panel.set_xlabel(x)
    for panel in axes[:: len(bottom)]:
        panel.set_ylabel(y)


def make_fainter(look: Mapping[str, Any], count: int) -> dict[str, Any]:
    """A look of which so many are to lie on each other."""
    return {**look, "alpha": look["alpha"] * min(1, FEW / max(count, 1)) ** 0.5}


def draw_band(axes: Axes, x: np.ndarray, band: Band, number: int, count: int = 1, markevery: Any = None) -> None:
    """A line and its band in the look of the method of this number, one of so many in these axes."""
    look = style.series(number)
    axes.fill_between(x, band.low, band.high, zorder=1.8, color=look["color"], **make_fainter(style.BAND, count))
    axes.plot(x, band.estimate, zorder=3, markevery=markevery, **look)


def draw_line(axes: Axes, values: Columns, number: int, count: int = 1, markers: int = MARKERS) -> None:
    """The mean of seeds' episodes with its band, and behind it a thin line for each seed; one of so many methods."""
    shown = values[:TRACES] if len(values) > 1 else []
    trace = make_fainter(make_fainter(style.TRACE, count), len(shown))
    for seed in shown:
        known = np.flatnonzero(np.isfinite(seed))
        at = known[thin_out(len(known))]
        axes.plot(at + 1, seed[at], zorder=1.5, color=style.series(number)["color"], **trace)
    episodes, band = mean_line(values)
    every = max(1, len(episodes) // markers)  # lines that lie on each other have their markers at different places
    draw_band(axes, episodes, band, number, count, (number * every // 8, every))


def mean_line(values: Columns) -> tuple[np.ndarray, Band]:
    """Episodes, and the mean over seeds with its band: as far as all of them go, from where all have a number."""
    common = min(map(len, values))
    known = np.flatnonzero(np.isfinite([seed[:common] for seed in values]).all(0))
    at = known[thin_out(len(known))]
    return at + 1, mean_band(np.array([seed[at] for seed in values])) if at.size else Band(*np.empty((3, 0)))


def thin_out(count: int) -> np.ndarray:
    """Which of so many points are drawn: evenly spaced, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, POINTS)).round().astype(int))


def legend(figure: Figure, data: ReportData, results: Iterable[Result], *, markers_only: bool = False) -> None:
    """The methods of some results, above the panels, which keep their height; one that is alone needs none."""
    if len(data.methods) == 1:
        return
    looks = {result.method: style.series(data.place(result)) for result in results}
    names = ["\n".join(textwrap.wrap(name, LONGEST)) for name in looks]
    longest = max((len(line) for name in names for line in name.splitlines()), default=0)
    columns = min(len(names), max(1, int(style.WIDTH / (longest * CHARACTER + HANDLE))))
    lines = sum(name.count("\n") + 1 for name in names) / columns
    figure.set_figheight(figure.get_figheight() + LINE * (lines + 1))
    figure.legend(
        [Line2D([], [], **look | ({"linestyle": ""} if markers_only else {})) for look in looks.values()],
        [f" {name}" for name in names],  # matplotlib leaves out a name that begins with an underscore
        loc="outside upper left",
        ncols=columns,
        handlelength=2.6,
    )


def describe_seeds(results: Sequence[Result]) -> str:
    """How many seeds a picture is of."""
    counts = Counter(len(result.seeds) for result in results)
    usual = counts.most_common(1)[0][0]
    others = [f"{_count(len(r.seeds))} of {r.configuration.name}" for r in results if len(r.seeds) != usual]
    if len(others) > EXCEPTIONS:
        return f"{min(counts)} to {max(counts)} seeds each (see what was run)"
    return _count(usual) + (" each" if len(results) > 1 else "") + (f", but {', '.join(others)}" if others else "")


def _count(seeds: int) -> str:
    return "1 seed" if seeds == 1 else f"{seeds} seeds"
