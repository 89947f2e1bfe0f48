"""Benjamini and Hochberg's procedure and Simes's test against their definitions, in exact fractions."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine.errors import InputError
from coalmine.statistics import benjamini_hochberg, simes

# Hundredths, so that p-values are often exactly at a limit.
P_VALUES = st.lists(st.integers(0, 100), min_size=1, max_size=12)


def shown_by_definition(hundredths, fdr):
    """All tests up to the largest k for which the k-th smallest p-value is at most k / m of the rate."""
    ordered = sorted(hundredths)
    passing = [p for k, p in enumerate(ordered, 1) if Fraction(p, 100) <= fdr * Fraction(k, len(ordered))]
    return tuple(bool(passing) and p <= max(passing) for p in hundredths)


@given(P_VALUES, st.integers(1, 99))
def test_what_is_shown_is_what_the_definition_shows(hundredths, percent):
    found = benjamini_hochberg([p / 100 for p in hundredths], percent / 100)
    assert found.shown == shown_by_definition(hundredths, Fraction(percent, 100))


@given(P_VALUES)
def test_adjusted_p_values_are_the_smallest_rates_at_which_each_is_shown(hundredths):
    found = benjamini_hochberg([p / 100 for p in hundredths], 0.05)
    tests = len(hundredths)
    # Every rate at which the answer can change.
    rates = sorted({Fraction(tests * p, 100 * k) for p in hundredths for k in range(1, tests + 1)})
    for place, adjusted in enumerate(found.adjusted):
        first = next(rate for rate in rates if shown_by_definition(hundredths, rate)[place])
        assert adjusted == pytest.approx(float(first))
    assert simes([p / 100 for p in hundredths]) == min(found.adjusted)


def test_limits_are_met_in_spite_of_rounding():
    for tests in range(1, 200):
        assert benjamini_hochberg([0.05 / tests] + [1.0] * (tests - 1), 0.05).shown[0]
        assert not benjamini_hochberg([0.0501 / tests] + [1.0] * (tests - 1), 0.05).shown[0]


def test_no_tests_show_nothing():
    assert benjamini_hochberg([], 0.05) == ((), ())
    with pytest.raises(InputError, match="at least one p-value"):
        simes([])


@pytest.mark.parametrize("wrong", [-0.01, 1.01, math.nan])
def test_what_is_no_probability_is_refused(wrong):
    for call in (lambda: benjamini_hochberg([0.5, wrong], 0.05), lambda: simes([0.5, wrong])):
        with pytest.raises(InputError, match="between 0 and 1"):
            call()
    with pytest.raises(InputError, match="fdr must be strictly between 0 and 1"):
        benjamini_hochberg([0.5], wrong)


def test_rates_of_0_and_1_are_refused():
    for rate in (0.0, 1.0):
        with pytest.raises(InputError, match="fdr must be strictly between 0 and 1"):
            benjamini_hochberg([0.5], rate)
