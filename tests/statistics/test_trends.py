"""Lines through rates: checked against numpy's own least squares, and their intervals by simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine.errors import InputError
from coalmine.randomness import arrays
from coalmine.statistics import log_linear_trend


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
    for _ in range(400):
        estimate = log_linear_trend(x, generator.binomial(sizes, truth), sizes).slope
        covered += estimate.low <= slope <= estimate.high
    # 0.95 less four standard errors of the simulation.
    assert covered / 400 >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / 400)


def test_r_squared_tells_a_line_from_noise():
    straight = log_linear_trend([1, 10, 100, 1000], [100, 200, 300, 400], [1000] * 4)
    assert straight.r_squared == pytest.approx(1)
    bent = log_linear_trend([1, 10, 100, 1000], [100, 400, 100, 400], [1000] * 4)
    assert bent.r_squared < 0.5
    assert bent.slope.low < 0 < bent.slope.high
    assert bent.p_value > 0.05
    assert "further from a smooth curve" in bent.slope.warnings[0]


def shown(trend):
    """Whether a trend is shown; the interval and the p-value say the same."""
    assert (trend.p_value <= 0.05) == (not trend.slope.low <= 0 <= trend.slope.high)
    return trend.p_value <= 0.05


def test_three_sizes_show_a_trend_that_is_there_and_none_that_is_not():
    generator = arrays(0, "test", "three sizes")
    sizes = [1000] * 3

    def share(rates, runs):
        return (
            sum(
                shown(log_linear_trend([1, 4, 16], generator.binomial(sizes, rates), sizes))
                for _ in range(runs)
            )
            / runs
        )

    assert share([0.05, 0.20, 0.50], 100) >= 0.9
    # 0.05 and four standard errors of the simulation.
    assert share([0.2, 0.2, 0.2], 400) <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 400)


def test_models_that_vary_from_training_to_training_are_told_from_a_trend_by_the_spread():
    generator = arrays(0, "test", "trainings")
    sizes, found = [1000] * 3, 0
    for _ in range(300):
        rates = 1 / (1 + np.exp(1.4 - generator.normal(0, 0.3, 3)))
        points = ([1, 4, 16], generator.binomial(sizes, rates), sizes)
        trend = log_linear_trend(*points, trained_apart=True)
        found += shown(trend)
        other = log_linear_trend(*points)
        assert other.p_value <= trend.p_value == other.p_value_with_spread
    assert found / 300 <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 300)


@pytest.mark.parametrize("together", [0.0, 0.2, 0.8, 1.0])
@pytest.mark.parametrize(("documents", "shared"), [(8, False), (50, False), (50, True)])
def test_clusters_that_agree_show_no_trend_and_cover_the_truth(documents, together, shared):
    """Of each document all 10 sequences agree with probability `together`; `shared` ones are asked at every point."""
    generator = arrays(0, "test", "clusters", str(together), documents)
    missed, naive, runs = 0, 0, 150
    for _ in range(runs):
        hits, clusters = [], []
        for point in range(3):
            agree, all_of_it = generator.random((2, documents)) < [[together], [0.2]]
            hits.append(int(generator.binomial(10, np.where(agree, all_of_it, 0.2)).sum()))
            clusters.append(np.repeat(np.arange(documents) + (0 if shared else point * documents), 10))
        points = ([1, 10, 100], hits, [10 * documents] * 3)
        missed += shown(log_linear_trend(*points, clusters=clusters))
        naive += shown(log_linear_trend(*points))
    assert missed / runs <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / runs)
    if together >= 0.8:
        assert naive / runs > 0.2


def test_each_trial_its_own_cluster_is_no_clusters_at_all():
    points = ([1, 10, 100], [1, 5, 9], [10, 20, 30])
    alone = [np.arange(10), np.arange(10, 30), np.arange(30, 60)]
    one, other = log_linear_trend(*points), log_linear_trend(*points, clusters=alone)
    assert one.slope.interval == pytest.approx(other.slope.interval)
    assert one.p_value == pytest.approx(other.p_value)
    with pytest.raises(InputError, match="cluster of each trial"):
        log_linear_trend(*points, clusters=[[1], [2], [3]])


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


def test_three_models_show_a_trend_by_size_that_is_strong():
    generator = arrays(0, "test", "three models")
    sizes, runs = [1000] * 3, 100
    found = sum(
        shown(
            log_linear_trend(
                [1, 4, 16], generator.binomial(sizes, [0.05, 0.2, 0.5]), sizes, trained_apart=True
            )
        )
        for _ in range(runs)
    )
    assert found / runs >= 0.8


def test_no_points_are_too_few_also_with_clusters():
    trend = log_linear_trend([], [], [], clusters=[])
    assert (trend.slope.status, trend.slope.n, trend.p_value) == ("not_measured", 0, None)
