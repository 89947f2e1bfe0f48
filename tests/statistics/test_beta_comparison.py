"""One beta variable below a line in another: closed forms where one of them is uniform, kinks included."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betainc

from coalmine.statistics.beta_comparison import BetaPairs


def pairs(*parameters):
    return BetaPairs(*(np.array([one], dtype=np.float64) for one in parameters))


def mean_up_to(a, b, limit):
    """The part of the mean of a beta variable that is below a limit."""
    return a / (a + b) * betainc(a + 1, b, limit)


parameters = st.integers(1, 60)  # counts, as everywhere it is used


@settings(max_examples=150)
@given(parameters, parameters, st.floats(0.05, 6.0), st.floats(0.0, 0.9))
def test_a_uniform_variable_below_a_line(a, b, factor, delta):
    """P(G <= c F + d) is the mean of the line, cut off at 1."""
    kink = min(1.0, (1.0 - delta) / factor)
    share = betainc(a, b, kink)
    expected = factor * mean_up_to(a, b, kink) + delta * share + (1.0 - share)
    assert pairs(1, 1, a, b).probability_below(factor, delta)[0] == pytest.approx(expected, abs=1e-9)


@settings(max_examples=150)
@given(parameters, parameters, st.floats(0.05, 6.0), st.floats(0.0, 0.9))
def test_a_variable_below_a_line_in_a_uniform_one(a, b, factor, delta):
    """P(F >= (G - d) / c) is one minus the mean of the line, which is 0 below d and 1 from c + d on."""
    end = min(1.0, factor + delta)
    line = (
        (mean_up_to(a, b, end) - mean_up_to(a, b, delta))
        - delta * (betainc(a, b, end) - betainc(a, b, delta))
    ) / factor
    expected = 1.0 - line - (1.0 - betainc(a, b, end))
    # Where the line leaves [0, 1] at both ends, only one of the two kinks is a node's end.
    tolerance = 1e-9 if end == 1.0 else 2e-3
    assert pairs(a, b, 1, 1).probability_below(factor, delta)[0] == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("scale", [0.5, 3.0, 40.0, 3_000.0])
def test_two_alike_are_each_below_the_other_half_of_the_time(scale):
    found = pairs(2 * scale, 5 * scale, 2 * scale, 5 * scale)
    assert found.probability_below(1.0, 0.0)[0] == pytest.approx(0.5, abs=1e-9)
    assert found.probability_below_curve(lambda x: x, lambda x: x)[0] == pytest.approx(0.5, abs=1e-9)


@settings(max_examples=60)
@given(st.tuples(*[st.integers(1, 200)] * 4), st.floats(0.3, 3.0))
def test_a_power_of_one_variable_is_a_curve_and_so_is_its_inverse(parameters, power):
    """P(G <= F^p) and P(F <= G^(1/p)) are together one."""
    g_a, g_b, f_a, f_b = parameters
    below = pairs(g_a, g_b, f_a, f_b).probability_below_curve(lambda x: x**power, lambda x: x ** (1 / power))
    above = pairs(f_a, f_b, g_a, g_b).probability_below_curve(lambda x: x ** (1 / power), lambda x: x**power)
    assert below[0] + above[0] == pytest.approx(1.0, abs=1e-5)
