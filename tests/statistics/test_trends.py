"""Lines through rates: checked against numpy's own least squares, and their intervals by simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine.errors import InputError
from coalmine.randomness import arrays
from coalmine.statistics.trends import log_linear_trend


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 10**6), st.integers(1, 500), st.floats(0, 1)),
        min_size=3,
        max_size=8,
        unique_by=lambda point: point[0],
    )
)
def test_the_line_is_that_of_weighted_least_squares(points):
    x = [point[0] for point in points]
    trials = [point[1] for point in points]
    successes = [round(share * n) for _, n, share in points]
    trend = log_linear_trend(x, successes, trials)
    rates = np.array(successes) / np.array(trials)
    slope, intercept = np.polyfit(np.log10(x), rates, 1, w=np.sqrt(trials))
    assert trend.slope.value == pytest.approx(slope, abs=1e-7)
    assert trend.intercept == pytest.approx(intercept, abs=1e-6)
    assert trend.slope.low < trend.slope.value < trend.slope.high
    assert trend.rate_at(10) == pytest.approx(slope + intercept, abs=1e-6)


@pytest.mark.parametrize(
    ("intercept", "slope", "sizes"),
    [
        (0.02, 0.05, [1000] * 10),
        (0.1, 0.0, [50, 500, 50, 500]),
        (0.001, 0.0, [200, 200, 200]),
        (0.0, 0.3, [40, 30, 20, 10]),
    ],
)
def test_the_interval_of_the_slope_covers_the_truth(intercept, slope, sizes):
    generator = arrays(0, "test", "trend", str(slope))
    x = 2.0 ** np.arange(len(sizes))
    truth = intercept + slope * np.log10(x)
    covered = 0
    for _ in range(800):
        estimate = log_linear_trend(x, generator.binomial(sizes, truth), sizes).slope
        covered += estimate.low <= slope <= estimate.high
    # 0.95 less four standard errors of the simulation.
    assert covered / 800 >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / 800)


def test_r_squared_tells_a_line_from_noise():
    straight = log_linear_trend([1, 10, 100, 1000], [100, 200, 300, 400], [1000] * 4)
    assert straight.r_squared == pytest.approx(1)
    bent = log_linear_trend([1, 10, 100, 1000], [100, 400, 100, 400], [1000] * 4)
    assert bent.r_squared < 0.5
    assert bent.slope.low < 0 < bent.slope.high


def test_nothing_recited_is_a_flat_line_of_some_width_and_no_r_squared():
    trend = log_linear_trend([1, 10, 100], [0, 0, 0], [10, 10, 10])
    assert trend.slope.value == 0
    assert trend.slope.low < -0.05
    assert trend.slope.high > 0.05
    assert trend.r_squared is None


def test_two_different_x_are_no_trend():
    trend = log_linear_trend([1, 1, 10], [1, 2, 3], [10, 10, 10])
    assert trend.slope.status == "not_measured"
    assert trend.slope.value is trend.intercept is trend.r_squared is trend.rate_at(3) is None


@pytest.mark.parametrize(
    "points",
    [
        ([0, 1, 2], [1, 1, 1], [2, 2, 2]),
        ([1, 2, 3], [1, 1, 3], [2, 2, 2]),
        ([1, 2, 3], [0, 0, 0], [2, 0, 2]),
        ([1, 2], [0, 0, 0], [2, 1, 2]),
    ],
)
def test_what_is_no_rate_is_refused(points):
    with pytest.raises(InputError):
        log_linear_trend(*points)
