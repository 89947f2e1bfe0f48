"""Clopper-Pearson against its definition, in exact arithmetic and by enumeration of every outcome."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from coalmine.errors import InputError
from coalmine.statistics import clopper_pearson
from coalmine.statistics.intervals import effective_interval


@pytest.mark.parametrize(
    ("successes", "trials"), [(0, 1), (1, 1), (0, 10), (3, 10), (10, 10), (7, 1_000), (2, 10**6)]
)
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999999])
def test_each_limit_is_where_the_tail_probability_is_alpha_over_two(successes, trials, confidence):
    low, high = clopper_pearson(successes, trials, confidence)
    tail = (1 - confidence) / 2
    if successes > 0:
        assert binom.sf(successes - 1, trials, low) == pytest.approx(tail, rel=1e-9)
    else:
        assert low == 0.0
    if successes < trials:
        assert binom.cdf(successes, trials, high) == pytest.approx(tail, rel=1e-6)
    else:
        assert high == 1.0


def test_tiny_limits_keep_their_digits():
    with mpmath.workdps(40):
        n, tail = 10**12, (1 - mpmath.mpf(0.95)) / 2
        exact_low = 1 - (1 - tail) ** (mpmath.mpf(1) / n)
        exact_high = 1 - tail ** (mpmath.mpf(1) / n)
    assert clopper_pearson(1, n)[0] == pytest.approx(float(exact_low), rel=1e-13)
    assert clopper_pearson(0, n)[1] == pytest.approx(float(exact_high), rel=1e-13)
    # A low limit that is not at an end: P(X >= 5 | low) must be the tail, which to first order is (n low)^5 / 5! ...
    low = clopper_pearson(5, n, 0.999999999)[0]
    mean = mpmath.mpf(low) * n
    at_least_five = 1 - mpmath.exp(-mean) * sum(mean**k / mpmath.factorial(k) for k in range(5))
    assert float(at_least_five) == pytest.approx((1 - 0.999999999) / 2, rel=1e-6)


@pytest.mark.parametrize("trials", [1, 2, 7, 40])
def test_covers_at_least_nominally_whatever_the_probability(trials):
    low, high = clopper_pearson(np.arange(trials + 1), trials, 0.9)
    for p in np.linspace(0.0, 1.0, 401):
        outcomes = binom.pmf(np.arange(trials + 1), trials, p)
        assert outcomes[(low <= p) & (p <= high)].sum() >= 0.9 - 1e-12


@given(
    st.integers(1, 10**6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
    st.floats(0.001, 0.999),
)
def test_holds_the_proportion_and_mirrors(counts, confidence):
    successes, trials = counts
    low, high = clopper_pearson(successes, trials, confidence)
    assert 0.0 <= low <= float(Fraction(successes, trials)) <= high <= 1.0
    mirrored_low, mirrored_high = clopper_pearson(trials - successes, trials, confidence)
    assert mirrored_low == pytest.approx(1.0 - high, abs=1e-12)
    assert mirrored_high == pytest.approx(1.0 - low, abs=1e-12)


def test_a_share_of_whole_successes_has_their_interval_to_the_last_digit():
    # 1 / 49 * 49 is below 1, as many others are not what they were before the division.
    for trials in (10, 49, 103):
        for successes in range(trials + 1):
            assert effective_interval(successes / trials, trials) == clopper_pearson(successes, trials)


def test_arrays_broadcast_and_scalars_stay_scalars():
    low, high = clopper_pearson([[0], [5]], [10, 20, 30])
    assert low.shape == high.shape == (2, 3)
    assert (low[1, 2], high[1, 2]) == clopper_pearson(5, 30)
    assert all(type(limit) is float for limit in clopper_pearson(5, 30))
    assert all(type(limit) is float for limit in clopper_pearson(np.int64(5), np.int64(30)))


@pytest.mark.parametrize(
    ("successes", "trials", "confidence"),
    [(-1, 10, 0.95), (11, 10, 0.95), (0, 0, 0.95), (1.5, 10, 0.95), (1, math.nan, 0.95), ("a", 10, 0.95)]
    + [(1, 10, level) for level in (0.0, 1.0, -1.0, math.nan)],
)
def test_refuses_what_is_no_proportion(successes, trials, confidence):
    with pytest.raises(InputError):
        clopper_pearson(successes, trials, confidence)
