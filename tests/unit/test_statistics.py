"""Numbers have intervals, the right ones, and none where there is none to have."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from explore._analysis.statistics import (
    Interval,
    confidence_sequence,
    iqm,
    log_rank,
    mean_band,
    mean_interval,
    performance_profile,
    probability_of_improvement,
    share_interval,
    smooth,
    stratified_bootstrap,
    survival,
)

# Weeks of remission of 42 patients (Freireich et al. 1963), the example of many textbooks.
TREATED = survival([6, 6, 6, 7, 10, 13, 16, 22, 23], [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35])
PLACEBO = survival([1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23])


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


# Interquartile mean


def test_the_interquartile_mean_drops_whole_scores_at_both_ends():
    assert iqm([9, 1, 2, 4]) == 3  # 2 and 4
    assert iqm([9, 1, 2, 4, 6]) == 4  # a quarter of 5 is 1: 2, 4 and 6
    assert iqm([1, 2, 9]) == 4  # a quarter of 3 is none
    assert iqm([7]) == 7


@pytest.mark.parametrize("count", range(1, 20))
def test_the_interquartile_mean_is_scipys_and_so_rliables(count):
    scores = normal(count, 3)
    assert iqm(scores.ravel()) == pytest.approx(stats.trim_mean(scores, 0.25, axis=None))
    np.testing.assert_allclose(iqm(scores, axis=0), stats.trim_mean(scores, 0.25, axis=0))
    np.testing.assert_allclose(iqm(scores.T, axis=-1), stats.trim_mean(scores.T, 0.25, axis=-1))


# Bootstrap


def exact(tasks, statistic):
    """The interval of all resamples there are, each as likely as any other."""
    draws = product(*(product(task, repeat=len(task)) for task in tasks))
    return np.quantile([statistic(np.concatenate(draw)) for draw in draws], [0.025, 0.975])


@pytest.mark.parametrize("statistic", [np.mean, np.median, iqm])
def test_a_bootstrap_interval_is_the_middle_of_all_resamples(statistic):
    scores = [0.0, 1.0, 2.0, 4.0, 8.0]
    low, estimate, high = stratified_bootstrap([scores], statistic, resamples=100_000)
    assert estimate == statistic(scores)
    assert (low, high) == pytest.approx(tuple(exact([scores], statistic)), abs=0.05)


def test_the_stratified_bootstrap_draws_within_each_task():
    tasks = [[0.0, 0.1, 0.2], [10.0, 10.5, 12.0, 13.0]]
    low, estimate, high = stratified_bootstrap(tasks, iqm, resamples=100_000)
    assert estimate == pytest.approx(stats.trim_mean(np.concatenate(tasks), 0.25))
    assert (low, high) == pytest.approx(tuple(exact(tasks, iqm)), abs=0.05)
    apart = [[0.0] * 5, [1.0] * 5]
    assert stratified_bootstrap(apart, np.mean) == (0.5, 0.5, 0.5), "what differs between tasks is not chance"


def test_a_bootstrap_interval_agrees_with_scipys():
    scores = normal(30)
    theirs = stats.bootstrap([scores], np.mean, method="percentile", rng=np.random.default_rng(1)).confidence_interval
    ours = mean_interval(scores)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.02)


@pytest.mark.parametrize("seeds, covered", [(5, 0.83), (10, 0.90), (20, 0.93)])
def test_intervals_hold_the_true_mean_as_often_as_the_module_says(seeds, covered):
    intervals = [mean_interval(scores) for scores in normal(1000, seeds, seed=1)]
    assert np.mean([i.low <= 0 <= i.high for i in intervals]) == pytest.approx(covered, abs=0.03)


def test_the_same_scores_give_the_same_interval():
    assert stratified_bootstrap([normal(7)], np.median) == stratified_bootstrap([normal(7)], np.median)


@pytest.mark.parametrize("successes, count", [(0, 5), (7, 20), (4, 5), (20, 20)])
def test_the_interval_of_a_share_is_wilsons(successes, count):
    theirs = stats.binomtest(successes, count).proportion_ci(method="wilson")
    ours = share_interval(successes, count)
    assert ours == pytest.approx((theirs.low, successes / count, theirs.high))


@pytest.mark.parametrize("successes, count", [(-1, 5), (6, 5), (0, 0)])
def test_more_successes_than_seeds_are_refused(successes, count):
    with pytest.raises(ValueError, match="successes must be from 0 to count"):
        share_interval(successes, count)


def test_one_seed_has_no_interval():
    nothing = (None, 3.0, None)
    assert mean_interval([3]) == nothing
    assert stratified_bootstrap([[3], [3, 3, 3]]) == nothing, "nor has a task among others"
    band = mean_band([[1.0, 2.0]])
    assert band.estimate.tolist() == [1, 2] and np.isnan([band.low, band.high]).all()
    assert probability_of_improvement([1], [0, 0]) == (None, 1.0, None)


def test_equal_scores_have_an_interval_without_width():
    assert mean_interval([0.1] * 5) == pytest.approx((0.1, 0.1, 0.1))
    assert stratified_bootstrap([[3] * 4], iqm) == Interval(3, 3, 3)


@pytest.mark.parametrize("bad", [[], [np.nan, 1.0], [np.inf, 1.0], [[1.0, 2.0]]])
def test_what_are_no_scores_is_refused(bad):
    with pytest.raises(ValueError):
        mean_interval(bad)
    with pytest.raises(ValueError):
        stratified_bootstrap([[1.0, 2.0], bad])


def test_nan_is_refused_everywhere():
    nan = [1.0, np.nan, 2.0]
    for call in (
        lambda: mean_interval(nan),
        lambda: mean_band([nan, nan]),
        lambda: performance_profile([nan], [0]),
        lambda: performance_profile([[1.0]], nan),
        lambda: probability_of_improvement(nan, [1.0]),
        lambda: survival(nan),
        lambda: survival([], nan),
        lambda: smooth(nan, 2),
    ):
        with pytest.raises(ValueError, match="NaN"):
            call()


# Curves


def test_a_band_is_the_bootstrap_of_each_point():
    curves = normal(12, 1100).cumsum(axis=1)
    band = mean_band(curves, resamples=8000)
    np.testing.assert_allclose(band.estimate, curves.mean(0))
    for point in (0, 700, 1099):
        alone = stratified_bootstrap([curves[:, point]], np.mean, resamples=8000)
        width = alone.high - alone.low
        assert (band.low[point], band.high[point]) == pytest.approx((alone.low, alone.high), abs=0.05 * width)


def test_curves_are_a_matrix():
    with pytest.raises(ValueError, match=r"\[seeds, points\]"):
        mean_band([1.0, 2.0])


def test_smoothing_looks_back():
    values = [4.0, 0.0, 2.0, 6.0]
    assert smooth(values, 2).tolist() == [4, 2, 1, 4]
    assert smooth(values, 3, by="max").tolist() == [4, 4, 4, 6]


def test_smoothing_goes_along_the_last_axis_and_takes_windows_longer_than_the_curve():
    curves = normal(3, 50)
    assert smooth(curves, 7)[1, 30] == pytest.approx(curves[1, 24:31].mean())
    assert smooth(curves, 1).tolist() == curves.tolist()
    np.testing.assert_allclose(smooth(curves, 100)[:, -1], curves.mean(1))
    assert smooth(-(curves**2), 100, by="max").max() < 0


# Several tasks


def test_a_performance_profile_is_the_share_of_scores_above_each_threshold():
    tasks = [[0.0, 0.5, 1.0, 1.0], [0.2, 0.4]]
    profile = performance_profile(tasks, [-1, 0, 0.4, 0.5, 1])
    # rliable's np.mean(scores > threshold), of each task: 1, 3/4, 3/4, 1/2, 0 and 1, 1, 0, 0, 0
    assert profile.estimate.tolist() == [1, 0.875, 0.375, 0.25, 0]
    assert (profile.low <= profile.estimate).all() and (profile.estimate <= profile.high).all()
    assert profile.low[0] == profile.high[0] == pytest.approx(1) and profile.low[-1] == profile.high[-1] == 0


def test_a_performance_profile_has_the_bands_of_its_shares():
    scores = normal(40)
    profile = performance_profile([scores, scores + 1], [0.5], resamples=20_000)
    p, q = (scores > 0.5).mean(), (scores + 1 > 0.5).mean()
    error = np.sqrt((p * (1 - p) + q * (1 - q)) / 40) / 2
    assert profile.high[0] - profile.low[0] == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_probability_of_improvement_counts_ties_by_half():
    assert probability_of_improvement([1, 2], [2, 0]).estimate == (0 + 1 + 0.5 + 1) / 4
    assert probability_of_improvement([1, 1], [1, 1]) == (0.5, 0.5, 0.5)
    assert probability_of_improvement([-100, -np.inf], [-np.inf, -np.inf]).estimate == 0.75


def test_probability_of_improvement_is_mann_whitneys_u():
    a, b = normal(6), normal(7, seed=2) - 0.5
    ours, theirs = probability_of_improvement(a, b), probability_of_improvement(b, a)
    assert ours.estimate == pytest.approx(stats.mannwhitneyu(a, b).statistic / (6 * 7))
    assert theirs.estimate == pytest.approx(1 - ours.estimate)
    assert 0 <= ours.low < ours.estimate < ours.high <= 1


def test_probability_of_improvement_has_the_interval_of_all_resamples():
    a, b = [1.0, 3.0, 5.0], [0.0, 2.0, 4.0, 4.5]
    draws = product(product(a, repeat=3), product(b, repeat=4))
    shares = [np.mean(np.array(x)[:, None] > np.array(y)) for x, y in draws]
    low, _, high = probability_of_improvement(a, b, resamples=100_000)
    assert (low, high) == pytest.approx(tuple(np.quantile(shares, [0.025, 0.975])), abs=0.01)


# Episodes to solve


def test_survival_gives_the_textbooks_curve_and_medians():
    after = dict(zip(TREATED.episodes.tolist(), TREATED.unsolved.tolist()))
    shares = {0: 1, 6: 0.857, 7: 0.807, 10: 0.753, 13: 0.690, 16: 0.627, 22: 0.538, 23: 0.448, 35: 0.448}
    assert {week: after[week] for week in shares} == pytest.approx(shares, abs=5e-4)
    assert TREATED.seeds == PLACEBO.seeds == 21
    assert TREATED.median == (13, 23, None)
    assert PLACEBO.median == (4, 8, 11)


def test_the_band_is_greenwoods_on_the_log_log_scale():
    """Of 10 seeds 3 have solved by episode 30: S = 0.7 and Greenwood's sum is 1/90 + 1/72 + 1/56."""
    curve = survival([10, 20, 30], [100] * 7)
    error = np.sqrt(1 / 90 + 1 / 72 + 1 / 56) / abs(np.log(0.7))
    assert curve.unsolved.tolist() == pytest.approx([1, 0.9, 0.8, 0.7, 0.7])
    assert curve.low[3] == pytest.approx(0.7 ** np.exp(1.959964 * error))
    assert curve.high[3] == pytest.approx(0.7 ** np.exp(-1.959964 * error))


def test_the_log_rank_test_gives_the_textbooks_p():
    assert log_rank(TREATED, PLACEBO) == pytest.approx(stats.chi2.sf(16.793, df=1), rel=1e-3)
    assert log_rank(PLACEBO, TREATED) == pytest.approx(log_rank(TREATED, PLACEBO))
    assert log_rank(TREATED, TREATED) == pytest.approx(1)


def test_without_censoring_the_median_is_the_ordinary_one():
    for count in range(1, 12):
        solved_at = np.round(1000 * np.random.default_rng(count).random(count))
        assert survival(solved_at).median.estimate == pytest.approx(np.median(solved_at))


def test_unsolved_seeds_are_slower_than_any_other():
    assert survival([100, 200, 300], [6000, 6000]).median.estimate == 300
    assert survival([100, 200], [6000] * 3).median.estimate is None
    assert survival([100, 200], [6000] * 2).median.estimate is None, "the third could be anything above 6,000"


def test_a_median_has_an_interval_from_five_seeds_on_and_an_upper_end_from_six():
    assert survival([100]).median == (None, 100, None)
    assert survival([100, 200, 300, 400]).median == (None, 250, None)
    assert survival([100, 200, 300, 400, 500]).median == (100, 300, None)
    assert survival([100, 200, 300, 400, 500, 600]).median == (100, 350, 600)


def test_one_seed_has_no_band():
    curve = survival([100])
    assert curve.unsolved.tolist() == [1, 0] and np.isnan([curve.low, curve.high]).all()


def test_where_no_seed_solved_there_is_no_median():
    curve = survival([], [6000] * 5)
    assert curve.median == (None, None, None)
    assert curve.episodes.tolist() == [0, 6000] and curve.unsolved.tolist() == [1, 1]


def test_where_all_solved_at_the_same_episode_that_is_the_median():
    assert survival([50] * 20).median == (50, 50, 50)
    assert survival([50] * 5).median == (50, 50, None)


def test_the_log_rank_test_says_nothing_where_nothing_differs():
    nobody, at_once = survival([], [6000] * 5), survival([50] * 5)
    assert log_rank(nobody, nobody) is None
    assert log_rank(at_once, at_once) is None
    assert log_rank(nobody, at_once) < 0.01


@pytest.mark.parametrize("seed", range(20))
def test_survival_and_the_log_rank_test_are_scipys(seed):
    rng = np.random.default_rng(seed)
    groups = [(rng.integers(1, 30, 3 + seed), rng.integers(1, 40, seed)) for _ in range(2)]
    references = [stats.CensoredData(uncensored=solved, right=censored) for solved, censored in groups]
    curves = [survival(*group) for group in groups]
    for curve, reference in zip(curves, references):
        expected = stats.ecdf(reference).sf
        band = expected.confidence_interval(method="log-log")
        assert (curve.episodes[1:] == expected.quantiles).all()
        assert curve.unsolved[1:] == pytest.approx(expected.probabilities)
        inside = curve.unsolved > 0  # at 0 the band is ours
        assert curve.low[inside][1:] == pytest.approx(band.low.probabilities[inside[1:]], nan_ok=True)
        assert curve.high[inside][1:] == pytest.approx(band.high.probabilities[inside[1:]], nan_ok=True)
    assert log_rank(*curves) == pytest.approx(stats.logrank(*references).pvalue)


def test_the_interval_of_the_median_holds_it():
    """Episodes to solve with an exponential distribution, of which those after 1.5 are not seen."""
    times, end, true = np.random.default_rng(0).exponential(size=(500, 10)), 1.5, np.log(2)
    held = 0
    for seeds in times:
        low, _, high = survival(seeds[seeds < end], [end] * int((seeds >= end).sum())).median
        held += (low is None or low <= true) and (high is None or true <= high)
    assert held / len(times) == pytest.approx(0.95, abs=0.03)


def test_survival_needs_a_seed():
    with pytest.raises(ValueError, match="got none"):
        survival([])


# Confidence sequences


def test_the_sequence_of_a_share_without_any_is_the_closed_form():
    for seeds in (1, 5, 40):  # none of n: the share p is rejected once (1 - p) ** n <= 0.05 / (n + 1)
        low, estimate, high = confidence_sequence([0] * seeds)
        assert (low, estimate) == (0, 0)
        assert high == pytest.approx(1 - (0.05 / (seeds + 1)) ** (1 / seeds))
        assert confidence_sequence([1] * seeds) == pytest.approx((1 - high, 1, 1))


@pytest.mark.parametrize("solved", [1, 7, 19])
def test_the_sequence_of_a_share_is_the_beta_binomial_mixture(solved):
    low, estimate, high = confidence_sequence([1] * solved + [0] * (20 - solved))
    assert estimate == solved / 20
    for share in (low, high):
        mixture = stats.betabinom.pmf(solved, 20, 1, 1) / stats.binom.pmf(solved, 20, share)
        assert mixture == pytest.approx(20)


SCORES = {
    "shares": lambda rng, size: (rng.random(size) < 0.3).astype(float),
    "beta": lambda rng, size: rng.beta(0.5, 1.5, size),
    "mostly none": lambda rng, size: rng.random(size) * (rng.random(size) < 0.1),
}
MEANS = {"shares": 0.3, "beta": 0.25, "mostly none": 0.05}


@pytest.mark.parametrize("name", SCORES)
def test_a_sequence_holds_the_mean_at_all_looks_at_once(name):
    rng, missed, trials = np.random.default_rng(0), 0, 150
    for _ in range(trials):
        scores = SCORES[name](rng, 40)
        looks = [confidence_sequence(scores[:seeds]) for seeds in (2, 4, 7, 12, 20, 40)]
        missed += any(not look.low <= MEANS[name] <= look.high for look in looks)
    assert missed / trials <= 0.05 + 2 * (0.05 * 0.95 / trials) ** 0.5


def test_a_sequence_is_wider_than_an_interval_for_one_look_but_not_by_much():
    for solved in range(21):
        low, _, high = confidence_sequence([1] * solved + [0] * (20 - solved))
        exact = stats.binomtest(solved, 20).proportion_ci()
        assert low <= exact.low + 1e-9
        assert exact.high - 1e-9 <= high
        assert high - low < 1.6 * (exact.high - exact.low)


def test_scores_that_vary_less_have_a_narrower_sequence_in_any_order():
    wide, narrow = confidence_sequence([0, 1] * 10), confidence_sequence([0.4, 0.6] * 10)
    assert wide.low < narrow.low < 0.5 < narrow.high < wide.high
    scores = np.random.default_rng(0).random(12)
    assert confidence_sequence(scores) == pytest.approx(confidence_sequence(np.sort(scores)))
    with pytest.raises(ValueError, match="scores must be from 0 to 1, got 0 to 2"):
        confidence_sequence([0, 2])
