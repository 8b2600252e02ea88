"""The thresholds of learning tests, against chances by hand and by drawing."""

import numpy as np
import pytest
from rates import RISK, at_least, at_most


def test_a_rate_that_is_known_well_gives_a_binomial_threshold():
    # of 5 at a rate of 0.9: P(X < 2) = 0.1^5 + 5 0.9 0.1^4 = 0.00046, P(X < 3) = 0.0086
    assert at_least(5, successes=900_000, measured=1_000_000) == 2


def test_a_rate_that_was_measured_with_few_seeds_promises_little():
    # 1 of 20 successes: P(X = 0 of 5) = 0.7, so nothing can be said of every seed
    assert at_least(5, successes=1, measured=20) == 0
    assert at_most(5, successes=1, measured=20) == 4
    assert at_least(5, successes=3, measured=3) == 0


@pytest.mark.parametrize(("seeds", "successes", "measured"), [(5, 20, 20), (10, 15, 20), (5, 37, 40), (20, 4, 20)])
def test_chance_misses_them_less_than_once_in_a_thousand(seeds, successes, measured):
    random = np.random.default_rng(0)
    found = random.binomial(seeds, random.beta(successes + 1, measured - successes + 1, 1_000_000))
    for missed, one_further in (
        (found < at_least(seeds, successes, measured), found < at_least(seeds, successes, measured) + 1),
        (found > at_most(seeds, successes, measured), found > at_most(seeds, successes, measured) - 1),
    ):
        assert missed.mean() < RISK + 2e-4
        assert one_further.mean() > RISK - 2e-4
