"""What a score has cost: parameters, updates and time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.ticker import MaxNLocator

from explore._analysis.report import style
from explore._analysis.report.data import Material, Result
from explore._analysis.report.panels import legend, seeds_said
from explore._analysis.report.section import Picture, Section
from explore._analysis.statistics import mean_interval

COSTS = {"parameters": "parameters", "updates": "updates per seed", "seconds": "seconds per seed"}


def costs(material: Material) -> Section | None:
    """A row of panels for each setting, where several methods can be told apart by their costs."""
    settings = [setting for setting in material.settings if len(_known(material.of(setting))) > 1]
    return Section("Cost against score", [], [], [_picture(material, settings)]) if settings else None


def cost(result: Result, name: str) -> float:
    """Of one seed; for methods that learn several at once, a fair share."""
    whole = result.configuration.cost[name]
    return whole if name == "parameters" else whole / len(result.seeds)


def score_shown(results: Sequence[Result]) -> str:
    """The score, unless some have none or it is the same for all; then the mean return."""
    scores = [result.configuration.numbers("score") for result in results]
    return "score" if all(scores) and len({np.mean(one) for one in scores}) > 1 else "mean_return"


def _known(results: Sequence[Result]) -> list[Result]:
    return [result for result in results if result.configuration.cost.keys() >= COSTS.keys()]


@style.styled()
def _picture(material: Material, settings: Sequence[str]) -> Picture:
    height = 1.7 * len(settings) + 0.7
    figure, axes = style.new_figure(len(settings), len(COSTS), height=height, squeeze=False, sharey="row", sharex="col")
    shown = [_known(material.of(setting)) for setting in settings]
    for row, setting, results in zip(axes, settings, shown):
        entry = score_shown(results)
        row[0].set(title=setting, ylabel=entry.replace("_", " "))
        for panel, name in zip(row, COSTS):
            for result in results:
                look = style.series(material.place(result)) | {"linestyle": ""}
                low, mean, high = mean_interval(result.configuration.numbers(entry))
                at = cost(result, name)
                if low is not None:
                    panel.plot([at, at], [low, high], color=look["color"], linewidth=1.2, alpha=0.6)
                panel.plot(at, mean, **look | {"markersize": 6, "fillstyle": "none", "markeredgewidth": 1.4})
    everyone = [result for results in shown for result in results]
    for panel in axes.flat:
        panel.margins(0.12)
    for panel, (name, label) in zip(axes[-1], COSTS.items()):
        panel.set_xlabel(label)
        amounts = [cost(result, name) for result in everyone]
        if min(amounts) > 0 and max(amounts) > 10 * min(amounts):
            panel.set_xscale("log")
        else:
            panel.xaxis.set_major_locator(MaxNLocator(3))
            panel.xaxis.set_major_formatter("{x:,g}")
    legend(figure, material, everyone, markers_only=True)
    caption = (
        f"What each configuration cost and how it scored, {seeds_said(everyone)}; bars are 95% bootstrap intervals of "
        "the mean over seeds. Parameters are those that are trained; seconds are those of a run, divided by its seeds."
    )
    return Picture(figure, caption)
