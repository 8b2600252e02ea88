"""Thresholds of learning tests: numbers of successes that a measured rate leaves to chance once in 1,000 tests.

A rate that was measured as k of n seeds is uncertain itself: with a uniform prior it has the distribution
Beta(k + 1, n - k + 1), and the successes among other seeds are beta-binomial. Fixed seeds make a test
repeatable; they do not make it fair to changes that only draw other numbers.
"""

from __future__ import annotations

from scipy.stats import betabinom

RISK = 1e-3


def at_least(seeds: int, successes: int, measured: int) -> int:
    """The largest number that fewer than so many `seeds` reach with a chance below RISK."""
    found = betabinom(seeds, successes + 1, measured - successes + 1)
    return max(number for number in range(seeds + 1) if found.cdf(number - 1) < RISK)


def at_most(seeds: int, successes: int, measured: int) -> int:
    """The smallest number that more `seeds` exceed with a chance below RISK."""
    return seeds - at_least(seeds, measured - successes, measured)
