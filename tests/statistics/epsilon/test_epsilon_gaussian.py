"""Bounds that assume Gaussian noise: valid with it, strong, wrong without it, and never part of anything else."""

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import ndtr, ndtri

from coalmine.statistics import epsilon_f_dp, epsilon_gaussian, gaussian_epsilon
from coalmine.statistics.epsilon.gaussian import _moved, curve_refuted
from coalmine.statistics.epsilon.one_run import Guesses
from private_mechanisms import Mechanism, gaussian, laplace, randomized_response
from private_mechanisms import gaussian_epsilon as expected_epsilon

AUDITS = 100


def above_the_truth(mechanism, bound, canaries, delta=None, audits=AUDITS):
    delta = mechanism.delta if delta is None else delta
    found = 0
    for seed in range(audits):
        rng = np.random.default_rng(seed)
        members = rng.binomial(canaries, 0.5)
        scores = mechanism.draw(rng, members, canaries - members)
        estimate = bound(*scores, delta=delta, copies=mechanism.copies)
        # One audit in a thousand has counts that no fair coin gives.
        found += (estimate.low or 0.0) > mechanism.epsilon
    return found / audits


@pytest.mark.parametrize("mu", [0.05, 0.7, 3.0])
def test_the_epsilon_of_gaussian_noise(mu):
    for delta in (1e-9, 1e-5, 0.01):
        assert gaussian_epsilon(mu, delta) == pytest.approx(expected_epsilon(mu, delta), rel=1e-6, abs=1e-9)
    assert gaussian_epsilon(0.0, 1e-5) == 0.0
    assert gaussian_epsilon(0.01, 0.5) == 0.0


@pytest.mark.parametrize("bound", [epsilon_gaussian, epsilon_f_dp])
@pytest.mark.parametrize(
    "mechanism", [gaussian(1.0, 1e-5), gaussian(0.4, 1e-3, copies=4), gaussian(2.0, 1e-5)]
)
def test_with_gaussian_noise_they_hold(mechanism, bound):
    assert above_the_truth(mechanism, bound, 300) <= 0.09  # 5%, and two standard errors more


@pytest.mark.parametrize("bound", [epsilon_gaussian, epsilon_f_dp])
def test_scores_that_say_nothing_give_nothing(bound):
    null = Mechanism("null", lambda rng, m, n: (rng.random(m), rng.random(n)), 0.0, 1e-5)
    assert above_the_truth(null, bound, 300) <= 0.09


def test_without_gaussian_noise_they_do_not_hold():
    # That is why they are never part of the headline.
    assert above_the_truth(laplace(1.0), epsilon_gaussian, 2000, delta=1e-5, audits=10) > 0.8
    assert above_the_truth(randomized_response(1.0), epsilon_gaussian, 2000, delta=1e-5, audits=10) > 0.8


def test_they_are_stronger_than_a_public_tool():
    # Means of its f-DP bound for N(1, 1) against N(0, 1) at delta 1e-5; the truth is 4.38.
    for n, theirs in ((500, 1.46), (2000, 2.25)):
        means = []
        for bound in (epsilon_f_dp, epsilon_gaussian):
            lows = []
            for seed in range(5):
                rng = np.random.default_rng(seed)
                lows.append(bound(rng.normal(1, 1, n), rng.normal(0, 1, n), delta=1e-5).low)
            means.append(np.mean(lows))
        assert theirs < means[0] < means[1] < 4.38


@pytest.mark.parametrize(("m", "r", "v", "mu"), [(40, 40, 28, 0.4), (60, 20, 19, 0.8), (30, 30, 30, 1.5)])
def test_the_recursion_finds_the_largest_probability_that_the_curve_allows(m, r, v, mu):
    # The concave curve by its tangents, and the inequalities in full.
    right, rows, limits = np.arange(r + 1), [], []
    for j in range(r):
        more, fewer = np.where(right > j, right, 0) / m, np.where(right >= j, r - right, 0) / m
        for at in np.exp(np.linspace(np.log(1e-7), np.log(0.999), 300)):
            slope = np.exp(-mu * ndtri(at) - mu * mu / 2)
            rows.append(more - slope * fewer)
            limits.append(ndtr(ndtri(at) + mu) - slope * at)
    chance = -(right >= v).astype(float)
    most = -linprog(chance, A_ub=rows, b_ub=limits, A_eq=[np.ones(r + 1)], b_eq=[1], bounds=(0, 1)).fun
    assert curve_refuted(Guesses(m, r, v), mu, most * 1.01)
    assert not curve_refuted(Guesses(m, r, v), mu, most * 0.99)


def test_what_they_cannot_say():
    scores = np.arange(50.0)
    for bound in (epsilon_gaussian, epsilon_f_dp):
        assert bound(scores + 20, scores, delta=0.0).status == "not_measured"
    unfair = epsilon_f_dp(np.arange(90.0), np.arange(10.0), delta=1e-5)
    assert unfair.status == "not_measured"


def test_a_rate_that_rounding_puts_above_one_is_one():
    assert _moved(np.array([1.0 + 1e-12, 1.0, 0.0, -1e-12]), 1.0).tolist() == [1.0, 1.0, 0.0, 0.0]
