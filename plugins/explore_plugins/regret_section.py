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
from numpy.typing import ArrayLike

from explore import reports
from explore.reports import Interval, Picture, ReportData, Result, Section

REGRET = "regret"
SIZES = ("states", "actions", "horizon")
THEOREM = {"episodes": 0.5, "states": 0.5, "actions": 0.5, "horizon": 2.0}
"""The exponents of the bound, but for logarithms."""
LEAST_MASS = 3  # for which the theorem holds
POINTS = 100  # of a line, evenly spaced on a logarithmic axis
LATE = 10  # growth with episodes is that of the last so many-fold
TEXT = (
    "The regret of an episode is how much less its policy is worth than the best one, exactly, on the true MDP. Its "
    "sum over episodes, averaged over seeds, each an MDP of its own, estimates the Bayes regret. An exponent of 1 in "
    "episodes is no learning. The bound of Theorem 1, for tabular Wasserstein TD with the theorem's settings, grows "
    "with exponents of 1/2 in episodes, states and actions and of 2 in the horizon, but for logarithms; with them its "
    "exponents here are those in the column before the last.",
)
HEADER = [
    "setting",
    "method",
    "seeds",
    "growth with",
    "regret in all",
    "exponent",
    "of the bound",
    "but for logarithms",
]


def draw_regret(data: ReportData) -> Section | None:
    """Bayes regret of the results that know it."""
    known = [result for result in data.results if _is_known(result)]
    if not known:
        return None
    groups = _groups(known)
    pictures = [_against_episodes(data, known), *([_against_sizes(data, groups)] if groups else [])]
    return Section("Regret", TEXT, _table(known, groups), pictures)


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
    def bound_growth(self) -> str:
        """The exponent of the bound at the points that the measured one was fitted to."""
        if not all(map(_is_bounded, self.results)):
            return "-"
        return f"{exponent(self.sizes, [_bound(result, np.array(self.episodes)) for result in self.results]):.2f}"


def cumulative(result: Result) -> np.ndarray:
    """Regret so far, `[seeds, episodes]`, as far as all seeds go."""
    common = min(map(len, result.columns[REGRET]))
    return np.cumsum([seed[:common] for seed in result.columns[REGRET]], axis=-1)


def growth(result: Result) -> Interval:
    """The exponent of regret in episodes, late in the run."""
    curves = cumulative(result)
    at = _late(curves.shape[1])
    return growth_along(at, curves[:, at - 1])


def bound(states: float, actions: float, horizon: float, mass: float, episodes: np.ndarray) -> np.ndarray:
    """Theorem 1: what the Bayes regret of tabular Wasserstein TD with its settings is never above."""
    pairs = states * actions
    first = np.maximum(1, np.log(2 * pairs * horizon * episodes))
    second = np.maximum(1, np.log(1 + episodes / pairs))
    return 5 * horizon**2 * np.sqrt(mass * pairs * episodes * first) * second


def exponent(x: ArrayLike, y: ArrayLike) -> float:
    """Of the power law through these points, by least squares on logarithmic axes."""
    if np.min(y) <= 0:
        raise ValueError("a power law needs numbers above 0")
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def growth_along(x: ArrayLike, curves: ArrayLike) -> Interval:
    """The exponent of the power law through the mean of seeds' curves `[seeds, points]`, with its bootstrap interval.

    Seeds are drawn whole, since the points of one growing curve are not independent.
    """
    values = np.asarray(curves)
    return _growth(x, values.mean(0), reports.resample_means(values, np.random.default_rng(0)), len(values))


def growth_across(x: ArrayLike, samples: Sequence[ArrayLike]) -> Interval:
    """The same through the means of samples, one `[seeds]` for each x, each drawn by itself.

    Where seeds of one sample are related to those of another, the interval is a little too wide.
    """
    values, rng = [np.asarray(sample) for sample in samples], np.random.default_rng(0)
    drawn = np.stack([reports.resample_means(sample, rng) for sample in values], -1)
    return _growth(x, [sample.mean() for sample in values], drawn, min(map(len, values)))


def _growth(x: ArrayLike, means: ArrayLike, drawn: np.ndarray, fewest: int) -> Interval:
    """The exponent, and the interval of those of means `[resamples, points]`; a mean of 0 has none."""
    estimate = exponent(x, means)
    u = np.log(x) - np.mean(np.log(x))
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = (np.log(drawn) * u).sum(-1) / (u**2).sum()
    slopes = slopes[np.isfinite(slopes)]
    if fewest < 2 or not slopes.size:
        return Interval(None, estimate, None)
    low, high = np.quantile(slopes, (0.025, 0.975))
    return Interval(float(low), estimate, float(high))


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


def _bound(result: Result, episodes: np.ndarray) -> np.ndarray:
    states, actions, horizon, mass = (_size(result, name) for name in (*SIZES, "mass"))
    return bound(states, actions, horizon, mass, episodes)


def _groups(known: Sequence[Result]) -> list[Group]:
    """All sets of at least two results that can show growth with a size."""
    found = []
    for size in SIZES:
        fixed = [name for name in (*SIZES, "mass") if name != size]
        kinds: dict[tuple[Any, ...], list[Result]] = {}
        for result in filter(_has_sizes, known):
            kinds.setdefault((result.method, *(_size(result, name) for name in fixed)), []).append(result)
        for (method, *values), results in kinds.items():
            others = ", ".join(f"{name} = {value:g}" for name, value in zip(fixed, values))
            ordered = sorted(results, key=lambda result: _size(result, size))
            if len({_size(result, size) for result in results}) > 1:
                episodes = min(cumulative(result).shape[1] for result in results)
                found.append(Group(size, others, method, ordered, episodes))
    return found


def _table(known: Sequence[Result], groups: Sequence[Group]) -> list[list[str]]:
    rows = [HEADER]
    for result in known:
        total, grown = reports.mean_interval(cumulative(result)[:, -1]), growth(result)
        cells = ["episodes", _write(total), _write(grown), _bound_growth(result), f"{THEOREM['episodes']:g}"]
        rows.append([result.setting, result.method, str(len(result.seeds)), *cells])
    for group in groups:
        seeds = sum(len(result.seeds) for result in group.results)
        cells = [group.size, "-", _write(group.growth), group.bound_growth, f"{THEOREM[group.size]:g}"]
        rows.append([group.others, group.method, str(seeds), *cells])
    return rows


def _bound_growth(result: Result) -> str:
    at = _late(cumulative(result).shape[1])
    return f"{exponent(at, _bound(result, at)):.2f}" if _is_bounded(result) else "-"


def _write(interval: Interval) -> str:
    low, estimate, high = (None if end is None else f"{end:.3g}" for end in interval)
    return f"{estimate} ({low} to {high})" if low is not None else str(estimate)


def _against_episodes(data: ReportData, known: Sequence[Result]) -> Picture:
    settings = data.by_setting(known)
    figure, axes = reports.panels([*settings], 2.6 if len(settings) > 1 else 3.4)
    bounded = False
    for panel, own in zip(axes, settings.values()):
        for result in own:
            curves = cumulative(result)
            at = _space_evenly(1, curves.shape[1])
            number = data.place(result)
            reports.draw_band(panel, at, reports.mean_band(curves[:, at - 1]), number, len(own), (number * 2, 16))
        if all(map(_is_bounded, own)):
            _draw_bound(panel, own)
            bounded = True
        panel.set(xscale="log", yscale="log")
    reports.label_outer(axes, "episode", "cumulative regret")
    reports.legend(figure, data, known)
    caption = (
        f"Bayes regret against episodes, {reports.describe_seeds(known)}, both axes logarithmic: mean over seeds, and "
        "its pointwise 95% bootstrap interval."
    )
    return Picture(figure, caption + (" Dashed: the bound of Theorem 1." if bounded else ""))


def _draw_bound(axes: Axes, results: Sequence[Result]) -> None:
    at = _space_evenly(1, max(cumulative(result).shape[1] for result in results))
    highest = _bound(results[0], at)
    axes.plot(at, highest, color=reports.INK, linestyle=(0, (4, 3)), linewidth=1)
    axes.annotate("Theorem 1", (at[0], highest[0]), (4, -6), textcoords="offset points", va="top")


def _against_sizes(data: ReportData, groups: Sequence[Group]) -> Picture:
    drawn: dict[tuple[str, str], Group] = {}
    for group in sorted(groups, key=lambda group: -len(group.results)):
        drawn.setdefault((group.size, group.method), group)
    by_size = {size: [group for group in drawn.values() if group.size == size] for size in SIZES}
    by_size = {size: own for size, own in by_size.items() if own}
    titles = [", ".join(dict.fromkeys(group.others for group in own)) for own in by_size.values()]
    figure, axes = reports.panels(titles, 2.8, sharey=True)
    for panel, (size, own) in zip(axes, by_size.items()):
        for group in own:
            _draw_growth(panel, group, data.methods.index(group.method))
        panel.set(xlabel=f"{size} (bound: {own[0].bound_growth})", xscale="log", yscale="log")
        values = sorted({value for group in own for value in group.sizes})
        panel.set_xticks(values, [f"{value:g}" for value in values])
        panel.set_xticks([], minor=True)
    axes[0].set_ylabel("cumulative regret")
    shown = [result for group in drawn.values() for result in group.results]
    reports.legend(figure, data, shown)
    episodes = sorted({group.episodes for group in drawn.values()})
    caption = (
        f"Bayes regret after {', '.join(f'{count:,}' for count in episodes)} episodes against the size of the MDP, "
        f"{reports.describe_seeds(shown)}, both axes logarithmic: mean over seeds with its 95% bootstrap interval, and "
        "the fitted power law, whose exponent is beside it. The table has all exponents, this one line for each method "
        "and size."
    )
    return Picture(figure, caption)


def _draw_growth(axes: Axes, group: Group, number: int) -> None:
    look = reports.series(number)
    means = [float(totals.mean()) for totals in group.totals]
    for size, totals in zip(group.sizes, group.totals):
        low, _, high = reports.mean_interval(totals)
        if low is not None and high is not None:
            axes.plot([size, size], [low, high], color=look["color"], linewidth=1.5)
    axes.plot(group.sizes, means, zorder=3, **look | {"linestyle": ""})
    slope = exponent(group.sizes, means)
    middle = np.exp(np.mean(np.log(means)) - slope * np.mean(np.log(group.sizes)))
    ends = np.array([min(group.sizes), max(group.sizes)])
    axes.plot(ends, middle * ends**slope, **look | {"marker": ""})
    place = {"textcoords": "offset points", "va": "center", "color": look["color"]}
    axes.annotate(f" {round(slope, 2) + 0.0:.2f}", (ends[-1], middle * ends[-1] ** slope), (3, 0), **place)
    axes.margins(x=0.2)


def _late(episodes: int) -> np.ndarray:
    return _space_evenly(max(1, episodes // LATE), episodes)


def _space_evenly(first: int, last: int) -> np.ndarray:
    """Episodes that are evenly spaced on a logarithmic axis."""
    return np.unique(np.geomspace(first, last, POINTS).round().astype(int))
