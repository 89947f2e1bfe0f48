"""Where inputs begin to be refused, and that an error names the first that is wrong: the last value that is taken is tried too."""

import math

import numpy as np
import pytest

from coalmine.errors import CoalmineError
from coalmine.statistics import (
    ThresholdCounts,
    bounded_exposure,
    bounded_mean_interval,
    clopper_pearson,
    epsilon_fixed,
    exact_exposure,
    exposure_bits,
    fit_skew_normal,
    fit_tail,
    guided_exposures,
    holm,
    joint_beta_interval,
    log_linear_trend,
    median_estimate,
    membership_scores,
    one_run_bound,
    order_test,
    paired_areas,
    paired_difference,
    run_difference,
    shared_order_test,
    tpr_at_fpr,
    unpaired_difference,
)
from coalmine.statistics.epsilon.best import headline_test
from coalmine.statistics.epsilon.one_run import Guesses, OneRunTest, coin_problem
from coalmine.statistics.epsilon.thresholds import split_scores
from coalmine.statistics.intervals import cluster_sizes, effective_interval
from coalmine.statistics.scores import (
    canary_array,
    checked_confidence,
    checked_count,
    checked_delta,
    checked_epsilon,
    sample_array,
)

NAN = math.nan
FOUR = membership_scores([3.0, 4.0], [1.0, 2.0])


def guided(costs=(19.0, 25.0), weights=(3.0, 3.0), **options):
    given = {"log2_most_weight": [3.0], "known": [4], "most_rank": [12], "size": 1024, **options}
    return guided_exposures([20.0], costs, weights, **given)


def counts(*numbers):
    return joint_beta_interval(ThresholdCounts(*numbers))


def tail_of(fit_scores, bootstraps, level):
    return fit_tail(fit_scores, seed=0, bootstraps=bootstraps).estimate(1.0, 99, level)


REFUSED = {
    "a canary that is not finite": (lambda: canary_array([1.0, NAN, 2.0, math.inf]), "the canary at position 1 is nan"),
    "a canary with a name": (lambda: canary_array([1.0, NAN, 2.0, NAN], ["a", "b", "c", "d"]), "canary 'b' is nan"),
    "too few names": (lambda: canary_array([1.0, 2.0], ["a"]), "2 canary scores but 1 canary ids"),
    "samples that are not finite": (lambda: sample_array([1.0, math.inf, 2.0, NAN], "samples"), "2 of the 4 samples have.*first is inf, at position 1"),
    "no samples": (lambda: sample_array([], "samples"), "there are no samples"),
    "a table of samples": (lambda: sample_array([[1.0]], "samples"), "got 2 dimensions"),
    "no confidence": (lambda: checked_confidence(0.0), "got 0.0"),
    "all confidence": (lambda: checked_confidence(1.0), "got 1.0"),
    "a count of 0": (lambda: checked_count(0, "size"), "size must be at least 1, got 0"),
    "a delta of 1": (lambda: checked_delta(1.0), "got 1.0"),
    "a delta below 0": (lambda: checked_delta(-1e-9), "got -1e-09"),
    "an epsilon below 0": (lambda: checked_epsilon(-1e-9), "got -1e-09"),
    "an endless epsilon": (lambda: checked_epsilon(math.inf), "got inf"),
    "in scores that are not finite": (lambda: membership_scores([1.0, NAN, math.inf], [1.0]), "2 of the 3 in scores.*first is nan, at position 1"),
    "no out scores": (lambda: membership_scores([1.0], []), "there are no out scores"),
    "a table of out scores": (lambda: membership_scores([1.0], [[1.0]]), "out scores must be one row of numbers, got 2"),
    "a rank beyond the size": (lambda: exposure_bits(8, 7), "rank 8 of 7"),
    "a rank below its bounds": (lambda: exact_exposure(4, 9, least=5, most=6), "4 with 5 to 6"),
    "a rank above its bounds": (lambda: exact_exposure(7, 9, least=5, most=6), "7 with 5 to 6"),
    "a proven rank below its bounds": (lambda: bounded_exposure(3, 6, 9, rank=2), "2 with 3 to 6"),
    "a proven rank above its bounds": (lambda: bounded_exposure(3, 6, 9, rank=7), "7 with 3 to 6"),
    "nothing known": (lambda: bounded_exposure(0, 6, 9), "known 0, most_rank 6"),
    "more known than may be": (lambda: bounded_exposure(7, 6, 9), "known 7, most_rank 6"),
    "more than there are": (lambda: bounded_exposure(7, 10, 9), "most_rank 10 and size 9"),
    "weights below 0": (lambda: guided(weights=(1.0, -1.0)), "got -1 at position 1"),
    "weights above the limit": (lambda: guided((30.0, 19.0), (9.0, 4.0)), "canary at position 0 .*above 3, got 4 at position 1"),
    "a weight for each draw": (lambda: guided(weights=(1.0,)), "2 numbers, got shape"),
    "a limit that is not finite": (lambda: guided(log2_most_weight=[math.inf]), "got inf at position 0"),
    "known for each canary": (lambda: guided(known=[4, 5]), "1 thresholds but 2 of known"),
    "a value above 1": (lambda: bounded_mean_interval([0.5, 1.1, -0.2]), "got 1.1 at position 1"),
    "a value below 0": (lambda: bounded_mean_interval([0.5, 0.1, -0.2]), "got -0.2 at position 2"),
    "no values": (lambda: bounded_mean_interval([]), "at least one value"),
    "values in a table": (lambda: bounded_mean_interval([[0.1]]), "got 2 dimensions"),
    "more successes than trials": (lambda: clopper_pearson([1, 5, 9], [4, 4, 4]), "got 5 of 4"),
    "fewer than no successes": (lambda: clopper_pearson([1, -1, 9], 4), "got -1 of 4"),
    "no trials": (lambda: clopper_pearson(0, [3, 0]), "at least 1, got 0"),
    "half a success": (lambda: clopper_pearson(0.5, 3), "successes must be whole numbers"),
    "numbers beyond floats": (lambda: clopper_pearson(1, 2**53 + 2), "up to 2..53"),
    "a share above 1": (lambda: effective_interval(1.01, 3.0), "got 1.01"),
    "a share below 0": (lambda: effective_interval(-0.01, 3.0), "got -0.01"),
    "less than a trial": (lambda: effective_interval(0.5, 0.99), "got 0.99"),
    "no clusters": (lambda: cluster_sizes([]), "got an array of shape"),
    "clusters in a table": (lambda: cluster_sizes([[1, 2]]), "got an array of shape"),
    "no median": (lambda: median_estimate([], [], most=1.0), "got 0 and 0"),
    "half a median": (lambda: median_estimate([1.0, 2.0], [1.0], most=9.0), "got 2 and 1"),
    "a p-value above 1": (lambda: order_test([0.5, 1.01]), "between 0 and 1"),
    "a p-value below 0": (lambda: order_test([0.5, -0.01]), "between 0 and 1"),
    "no p-values": (lambda: order_test([]), "between 0 and 1"),
    "no canaries": (lambda: shared_order_test([], 9), "the 9 references"),
    "more references than there are": (lambda: shared_order_test([0, 10], 9), "the 9 references"),
    "fewer references than none": (lambda: shared_order_test([-1, 3], 9), "the 9 references"),
    "a weight of 0": (lambda: holm([0.1, 0.2], 0.05, [1.0, 0.0]), "above 0"),
    "an endless weight": (lambda: holm([0.1, 0.2], 0.05, [1.0, math.inf]), "above 0"),
    "a weight for each": (lambda: holm([0.1, 0.2], 0.05, [1.0]), "for 2 p-values"),
    "Holm above 1": (lambda: holm([0.1, 1.01], 0.05), "between 0 and 1"),
    "Holm below 0": (lambda: holm([0.1, -0.01], 0.05), "between 0 and 1"),
    "areas of other texts": (lambda: paired_areas(([1.0], [1.0]), ([1.0, 2.0], [1.0])), "the same texts"),
    "areas of nothing in": (lambda: paired_areas(([], [1.0]), ([], [1.0])), "the same texts"),
    "areas of nothing out": (lambda: paired_areas(([1.0], []), ([1.0], [])), "the same texts"),
    "an FPR of 0": (lambda: tpr_at_fpr([1.0], [0.0], 0.0), "got 0.0"),
    "an FPR of 1": (lambda: tpr_at_fpr([1.0], [0.0], 1.0), "got 1.0"),
    "an endless threshold": (lambda: epsilon_fixed([1.0], [0.0], math.inf), "got inf"),
    "nothing to choose on": (lambda: split_scores(FOUR, 0.0, 0), "got 0.0"),
    "nothing to count": (lambda: split_scores(FOUR, 1.0, 0), "got 1.0"),
    "more right than guessed": (lambda: OneRunTest(Guesses(9, 6, 7)), "got 7, 6 and 9"),
    "more guessed than there are": (lambda: OneRunTest(Guesses(9, 10, 7)), "got 7, 10 and 9"),
    "fewer than none right": (lambda: one_run_bound(9, 6, -1), "right must be at least 1, got 0"),
    "a coin that never says in": (lambda: coin_problem(FOUR, 0.0), "got 0.0"),
    "a coin that always says in": (lambda: coin_problem(FOUR, 1.0), "got 1.0"),
    "neither one nor many": (lambda: headline_test(FOUR, None, 0.0, 0, "two"), "'two'"),
    "more hits than trials": (lambda: counts(4, 3, 0, 2), "hits=4"),
    "fewer hits than none": (lambda: counts(-1, 3, 0, 2), "hits=-1"),
    "more errors than others": (lambda: counts(1, 3, 3, 2), "errors=3"),
    "fewer errors than none": (lambda: counts(1, 3, -1, 2), "errors=-1"),
    "numbers that are not finite": (lambda: paired_difference([1.0, NAN], [1.0, 2.0]), "the first numbers must be finite, got nan"),
    "half a pair": (lambda: paired_difference([1.0, 2.0], [1.0]), "got 2 and 1"),
    "half a stratum": (lambda: unpaired_difference([[1.0], [2.0]], [[1.0]]), "got 2 and 1"),
    "no strata": (lambda: unpaired_difference([], []), "got 0 and 0"),
    "one training": (lambda: run_difference([1.0], [2.0, 3.0]), "1 against 2 trainings"),
    "equal trainings": (lambda: run_difference([1.0, 1.0], [2.0, 2.0]), "equal to the last digit"),
    "19 scores": (lambda: fit_skew_normal(np.arange(19.0)), "19 scores"),
    "equal scores": (lambda: fit_skew_normal(np.full(30, 0.1)), "all 30 sample scores are equal"),
    "scores that are all 0": (lambda: fit_skew_normal(np.zeros(30)), "all 30 sample scores are equal"),
    "24 scores for a tail": (lambda: fit_tail(np.arange(24.0), seed=0), "24 sample scores.*at least 25"),
    "39 resamples": (lambda: tail_of(np.arange(25.0), 39, 0.95), "at least 40 bootstraps, but the fit has 39"),
    "a place of 0": (lambda: log_linear_trend([0, 1, 2], [1, 1, 1], [2, 2, 2]), "above 0"),
    "an endless place": (lambda: log_linear_trend([math.inf, 1, 2], [1, 1, 1], [2, 2, 2]), "above 0"),
    "a point without trials": (lambda: log_linear_trend([1, 2, 3], [0, 1, 1], [0, 2, 2]), "at least one trial"),
    "a point of too many": (lambda: log_linear_trend([1, 2, 3], [3, 1, 1], [2, 2, 2]), "no more successes"),
    "a point of fewer than none": (lambda: log_linear_trend([1, 2, 3], [-1, 1, 1], [2, 2, 2]), "no more successes"),
    "a point without a count": (lambda: log_linear_trend([1, 2, 3], [1, 1], [2, 2, 2]), "as many x"),
    "points without trials": (lambda: log_linear_trend([1, 2], [1, 1], [2, 2, 2]), "as many x"),
    "a table of points": (lambda: log_linear_trend([[1, 2, 3]], [[1, 1, 1]], [[2, 2, 2]]), "as many x"),
    "trials without clusters": (lambda: log_linear_trend([1, 2, 3], [1, 1, 1], [2, 2, 2], clusters=[[1, 2], [1, 2], [1]]), "cluster of each trial"),
}  # fmt: skip

TAKEN = {
    "no names": lambda: canary_array([1.0]),
    "a count of 1": lambda: checked_count(1, "size"),
    "a delta of 0": lambda: checked_delta(0.0),
    "an epsilon of 0": lambda: checked_epsilon(0.0),
    "the last rank": lambda: exposure_bits(7, 7),
    "a rank at its bounds": lambda: [
        exact_exposure(5, 9, least=5, most=6),
        exact_exposure(6, 9, least=5, most=6),
    ],
    "a proven rank at its bounds": lambda: [
        bounded_exposure(1, 9, 9, rank=1),
        bounded_exposure(1, 9, 9, rank=9),
    ],
    "weights of 0": lambda: guided(weights=(0.0, 0.0)),
    "weights at the limit": lambda: guided(weights=(3.0, 3.0)),
    "values of 0 and 1": lambda: bounded_mean_interval([0.0, 1.0]),
    "none and all of the trials": lambda: clopper_pearson([0, 4], 4),
    "as many trials as floats hold": lambda: clopper_pearson(1, 2**53),
    "shares of 0 and 1": lambda: [effective_interval(0.0, 1.0), effective_interval(1.0, 1.0)],
    "p-values of 0 and 1": lambda: [order_test([0.0, 1.0]), holm([0.0, 1.0], 0.05)],
    "no and all references": lambda: shared_order_test([0, 9], 9),
    "all guesses right, and none": lambda: [one_run_bound(9, 9, 9), one_run_bound(9, 0, 0)],
    "no and all hits": lambda: [counts(0, 3, 2, 2), counts(3, 3, 0, 2)],
    "two trainings": lambda: run_difference([1.0, 1.0], [2.0, 3.0]),
    "one pair": lambda: paired_difference([1.0], [2.0]),
    "20 scores": lambda: fit_skew_normal(np.arange(20.0)),
    "scores that nearly agree": lambda: fit_skew_normal(5.0 + 1e-9 * np.arange(30)),
    "25 scores for a tail": lambda: fit_tail(np.arange(25.0), seed=0, bootstraps=1),
    "20 resamples for 90%": lambda: tail_of(np.arange(25.0), 20, 0.9 - 1e-9),
    "no and all successes": lambda: log_linear_trend([1, 2, 3], [0, 1, 1], [1, 1, 1]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_refused_and_named(name):
    call, words = REFUSED[name]
    with pytest.raises(CoalmineError, match=words):
        call()


@pytest.mark.parametrize("name", TAKEN)
def test_the_last_that_is_not_wrong_is_taken(name):
    assert TAKEN[name]() is not None
