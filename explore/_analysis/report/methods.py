"""How methods compare: over several settings (Agarwal et al. 2021), and by what their scores have cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.ticker import MaxNLocator

from explore._analysis.report import style
from explore._analysis.report.data import ReportData, Result
from explore._analysis.report.drawing import Picture, Section, describe_seeds, draw_band, legend
from explore._analysis.statistics import Interval, mean_interval, performance_profile, stratified_bootstrap

NUMBER = "normalised_return"
THRESHOLDS = np.linspace(0, 1, 101)
COSTS = {"parameters": "parameters", "updates": "updates per seed", "seconds": "seconds per seed"}


Group = dict[str, list[Result]]
"""The results of each of several methods, which were run on the same settings, in the order of these."""


def draw_aggregates(data: ReportData) -> Section | None:
    """For each group of at least two settings whose returns can be set against the best possible."""
    groups = _groups(data)
    if not groups:
        return None
    header = ["method", "settings", "seeds", "IQM of normalised return", "score"]
    rows = [_aggregate_row(method, results) for group in groups for method, results in group.items()]
    text = (
        "The normalised return of a seed is its mean return over all episodes as a share of the best possible, from 0 "
        "to 1. IQM is the interquartile mean over the seeds of all settings, score the mean of the tasks' scores; "
        "intervals are 95%, by a bootstrap that draws seeds within each setting."
    )
    uneven = [setting for setting in data.settings if not _are_equally_long(data.of(setting))]
    left_out = [f"Left out, as seeds differ in their number of episodes: {'; '.join(uneven)}."] if uneven else []
    pictures = [_draw_group(data, group) for group in groups]
    return Section("Several settings", [text, *left_out], [header, *rows], pictures)


def _groups(data: ReportData) -> list[Group]:
    found: dict[frozenset[str], list[list[Result]]] = {}
    for setting in data.settings:
        results = sorted(data.of(setting), key=data.place)
        if all(result.configuration.numbers(NUMBER) for result in results) and _are_equally_long(results):
            found.setdefault(frozenset(result.method for result in results), []).append(results)
    return [{own[0].method: list(own) for own in zip(*group)} for group in found.values() if len(group) > 1]


def _are_equally_long(results: Sequence[Result]) -> bool:
    """Whether means over all episodes can be compared: not if some seeds were stopped when they had solved the task."""
    return len({len(seed) for result in results for seed in result.columns["episode"]}) == 1


def _scores(results: Sequence[Result], entry: str) -> list[list[float]]:
    """An entry of `summary.json`, `[setting][seed]`; nothing unless all have it."""
    numbers = [result.configuration.numbers(entry) for result in results]
    return numbers if all(numbers) else []


def _aggregate_row(method: str, results: Sequence[Result]) -> list[str]:
    scores = _scores(results, "score")
    return [
        method,
        f"{len(results)}",
        f"{sum(len(result.seeds) for result in results)}",
        _format_interval(stratified_bootstrap(_scores(results, NUMBER))),
        _format_interval(stratified_bootstrap(scores, np.mean)) if scores else "-",
    ]


def _format_interval(interval: Interval) -> str:
    low, estimate, high = interval
    return f"{estimate:.3f}" + (f" ({low:.3f} to {high:.3f})" if low is not None else "")


def _draw_group(data: ReportData, group: Group) -> Picture:
    figure, (left, right) = style.new_figure(1, 2, height=2.8, width_ratios=[1, 1.5])
    for row, results in enumerate(group.values()):
        number, scores = data.place(results[0]), _scores(results, NUMBER)
        look = style.series(number)
        low, estimate, high = stratified_bootstrap(scores)
        if low is not None:
            left.plot([low, high], [-row, -row], color=look["color"], linewidth=3, alpha=0.5)
        left.plot(estimate, -row, **look | {"linestyle": "", "markersize": 6})
        draw_band(right, THRESHOLDS, performance_profile(scores, THRESHOLDS), number, markevery=(2 * row, 20))
    left.margins(x=0.1)
    left.set(xlabel="IQM of normalised return", yticks=[], ylim=(0.6 - len(group), 0.6))
    right.set(xlabel="normalised return τ", ylabel="share of runs above τ", ylim=(-0.03, 1.03), xlim=(0, 1))
    everyone = [result for results in group.values() for result in results]
    settings = list(dict.fromkeys(result.setting for result in everyone))
    legend(figure, data, everyone)
    caption = (
        f"Left: interquartile mean of the normalised return. Right: performance profiles, the share of runs (mean over "
        f"settings) above each normalised return. Over {len(settings)} settings ({'; '.join(settings)}), "
        f"{describe_seeds(everyone)}; bars and bands are 95% stratified bootstrap intervals."
    )
    return Picture(figure, caption)


def draw_costs(data: ReportData) -> Section | None:
    """A row of panels for each setting, where several methods can be told apart by their costs."""
    settings = [setting for setting in data.settings if len(_select_with_costs(data.of(setting))) > 1]
    return Section("Cost against score", [], [], [_draw_cost_of(data, settings)]) if settings else None


def cost(result: Result, name: str) -> float:
    """Of one seed; for methods that learn several at once, a fair share."""
    whole = result.configuration.cost[name]
    return whole if name == "parameters" else whole / len(result.seeds)


def score_shown(results: Sequence[Result]) -> str:
    """The score, unless some have none or it is the same for all; then the mean return."""
    scores = [result.configuration.numbers("score") for result in results]
    return "score" if all(scores) and len({np.mean(one) for one in scores}) > 1 else "mean_return"


def _select_with_costs(results: Sequence[Result]) -> list[Result]:
    return [result for result in results if result.configuration.cost.keys() >= COSTS.keys()]


def _draw_cost_of(data: ReportData, settings: Sequence[str]) -> Picture:
    height = 1.7 * len(settings) + 0.7
    figure, axes = style.new_figure(len(settings), len(COSTS), height=height, squeeze=False, sharey="row", sharex="col")
    shown = [_select_with_costs(data.of(setting)) for setting in settings]
    for row, setting, results in zip(axes, settings, shown):
        entry = score_shown(results)
        row[0].set(title=setting, ylabel=entry.replace("_", " "))
        for panel, name in zip(row, COSTS):
            for result in results:
                look = style.series(data.place(result)) | {"linestyle": ""}
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
    legend(figure, data, everyone, markers_only=True)
    caption = (
        f"What each configuration cost and how it scored, {describe_seeds(everyone)}; bars are 95% bootstrap intervals "
        "of the mean over seeds. Parameters are those that are trained; seconds are those of a run, divided by its "
        "seeds."
    )
    return Picture(figure, caption)
