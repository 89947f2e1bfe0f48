"""Bounds on epsilon against exact arithmetic and simulation, their growth with canaries, and input that is none."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.stats import beta

from coalmine.errors import InputError, ModelOutputError, NotMeasurableError
from coalmine.statistics import (
    CoinScores,
    clopper_pearson,
    compare_with_guessing,
    epsilon_best,
    epsilon_ceiling,
    epsilon_fixed,
    epsilon_ladder,
    epsilon_one_run,
    epsilon_split,
    membership_scores,
    note_epsilon,
    one_run_bound,
)
from coalmine.statistics.epsilon.beta_comparison import BetaPairs
from coalmine.statistics.epsilon.lower_bounds import group_delta, largest_refuted
from coalmine.statistics.epsilon.one_run import Guesses, OneRunTest
from coalmine.statistics.epsilon.thresholds import RUNG_WEIGHTS, ThresholdLadder


def normal_scores(n, seed, shift=1.0):
    rng = np.random.default_rng(seed)
    return rng.normal(shift, 1, n), rng.normal(0, 1, n)


@pytest.mark.parametrize(
    ("g", "f", "factor", "delta"),
    [
        ((3, 8), (1, 20), 2.5, 0.0),
        ((490, 20000), (64, 19937), 7.0, 1e-5),
        ((1, 1), (4, 3), 0.4, 0.3),
        ((20000, 1), (1, 100), 30.0, 0.01),
        ((5, 1), (1, 1_000_000), 5000.0, 0.0),
        ((120, 881), (256, 745), 1.0, 0.05),
    ],
)
def test_comparing_two_beta_variables_agrees_with_a_sum_of_a_million_slices(g, f, factor, delta):
    found = BetaPairs(*(np.array([float(number)]) for number in (*g, *f))).probability_below(factor, delta)[0]
    slices = 1_000_000
    edges = np.linspace(beta.ppf(1e-16, *f), beta.isf(1e-16, *f), slices + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    exact = np.sum(np.diff(beta.cdf(edges, *f)) * beta.cdf(factor * middles + delta, *g))
    assert found == pytest.approx(exact, rel=1e-6, abs=1e-12)


def test_comparing_two_beta_variables_is_exact_where_the_integral_is_known():
    # P(U^(1/a) <= c V) for uniform U, V: the integral of (c v)^a up to where it is 1.
    for a, c in ((3, 0.5), (7, 4.0), (1, 1.0)):
        pair = BetaPairs(np.array([float(a)]), np.ones(1), np.ones(1), np.ones(1))
        kink = min(1.0, 1 / c)
        with mpmath.workdps(30):
            exact = mpmath.mpf(c) ** a * mpmath.mpf(kink) ** (a + 1) / (a + 1) + 1 - mpmath.mpf(kink)
        assert pair.probability_below(c, 0.0)[0] == pytest.approx(float(exact), rel=1e-12)


@given(st.integers(1, 30), st.integers(0, 30), st.floats(0, 4), st.floats(0, 0.2))
@settings(max_examples=60)
def test_p_values_grow_with_epsilon_and_delta(hits, misses, epsilon, delta):
    ladder = ThresholdLadder(membership_scores([1.0] * hits + [0.0] * misses, np.linspace(-1, 2, 40)))
    one_run = OneRunTest(Guesses(100, hits + misses, hits))
    for test in (ladder, one_run):
        p_values = [test.p_value(epsilon + step, delta) for step in (0.0, 0.3, 0.6)]
        below = [p for p in p_values if p < 0.4]
        assert below == sorted(below)
        assert p_values[: len(below)] == below
        assert test.p_value(epsilon, delta) <= test.p_value(epsilon, delta + 0.05) + 1e-9


@pytest.mark.parametrize(
    ("m", "r", "v", "delta"), [(10, 6, 5, 0.01), (7, 7, 7, 0.001), (30, 20, 15, 0.0), (9, 4, 1, 0.1)]
)
def test_the_one_run_p_value_is_the_papers_in_exact_arithmetic(m, r, v, delta):
    odds, d = Fraction(5, 2), Fraction(delta)
    q = odds / (1 + odds)
    chance = [math.comb(r, k) * q**k * (1 - q) ** (r - k) for k in range(r + 1)]
    at_least = sum(chance[v:])
    steepest = max(sum(chance[v - i : v]) / i for i in range(1, v + 1))
    exact = min(Fraction(1), at_least + 2 * m * d * steepest)
    test = OneRunTest(Guesses(m, r, v))
    assert test.dominated(math.log(2.5), delta) == pytest.approx(float(exact), rel=1e-9)
    assert test.p_value(math.log(2.5), delta) <= float(exact) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("m", "r", "v", "epsilon", "delta"),
    [
        (10, 10, 9, 0.5, 0.0),
        (60, 20, 18, 1.0, 1e-3),
        (40, 40, 30, 0.3, 0.01),
        (200, 6, 6, 1.0, 1e-3),
        (100, 60, 59, 2.0, 1e-4),
        (50, 50, 33, 0.0, 1e-3),
    ],
)
def test_the_averaged_p_value_is_the_largest_that_turning_single_coins_allows(m, r, v, epsilon, delta):
    # The inequalities in full, for every number of right guesses and for the complements of events too.
    right = np.arange(r + 1)
    rows, limits = [], []
    for j in range(r):
        turned = np.where(right > j, right, 0) / m, np.where(right >= j, r - right, 0) / m
        rows += [turned[0] - math.exp(epsilon) * turned[1], turned[0] - math.exp(-epsilon) * turned[1]]
        limits += [delta, 1 - math.exp(-epsilon) * (1 - delta)]
    solved = linprog(
        -(right >= v).astype(float), A_ub=rows, b_ub=limits, A_eq=[np.ones(r + 1)], b_eq=[1], bounds=(0, 1)
    )
    assert OneRunTest(Guesses(m, r, v)).averaged(epsilon, delta) == pytest.approx(-solved.fun, rel=1e-6)


@pytest.mark.parametrize(
    ("m", "r", "v", "delta"), [(10_000, 400, 380, 1e-5), (1000, 1000, 700, 1e-4), (50, 50, 50, 0.0)]
)
def test_the_one_run_bound_is_the_root_of_its_p_value(m, r, v, delta):
    bound = one_run_bound(m, r, v, delta=delta).low
    test = OneRunTest(Guesses(m, r, v))
    assert test.p_value(bound, delta) <= 0.05 < test.p_value(bound + 1e-5, delta)


def test_a_fixed_threshold_is_clopper_pearson():
    estimate = epsilon_fixed(
        [1.0] * 400 + [0.0] * 100, [1.0] * 20 + [0.0] * 480, 0.5, delta=1e-3, confidence=0.9
    )
    least, most = clopper_pearson(400, 500, 0.9)[0], clopper_pearson(20, 500, 0.9)[1]
    assert estimate.low == pytest.approx(math.log((least - 1e-3) / most), abs=1e-5)
    assert estimate.value is None
    assert estimate.high is None
    assert estimate.status == "lower_bound"


# The means over 5 seeds of a public tool: the better of its default and its sample splitting, for each size.
PEER = {500: 1.23, 1000: 1.56, 5000: 1.95, 20_000: 2.22}


def test_bounds_grow_with_canaries_and_reach_a_public_tool_at_every_size():
    def mean(bound, n):
        return np.mean([bound(*normal_scores(n, seed), delta=1e-5).low for seed in range(5)])

    ladder = {n: mean(epsilon_ladder, n) for n in PEER}
    assert all(ladder[n] >= peer for n, peer in PEER.items()), ladder
    best = {
        n: mean(
            lambda a, b, delta: epsilon_best(a, b, coins=CoinScores(membership_scores(a, b)), delta=delta), n
        )
        for n in PEER
    }
    assert all(best[n] >= peer for n, peer in PEER.items()), best
    for means in (ladder, best):
        assert list(means.values()) == sorted(means.values())


@pytest.mark.parametrize("bound", [epsilon_ladder, epsilon_one_run, epsilon_split])
def test_no_bound_becomes_looser_with_more_canaries(bound):
    # Sizes on both sides of a new rung, and past the number of canaries that the one-run correction bears.
    means = [
        np.mean([bound(*normal_scores(n, seed, 1.5), delta=1e-4).low for seed in range(8)])
        for n in (60, 120, 240, 500, 1000, 2000, 6000)
    ]
    assert all(later > earlier - 0.06 for earlier, later in itertools.pairwise(means)), means
    assert means[-1] > means[0] + 0.5


def test_one_canary_more_never_loosens_a_bound_of_scores_that_do_not_overlap():
    # Past each size at which a rung or a number of guesses is added: 8, 32, 128, 512 of a side and 24, 96, 384, 1,536 of all.
    sizes = [*range(3, 50), *range(125, 131), *range(189, 195), *range(509, 515), *range(765, 771)]
    for bound in (epsilon_ladder, epsilon_one_run):
        lows = [bound(np.ones(n), np.zeros(n), delta=1e-5).low for n in sizes]
        assert all(later > earlier - 1e-5 for earlier, later in itertools.pairwise(lows)), bound


def test_a_new_rung_takes_its_share_bit_by_bit():
    def gain(seed):
        ins, outs = normal_scores(512, seed)
        return epsilon_ladder(ins, outs, delta=1e-5).low - epsilon_ladder(ins[1:], outs[1:], delta=1e-5).low

    assert np.mean([gain(seed) for seed in range(20)]) > -0.006


def test_ties_cost_little():
    # Randomized response has two scores only; the bound must come close to its epsilon all the same.
    rng = np.random.default_rng(0)
    truth = 1 / (1 + math.exp(-2))
    ins, outs = rng.random(4000) < truth, rng.random(4000) < 1 - truth
    for bound in (epsilon_ladder, epsilon_split, epsilon_one_run):
        assert 1.7 < bound(ins.astype(float), outs.astype(float)).low < 2.0


def test_either_side_of_the_scores_can_tell():
    # A quarter of the non-members is identified for sure, and nothing else: only "out below" shows it.
    rng = np.random.default_rng(1)
    ins, outs = rng.random(2000), rng.random(2000) - (np.arange(2000) < 500)
    assert epsilon_ladder(ins, outs).low > 3
    assert epsilon_split(ins, outs).low > 2.5


@pytest.mark.parametrize("runs", ["one", "many"])
def test_a_bound_cannot_exceed_its_ceiling(runs):
    for m, n in ((3, 10), (40, 40), (5, 1000)):
        ceiling = epsilon_ceiling(m, n, coin_counts=(m, n), runs=runs, delta=1e-5)
        apart = membership_scores(np.arange(m) + 1e6, np.arange(n))
        best = epsilon_best(*apart, coins=CoinScores(apart), runs=runs, delta=1e-5)
        # 5 of 1,005 are not planted by a fair coin, so that one run shows nothing.
        assert (best.low or 0.0) == pytest.approx(ceiling, abs=1e-5)
    assert epsilon_ceiling(1, 1) == 0.0


def test_the_weights_of_the_rungs_add_up():
    assert sum(RUNG_WEIGHTS) == pytest.approx(1.0)


def test_the_note():
    ins = np.full(11, 1000 - 62.5)
    median = compare_with_guessing(ins, np.arange(1000.0)).median
    estimate = note_epsilon(median)
    assert estimate.value == pytest.approx(math.log(1000 / 63 / 2), abs=1e-9)
    assert "not a bound" in estimate.statement
    assert estimate.low is estimate.high is estimate.confidence is None
    assert note_epsilon(median, copies=4).value == pytest.approx(estimate.value / 4)
    assert note_epsilon(compare_with_guessing([0.0], [1.0, 2.0]).median).value == 0.0


def test_group_privacy():
    assert group_delta(1.0, 0.0, 100) == 0.0
    composed = 1e-6
    for _ in range(4):  # one record after the other: d' = exp(e) d' + d
        composed = math.exp(0.7) * composed + 1e-6
    assert group_delta(0.7, 1e-6, 5) == pytest.approx(composed)
    assert group_delta(5.0, 1e-6, 1000) == 1.0
    assert largest_refuted(lambda _, delta: delta < 0.5, delta=0.1, copies=1) == 64.0


@pytest.mark.parametrize("bound", [epsilon_ladder, epsilon_split, epsilon_one_run, epsilon_best])
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"in_scores": []}, NotMeasurableError),
        ({"out_scores": []}, NotMeasurableError),
        ({"in_scores": [1.0, math.nan]}, ModelOutputError),
        ({"out_scores": [math.inf, 1.0]}, ModelOutputError),
        ({"in_scores": [[1.0, 2.0]]}, InputError),
        ({"delta": 1.0}, InputError),
        ({"delta": -1e-9}, InputError),
        ({"delta": math.nan}, InputError),
        ({"confidence": 1.0}, InputError),
        ({"confidence": math.nan}, InputError),
        ({"copies": 0}, InputError),
        ({"copies": 1.5}, InputError),
    ],
)
def test_bad_input_is_an_error_and_never_a_number(bound, arguments, error):
    given_all = {"in_scores": [3.0, 2.0, 4.0], "out_scores": [1.0, 2.0, 0.5], **arguments}
    with pytest.raises(error):
        bound(given_all.pop("in_scores"), given_all.pop("out_scores"), **given_all)


def test_what_is_too_little_is_said_and_not_counted():
    assert epsilon_split([1.0], [0.0, 0.5]).status == "not_measured"
    assert epsilon_one_run([1.0, 2.0], [0.0, 0.5]).status == "not_measured"
    unfair = epsilon_one_run(np.arange(90.0), np.arange(10.0))
    assert unfair.status == "not_measured"
    assert "coins" in unfair.statement
    assert unfair.value is unfair.low is None
    with pytest.raises(InputError):
        epsilon_fixed([1.0], [0.0], math.nan)
    with pytest.raises(InputError):
        one_run_bound(10, 5, 6)
    with pytest.raises(InputError):
        epsilon_one_run([1.0], [0.0], inclusion=1.0)
