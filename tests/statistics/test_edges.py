"""Answers where there is nothing to compute: no guess right, no canaries enough, scores that are all equal, an epsilon beyond all."""

import math

import numpy as np
import pytest

from coalmine.statistics import ThresholdCounts, membership_scores, paired_areas
from coalmine.statistics.epsilon.gaussian import curve_refuted
from coalmine.statistics.epsilon.lower_bounds import LARGEST_EPSILON, group_delta, largest_refuted
from coalmine.statistics.epsilon.one_run import Guesses, OneRunLadder, OneRunTest
from coalmine.statistics.epsilon.thresholds import ThresholdLadder


def test_no_right_guess_refutes_nothing():
    none = Guesses(20, 10, 0)
    assert not curve_refuted(none, 0.0, 0.5)
    for delta in (0.0, 0.01):
        assert OneRunTest(none).p_value(0.0, delta) == 1.0
    assert OneRunTest(none).averaged(0.0, 0.01) == 1.0


def test_at_an_epsilon_where_every_guess_is_right_right_guesses_are_no_surprise():
    every = OneRunTest(Guesses(6, 6, 6))
    assert [every.averaged(epsilon, 1e-6) for epsilon in (50.0, 300.0)] == [1.0, 1.0]
    assert every.averaged(30.0, 0.0) == pytest.approx(1.0, abs=1e-6)
    assert every.p_value(50.0, 1e-6) == pytest.approx(1.0)


@pytest.mark.parametrize("many", [1, 2])
def test_too_few_canaries_have_no_test_and_a_p_value_of_one(many):
    ladder = OneRunLadder(membership_scores(np.ones(many), np.zeros(many)), 0.0)
    assert ladder.tests == []
    assert ladder.p_value(0.0, 0.0) == 1.0


def test_no_epsilon_beyond_the_largest_is_refuted():
    counts = ThresholdCounts(hits=10**6, trials=10**6, errors=0, others=10**6)
    assert counts.refutes(1.0, 0.0, 0.95)
    assert not counts.refutes(math.nextafter(LARGEST_EPSILON, math.inf), 0.0, 0.95)
    ladder = ThresholdLadder(membership_scores(np.ones(50), np.zeros(50)))
    assert ladder.p_value(0.0, 0.0) < 1e-9
    assert ladder.p_value(LARGEST_EPSILON + 1.0, 0.0) == 1.0
    assert largest_refuted(lambda *_: True, 0.0) == LARGEST_EPSILON
    assert largest_refuted(lambda *_: True, 0.0, copies=4) == LARGEST_EPSILON / 4


def test_scores_of_which_none_is_above_the_others_refute_nothing():
    ladder = ThresholdLadder(membership_scores([0.0], [1.0]))
    assert ladder.p_value(0.0, 0.0) == 1.0


def test_scores_that_are_all_equal_are_in_the_same_order_as_any():
    level = ([1.0, 1.0], [1.0, 1.0])
    other = ([2.0, 1.0], [0.0, 3.0])
    for first, second in ((level, other), (other, level), (level, level)):
        assert paired_areas(first, second).rank_correlation == 1.0
    assert paired_areas(other, tuple(np.negative(side) for side in other)).rank_correlation == pytest.approx(
        -1.0
    )


@pytest.mark.parametrize(("epsilon", "copies"), [(0.0, 3), (0.5, 2), (1.0, 5), (2.0, 3)])
def test_the_delta_of_a_group_adds_up_record_by_record(epsilon, copies):
    expected = sum(1e-6 * math.exp(record * epsilon) for record in range(copies))
    assert group_delta(epsilon, 1e-6, copies) == pytest.approx(expected, rel=1e-9)
    assert group_delta(epsilon, 0.9, copies) == 1.0
    assert group_delta(epsilon, 0.0, copies) == 0.0
    assert group_delta(LARGEST_EPSILON, 1e-40, copies) == 1.0
