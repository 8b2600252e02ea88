"""How many seeds would tell two configurations apart, where it is known."""

import time

import numpy as np
import pytest
from scipy import stats

from explore._analysis.power import differ_as_they_are, log_rank_test, rank_test, seeds_to_tell
from explore._analysis.statistics import log_rank, survival


def exponential(mean, seeds):
    """As many values as seeds, which are spread as an exponential distribution is."""
    return mean * -np.log(1 - (np.arange(seeds) + 0.5) / seeds)


def test_two_exponentials_need_the_seeds_of_schoenfelds_formula():
    ratio, count = 2.0, 100
    curves = [survival(exponential(mean, count)) for mean in (100.0, 100.0 * ratio)]
    events = 4 * (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) ** 2 / np.log(ratio) ** 2  # of both; 65
    assert seeds_to_tell(log_rank_test(*curves), count, count) == pytest.approx(events / 2, rel=0.15)


def test_censored_seeds_count_by_what_they_would_solve():
    ratio, count, run = 2.0, 100, 60.0
    drawn = [exponential(mean, count) for mean in (100.0, 100.0 * ratio)]
    curves = [survival(times[times <= run], [run] * (times > run).sum()) for times in drawn]
    solved = np.mean([(times <= run).mean() for times in drawn])
    events = 4 * (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) ** 2 / np.log(ratio) ** 2
    assert seeds_to_tell(log_rank_test(*curves), count, count) == pytest.approx(events / 2 / solved, rel=0.15)


def test_two_shares_need_the_seeds_that_brute_force_says():
    ours, theirs = [1.0] * 7 + [0.0] * 3, [1.0] * 4 + [0.0] * 6
    needed = seeds_to_tell(rank_test(ours, theirs), 10, 10)
    seeds = np.arange(needed + 1)
    shares = [stats.binom.pmf(seeds, needed, share) for share in (0.7, 0.4)]
    k, m = seeds[:, None], seeds
    pooled = (k + m) / (2 * needed)
    variance = 2 * pooled * (1 - pooled) / (needed - 0.5)  # as of ranks: of hypergeometric, not binomial draws
    with np.errstate(divide="ignore", invalid="ignore"):
        differs = np.abs(k - m) / needed / np.sqrt(variance) > stats.norm.ppf(0.975)
    power = shares[0] @ differs @ shares[1]
    assert power == pytest.approx(0.8, abs=0.04)


def test_the_tests_are_those_of_the_table_and_of_scipy():
    rng = np.random.default_rng(0)
    for _ in range(30):
        times = [rng.integers(1, 12, size) for size in (6, 9)]
        curves = [survival(one[one < 9], one[one >= 9]) for one in times]
        assert differ_as_they_are(log_rank_test(*curves), 6, 9) == (log_rank(*curves) < 0.05)
        x, y = rng.integers(0, 4, 6), rng.integers(1, 6, 9)
        p = stats.mannwhitneyu(x, y, use_continuity=False, method="asymptotic").pvalue
        assert differ_as_they_are(rank_test(x, y), 6, 9) == (p < 0.05)


def test_the_same_seeds_twice_cannot_be_told_apart_by_a_thousand():
    curve = survival([3, 5, 8], [10, 10])
    assert seeds_to_tell(log_rank_test(curve, curve), 5, 5) is None
    assert seeds_to_tell(rank_test([1.0] * 5, [1.0] * 5), 5, 5) is None


def test_ten_configurations_take_less_than_a_second():
    curves = [survival(exponential(100 + 10 * number, 20)) for number in range(10)]
    started = time.process_time()
    assert all(seeds_to_tell(log_rank_test(curve, curves[0]), 20, 20) != 0 for curve in curves[1:])
    assert time.process_time() - started < 1
