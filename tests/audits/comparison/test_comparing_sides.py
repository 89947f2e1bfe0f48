"""Several trainings a side: how their utilities compare, what cannot be compared, and their place in the figure."""

import math

import numpy as np
import pytest
from scipy.stats import t as student
from scipy.stats import ttest_ind_from_stats

from audits.compared_runs import LESS, MORE, document, seeds, strategy, varied
from coalmine.audits import ComparisonOptions
from coalmine.audits.comparison.measure import compare, utility_relation
from coalmine.audits.comparison.records import Strategy, UtilityMeasure
from coalmine.statistics import run_difference
from reports.verdict_parts import interval


def side(name, values, grounds=None):
    """Trainings with these utilities."""
    grounds = grounds or [None] * len(values)
    runs = []
    for place, (value, ground) in enumerate(zip(values, grounds, strict=True)):
        measure = None
        if value is not None:
            estimate = interval(value, value, value, confidence=None)
            measure = UtilityMeasure(estimate, measured_on=ground)
        runs.append(Strategy(f"{name}{place}", document(LESS), measure, side=name))
    return runs


def relation(first, second, *, within=0.02, higher=False, grounds=(None, None)):
    sides = side("a", first, grounds[0]), side("b", second, grounds[1])
    return utility_relation(*sides, ComparisonOptions(equal_within=within, higher_is_better=higher))[0]


CLOSE = [2.000, 2.001, 2.002]


def test_utilities_are_equal_only_where_the_whole_interval_is_within_what_counts_as_equal():
    found = run_difference(CLOSE, [value + 0.001 for value in CLOSE], unit="").estimate
    widest = max(-found.low, found.high)
    other = [value + 0.001 for value in CLOSE]
    assert relation(CLOSE, other, within=widest) == "equal"
    assert relation(CLOSE, other, within=widest * 0.99) == "not told apart"
    assert relation(other, CLOSE, within=widest) == "equal"
    assert relation(other, CLOSE, within=widest * 0.99) == "not told apart"


def test_utilities_that_are_missing_or_of_other_documents_are_not_known():
    assert relation([2.0, None, 2.1], CLOSE) == "not known"
    assert relation(CLOSE, [None] * 3) == "not known"
    assert relation(CLOSE, CLOSE, grounds=(["x"] * 3, ["x", "y", "x"])) == "not known"
    # Where the user vouches for one, there is nothing to compare it with.
    assert relation(CLOSE, [9.0, 9.1, 9.2], grounds=(["x"] * 3, ["x", None, None])) == "first better"
    assert relation([2.0] * 3, [2.0] * 3) == "not told apart"  # without an interval


def test_the_difference_over_trainings_is_that_of_the_smaller_side():
    """Welch's error, with the degrees of freedom of the smaller side, which are never too many."""
    first, second = np.array([6.1, 6.6, 6.3, 6.0]), np.array([2.0, 2.9])
    found = run_difference(first, second)
    t = ttest_ind_from_stats(
        first.mean(), first.std(ddof=1), 4, second.mean(), second.std(ddof=1), 2, equal_var=False
    ).statistic
    assert found.p_value == pytest.approx(2 * student(1).sf(t))
    half = student(1).ppf(0.975) * (first.mean() - second.mean()) / t
    assert found.estimate.high - found.estimate.value == pytest.approx(half)
    limited = run_difference(first, second, most=7.0).estimate
    assert (limited.low, limited.high) == (found.estimate.low, 7.0)
    limited = run_difference(second, first, most=7.0).estimate
    assert (limited.low, limited.high) == (-7.0, -found.estimate.low)
    assert run_difference(second, first).p_value == pytest.approx(found.p_value)


def both(first, second):
    return compare([*first, *second])


def test_trainings_with_other_canaries_are_not_averaged():
    utilities = ["2.5", "2.51", "2.52"]
    one = seeds("a", [varied(MORE, seed) for seed in range(3)], utilities)
    mixed = [1] * 4 + [4] * 4
    other = [
        *seeds("b", [varied(LESS, seed) for seed in range(2)], utilities[:2]),
        strategy("b2", LESS, repetitions=mixed)._replace(side="b"),
    ]
    [pair] = both(one, other).pairs
    assert "different repetitions" in pair.problem
    unknown = [*other[:2], strategy("b2", [*LESS[:-1], None])._replace(side="b")]
    [pair] = both(one, unknown).pairs
    assert pair.problem.startswith("1 exposures have no value")
    # At each number of repetitions that all have, they can be compared.
    levels = [
        *(strategy(f"a{n}", varied(MORE, n), repetitions=mixed)._replace(side="a") for n in range(2)),
        *(strategy(f"b{n}", varied(LESS, n + 5), repetitions=mixed)._replace(side="b") for n in range(2)),
    ]
    [pair] = compare(levels).pairs
    assert set(pair.by_repetitions) == {"1", "4"}
    first = [np.mean([r.exposure for r in run.exposure.results][:4]) for run in levels]
    assert pair.by_repetitions["1"].estimate.value == pytest.approx(np.mean(first[:2]) - np.mean(first[2:]))


def test_a_side_stands_at_the_means_of_its_trainings():
    """The second side is better in the mean of both, although one of its trainings is worse than each of the first."""
    first = seeds("a", [[5.0] * 6, [5.0] * 6], ["2.5", "2.5"])
    second = seeds("b", [[2.0] * 6, [6.0] * 6], ["2.0", "2.8"])
    found = both(first, second)
    assert [run.on_frontier for run in found.runs] == [False, False, True, True]
    assert found.runs[0].dominated_by == ("b",)
    worse = seeds("b", [[4.0] * 6, [7.0] * 6], ["2.0", "2.8"])
    assert [run.on_frontier for run in both(first, worse).runs] == [True] * 4
    # One that has no place leaves its side without one.
    unknown = [second[0], second[1]._replace(utility=None)]
    assert {run.on_frontier for run in both(first, unknown).runs} == {None}
    assert math.isclose(found.runs[2].exposure.value, 2.0)
