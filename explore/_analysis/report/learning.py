"""Curves of learning: a line for each method, with every seed's own behind it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from explore._analysis.report import style
from explore._analysis.report.data import (
    EVALUATION,
    POINTS,
    Curve,
    Material,
    Result,
    Traces,
    drawn,
    mean_line,
    reported,
)
from explore._analysis.report.panels import fainter, legend, lowest, panels, seeds_said
from explore._analysis.report.section import Picture, Section

DECADES = 2  # from this spread on an axis is logarithmic
MARKERS = 7  # on a line
TRACES = 20  # seeds whose own lines are drawn


def learning(material: Material) -> Section | None:
    """A picture for each setting, and on demand what the agents report."""
    kinds = (_curves, _evaluations, _reports)
    found = [draw(material, setting) for setting in material.settings for draw in kinds]
    pictures = [picture for picture in found if picture]
    return Section("Learning", [], [], pictures) if pictures else None


@style.styled()
def _curves(material: Material, setting: str) -> Picture | None:
    curves = material.curves(setting)
    if not curves:
        return None
    figure, axes = style.new_figure()
    for result, curve in curves:
        draw_line(axes, curve.values, material.place(result), len(curves))
    shown = curves[0][1]
    axes.set(title=setting, xlabel="episode", ylabel=_label(shown))
    results = [result for result, _ in curves]
    legend(figure, material, results)
    what = f"{shown.label} ({shown.smoothing})" if shown.smoothing else shown.label
    caption = [f"{setting}: {what} against episodes, {seeds_said(results)}.", *_how_to_read(curves)]
    caption += dict.fromkeys(note for result in results if (note := result.configuration.description.curve_note))
    return Picture(figure, " ".join(caption))


@style.styled()
def _evaluations(material: Material, setting: str) -> Picture | None:
    results = [result for result in material.of(setting) if EVALUATION in result.columns]
    curves = [(result, Curve(result.columns[EVALUATION], "return of an evaluation episode")) for result in results]
    curves = [(result, curve) for result, curve in curves if mean_line(curve.values).episodes.size]
    if not curves:
        return None
    figure, axes = style.new_figure()
    for result, curve in curves:
        draw_line(axes, curve.values, material.place(result), len(curves), markers=POINTS)
    axes.set(title=setting, xlabel="episode", ylabel="return of an\nevaluation episode")
    results = [result for result, _ in curves]
    legend(figure, material, results)
    caption = f"{setting}: returns of evaluation episodes, one at each point, {seeds_said(results)}; not smoothed."
    return Picture(figure, " ".join([caption, *_how_to_read(curves)]))


@style.styled()
def _reports(material: Material, setting: str) -> Picture | None:
    results = material.of(setting)
    columns = list(dict.fromkeys(column for result in results for column in result.reported))
    if not columns:
        return None
    figure, axes = panels(len(columns), 1.65, sharex=True)
    curves: list[tuple[Result, Curve]] = []
    for panel, column in zip(axes, columns):
        own = [(result, reported(result.columns, column)) for result in results if column in result.reported]
        for result, curve in own:
            draw_line(panel, curve.values, material.place(result), len(own))
        panel.set_title(own[0][1].label)
        _scale([curve for _, curve in own], panel)
        curves += own
    for panel in lowest(axes):
        panel.set_xlabel("episode")
    legend(figure, material, results)
    caption = (
        f"{setting}: what agent and judge report of each episode, {curves[0][1].smoothing}, {seeds_said(results)}."
    )
    return Picture(figure, " ".join([caption, *_how_to_read(curves)]), folded=True, name=f"Reported: {setting}")


def draw_line(axes: Axes, values: Traces, number: int, count: int, markers: int = MARKERS) -> None:
    """The mean over seeds and its band, and behind them a thin line for each seed; one of so many methods."""
    look = style.series(number)
    shown = values[:TRACES] if len(values) > 1 else []
    trace = fainter(fainter(style.TRACE, count), len(shown))
    for seed in shown:
        known = np.flatnonzero(np.isfinite(seed))
        at = known[drawn(len(known))]
        axes.plot(at + 1, seed[at], zorder=1.5, color=look["color"], **trace)
    episodes, (low, mean, high) = mean_line(values)
    axes.fill_between(episodes, low, high, zorder=1.8, color=look["color"], **fainter(style.BAND, count))
    every = max(1, len(episodes) // markers)  # lines that lie on each other have their markers at different places
    axes.plot(episodes, mean, zorder=3, markevery=(number * every // 8, every), **look)


def _label(curve: Curve) -> str:
    return f"{curve.label}\n({curve.smoothing})" if curve.smoothing else curve.label


def _how_to_read(curves: Sequence[tuple[Result, Curve]]) -> list[str]:
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
