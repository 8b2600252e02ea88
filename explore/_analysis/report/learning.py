"""Curves of learning: a line for each method, with every seed's own behind it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from explore._analysis.report import style
from explore._analysis.report.data import EVALUATION, Curve, ReportData, Result, reported_curve
from explore._analysis.report.drawing import (
    POINTS,
    TRACES,
    Picture,
    Section,
    describe_seeds,
    draw_line,
    label_outer,
    legend,
    mean_line,
    panels,
)

DECADES = 2  # from this spread on an axis is logarithmic

Curves = list[tuple[Result, Curve]]


def draw_learning(data: ReportData) -> Section | None:
    """A picture for each setting, and on demand what the agents report."""
    kinds = (_curves, _evaluations, _reports)
    found = [draw(data, setting) for setting in data.settings for draw in kinds]
    pictures = [picture for picture in found if picture]
    return Section("Learning", [], [], pictures) if pictures else None


def _curves(data: ReportData, setting: str) -> Picture | None:
    curves = data.curves(setting)
    if not curves:
        return None
    shown = curves[0][1]
    smoothing = f"({shown.smoothing})" if shown.smoothing else ""
    caption = f"{setting}: {' '.join(filter(None, [shown.label, smoothing]))} against episodes, {_seeds(curves)}."
    notes = [*dict.fromkeys(note for one, _ in curves if (note := one.configuration.description.curve_note))]
    return _draw_lines(data, setting, curves, "\n".join(filter(None, [shown.label, smoothing])), caption, notes)


def _evaluations(data: ReportData, setting: str) -> Picture | None:
    results = [result for result in data.of(setting) if EVALUATION in result.columns]
    curves = [(result, Curve(result.columns[EVALUATION], EVALUATION)) for result in results]
    curves = [(result, curve) for result, curve in curves if mean_line(curve.values)[0].size]
    if not curves:
        return None
    caption = f"{setting}: returns of evaluation episodes, one at each point, {_seeds(curves)}; not smoothed."
    return _draw_lines(data, setting, curves, "return of an\nevaluation episode", caption, markers=POINTS)


def _draw_lines(
    data: ReportData, setting: str, curves: Curves, label: str, caption: str, notes: Sequence[str] = (), **look: int
) -> Picture:
    figure, axes = style.new_figure()
    for result, curve in curves:
        draw_line(axes, curve.values, data.place(result), len(curves), **look)
    axes.set(title=setting, xlabel="episode", ylabel=label)
    legend(figure, data, [result for result, _ in curves])
    return Picture(figure, " ".join([caption, *_how_to_read(curves), *notes]))


def _reports(data: ReportData, setting: str) -> Picture | None:
    results = data.of(setting)
    columns = list(dict.fromkeys(column for result in results for column in result.reported))
    if not columns:
        return None
    figure, axes = panels([column.replace("_", " ") for column in columns], 1.65, sharex=True)
    curves: Curves = []
    for panel, column in zip(axes, columns):
        own = [(one, reported_curve(one.columns[column], column)) for one in results if column in one.reported]
        for result, curve in own:
            draw_line(panel, curve.values, data.place(result), len(own))
        _scale([curve for _, curve in own], panel)
        curves += own
    label_outer(axes, "episode")
    legend(figure, data, results)
    caption = (
        f"{setting}: what agent and judge report of each episode, {curves[0][1].smoothing}, {describe_seeds(results)}."
    )
    return Picture(figure, " ".join([caption, *_how_to_read(curves)]), folded=True, name=f"Reported: {setting}")


def _seeds(curves: Curves) -> str:
    return describe_seeds([result for result, _ in curves])


def _how_to_read(curves: Curves) -> list[str]:
    """What is said of lines that are drawn in the same way everywhere."""
    several = any(len(curve.values) > 1 for _, curve in curves)
    uneven = any(len({len(seed) for seed in curve.values}) > 1 for _, curve in curves)
    thinned = any(len(seed) > POINTS for _, curve in curves for seed in curve.values)
    thin = f"the first {TRACES} seeds" if any(len(curve.values) > TRACES for _, curve in curves) else "seeds"
    return [
        *([f"Thin: {thin}; thick: the mean of all; band: its pointwise 95% bootstrap interval."] if several else []),
        *(["Seeds differ in length; the mean goes as far as all do."] if uneven else []),
        *([f"Drawn at {POINTS} evenly spaced episodes."] if thinned else []),
    ]


def _scale(curves: Sequence[Curve], axes: Axes) -> None:
    numbers = np.concatenate([seed for curve in curves for seed in curve.values])
    numbers = numbers[np.isfinite(numbers)]
    if numbers.min() > 0 and numbers.max() > 10**DECADES * numbers.min():
        axes.set_yscale("log")
