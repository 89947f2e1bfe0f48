"""Lower bounds on epsilon for a mechanism that is claimed to add Gaussian noise; for any other mechanism they can be wrong.

Gaussian noise with parameter mu allows no attack a TPR above Phi(Phi^-1(FPR) + mu) (Gaussian Differential Privacy; Dong, Roth and
Su, 2019, arXiv:1905.02383). Where the scores refute a mu, they do so at rates that are easy to count; if the noise is Gaussian, that
mu implies an epsilon at a tiny delta, where nothing can be counted. For any other mechanism this step is unfounded: Laplace noise
or randomized response exceeds a Gaussian curve at medium rates and stays below it at low ones. Both bounds are computed on request
only, and are never part of a headline or of a verdict.

- gaussian: assumes that the scores are independent. At a few thresholds, each the k-th largest out score, the count of in scores
  above it has the exact test of `coalmine.statistics.epsilon.thresholds`, with the Gaussian curve in place of the line of epsilon
  and delta.
- f-dp: assumes only the coins of one training run (Auditing f-Differential Privacy in One Run; Mahloujifar, Melis and Chaudhuri,
  2024, arXiv:2410.22235): with g(x) = Phi(Phi^-1(x) + mu), E[C; C > j] / m <= g(E[r - C; C >= j] / m) for every j, where C of r
  guesses about m canaries are right.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from coalmine.records import Estimate
from coalmine.records.estimate import rounded_down
from coalmine.statistics.epsilon.beta_comparison import BetaPairs
from coalmine.statistics.epsilon.lower_bounds import LARGEST_EPSILON, largest_where, lower_bound
from coalmine.statistics.epsilon.one_run import (
    Guesses,
    OneRunLadder,
    coin_assumptions,
    coin_problem,
    thinned,
)
from coalmine.statistics.epsilon.thresholds import ASSUMPTIONS as THRESHOLD_ASSUMPTIONS
from coalmine.statistics.scores import (
    FloatArray,
    MembershipScores,
    checked_confidence,
    checked_count,
    checked_delta,
    membership_scores,
)

GAUSSIAN, F_DP = "gaussian, assumes Gaussian noise", "f-dp, assumes Gaussian noise"
ASSUMES_NOISE = (
    "the mechanism adds Gaussian noise; for any other mechanism the bound can exceed the true epsilon"
)
# Thresholds by the share of the out scores above them, and their shares of the error. For mu of 1, 2.5 and 4 one of them is near best.
_SHARES, _WEIGHTS = (0.35, 0.1, 0.02), (0.5, 0.3, 0.2)
_LARGEST_MU, _PRECISION = 16.0, 1e-5


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The epsilon of Gaussian noise with parameter mu at a delta above 0.

    From Improving the Gaussian Mechanism for Differential Privacy: Analytical Calibration and Optimal Denoising (Balle and Wang,
    2018, arXiv:1805.06530).

    >>> round(gaussian_epsilon(1.0, 1e-5), 2)
    4.38
    """
    from scipy.special import log_ndtr, ndtr

    def excess(epsilon: float) -> float:
        above = epsilon + float(log_ndtr(-mu / 2.0 - epsilon / mu))
        return float(ndtr(mu / 2.0 - epsilon / mu)) - math.exp(above) - delta

    if mu <= 0.0 or excess(0.0) <= 0.0:
        return 0.0
    low, high = 0.0, 1.0
    while excess(high) > 0.0 and high < 1e6:
        low, high = high, 2.0 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if excess(middle) > 0.0 else (low, middle)
    return low


def epsilon_gaussian(
    in_scores: ArrayLike,
    out_scores: ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
    copies: int = 1,
    seed: int = 0,
) -> Estimate:
    """The lower bound on epsilon `gaussian`: for independent scores, if the mechanism adds Gaussian noise.

    >>> scores = np.arange(400.0)
    >>> epsilon_gaussian(scores + 150, scores, delta=1e-5).low > 3
    True
    """
    scores, level = membership_scores(in_scores, out_scores), checked_confidence(confidence)
    n = sum(map(len, scores))
    pairs, weights = _threshold_pairs(scores, seed)

    def refutes(mu: float) -> bool:
        below = pairs.probability_below_curve(lambda x: _moved(x, mu), lambda x: _moved(x, -mu))
        return bool(np.any(below <= weights * (1.0 - level)))

    assumptions = (ASSUMES_NOISE, *THRESHOLD_ASSUMPTIONS)
    return _bound(GAUSSIAN, refutes, delta, level, n, copies, assumptions)


def epsilon_f_dp(
    in_scores: ArrayLike,
    out_scores: ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
    copies: int = 1,
    inclusion: float = 0.5,
    seed: int = 0,
) -> Estimate:
    """The lower bound on epsilon `f-dp`: from the coins of one training run, if the mechanism adds Gaussian noise.

    Only canaries with a coin may be given, as in `epsilon_one_run`.

    >>> scores = np.arange(400.0)
    >>> epsilon_f_dp(scores + 150, scores, delta=1e-5).low > 1.5
    True
    """
    scores, level = membership_scores(in_scores, out_scores), checked_confidence(confidence)
    n = sum(map(len, scores))
    problem = coin_problem(scores, inclusion)
    if problem is not None:
        return Estimate.not_measured(F_DP, problem, n)
    # Gaussian noise never reveals everything at once, so delta costs no guesses.
    ladder = OneRunLadder(thinned(scores, inclusion, seed), 0.0, seed)
    error = (1.0 - level) / ladder.shares

    def refutes(mu: float) -> bool:
        return any(curve_refuted(test.guesses, mu, error) for test in ladder.tests)

    assumptions = (ASSUMES_NOISE, *coin_assumptions(inclusion))
    return _bound(F_DP, refutes, delta, level, n, copies, assumptions)


def curve_refuted(guesses: Guesses, mu: float, error: float) -> bool:
    """Whether this many right guesses have a probability of at most `error` under the Gaussian curve of mu.

    >>> curve_refuted(Guesses(200, 200, 150), 0.1, 0.05), curve_refuted(Guesses(200, 200, 150), 2.0, 0.05)
    (True, False)
    """
    m, r, v = guesses
    if v == 0:
        return False
    # Suppose P(C >= v) were `error`, all of it at v: the inequalities then require more and more probability below v.
    right, wrong, all_of_it = error * v / m, error * (r - v) / m, r / m
    for number in reversed(range(v)):
        more = float(_moved(np.float64(right), -mu)) - wrong
        if more > 0.0:
            wrong += more
            right += number / (r - number) * more
            if right + wrong > all_of_it:
                return True
        # The required probability falls geometrically below the mean.
        if more < 1e-12 * all_of_it and number < v - 1:
            break
    return False


def _threshold_pairs(scores: MembershipScores, seed: int) -> tuple[BetaPairs, FloatArray]:
    in_places, out_places = scores.places(seed)
    m, n = len(in_places), len(out_places)
    ranks = np.maximum(1, np.rint(np.array(_SHARES) * n)).astype(np.int64)
    thresholds = np.sort(out_places)[::-1][ranks - 1]
    hits = (m - np.searchsorted(np.sort(in_places), thresholds, side="right")).astype(np.float64)
    # A threshold with no in score above it refutes nothing; a weight of 0 leaves it out.
    weights = np.where(hits > 0, _WEIGHTS, 0.0)
    above = np.maximum(hits, 1.0)
    return BetaPairs(above, m - above + 1.0, ranks.astype(np.float64), n - ranks + 1.0), weights


def _moved(rates: FloatArray | np.float64, mu: float) -> FloatArray:
    """The highest TPR that Gaussian noise with parameter mu allows at each of these false-positive rates."""
    from scipy.special import ndtr, ndtri

    return np.asarray(ndtr(ndtri(np.clip(rates, 0.0, 1.0)) + mu))


def _bound(
    method: str,
    refutes: Callable[[float], bool],
    delta: float,
    level: float,
    n: int,
    copies: int,
    assumptions: tuple[str, ...],
) -> Estimate:
    if checked_delta(delta) == 0.0:
        return Estimate.not_measured(
            method, "Gaussian noise has no epsilon at delta 0; give a delta such as 1e-5", n
        )
    # The noise of a group of k records has k times the mu of one.
    mu = largest_where(refutes, 0.5, _LARGEST_MU, _PRECISION) / checked_count(copies, "copies")
    epsilon = min(gaussian_epsilon(mu, delta), LARGEST_EPSILON)
    basis = f"mu is at least {rounded_down(mu)}, if the noise is Gaussian"
    return lower_bound(
        method, epsilon, delta=delta, confidence=level, n=n, assumptions=assumptions, basis=basis
    )
