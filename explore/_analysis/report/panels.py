"""Parts that several pictures share: rows of panels, legends, and what captions say of seeds."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from explore._analysis.report import style
from explore._analysis.report.data import Material, Result

ACROSS = 3  # panels in a row
FEW = 4  # bands or lines that can lie on each other and still be told apart
EXCEPTIONS = 3  # configurations with another number of seeds that a caption names
LONGEST = 95  # characters of a line in a legend
TITLE = 84  # characters of the titles of panels beside each other
CHARACTER, HANDLE, LINE = 0.066, 0.55, 0.155
"""Inches that a legend takes for a character of a name, for what is before it, and for a line."""


def panels(count: int, height: float, across: int = ACROSS, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure of so many panels in rows of this height."""
    columns = min(count, across)
    rows = -(-count // columns)
    figure, axes = style.new_figure(rows, columns, height=rows * height + 0.4, squeeze=False, **options)
    for unused in axes.flat[count:]:
        unused.remove()
    return figure, [*axes.flat[:count]]


def title(text: str, across: int) -> str:
    """The title of one of so many panels beside each other, broken into lines that fit."""
    whole = text.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
    return "\n".join(textwrap.wrap(whole, TITLE // across))


def lowest(axes: Sequence[Axes]) -> list[Axes]:
    """The panels that have none below them."""
    places = [panel.get_subplotspec() for panel in axes]
    bottom = {place.colspan.start: panel for place, panel in zip(places, axes) if place}
    return [*bottom.values()]


def fainter(look: Mapping[str, Any], count: int) -> dict[str, Any]:
    """A look of which so many are to lie on each other."""
    return {**look, "alpha": look["alpha"] * min(1, FEW / max(count, 1)) ** 0.5}


def legend(figure: Figure, material: Material, results: Iterable[Result], *, markers_only: bool = False) -> None:
    """The methods of some results, above the panels, which keep their height; one that is alone needs none."""
    methods = {result.method: style.series(material.place(result)) for result in results}
    if len(material.methods) == 1:
        return
    looks = [look | {"linestyle": ""} if markers_only else look for look in methods.values()]
    names = ["\n".join(textwrap.wrap(name, LONGEST)) for name in methods]
    longest = max((len(line) for name in names for line in name.splitlines()), default=0)
    columns = min(len(names), max(1, int(style.WIDTH / (longest * CHARACTER + HANDLE))))
    lines = sum(name.count("\n") + 1 for name in names) / columns
    figure.set_figheight(figure.get_figheight() + LINE * (lines + 1))
    figure.legend(
        [Line2D([], [], **look) for look in looks],
        [f" {name}" for name in names],  # matplotlib leaves out a name that begins with an underscore
        loc="outside upper left",
        ncols=columns,
        handlelength=2.6,
    )


def seeds_said(results: Sequence[Result]) -> str:
    """How many seeds a picture is of."""
    counts = Counter(len(result.seeds) for result in results)
    usual = counts.most_common(1)[0][0]
    others = [f"{_counted(len(r.seeds))} of {r.configuration.name}" for r in results if len(r.seeds) != usual]
    if len(others) > EXCEPTIONS:
        return f"{min(counts)} to {max(counts)} seeds each (see what was run)"
    return _counted(usual) + (" each" if len(results) > 1 else "") + (f", but {', '.join(others)}" if others else "")


def _counted(seeds: int) -> str:
    return "1 seed" if seeds == 1 else f"{seeds} seeds"
