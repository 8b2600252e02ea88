"""How many seeds would probably tell two configurations apart, if their difference is what it seems.

Seeds are drawn with replacement from those that were run, as many as are asked about, and tested; the share of such
draws in which the test finds a difference is its power. Few seeds say little of a difference, so the number is
rough: it says whether ten more seeds or a hundred are worth running.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from explore._analysis.statistics import NORMAL, SEED, TAILS, KaplanMeier, compare_events

DRAWS = 1000
WANTED = 0.8
MOST = 1000  # seeds of each that are considered
FEWEST = 3  # seeds of each that are drawn from

Test = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Whether two samples differ, given how often each seed of ours and of theirs is in them, `[draws, seeds]` each."""


def seeds_to_tell(test: Test, ours: int, theirs: int) -> int | None:
    """How many seeds of each a test needs to find the difference with probability 0.8; None if more than 1000.

    `ours` and `theirs` are the seeds that were run.
    """

    def suffices(seeds: int) -> bool:
        rng = np.random.default_rng(SEED)
        drawn = [rng.multinomial(seeds, np.full(count, 1 / count), size=DRAWS) for count in (ours, theirs)]
        return bool(test(*drawn).mean() >= WANTED)

    few, many = FEWEST, MOST
    if not suffices(many):
        return None
    while many - few > max(1, few // 50):
        middle = int((few * many) ** 0.5) if many > 2 * few else (few + many) // 2
        few, many = (few, middle) if suffices(middle) else (middle, many)
    return many


def log_rank_test(a: KaplanMeier, b: KaplanMeier) -> Test:
    """Of episodes to solve, seeds that did not censored."""
    times = np.unique(np.append(a.solved_at, b.solved_at))
    (risk_a, events_a), (risk_b, events_b) = _at_times(a, times), _at_times(b, times)

    def differ(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        solved, risk = ours @ events_a, ours @ risk_a
        excess, variance = compare_events(solved.sum(-1), risk, risk + theirs @ risk_b, solved + theirs @ events_b)
        return _is_far(excess, variance)

    return differ


def rank_test(ours: Sequence[float], theirs: Sequence[float]) -> Test:
    """Of scores: the Mann-Whitney test with the normal approximation, corrected for ties."""
    x, y = np.array(ours), np.array(theirs)
    wins = (x[:, None] > y) + 0.5 * (x[:, None] == y)
    levels = np.unique(np.append(x, y))

    def differ(of_ours: np.ndarray, of_theirs: np.ndarray) -> np.ndarray:
        n, m = of_ours.sum(-1), of_theirs.sum(-1)
        ties = of_ours @ (x[:, None] == levels) + of_theirs @ (y[:, None] == levels)
        total = n + m
        variance = n * m / 12 * (total + 1 - (ties**3 - ties).sum(-1) / (total * (total - 1)))
        return _is_far((of_ours @ wins * of_theirs).sum(-1) - n * m / 2, variance)

    return differ


def differ_as_they_are(test: Test, ours: int, theirs: int) -> bool:
    """Whether a test finds a difference between the seeds that were run."""
    return bool(test(np.ones((1, ours), int), np.ones((1, theirs), int))[0])


def _at_times(curve: KaplanMeier, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whether each seed is at risk, and solves the task, at each time, `[seeds, times]`."""
    last = np.append(curve.solved_at, curve.censored_at)[:, None]
    solves = np.arange(len(last)) < len(curve.solved_at)
    return (last >= times).astype(float), ((last == times) & solves[:, None]).astype(float)


def _is_far(excess: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return (variance > 0) & (np.abs(excess) > NORMAL.inv_cdf(TAILS[1]) * np.sqrt(np.maximum(variance, 0)))
