"""When seeds solve their task: how many of them by which episode, and how that grows with the size of the task."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator

from explore._analysis.report import style
from explore._analysis.report.data import Material, Result, split
from explore._analysis.report.panels import ACROSS, fainter, legend, lowest, panels, seeds_said, title
from explore._analysis.report.section import Picture, Section
from explore._analysis.statistics import KaplanMeier

LARGEST = 500  # size of which 2^N is a number to be drawn
ROOM = 0.6  # of the way from one size to the next, which the methods share side by side


def solving(material: Material) -> Section | None:
    """Of the tasks that can be solved."""
    judged = [result for result in material.results if result.judged]
    if not judged:
        return None
    pictures = [_shares(material, judged)]
    kinds: dict[object, list[Result]] = {}
    for result in judged:
        kinds.setdefault(_but_for_size(result), []).append(result)
    against_size = [_against_size(material, results) for results in kinds.values()]
    return Section("Solving", [], [], pictures + [picture for picture in against_size if picture])


def _but_for_size(result: Result) -> tuple[object, ...]:
    """The task and its setting, but for what says how large it is and how long it was run."""
    setting, _ = split(result.configuration.bindings)
    sized = ("environment.DeepSea.size", "environment.Bsuite.id", "experiment.episodes")
    return result.configuration.task.partition("/")[0], *(item for item in setting.items() if item[0] not in sized)


@style.styled()
def _shares(material: Material, judged: Sequence[Result]) -> Picture:
    settings = [setting for setting in material.settings if any(result.setting == setting for result in judged)]
    figure, axes = panels(len(settings), 2.2 if len(settings) > 1 else 2.8, sharey=True)
    for panel, setting in zip(axes, settings):
        own = [result for result in judged if result.setting == setting]
        for result in own:
            _draw_share(panel, result.configuration.survival(), material.place(result), len(own))
        panel.set(title=title(setting, min(len(settings), ACROSS)), ylim=(-0.03, 1.03), xlim=(0, None))
    for panel in lowest(axes):
        panel.set_xlabel("episode")
    for panel in axes[::ACROSS]:
        panel.set_ylabel("share of seeds solved")
    legend(figure, material, judged)
    caption = (
        f"Share of seeds that have solved the task by each episode, {seeds_said(judged)}: one minus the Kaplan-Meier "
        "estimate, with its pointwise 95% band (Greenwood, log-log). A tick ends the line of seeds that were stopped "
        "unsolved."
    )
    return Picture(figure, caption)


def solved_share(curve: KaplanMeier) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Episodes, the share of seeds that have solved the task by then, and its band."""
    return curve.episodes, 1 - curve.unsolved, 1 - curve.high, 1 - curve.low


def _draw_share(axes: Axes, curve: KaplanMeier, number: int, count: int) -> None:
    look = style.series(number)
    episodes, share, low, high = solved_share(curve)
    axes.fill_between(episodes, low, high, step="post", color=look["color"], **fainter(style.BAND, count))
    axes.plot(episodes, share, drawstyle="steps-post", zorder=3, **look | {"marker": ""})
    stops = np.unique(curve.censored_at)
    tick = {"marker": "|", "markersize": 8, "markeredgewidth": 1.4}
    for at, marker in ((curve.solved_at, {}), (stops, tick)):
        there = share[np.searchsorted(episodes, at, side="right") - 1]
        axes.plot(at, there, zorder=3, **look | {"linestyle": ""} | marker)


@style.styled()
def _against_size(material: Material, results: Sequence[Result]) -> Picture | None:
    sized = [result for result in results if result.configuration.numbers("size")]
    sizes = sorted({size for result in sized for size in result.configuration.numbers("size")})
    if len(sizes) < 2 or not 0 < sizes[0] < sizes[-1] < LARGEST:
        return None
    figure, axes = style.new_figure(height=3.6)
    numbers = sorted({material.place(result) for result in sized})
    step = ROOM * min(np.diff(sizes)) / len(numbers)
    for number in numbers:
        own = [result for result in sized if material.place(result) == number]
        _draw_sizes(axes, own, number, step * (numbers.index(number) - (len(numbers) - 1) / 2))
    _draw_dithering(axes, sizes[0] - step * len(numbers), sizes[-1] + step * len(numbers))
    axes.set(xlabel="size N", ylabel="episodes to solve")
    axes.xaxis.set_major_locator(FixedLocator(sizes))
    legend(figure, material, sized)
    caption = (
        f"Episodes to solve against size, {seeds_said(sized)}. Small: seeds; an open triangle is a seed that was "
        "stopped there, unsolved. Large, joined by a line: the Kaplan-Meier median with its 95% interval, where the "
        "seeds give one (an end that they do not give is left open). Dashed: the 2^N episodes of dithering. "
        "Methods stand side by side at each size."
    )
    return Picture(figure, caption)


def _draw_sizes(axes: Axes, results: Sequence[Result], number: int, shift: float) -> None:
    look = style.series(number)
    small = {"color": look["color"], "linestyle": "", "alpha": 0.7}
    medians = []
    for result in results:
        for size, entry in zip(result.configuration.numbers("size"), result.configuration.seeds.values()):
            if entry.get("solved_at"):
                axes.plot(size + shift, entry["solved_at"], marker=look["marker"], markersize=2.5, **small)
            else:
                axes.plot(size + shift, entry["episodes"], marker="^", fillstyle="none", markersize=6, **small)
        low, median, high = result.configuration.survival().median
        if median is not None:
            medians.append((result.configuration.numbers("size")[0], median, low, high))
    medians.sort(key=lambda each: each[0])
    for size, median, low, high in medians:
        axes.plot([size + shift] * 2, [low or median, high or median], color=look["color"], linewidth=1.5)
    axes.plot([size + shift for size, *_ in medians], [median for _, median, *_ in medians], zorder=3, **look)


def _draw_dithering(axes: Axes, first: float, last: float) -> None:
    """The line 2^N, named where it leaves the picture, which holds a stretch of it at least."""
    bottom, top = min(axes.dataLim.y0, 2**first) / 1.5, max(axes.dataLim.y1, 4 * 2**first) * 2
    end = min(last, float(np.log2(top)))
    axes.plot([first, end], [2**first, 2**end], color=style.INK, linestyle=(0, (4, 3)), linewidth=1, zorder=1)
    if end < first + 0.75 * (last - first):
        axes.annotate("2^N: dithering", (end, 2**end), (8, 0), textcoords="offset points", va="top")
    else:
        axes.annotate("2^N: dithering", (end, 2**end), (-30, 0), textcoords="offset points", va="top", ha="right")
    axes.set(yscale="log", xlim=(first, last), ylim=(bottom, top))
