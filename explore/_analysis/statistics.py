"""Numbers with intervals, for tables and pictures of runs.

Every interval is a 95% one. Seeds are what is resampled: they are the independent repetitions, the
episodes of one seed are not. Random draws come from a generator with a fixed seed, so that the same
runs always give the same numbers. Where there is nothing to say (one seed has no spread) an
interval's end is None, and NaN in arrays. NaN among the scores is a `ValueError`.

Intervals of few seeds are approximate, and those of the percentile bootstrap too narrow: for the
mean of normally distributed scores they hold it in about 83% of cases with 5 seeds, 90% with 10, 93%
with 20.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

RESAMPLES = 2000
SEED = 0
LEVEL = 0.95
TAILS = (0.5 - LEVEL / 2, 0.5 + LEVEL / 2)
NORMAL = NormalDist()


class Interval(NamedTuple):
    """An estimate with its 95% interval; None for an end, or an estimate, that the data do not give."""

    low: float | None
    estimate: float | None
    high: float | None


class Band(NamedTuple):
    """A curve with pointwise 95% intervals, `[points]` each; the ends are NaN where the data give none."""

    low: np.ndarray
    estimate: np.ndarray
    high: np.ndarray


def iqm(scores: ArrayLike, axis: int = -1) -> Any:
    """The interquartile mean: the mean of the scores without the lowest and the highest quarter.

    A quarter of n scores is rounded down, as in `scipy.stats.trim_mean` and rliable: of 5 scores the middle 3 are
    left, of 3 or fewer all. Agarwal et al. 2021, https://arxiv.org/abs/2108.13264
    """
    values = np.sort(scores, axis=axis)
    count = values.shape[axis]
    return values.take(range(count // 4, count - count // 4), axis).mean(axis)


def mean_interval(scores: ArrayLike) -> Interval:
    """The mean of one task's scores, one per seed, with its bootstrap interval (Efron and Tibshirani 1993)."""
    return stratified_bootstrap([scores], np.mean)


def share_interval(successes: int, count: int) -> Interval:
    """The share of successes with its Wilson interval, which holds for few seeds, and for none or all (Wilson 1927)."""
    if not 0 <= successes <= count or count < 1:
        raise ValueError(f"successes must be from 0 to count, and count at least 1, got {successes} of {count}")
    z, share = NORMAL.inv_cdf(TAILS[1]), successes / count
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return Interval(max(0.0, middle - half), share, min(1.0, middle + half))


def stratified_bootstrap(
    tasks: Sequence[ArrayLike], statistic: Callable[..., Any] = iqm, resamples: int = RESAMPLES
) -> Interval:
    """A statistic of the scores of several tasks `[task][seed]`, with its stratified bootstrap interval.

    Seeds are drawn with replacement within each task, and the statistic is that of all scores in
    one pool, like rliable's IQM; a task with more seeds weighs more. A task with one seed has no
    spread to draw from: then there is no interval. Agarwal et al. 2021, section 4.1.
    """
    scores = _scores(tasks)
    estimate = float(statistic(np.concatenate(scores), axis=-1))
    if not _have_spread(scores):
        return Interval(None, estimate, None)
    rng = np.random.default_rng(SEED)
    drawn = [task[rng.integers(len(task), size=(resamples, len(task)))] for task in scores]
    low, high = np.quantile(statistic(np.concatenate(drawn, axis=-1), axis=-1), TAILS)
    return Interval(float(low), estimate, float(high))


def mean_band(*tasks: ArrayLike, resamples: int = RESAMPLES) -> Band:
    """The mean of curves `[seeds, points]`, with the bootstrap interval of each point by itself.

    Whole curves are drawn, so a seed is the same one at all points. A pointwise band may miss the
    true curve at 5% of the points. Of several tasks it is the mean of their means, each with seeds of its own.
    A point takes 16 kB of memory, so pass a long curve at some of its points.
    """
    curves = [_numbers(task) for task in tasks]
    if any(task.ndim != 2 for task in curves):
        raise ValueError(f"curves must be [seeds, points], got the shapes {[task.shape for task in curves]}")
    estimate = np.mean([task.mean(0) for task in curves], axis=0)
    if not _have_spread(curves):
        return Band(np.full_like(estimate, np.nan), estimate, np.full_like(estimate, np.nan))
    rng = np.random.default_rng(SEED)
    means = np.mean([resample_means(task, rng, resamples) for task in curves], axis=0)
    low, high = np.quantile(means, TAILS, axis=0)
    return Band(low, estimate, high)


def confidence_sequence(scores: ArrayLike) -> Interval:
    """The mean of scores from 0 to 1, or a share of zeros and ones, with an interval valid whenever one looks.

    With probability 95% it holds the true mean after every number of seeds at once, so seeds may be added until it
    is narrow enough. It holds the means m that would not let a gambler multiply a stake by 20: by the betting

        M(m) = E_q prod_i [x_i q / m + (1 - x_i) (1 - q) / (1 - m)],  q uniform from 0 to 1,

    a nonnegative martingale if m is the mean, whatever the distribution and the order (Ville 1939; Waudby-Smith and
    Ramdas 2024, https://arxiv.org/abs/2010.09686; Orabona and Jun 2021, https://arxiv.org/abs/2110.14099). Of a
    share it is the beta-binomial mixture (Robbins 1970). log M is convex in m and at most 0 at the mean of the
    scores, so these m are an interval around that.
    """
    x = _scores([scores])[0]
    if x.min() < 0 or x.max() > 1:
        raise ValueError(f"scores must be from 0 to 1, got {x.min():g} to {x.max():g}")
    values, counts = np.unique(x, return_counts=True)
    nodes, weights = np.polynomial.legendre.leggauss(min(len(x) // 2 + 1, 100))  # exact up to 199 seeds
    q = (nodes[:, None] + 1) / 2

    def is_rejected(m: float) -> bool:
        with np.errstate(divide="ignore"):
            logs = np.log(values * q / m + (1 - values) * (1 - q) / (1 - m)) @ counts
        return bool(np.log(weights / 2 @ np.exp(logs - logs.max())) + logs.max() >= -math.log(1 - LEVEL))

    estimate = float(x.mean())
    low, high = (_find_edge(is_rejected, estimate, end) for end in (0.0, 1.0))
    return Interval(low, estimate, high)


def performance_profile(tasks: Sequence[ArrayLike], thresholds: ArrayLike, resamples: int = RESAMPLES) -> Band:
    """The share of scores above each threshold, as a mean over tasks, with stratified bootstrap intervals.

    Scores may be infinite. Agarwal et al. 2021, section 4.2 (the run-score distribution), and Dolan
    and Moré 2002, https://arxiv.org/abs/cs/0102001
    """
    levels = _numbers(thresholds)
    return mean_band(*(task[:, None] > levels for task in _scores(tasks, finite=False)), resamples=resamples)


def resample_means(curves: np.ndarray, rng: np.random.Generator, resamples: int = RESAMPLES) -> np.ndarray:
    """Means over seeds `[resamples, points]` of curves `[seeds, points]`, whose seeds are drawn with replacement."""
    return _draw_counts(rng, len(curves), resamples) / len(curves) @ curves


def probability_of_improvement(ours: ArrayLike, theirs: ArrayLike, resamples: int = RESAMPLES) -> Interval:
    """How likely one of our seeds scores higher than one of theirs.

    It is P(X > Y) + P(X = Y) / 2, the Mann-Whitney U over its largest value; the bootstrap's interval
    draws both sides' seeds. Scores may be infinite: minus the episodes to solve, with -inf for a seed
    that never did, compares speed. Agarwal et al. 2021, section 4.3.
    """
    x, y = _scores([ours, theirs], finite=False)
    wins = (x[:, None] > y) + 0.5 * (x[:, None] == y)  # [our seeds, their seeds]
    estimate = float(wins.mean())
    if not _have_spread([x, y]):
        return Interval(None, estimate, None)
    rng = np.random.default_rng(SEED)
    of_ours, of_theirs = (_draw_counts(rng, seeds, resamples) for seeds in wins.shape)
    low, high = np.quantile((of_ours @ wins * of_theirs).sum(-1) / wins.size, TAILS)
    return Interval(float(low), estimate, float(high))


@dataclass(frozen=True, eq=False)
class KaplanMeier:
    """The share of seeds that have not solved a task yet, after each episode at which it may change.

    The curve is a step function, from 1 at episode 0; `low` and `high` are its 95% band.
    """

    solved_at: np.ndarray
    censored_at: np.ndarray
    episodes: np.ndarray
    unsolved: np.ndarray
    low: np.ndarray
    high: np.ndarray
    median: Interval

    @property
    def seeds(self) -> int:
        return len(self.solved_at) + len(self.censored_at)


def survival(solved_at: Sequence[float], censored_at: Sequence[float] = ()) -> KaplanMeier:
    """Episodes to solve: the seeds that have solved the task, and how long the others were run.

    The estimate is Kaplan and Meier's of 1958, with Greenwood's variance on the log(-log) scale for
    the band, which is NaN before the first solution (`scipy.stats.ecdf` gives the same, but takes half a
    second to import). Once all have solved the variance is undefined: the lower end is then 0 and, if
    none was censored, the upper the exact binomial bound for none of n.

    The median is where the curve passes one half: the middle of the stretch if it stays there, as
    for an ordinary median, and None if it ends at or above. Its interval is where the band holds
    one half (Brookmeyer and Crowley 1982, on the log(-log) scale): None for an end that is not
    reached. It needs 5 seeds, since all n lie above the median with probability 0.5**n; the upper
    end needs at least 6.
    """
    _numbers([*solved_at, *censored_at])
    solved, censored = np.array(solved_at, float), np.array(censored_at, float)
    seeds = len(solved) + len(censored)
    times = np.unique([*solved, *censored])
    at_risk, events = _count_at_risk(times, solved, censored)
    share = np.cumprod(1 - events / at_risk)
    with np.errstate(divide="ignore", invalid="ignore"):  # before the first solution and after the last
        log = np.log(share)
        spread = NORMAL.inv_cdf(TAILS[1]) * np.sqrt(np.cumsum(events / at_risk / (at_risk - events))) / -log
        low, high = (np.append(np.nan, np.exp(log * np.exp(sign * spread))) for sign in (1, -1))
    episodes, unsolved = np.append(0, times), np.append(1, share)
    if unsolved[-1] == 0 and seeds > 1:
        low[-1] = 0
        if not len(censored):
            high[-1] = 1 - TAILS[0] ** (1 / seeds)
    ends = (_first(episodes, low <= 0.5), _first(episodes, high <= 0.5))
    if 0.5**seeds > 1 - LEVEL:
        ends = (None, None)
    median = Interval(ends[0], _median(episodes, unsolved), ends[1])
    return KaplanMeier(solved, censored, episodes, unsolved, low, high, median)


def log_rank(a: KaplanMeier, b: KaplanMeier) -> float | None:
    """The two-sided p-value of the log-rank test that two curves are one (Mantel 1966).

    It is that of the normal approximation, rough below some ten solved seeds. None where the test
    says nothing: no seed solved, or all at the same episode.
    """
    solved = np.append(a.solved_at, b.solved_at)
    times = np.unique(solved)
    ours, _ = _count_at_risk(times, a.solved_at, a.censored_at)
    at_risk, events = _count_at_risk(times, solved, np.append(a.censored_at, b.censored_at))
    excess, variance = compare_events(len(a.solved_at), ours, at_risk, events)
    return None if variance == 0 else 2 * NORMAL.cdf(-abs(excess) / math.sqrt(variance))


def compare_events(solved: Any, ours: np.ndarray, at_risk: np.ndarray, events: np.ndarray) -> tuple[Any, Any]:
    """How many more seeds of one curve solved the task than if two were one, and the variance of that.

    Given are how many solved it, and at the times along the last axis how many were at risk, of this one and of
    both, and how many of both solved it.
    """
    share = ours / np.maximum(at_risk, 1)
    variance = (events * share * (1 - share) * (at_risk - events) / np.maximum(at_risk - 1, 1)).sum(-1)
    return solved - (events * share).sum(-1), variance


def smooth(values: ArrayLike, window: int, by: Literal["mean", "max"] = "mean") -> np.ndarray:
    """The mean, or the maximum, of the last `window` values up to each, along the last axis; of fewer at first."""
    curve = _numbers(values)
    before = [(0, 0)] * (curve.ndim - 1) + [(window - 1, 0)]
    padded = np.pad(curve, before, constant_values=0.0 if by == "mean" else -np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, window, axis=-1)
    if by == "max":
        return windows.max(-1)
    return windows.sum(-1) / np.minimum(np.arange(curve.shape[-1]) + 1, window)


def _find_edge(is_rejected: Callable[[float], bool], inside: float, outside: float) -> float:
    """Where between a number and an end of their range the rejected ones begin; the end if none are."""
    if inside == outside:
        return outside
    for _ in range(40):
        middle = (inside + outside) / 2
        inside, outside = (inside, middle) if is_rejected(middle) else (middle, outside)
    return outside


def _draw_counts(rng: np.random.Generator, seeds: int, resamples: int) -> np.ndarray:
    """How often each seed is drawn in each resample, `[resamples, seeds]`."""
    return rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples)


def _have_spread(tasks: Sequence[np.ndarray]) -> bool:
    return all(len(task) > 1 for task in tasks)


def _count_at_risk(times: np.ndarray, solved: np.ndarray, censored: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many seeds were run to each time without solving the task before, and how many solved it just then."""
    at_risk = (np.append(solved, censored) >= times[:, None]).sum(-1)
    return at_risk, (solved == times[:, None]).sum(-1)


def _first(episodes: np.ndarray, reached: np.ndarray) -> float | None:
    return float(episodes[reached.argmax()]) if reached.any() else None


def _median(episodes: np.ndarray, unsolved: np.ndarray) -> float | None:
    at_half = np.isclose(unsolved, 0.5)  # products of fractions are not exact
    after = _first(episodes, (unsolved < 0.5) & ~at_half)
    if not at_half.any() or after is None:
        return after
    return (float(episodes[at_half.argmax()]) + after) / 2


def _scores(tasks: Sequence[ArrayLike], finite: bool = True) -> list[np.ndarray]:
    """One array of scores per task."""
    scores = [_numbers(task, finite) for task in tasks]
    if any(task.ndim != 1 for task in scores):
        raise ValueError("scores must be one number per seed, [seed] for a task and [task][seed] for several")
    return scores


def _numbers(values: ArrayLike, finite: bool = True) -> np.ndarray:
    array = np.asarray(values, float)
    if not array.size or np.isnan(array).any() or (finite and np.isinf(array).any()):
        raise ValueError(f"expected {'finite ' if finite else ''}numbers, got none, NaN or infinity")
    return array
