"""The median of numbers that are known within limits, and which order statistics its interval ends at."""

import numpy as np
import pytest
from scipy.stats import binom

from coalmine.errors import InputError
from coalmine.statistics import median_estimate


def test_a_median_is_known_only_where_its_limits_leave_nothing_open():
    open_one = median_estimate([1, 2, 3, 4, 5], [1, 2, 3.5, 4, 5], most=10)
    assert (open_one.status, open_one.value, open_one.high >= 3.5) == ("lower_bound", None, True)
    assert "at least 3.00" in open_one.statement
    # What is open about others does not matter.
    known = median_estimate([1, 2, 3, 4, 0], [1, 2, 3, 10, 2.5], most=10)
    assert (known.status, known.value) == ("lower_bound", None)
    known = median_estimate([1, 2, 3, 4, 5], [1, 2, 3, 10, 10], most=10)
    assert (known.status, known.value) == ("measured", 3.0)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("n", [1, 5, 6, 7, 30, 101])
def test_the_interval_is_the_shortest_of_order_statistics_that_holds(n, confidence):
    """The k-th lowest is above the median with the probability that fewer than k of n coins fall below it."""
    numbers = np.arange(1.0, n + 1)
    found = median_estimate(numbers, numbers, most=n + 5.0, confidence=confidence)
    allowed = (1 - confidence) / 2
    outside = max((k for k in range(1, n + 1) if binom.cdf(k - 1, n, 0.5) <= allowed), default=0)
    expected = (float(outside), n + 1.0 - outside) if outside else (0.0, n + 5.0)
    assert (found.low, found.high) == expected
    assert bool(found.warnings) == (not outside)


def test_limits_must_come_in_pairs_and_there_must_be_some():
    for lows, highs in (([], []), ([1.0], [1.0, 2.0])):
        with pytest.raises(InputError):
            median_estimate(lows, highs, most=9)
