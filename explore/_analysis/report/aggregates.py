"""Methods over several settings: the interquartile mean and performance profiles (Agarwal et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from explore._analysis.report import style
from explore._analysis.report.data import Material, Result
from explore._analysis.report.panels import legend, seeds_said
from explore._analysis.report.section import Picture, Section
from explore._analysis.statistics import Interval, performance_profile, stratified_bootstrap

NUMBER = "normalised_return"
THRESHOLDS = np.linspace(0, 1, 101)


@dataclass
class Group:
    """Settings that the same methods were run on."""

    settings: list[str]
    methods: dict[str, list[Result]]  # one result for each setting

    def scores(self, method: str, entry: str) -> list[list[float]]:
        """An entry of `summary.json`, `[setting][seed]`; nothing unless all have it."""
        numbers = [result.configuration.numbers(entry) for result in self.methods[method]]
        return numbers if all(numbers) else []

    @property
    def results(self) -> list[Result]:
        return [result for results in self.methods.values() for result in results]


def aggregates(material: Material) -> Section | None:
    """For each group of at least two settings whose returns can be set against the best possible."""
    groups = _groups(material)
    if not groups:
        return None
    header = ["method", "settings", "seeds", "IQM of normalised return", "score"]
    rows = [_row(group, method) for group in groups for method in group.methods]
    text = (
        "The normalised return of a seed is its mean return over all episodes as a share of the best possible, from 0 "
        "to 1. IQM is the interquartile mean over the seeds of all settings, score the mean of the tasks' scores; "
        "intervals are 95%, by a bootstrap that draws seeds within each setting."
    )
    return Section(
        "Several settings",
        [text, *_left_out(material)],
        [header, *rows],
        [_picture(material, group) for group in groups],
    )


def _groups(material: Material) -> list[Group]:
    by_methods: dict[tuple[str, ...], list[str]] = {}
    for setting in material.settings:
        known = [result.method for result in material.of(setting) if result.configuration.numbers(NUMBER)]
        if len(known) == len(material.of(setting)) and _are_equally_long(material.of(setting)):
            by_methods.setdefault(tuple(sorted(known, key=material.methods.index)), []).append(setting)
    return [_group(material, methods, settings) for methods, settings in by_methods.items() if len(settings) > 1]


def _are_equally_long(results: Sequence[Result]) -> bool:
    """Whether means over all episodes can be compared: not if some seeds were stopped when they had solved the task."""
    return len({len(seed) for result in results for seed in result.columns["episode"]}) == 1


def _left_out(material: Material) -> list[str]:
    uneven = [setting for setting in material.settings if not _are_equally_long(material.of(setting))]
    return [f"Left out, as seeds differ in their number of episodes: {'; '.join(uneven)}."] if uneven else []


def _group(material: Material, methods: Sequence[str], settings: list[str]) -> Group:
    of = {(result.method, result.setting): result for result in material.results}
    return Group(settings, {method: [of[method, setting] for setting in settings] for method in methods})


def _row(group: Group, method: str) -> list[str]:
    scores = group.scores(method, "score")
    return [
        method,
        f"{len(group.settings)}",
        f"{sum(len(result.seeds) for result in group.methods[method])}",
        _shown(stratified_bootstrap(group.scores(method, NUMBER))),
        _shown(stratified_bootstrap(scores, np.mean)) if scores else "-",
    ]


def _shown(interval: Interval) -> str:
    low, estimate, high = interval
    return f"{estimate:.3f}" + (f" ({low:.3f} to {high:.3f})" if low is not None else "")


@style.styled()
def _picture(material: Material, group: Group) -> Picture:
    figure, (left, right) = style.new_figure(1, 2, height=2.8, width_ratios=[1, 1.5])
    for place, (method, results) in enumerate(group.methods.items()):
        look = style.series(material.place(results[0]))
        scores = group.scores(method, NUMBER)
        low, estimate, high = stratified_bootstrap(scores)
        if low is not None:
            left.plot([low, high], [-place, -place], color=look["color"], linewidth=3, alpha=0.5)
        left.plot(estimate, -place, **look | {"linestyle": "", "markersize": 6})
        band = performance_profile(scores, THRESHOLDS)
        right.fill_between(THRESHOLDS, band.low, band.high, color=look["color"], **style.BAND)
        right.plot(THRESHOLDS, band.estimate, markevery=(2 * place, 20), **look)
    left.margins(x=0.1)
    left.set(xlabel="IQM of normalised return", yticks=[], ylim=(0.6 - len(group.methods), 0.6))
    right.set(xlabel="normalised return τ", ylabel="share of runs above τ", ylim=(-0.03, 1.03), xlim=(0, 1))
    legend(figure, material, group.results)
    caption = (
        f"Left: interquartile mean of the normalised return. Right: performance profiles, the share of runs (mean over "
        f"settings) above each normalised return. Over {len(group.settings)} settings ({'; '.join(group.settings)}), "
        f"{seeds_said(group.results)}; bars and bands are 95% stratified bootstrap intervals."
    )
    return Picture(figure, caption)
