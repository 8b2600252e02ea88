"""When seeds solve their task: how many of them by which episode, and how that grows with the size of the task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator

from explore._analysis.report import style
from explore._analysis.report.data import ReportData, Result, describe_tasks, split
from explore._analysis.report.drawing import Picture, Section, describe_seeds, label_outer, legend, make_fainter, panels
from explore._analysis.statistics import KaplanMeier
from explore._config.gin_files import strip_scope
from explore.tasks import Size

ROOM = 0.6  # of the way from one size to the next, which the methods share side by side


def draw_solving(data: ReportData) -> Section | None:
    """Of the tasks that can be solved."""
    judged = [result for result in data.results if result.judged]
    if not judged:
        return None
    pictures = [_shares(data, judged)]
    kinds: dict[object, list[tuple[Size, Result]]] = {}
    for result in judged:
        if size := result.configuration.description.size:
            kinds.setdefault(_but_for_size(result, size), []).append((size, result))
    against_size = [_against_size(data, sized) for sized in kinds.values()]
    text = describe_tasks("Solved", judged, lambda description: description.solved)
    return Section("Solving", text, [], pictures + [picture for picture in against_size if picture])


def _but_for_size(result: Result, size: Size) -> tuple[object, ...]:
    """The setting, but for what says how large the task is and how long it was run."""
    setting, _ = split(result.configuration.bindings)
    rest = [item for item in setting.items() if not _sets(item[0], size) and item[0] != "experiment.episodes"]
    return size.family, *rest


def _sets(binding: str, size: Size) -> bool:
    """Whether a binding is of a parameter that sets the size of the environment."""
    component, _, parameter = strip_scope(binding).rpartition(".")
    return parameter in size.parameters and component.rpartition(".")[0].endswith("environment")


def _shares(data: ReportData, judged: Sequence[Result]) -> Picture:
    settings = data.by_setting(judged)
    figure, axes = panels([*settings], 2.2 if len(settings) > 1 else 2.8, sharey=True)
    for panel, own in zip(axes, settings.values()):
        for result in own:
            _draw_share(panel, result.configuration.survival(), data.place(result), len(own))
        panel.set(ylim=(-0.03, 1.03), xlim=(0, None))
    label_outer(axes, "episode", "share of seeds solved")
    legend(figure, data, judged)
    caption = (
        f"Share of seeds that have solved the task by each episode, {describe_seeds(judged)}: one minus the "
        "Kaplan-Meier estimate, with its pointwise 95% band (Greenwood, log-log). A tick ends the line of seeds "
        "that were stopped unsolved."
    )
    return Picture(figure, caption)


def _draw_share(axes: Axes, curve: KaplanMeier, number: int, count: int) -> None:
    look = style.series(number)
    share = 1 - curve.unsolved
    band = {"step": "post", "color": look["color"], **make_fainter(style.BAND, count)}
    axes.fill_between(curve.episodes, 1 - curve.high, 1 - curve.low, **band)
    axes.plot(curve.episodes, share, drawstyle="steps-post", zorder=3, **look | {"marker": ""})
    stops = np.unique(curve.censored_at)
    tick = {"marker": "|", "markersize": 8, "markeredgewidth": 1.4}
    for at, marker in ((curve.solved_at, {}), (stops, tick)):
        there = share[np.searchsorted(curve.episodes, at, side="right") - 1]
        axes.plot(at, there, zorder=3, **look | {"linestyle": ""} | marker)


def _against_size(data: ReportData, sized: Sequence[tuple[Size, Result]]) -> Picture | None:
    sizes = sorted({size.number for size, _ in sized})
    if len(sizes) < 2:
        return None
    results = [result for _, result in sized]
    figure, axes = style.new_figure(height=3.6)
    numbers = sorted({data.place(result) for result in results})
    step = ROOM * min(np.diff(sizes)) / len(numbers)
    for number in numbers:
        own = [(size.number, result) for size, result in sized if data.place(result) == number]
        _draw_sizes(axes, own, number, step * (numbers.index(number) - (len(numbers) - 1) / 2))
    axes.set(yscale="log", xlim=(sizes[0] - step * len(numbers), sizes[-1] + step * len(numbers)))
    formula = next((size.formula for size, _ in sized if size.formula), "")
    expected = {size.number: size.dithering for size, _ in sized if size.dithering is not None}
    if len(expected) > 1:
        _draw_dithering(axes, expected, formula)
    axes.set(xlabel="size N", ylabel="episodes to solve")
    axes.xaxis.set_major_locator(FixedLocator(sizes))
    legend(figure, data, results)
    caption = [
        f"Episodes to solve against size, {describe_seeds(results)}. Small: seeds; an open triangle is a seed that was "
        "stopped there, unsolved. Large, joined by a line: the Kaplan-Meier median with its 95% interval, where the "
        "seeds give one (an end that they do not give is left open).",
        *([f"Dashed: the {formula + ' ' if formula else ''}episodes of dithering."] if len(expected) > 1 else []),
        "Methods stand side by side at each size.",
    ]
    return Picture(figure, " ".join(caption))


def _draw_sizes(axes: Axes, results: Sequence[tuple[float, Result]], number: int, shift: float) -> None:
    look = style.series(number)
    small = {"color": look["color"], "linestyle": "", "alpha": 0.7}
    medians = []
    for size, result in results:
        for entry in result.configuration.seeds.values():
            if entry.get("solved_at"):
                axes.plot(size + shift, entry["solved_at"], marker=look["marker"], markersize=2.5, **small)
            else:
                axes.plot(size + shift, entry["episodes"], marker="^", fillstyle="none", markersize=6, **small)
        low, median, high = result.configuration.survival().median
        if median is not None:
            medians.append((size, median, low, high))
    medians.sort(key=lambda each: each[0])
    for size, median, low, high in medians:
        axes.plot([size + shift] * 2, [low or median, high or median], color=look["color"], linewidth=1.5)
    axes.plot([size + shift for size, *_ in medians], [median for _, median, *_ in medians], zorder=3, **look)


def _draw_dithering(axes: Axes, expected: Mapping[float, float], formula: str) -> None:
    """The line through the episodes of dithering at each size, named where it leaves the picture.

    The picture holds a stretch of it at least.
    """
    sizes = sorted(expected)
    exponents = np.maximum.accumulate(np.log2([expected[size] for size in sizes]))
    start = 2 ** exponents[0]
    bottom, top = min(axes.dataLim.y0, start) / 1.5, max(axes.dataLim.y1, 4 * start) * 2
    end = float(np.interp(np.log2(top), exponents, sizes))
    at = [*(size for size in sizes if size < end), end]
    heights = 2 ** np.interp(at, sizes, exponents)
    axes.plot(at, heights, color=style.INK, linestyle=(0, (4, 3)), linewidth=1, zorder=1)
    name = f"{formula}: dithering" if formula else "dithering"
    place: dict[str, Any] = {"xytext": (8, 0)} if end < sizes[-1] else {"xytext": (-30, 0), "ha": "right"}
    axes.annotate(name, (end, heights[-1]), textcoords="offset points", va="top", **place)
    axes.set_ylim(bottom, top)
