"""Regret, where it is known: against episodes beside the bound of the paper's Theorem 1, and how it grows.

A seed is an MDP drawn from a prior, so the mean over seeds estimates the Bayes regret that the theorem
bounds. Exponents are slopes on logarithmic axes. Those of the bound are taken at the same points:
its logarithms make them quite other than 1/2 in runs of a few thousand episodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from explore._analysis.report import style
from explore._analysis.report.data import Material, Result
from explore._analysis.report.panels import ACROSS, fainter, legend, lowest, panels, seeds_said, title
from explore._analysis.report.section import Picture, Section
from explore._analysis.statistics import Interval, growth_across, growth_along, mean_band, mean_interval, power_law

REGRET = "regret"
SIZES = ("states", "actions", "horizon")
THEOREM = {"episodes": 0.5, "states": 0.5, "actions": 0.5, "horizon": 2.0}
"""The exponents of the bound, but for logarithms."""
LEAST_MASS = 3  # for which the theorem holds
POINTS = 100  # of a line, evenly spaced on a logarithmic axis
LATE = 10  # growth with episodes is that of the last so many-fold


def regret(material: Material) -> Section | None:
    """Bayes regret of the results that know it."""
    known = [result for result in material.results if _is_known(result)]
    if not known:
        return None
    groups = _groups(material, known)
    pictures = [_against_episodes(material, known), *([_against_sizes(material, groups)] if groups else [])]
    return Section("Regret", TEXT, _table(known, groups), pictures)


TEXT = (
    "The regret of an episode is how much less its policy is worth than the best one, exactly, on the true MDP. Its "
    "sum over episodes, averaged over seeds, each an MDP of its own, estimates the Bayes regret. An exponent of 1 in "
    "episodes is no learning. The bound of Theorem 1, for tabular Wasserstein TD with the theorem's settings, grows "
    "with exponents of 1/2 in episodes, states and actions and of 2 in the horizon, but for logarithms; with them its "
    "exponents here are those in the column before the last.",
)


class Group(NamedTuple):
    """Results of one method that differ in one size only."""

    size: str
    others: str  # the other sizes, in words
    method: str
    results: list[Result]  # by that size
    episodes: int  # that all of them have

    @property
    def sizes(self) -> list[float]:
        return [_size(result, self.size) for result in self.results]

    @property
    def totals(self) -> list[np.ndarray]:
        """Regret of each seed after these episodes."""
        return [cumulative(result)[:, self.episodes - 1] for result in self.results]

    @property
    def growth(self) -> Interval:
        return growth_across(self.sizes, self.totals)

    @property
    def bounds(self) -> list[float]:
        """Theorem 1's, at each size."""
        return [float(_bound(result, np.array(self.episodes))) for result in self.results]


def cumulative(result: Result) -> np.ndarray:
    """Regret so far, `[seeds, episodes]`, as far as all seeds go."""
    common = min(map(len, result.columns[REGRET]))
    return np.cumsum([seed[:common] for seed in result.columns[REGRET]], axis=-1)


def growth(result: Result) -> Interval:
    """The exponent of regret in episodes, late in the run."""
    curves = cumulative(result)
    at = _late(curves.shape[1])
    return growth_along(at, curves[:, at - 1])


def _is_known(result: Result) -> bool:
    """Whether there is regret to show, which a damaged file may not have."""
    columns = result.columns.get(REGRET, [])
    return bool(columns) and all(len(seed) > 1 and np.isfinite(seed).all() for seed in columns) and _grows(result)


def _grows(result: Result) -> bool:
    """Regret of 0 has no logarithm."""
    curves = cumulative(result)
    return bool((curves[:, max(1, curves.shape[1] // LATE) - 1 :].mean(0) > 0).all())


def _size(result: Result, name: str) -> float:
    return result.configuration.numbers(name)[0]


def _has_sizes(result: Result) -> bool:
    found = [set(result.configuration.numbers(name)) for name in (*SIZES, "mass")]
    return all(len(one) == 1 and min(one) > 0 for one in found)


def _is_bounded(result: Result) -> bool:
    return _has_sizes(result) and _size(result, "mass") >= LEAST_MASS


def bound(states: float, actions: float, horizon: float, mass: float, episodes: np.ndarray) -> np.ndarray:
    """Theorem 1: what the Bayes regret of tabular Wasserstein TD with its settings is never above."""
    pairs = states * actions
    first = np.maximum(1, np.log(2 * pairs * horizon * episodes))
    second = np.maximum(1, np.log(1 + episodes / pairs))
    return 5 * horizon**2 * np.sqrt(mass * pairs * episodes * first) * second


def _bound(result: Result, episodes: np.ndarray) -> np.ndarray:
    states, actions, horizon, mass = (_size(result, name) for name in (*SIZES, "mass"))
    return bound(states, actions, horizon, mass, episodes)


def _groups(material: Material, known: Sequence[Result]) -> list[Group]:
    """All sets of at least two results that can show growth with a size."""
    found = []
    for size in SIZES:
        fixed = [name for name in (*SIZES, "mass") if name != size]
        kinds: dict[tuple[Any, ...], list[Result]] = {}
        for result in known:
            if _has_sizes(result):
                kinds.setdefault((result.method, *(_size(result, name) for name in fixed)), []).append(result)
        for (method, *values), results in kinds.items():
            others = ", ".join(f"{name} = {value:g}" for name, value in zip(fixed, values))
            ordered = sorted(results, key=lambda result: _size(result, size))
            if len({_size(result, size) for result in results}) > 1:
                episodes = min(cumulative(result).shape[1] for result in results)
                found.append(Group(size, others, method, ordered, episodes))
    return found


def _table(known: Sequence[Result], groups: Sequence[Group]) -> list[list[str]]:
    rows = [
        [
            result.setting, result.method, str(len(result.seeds)), "episodes",
            _said(mean_interval(cumulative(result)[:, -1])), _said(growth(result)), _bound_growth(result),
            f"{THEOREM['episodes']:g}",
        ]
        for result in known
    ]  # fmt: skip
    rows += [
        [
            group.others, group.method,
            str(sum(len(result.seeds) for result in group.results)), group.size, "-", _said(group.growth),
            _bound_growth(group), f"{THEOREM[group.size]:g}",
        ]
        for group in groups
    ]  # fmt: skip
    return [
        [
            "setting",
            "method",
            "seeds",
            "growth with",
            "regret in all",
            "exponent",
            "of the bound",
            "but for logarithms",
        ],
        *rows,
    ]


def _bound_growth(grown: Result | Group) -> str:
    """The exponent of the bound at the points that the measured one was fitted to."""
    if isinstance(grown, Group):
        known = all(map(_is_bounded, grown.results))
        return f"{power_law(grown.sizes, grown.bounds).exponent:.2f}" if known else "-"
    at = _late(cumulative(grown).shape[1])
    return f"{power_law(at, _bound(grown, at)).exponent:.2f}" if _is_bounded(grown) else "-"


def _said(interval: Interval) -> str:
    low, estimate, high = (None if end is None else f"{end:.3g}" for end in interval)
    return f"{estimate} ({low} to {high})" if low is not None else str(estimate)


@style.styled()
def _against_episodes(material: Material, known: Sequence[Result]) -> Picture:
    settings = [setting for setting in material.settings if any(result.setting == setting for result in known)]
    figure, axes = panels(len(settings), 2.6 if len(settings) > 1 else 3.4)
    bounded = False
    for panel, setting in zip(axes, settings):
        own = [result for result in known if result.setting == setting]
        for result in own:
            _draw_regret(panel, result, material.place(result), len(own))
        if all(map(_is_bounded, own)):
            _draw_bound(panel, own)
            bounded = True
        panel.set(title=title(setting, min(len(settings), ACROSS)), xscale="log", yscale="log")
    for panel in lowest(axes):
        panel.set_xlabel("episode")
    for panel in axes[::ACROSS]:
        panel.set_ylabel("cumulative regret")
    legend(figure, material, known)
    caption = (
        f"Bayes regret against episodes, {seeds_said(known)}, both axes logarithmic: mean over seeds, and its "
        "pointwise 95% bootstrap interval."
    )
    return Picture(figure, caption + (" Dashed: the bound of Theorem 1." if bounded else ""))


def _draw_regret(axes: Axes, result: Result, number: int, count: int) -> None:
    look = style.series(number)
    curves = cumulative(result)
    at = _spaced(1, curves.shape[1])
    low, mean, high = mean_band(curves[:, at - 1])
    axes.fill_between(at, low, high, color=look["color"], **fainter(style.BAND, count))
    axes.plot(at, mean, zorder=3, markevery=(number * 2, 16), **look)


def _draw_bound(axes: Axes, results: Sequence[Result]) -> None:
    at = _spaced(1, max(cumulative(result).shape[1] for result in results))
    highest = _bound(results[0], at)
    axes.plot(at, highest, color=style.INK, linestyle=(0, (4, 3)), linewidth=1)
    axes.annotate("Theorem 1", (at[0], highest[0]), (4, -6), textcoords="offset points", va="top")


@style.styled()
def _against_sizes(material: Material, groups: Sequence[Group]) -> Picture:
    drawn: dict[tuple[str, str], Group] = {}
    for group in sorted(groups, key=lambda group: -len(group.results)):
        drawn.setdefault((group.size, group.method), group)
    sizes = [size for size in SIZES if any(group.size == size for group in drawn.values())]
    figure, axes = panels(len(sizes), 2.8, sharey=True)
    for panel, size in zip(axes, sizes):
        own = [group for group in drawn.values() if group.size == size]
        for group in own:
            _draw_growth(panel, group, material.methods.index(group.method))
        at = title(", ".join(dict.fromkeys(group.others for group in own)), min(len(sizes), ACROSS))
        panel.set(title=at, xlabel=f"{size} (bound: {_bound_growth(own[0])})", xscale="log", yscale="log")
        values = sorted({value for group in own for value in group.sizes})
        panel.set_xticks(values, [f"{value:g}" for value in values])
        panel.set_xticks([], minor=True)
    axes[0].set_ylabel("cumulative regret")
    shown = [result for group in drawn.values() for result in group.results]
    legend(figure, material, shown)
    episodes = sorted({group.episodes for group in drawn.values()})
    caption = (
        f"Bayes regret after {', '.join(f'{count:,}' for count in episodes)} episodes against the size of the MDP, "
        f"{seeds_said(shown)}, both axes logarithmic: mean over seeds with its 95% bootstrap interval, and the fitted "
        "power law, whose exponent is beside it. The table has all exponents, this one line for each method and size."
    )
    return Picture(figure, caption)


def _draw_growth(axes: Axes, group: Group, number: int) -> None:
    look = style.series(number)
    means = [float(totals.mean()) for totals in group.totals]
    for size, totals in zip(group.sizes, group.totals):
        low, _, high = mean_interval(totals)
        if low is not None and high is not None:
            axes.plot([size, size], [low, high], color=look["color"], linewidth=1.5)
    axes.plot(group.sizes, means, zorder=3, **look | {"linestyle": ""})
    exponent = group.growth.estimate
    assert exponent is not None
    middle = np.exp(np.mean(np.log(means)) - exponent * np.mean(np.log(group.sizes)))
    ends = np.array([min(group.sizes), max(group.sizes)])
    axes.plot(ends, middle * ends**exponent, **look | {"marker": ""})
    place = {"textcoords": "offset points", "va": "center", "color": look["color"]}
    axes.annotate(f" {round(exponent, 2) + 0.0:.2f}", (ends[-1], middle * ends[-1] ** exponent), (3, 0), **place)
    axes.margins(x=0.2)


def _late(episodes: int) -> np.ndarray:
    return _spaced(max(1, episodes // LATE), episodes)


def _spaced(first: int, last: int) -> np.ndarray:
    """Episodes that are evenly spaced on a logarithmic axis."""
    return np.unique(np.geomspace(first, last, POINTS).round().astype(int))
