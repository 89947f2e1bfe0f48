"""Lower bounds on epsilon for audits of a mechanism that is claimed to add Gaussian noise; without such noise they can be wrong.

A mechanism of Gaussian noise with parameter mu allows no rule a TPR above Phi(Phi^-1(FPR) + mu) (Dong, Roth and Su, "Gaussian
Differential Privacy"). Where the scores refute a mu, they refute every curve below that of the true mu, at rates that are easy to
count; if the noise is Gaussian, that mu tells of the epsilon at a tiny delta, where nothing can be counted. For any other mechanism
this step is unfounded: Laplace noise or randomized response exceeds a Gaussian curve at middling rates and stays below it at low
ones. Both bounds are by name, on request, and never part of a headline or of a verdict.

- gaussian: takes the scores for independent. At a few thresholds, each the k-th largest out score, the count of in scores above it
  has the exact test of `epsilon_thresholds`, with the Gaussian curve for the line of epsilon and delta.
- f-dp: assumes only the coins of one training run, after Mahloujifar, Melis and Chaudhuri, "Auditing f-Differential Privacy in One
  Run": with g(x) = Phi(Phi^-1(x) + mu), E[C; C > j] / m <= g(E[r - C; C >= j] / m) for every j, where C of r guesses about m
  canaries are right.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from coalmine.records import Estimate
from coalmine.statistics.epsilon.beta_comparison import BetaPairs
from coalmine.statistics.epsilon.hypothesis import LARGEST_EPSILON, lower_bound
from coalmine.statistics.epsilon.one_run import (
    Guesses,
    OneRunLadder,
    coin_assumptions,
    coin_problem,
    thinned,
)
from coalmine.statistics.epsilon.thresholds import ASSUMPTIONS as THRESHOLD_ASSUMPTIONS
from coalmine.statistics.membership_scores import (
    FloatArray,
    MembershipScores,
    checked_delta,
    membership_scores,
)
from coalmine.statistics.score_arrays import checked_confidence, checked_count

GAUSSIAN, F_DP = "gaussian, assumes Gaussian noise", "f-dp, assumes Gaussian noise"
ASSUMES_NOISE = "the mechanism adds Gaussian noise; for any other the bound can be above the truth"
# Thresholds by the share of the out scores above them, and what each may err. For a mu of 1, 2.5 and 4 one of them is near best.
_SHARES, _WEIGHTS = (0.35, 0.1, 0.02), (0.5, 0.3, 0.2)
_LARGEST_MU, _PRECISION = 16.0, 1e-5


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The epsilon of Gaussian noise with parameter mu at a delta above 0 (Balle and Wang, 2018).

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
    """The lower bound `gaussian`: for independent scores, if the mechanism adds Gaussian noise.

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
    return _bound(GAUSSIAN, _largest_mu(refutes), delta, level, n, copies, assumptions)


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
    """The lower bound `f-dp`: from the coins of one training run, if the mechanism adds Gaussian noise.

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
    # Gaussian noise reveals nothing all at once, so that delta costs no guesses.
    ladder = OneRunLadder(thinned(scores, inclusion, seed), 0.0, seed)
    error = (1.0 - level) / ladder.shares

    def refutes(mu: float) -> bool:
        return any(curve_refuted(test.guesses, mu, error) for test in ladder.tests)

    assumptions = (ASSUMES_NOISE, *coin_assumptions(inclusion))
    return _bound(F_DP, _largest_mu(refutes), delta, level, n, copies, assumptions)


def curve_refuted(guesses: Guesses, mu: float, error: float) -> bool:
    """Whether so many right guesses have a probability of at most `error` under the Gaussian curve of mu.

    >>> curve_refuted(Guesses(200, 200, 150), 0.1, 0.05), curve_refuted(Guesses(200, 200, 150), 2.0, 0.05)
    (True, False)
    """
    m, r, v = guesses
    if v == 0:
        return False
    # As if P(C >= v) were `error`, all of it at v: then the inequalities ask for more and more probability below v.
    right, wrong, all_of_it = error * v / m, error * (r - v) / m, r / m
    for number in reversed(range(v)):
        more = float(_moved(np.float64(right), -mu)) - wrong
        if more > 0.0:
            wrong += more
            right += number / (r - number) * more
            if right + wrong > all_of_it:
                return True
        # What is asked for falls geometrically once it is below the mean.
        if more < 1e-12 * all_of_it and number < v - 1:
            break
    return False


def _threshold_pairs(scores: MembershipScores, seed: int) -> tuple[BetaPairs, FloatArray]:
    in_places, out_places = scores.places(seed)
    m, n = len(in_places), len(out_places)
    ranks = np.maximum(1, np.rint(np.array(_SHARES) * n)).astype(np.int64)
    thresholds = np.sort(out_places)[::-1][ranks - 1]
    hits = (m - np.searchsorted(np.sort(in_places), thresholds, side="right")).astype(np.float64)
    # Where no in score is above a threshold, its test refutes nothing; a weight of 0 leaves it out.
    weights = np.where(hits > 0, _WEIGHTS, 0.0)
    above = np.maximum(hits, 1.0)
    return BetaPairs(above, m - above + 1.0, ranks.astype(np.float64), n - ranks + 1.0), weights


def _moved(rates: FloatArray | np.float64, mu: float) -> FloatArray:
    """The rate that Gaussian noise of parameter mu allows, at most, beside each of these."""
    from scipy.special import ndtr, ndtri

    return np.asarray(ndtr(ndtri(np.clip(rates, 0.0, 1.0)) + mu))


def _largest_mu(refutes: Callable[[float], bool]) -> float:
    if not refutes(0.0):
        return 0.0
    low, high = 0.0, 0.5
    while refutes(high):
        if high >= _LARGEST_MU:
            return high
        low, high = high, 2.0 * high
    while high - low > _PRECISION:
        middle = (low + high) / 2.0
        low, high = (middle, high) if refutes(middle) else (low, middle)
    return low


def _bound(
    method: str,
    mu: float,
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
    mu /= checked_count(copies, "copies")
    epsilon = min(gaussian_epsilon(mu, delta), LARGEST_EPSILON)
    basis = f"mu is at least {math.floor(mu * 100) / 100:.2f}, if the noise is Gaussian"
    return lower_bound(
        method, epsilon, delta=delta, confidence=level, n=n, assumptions=assumptions, basis=basis
    )
