"""The same scores give the same numbers as in earlier versions: estimates, limits, p-values, and the sentences that say them."""

from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtri

from coalmine.statistics import (
    CoinScores,
    RandomGuessing,
    SkewNormal,
    ThresholdCounts,
    area_under_roc,
    bounded_exposure,
    bounded_mean_interval,
    clopper_pearson,
    clustered_interval,
    compare_with_guessing,
    epsilon_best,
    epsilon_ceiling,
    epsilon_f_dp,
    epsilon_fixed,
    epsilon_gaussian,
    epsilon_independent,
    epsilon_ladder,
    epsilon_one_run,
    epsilon_split,
    exact_exposure,
    fit_skew_normal,
    fit_tail,
    gaussian_epsilon,
    guided_exposures,
    holm,
    joint_beta_interval,
    judge_claim,
    log_linear_trend,
    median_estimate,
    membership_scores,
    note_epsilon,
    one_run_bound,
    order_test,
    paired_areas,
    paired_difference,
    reference_exposures,
    run_difference,
    sampled_exposures,
    shared_order_test,
    tpr_at_fpr,
    tpr_band,
    tpr_p_value,
    unpaired_difference,
)
from coalmine.statistics.epsilon.one_run import Guesses, OneRunTest
from coalmine.statistics.epsilon.thresholds import chosen_rule, split_scores
from coalmine.statistics.exposure.bounded_mean import sparse_mean_interval
from coalmine.statistics.exposure.minimization import minimize_bounded
from coalmine.statistics.exposure.skew_normal_fit import group_scores
from coalmine.statistics.exposure.splitting import SplittingRun, SplittingRuns, splitting_exposures
from coalmine.statistics.intervals import effective_interval
from recorded import assert_as_recorded

FILE = Path(__file__).with_name("recorded_numbers.json")


def normal(n, mean=0.0, deviation=1.0):
    """The quantiles of a normal distribution: scores without chance, in an order that says nothing about them."""
    places = (np.arange(n) * 7 % n if n % 7 else np.arange(n)) + 0.5
    return mean + deviation * ndtri(places / n)


def skewed(n, sign=1.0):
    return 20.0 + sign * normal(n) ** 3 + 2.0 * normal(n) + np.exp(sign * normal(n))


def sides(m, n, apart=1.5):
    return normal(m, apart), normal(n)


def tied(m, n, apart=1.5):
    return tuple(np.round(side) for side in sides(m, n, apart))


def splitting_runs(runs, particles, levels, floor):
    """Costs are ranks: below each level the particles are spread evenly, each run a little differently, and never below `floor`."""
    made = []
    for run in range(runs):
        tops = np.array([1024.0, *levels])
        spread = ((np.arange(particles) + 0.5) / particles) ** (1.0 + 0.1 * run)
        costs = np.maximum(np.floor(tops[:, None] * spread), floor)
        for stage, level in enumerate(levels):
            if not (costs[stage] <= level).any():
                costs[stage + 1 :] = np.inf
        known = costs <= 3.0
        lines = np.tile(np.arange(particles, dtype=np.int32) // 3, (len(tops), 1))
        made.append(SplittingRun(costs, known, lines))
    return SplittingRuns(made, levels)


def splitting(cost, **options):
    levels = [float(2**power) for power in range(9, 1, -1)]
    runs = splitting_runs(6, 24, levels, options.pop("floor", 0.0))
    given = {"known": [0], "proven": [1], "complete": [True], "size": 1024, "scored": 500, **options}
    return splitting_exposures([cost], runs, **given)


def guided(**options):
    costs, weights = normal(40, 22.0, 3.0), 4.0 + np.abs(normal(40)[::-1])
    given = {
        "log2_most_weight": [9.0, 9.0, 9.0],
        "known": [4, 1, 30],
        "most_rank": [500, 12, 30],
        "size": 1024,
    }
    return guided_exposures([20.0, 10.0, 30.0], costs, weights, **{**given, **options})


def minimized(start, bounds, curvature):
    """Where a bent valley is lowest within bounds, and how often it was asked about until that was known."""
    asked = []

    def valley(x):
        asked.append(x)
        a, b = x[1] - x[0] ** 2, 1 - x[0]
        return float(10 * a * a + b * b), np.array([-40 * a * x[0] - 2 * b, 20 * a])

    place, value = minimize_bounded(valley, np.array(start), np.array(bounds), np.array(curvature), 1e-8)
    return place, value, len(asked)


CASES = {
    "exact exposures": lambda: [exact_exposure(7, 10**6), exact_exposure(4, 1000, least=3, most=9)],
    "sampled exposures": lambda: sampled_exposures(
        [5.0, 27.3, 30.0, 36.0, 60.0], normal(50, 30, 4), 700, 0.9
    ),
    "sampled exposures of few": lambda: sampled_exposures([5.0, 50.0], [30.0], 3),
    "exposures among references": lambda: reference_exposures(
        [5.0, 27.3, 30.0, 60.0], normal(50, 30, 4), 0.99
    ),
    "exposures among one": lambda: reference_exposures([5.0, 50.0], [30.0]),
    "bounded exposures": lambda: [
        bounded_exposure(3, 700, 10**12),
        bounded_exposure(9, 9, 1000),
        bounded_exposure(2, 5, 7, rank=3),
    ],
    "guided exposures": guided,
    "guided exposures near the resolution": lambda: guided(
        resolutions=[0.5, 0.1, 1.0], known_near=[(2, 6), (1, 3), (28, 30)]
    ),
    "guided exposures without draws": lambda: guided_exposures(
        [20.0], [], [], log2_most_weight=[3.0], known=[4], most_rank=[12], size=99
    ),
    "splitting, among the first": lambda: splitting(700.0),
    "splitting, among the levels": lambda: splitting(100.0, known=[4], proven=[5]),
    "splitting, at a level": lambda: splitting(256.0),
    "splitting, many known": lambda: splitting(5.0, known=[4], proven=[4]),
    "splitting, only the known": lambda: splitting(2.0, known=[3], proven=[3]),
    "splitting, not reached": lambda: splitting(6.0, floor=40.0, known=[2], proven=[4]),
    "splitting, not complete": lambda: splitting(6.0, floor=40.0, complete=[False], confidence=0.8),
    "splitting, low confidence": lambda: splitting(6.0, floor=40.0, complete=[False], confidence=0.4),
    "splitting, more proven than seen": lambda: splitting(100.0, proven=[900]),
    "a median": lambda: [median_estimate(np.arange(n), np.arange(n), most=50.0) for n in (1, 5, 6, 7, 8, 30)],
    "a median within limits": lambda: median_estimate(
        np.arange(9), np.arange(9) + 0.5, most=50.0, confidence=0.8, unit="points"
    ),
    "an epsilon of the note": lambda: [
        note_epsilon(compare_with_guessing(*sides(9, 40)).median, copies) for copies in (1, 3)
    ],
    "guessing": lambda: [compare_with_guessing(*tied(m, 25)) for m in (1, 2, 7, 8)],
    "guessing among many": lambda: [RandomGuessing(n, 3).mean_bits() for n in (1, 2, 99, 10**6, 10**6 + 1)],
    "guessed quantiles": lambda: [
        RandomGuessing(n, 1).quantile_bits(share) for n in (9, 10) for share in (0.0, 0.1, 0.5, 0.9, 1.0)
    ],
    "chances of places": lambda: [
        RandomGuessing(9, 4).chance_of(place, better) for place in (1, 2, 4) for better in (0, 3, 9)
    ],
    "order tests": lambda: [order_test([0.02, 0.03, 0.04, 0.5, 1.0, 0.0004][:n]) for n in range(1, 7)],
    "order tests among references": lambda: [
        shared_order_test([0, 1, 3, 9, 40][:n], 40) for n in range(1, 6)
    ],
    "Holm": lambda: holm([0.01, 0.04, 0.03, 0.0004, 1.0], 0.05, [1.0, 2.0, 0.5, 1.0, 3.0]),
    "Clopper and Pearson": lambda: [
        clopper_pearson([0, 1, 2, 9, 10], 10, level) for level in (0.5, 0.95, 0.999)
    ],
    "effective trials": lambda: [effective_interval(share, 7.5) for share in (0.0, 0.1, 0.4, 1.0)],
    "clusters": lambda: [clustered_interval(hits, [1, 1, 2, 3, 3, 3], 0.9) for hits in (0, 1, 4, 6)],
    "paired areas": lambda: paired_areas(tied(12, 9), tied(12, 9, 0.5)),
    "areas": lambda: [area_under_roc(*tied(m, n), 0.9) for m, n in ((1, 1), (9, 12), (10, 30))],
    "areas that are perfect": lambda: [area_under_roc(*sides(12, 15, apart)) for apart in (9.0, -9.0)],
    "TPR at FPR": lambda: [
        tpr_at_fpr(*sides(60, n), fpr, 0.9) for n in (30, 200) for fpr in (0.01, 0.05, 0.1, 0.5)
    ],
    "TPR with ties": lambda: [tpr_at_fpr(*tied(20, 100), fpr) for fpr in (0.02, 0.25)],
    "TPR bands": lambda: [
        tpr_band(*sides(m, n), [0.002, 0.03, 0.2, 0.7, 0.99], 0.9) for m, n in ((3, 40), (80, 900))
    ],
    "TPR p-values": lambda: [tpr_p_value(*sides(20, n), fpr) for n in (10, 100) for fpr in (0.01, 0.1, 0.3)],
    "epsilon at a threshold": lambda: [
        epsilon_fixed(*sides(90, 80), at, delta=d, copies=c)
        for at in (0.5, 9.0)
        for d, c in ((0.0, 1), (1e-3, 3))
    ],
    "epsilon by splitting": lambda: [
        epsilon_split(*sides(m, n, apart), delta=1e-3, confidence=0.8)
        for m, n, apart in ((2, 2, 9.0), (120, 90, 2.0), (70, 120, -2.0))
    ],
    "epsilon by splitting too few": lambda: epsilon_split([1.0], [0.0, 0.5]),
    "how scores are split": lambda: [
        split_scores(membership_scores(*sides(n, 5)), 0.2, 3) for n in (2, 3, 11)
    ],
    "the threshold that is chosen": lambda: [
        chosen_rule(membership_scores(*sides(m, n, apart)), membership_scores(*sides(50, 400)), delta=d)
        for m, n, apart, d in ((9, 9, 1.0, 0.0), (40, 30, 3.0, 0.01), (30, 40, 0.2, 0.3), (25, 9, -1.0, 0.0))
    ],
    "epsilon by a ladder": lambda: [
        epsilon_ladder(*sides(m, n, apart), delta=d)
        for m, n, apart, d in ((1, 1, 9.0, 0.0), (8, 9, 9.0, 0.0), (60, 70, 2.0, 1e-3), (70, 300, -2.0, 0.0))
    ],
    "epsilon by a ladder with ties": lambda: [
        epsilon_ladder(*tied(60, 70), copies=2, seed=seed) for seed in (0, 1)
    ],
    "p-values of guesses": lambda: [
        OneRunTest(Guesses(m, r, v)).p_value(e, d)
        for m, r, v in ((9, 6, 0), (9, 6, 5), (60, 20, 20), (60, 60, 45))
        for e, d in ((0.0, 0.0), (0.5, 1e-3), (3.0, 1e-2))
    ],
    "averaged guesses": lambda: [
        OneRunTest(Guesses(m, r, v)).averaged(e, d)
        for m, r, v in ((9, 6, 0), (9, 6, 5), (60, 60, 45))
        for e, d in ((0.0, 0.0), (0.5, 1e-3), (40.0, 1e-3))
    ],
    "epsilon of guesses": lambda: [
        one_run_bound(200, 80, right, delta=1e-4, copies=c)
        for right, c in ((0, 1), (41, 1), (76, 1), (80, 2))
    ],
    "epsilon of one run": lambda: [
        epsilon_one_run(*sides(m, n, 2.0), delta=d, inclusion=i)
        for m, n, d, i in (
            (2, 3, 0.0, 0.5),
            (3, 3, 0.0, 0.5),
            (90, 80, 1e-3, 0.5),
            (90, 80, 0.01, 0.5),
            (90, 40, 0.0, 0.7),
            (30, 70, 0.0, 0.3),
            (90, 10, 0.0, 0.5),
        )
    ],
    "epsilon with Gaussian noise": lambda: [
        epsilon_gaussian(*sides(m, n, apart), delta=1e-4, copies=c)
        for m, n, apart, c in ((5, 5, 9.0, 1), (90, 80, 2.0, 1), (90, 80, 2.0, 3), (40, 80, 0.1, 1))
    ],
    "epsilon with Gaussian noise and coins": lambda: [
        epsilon_f_dp(*sides(m, n, 2.0), delta=1e-4, inclusion=i)
        for m, n, i in ((3, 2, 0.5), (90, 80, 0.5), (90, 40, 0.7), (90, 10, 0.5))
    ],
    "epsilon of Gaussian noise": lambda: [
        gaussian_epsilon(mu, delta) for mu in (0.0, 0.1, 1.0, 30.0) for delta in (1e-9, 1e-3, 0.4)
    ],
    "the best epsilon": lambda: [
        epsilon_best(
            *sides(80, 300), coins=CoinScores(membership_scores(*sides(80, 70))), runs=runs, delta=1e-4
        )
        for runs in ("one", "many")
    ],
    "the best epsilon with few coins": lambda: [
        epsilon_best(*sides(80, 300), coins=coins, runs=runs)
        for coins in (None, CoinScores(membership_scores([1.0], [0.0])))
        for runs in ("one", "many")
    ],
    "the epsilon of independent scores": lambda: [
        epsilon_independent(*sides(80, 90), coins=coins, copies=2)
        for coins in (None, CoinScores(membership_scores(*sides(80, 70)), 0.5))
    ],
    "the most that can be shown": lambda: [
        epsilon_ceiling(20, 30, coin_counts=coins, runs=runs)
        for coins in (None, (20, 20))
        for runs in ("one", "many")
    ],
    "epsilon, credible": lambda: [
        joint_beta_interval(ThresholdCounts(*counts), delta=1e-3, confidence=0.9)
        for counts in ((9, 10, 1, 10), (0, 3, 0, 4), (50, 50, 0, 900), (2, 40, 9, 30))
    ],
    "claims": lambda: [
        judge_claim(*sides(40, 40, apart), claimed_epsilon=e, claimed_delta=1e-3, runs="many", copies=c)
        for apart, e, c in ((4.0, 0.1, 1), (1.0, 1.0, 1), (1.0, 3.0, 2))
    ],
    "claims about coins": lambda: [
        judge_claim(
            *sides(60, 60, apart),
            coins=CoinScores(membership_scores(*sides(60, 60, apart))),
            claimed_epsilon=e,
            claimed_delta=0.01,
        )
        for apart, e in ((4.0, 0.1), (1.0, 0.3), (0.0, 0.0))
    ],
    "trends": lambda: [
        log_linear_trend([1, 10, 100, 1000], hits, [50, 60, 50, 40], confidence=0.9)
        for hits in ([0, 0, 0, 0], [2, 5, 9, 30], [50, 60, 50, 40], [40, 2, 40, 2])
    ],
    "trends of trainings": lambda: [
        log_linear_trend([1, 3, 9, 50], hits, [50, 60, 50, 40], trained_apart=True)
        for hits in ([2, 5, 9, 30], [10, 2, 30, 2])
    ],
    "trends of clusters": lambda: [
        log_linear_trend([1, 3, 9], [1, 4, 6], [6, 6, 8], clusters=clusters)
        for clusters in (
            [np.arange(6) // 2, np.arange(6) // 3, np.arange(8) // 4],
            [np.arange(6), np.arange(6) + 9, np.arange(8) + 20],
        )
    ],
    "trends of too few": lambda: log_linear_trend([1, 1, 3, 3], [1, 2, 3, 4], [9, 9, 9, 9]),
    "paired differences": lambda: [
        paired_difference(normal(n, apart), normal(n)[::-1], most=most, confidence=0.9)
        for n, apart, most in ((1, 1.0, 9.0), (5, 1.0, 2.0), (9, 0.0, 9.0), (24, 0.7, 9.0))
    ],
    "unpaired differences": lambda: [
        unpaired_difference(
            [normal(m, apart), normal(3)], [normal(n), normal(2, 1.0)], most=6.0, confidence=0.9
        )
        for m, n, apart in ((1, 1, 1.0), (4, 3, 2.0), (20, 15, 0.7))
    ],
    "differences of trainings": lambda: [
        run_difference(normal(m, 2.0), normal(n), most=most, confidence=0.9)
        for m, n, most in ((2, 2, 9.0), (3, 8, 2.5))
    ],
    "means of bounded numbers": lambda: [
        bounded_mean_interval(values, level)
        for values in ([0.0], [1.0], [0.0] * 50, [1.0] * 50, [0.2, 0.4, 0.1] * 30, [0.0, 0.0, 1.0, 1e-9] * 40)
        for level in (0.5, 0.95)
    ],
    "means of rare numbers": lambda: [
        sparse_mean_interval(10**6, np.arange(0, 900_000, step), np.full(-(-900_000 // step), size))
        for step in (900, 90_000)
        for size in (1.0, 1e-6, 1e-40)
    ],
    "minima": lambda: [
        minimized(start, bounds, curvature)
        for start in ([-2.0, 1.0], [0.0, 0.0], [2.0, -1.0])
        for bounds in ([(-3.0, 3.0), (-3.0, 3.0)], [(-3.0, 0.5), (-3.0, 3.0)], [(-2.0, 2.0), (-1.0, 1.0)])
        for curvature in ([1.0, 1.0], [0.01, 0.05])
    ],
    "medians that are known but for rounding": lambda: [
        median_estimate([0.0], [wide], most=9.0).status for wide in (0.0, 1e-9, 1.1e-9)
    ],
    "groups of scores": lambda: [
        group_scores(np.repeat([3.0, 3.0, 8.0], 2)),
        [len(part) for part in group_scores(normal(5000))],
        [part[::200] for part in group_scores(normal(5000))],
    ],
}

# Fits end where the gradient is below a tolerance, and not at the last digit.
FITS = {
    "fits": lambda: [
        identifiable(scores)
        for scores in (
            normal(20, 30, 4),
            skewed(60),
            skewed(300, -1.0),
            normal(50) ** 2,
            np.concatenate([normal(40), normal(15, 9.0)]),
        )
    ],
    "fits of many": lambda: [
        identifiable(scores) for scores in (skewed(2048), skewed(2049), skewed(6000, -1.0))
    ],
    "tails": lambda: [
        [
            (one.value, one.low, one.high, one.n, one.warnings)
            for one in tail.estimates([15.0, 18.0, 22.0], size, 0.9)
        ]
        for tail, size in (
            (fit_tail(skewed(25), seed=2, bootstraps=25), 10**6),
            (fit_tail(skewed(200, -1.0), seed=2, bootstraps=25), 9),
        )
    ],
    "what tails say of themselves": lambda: [
        (tail.ks_statistic, tail.ks_p_value, tail.n_fit, tail.n_test, tail.warnings)
        for tail in (
            fit_tail(scores, seed=2, bootstraps=3)
            for scores in (normal(400), normal(400) ** 2, np.round(normal(60) / 2.0))
        )
    ],
    "far into the tails": lambda: [
        SkewNormal(1.0, 2.0, shape).log_cdf(np.array([-60.0, -9.0, 0.0, 1.0, 1.5, 4.0, 30.0]))
        for shape in (-40.0, -1.0, 0.0, 0.5, 1.0, 1.5, 90.0)
    ],
}


def identifiable(scores):
    """How likely the fitted curve makes the scores, and its tails in bits; another CPU may give another shape for the same curve."""
    curve = fit_skew_normal(scores)
    at = scores.mean() + scores.std() * np.array([-9.0, -6.0, -3.0, -1.0, 0.0, 1.0, 2.0])
    return {"log_likelihood": curve.log_pdf(scores).mean(), "exposures": curve.exposure_bits(at)}


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_as_they_were(name):
    assert_as_recorded(FILE, name, CASES[name]())


@pytest.mark.parametrize("name", FITS)
def test_fits_are_as_they_were(name):
    assert_as_recorded(FILE, name, FITS[name](), within=2e-4)
