"""One beta variable below a line in another: closed forms where one of them is uniform, kinks included."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import betainc, betaincc
from scipy.stats import beta

from coalmine.statistics.epsilon.beta_comparison import BetaPairs


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


@pytest.mark.parametrize("factor", [0.6, 1.0, 1.7])
@pytest.mark.parametrize("narrow", [(3e5, 7e5), (5e6, 5e6)])
def test_one_that_is_narrow_by_far_is_still_integrated_where_it_is(narrow, factor):
    """Against a uniform one the closed forms hold, and against a wide one an integral over the narrow one alone."""
    a, b = narrow
    below = pairs(1, 1, a, b).probability_below(factor, 0.1)[0]
    assert below == pytest.approx(min(1.0, factor * a / (a + b) + 0.1), abs=2e-7)
    above = pairs(a, b, 1, 1).probability_below(factor, 0.1)[0]
    assert above == pytest.approx(1 - max(0.0, (a / (a + b) - 0.1) / factor), abs=2e-7)
    wide = (40.0, 61.0)
    middle, deviation = a / (a + b), np.sqrt(a * b / (a + b + 1)) / (a + b)
    ends = middle - 9 * deviation, middle + 9 * deviation
    density = beta(a, b).pdf
    expected = quad(lambda w: density(w) * betaincc(*wide, min(1.0, w / factor)), *ends, epsabs=1e-12)[0]
    assert pairs(a, b, *wide).probability_below(factor, 0.0)[0] == pytest.approx(expected, abs=2e-7)
    expected = quad(lambda u: density(u) * betainc(*wide, min(1.0, factor * u)), *ends, epsabs=1e-12)[0]
    assert pairs(*wide, a, b).probability_below(factor, 0.0)[0] == pytest.approx(expected, abs=2e-7)


@pytest.mark.parametrize("power", [0.5, 2.0])
@pytest.mark.parametrize("narrow", [(3e5, 7e5), (5e6, 5e6)])
def test_a_curve_in_one_that_is_narrow_by_far(narrow, power):
    a, b = narrow
    middle = a / (a + b)
    curve, inverse = (lambda x: x**power), (lambda x: x ** (1 / power))
    assert pairs(1, 1, a, b).probability_below_curve(curve, inverse)[0] == pytest.approx(
        middle**power, abs=1e-6
    )
    assert pairs(a, b, 1, 1).probability_below_curve(curve, inverse)[0] == pytest.approx(
        1 - middle ** (1 / power), abs=1e-6
    )
