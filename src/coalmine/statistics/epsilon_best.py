"""What is the strongest lower bound on epsilon that still holds after choosing among bounds?

Taking the highest of several 95 % bounds gives less than 95 %. So each test gets a share of the error that was fixed
beforehand, and an epsilon is refuted if any test refutes it with its share. Only tests that hold for every true epsilon take
part: neither the note's point estimate nor a credible interval can.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from coalmine.records import Estimate
from coalmine.statistics.epsilon_hypothesis import largest_refuted, lower_bound
from coalmine.statistics.epsilon_one_run import OneRunLadder, coin_assumptions, coin_problem, thinned
from coalmine.statistics.epsilon_thresholds import ASSUMPTIONS as THRESHOLD_ASSUMPTIONS
from coalmine.statistics.epsilon_thresholds import ThresholdLadder
from coalmine.statistics.membership_scores import MembershipScores, checked_delta, membership_scores
from coalmine.statistics.score_arrays import checked_confidence

METHOD = "best"
# The ladder has most, because it is the stronger one for many canaries and for delta above 0.
LADDER_SHARE, ONE_RUN_SHARE = 0.7, 0.3


class CoinScores(NamedTuple):
    """The scores of canaries that a coin planted or withheld, with the probability of "in"."""

    scores: MembershipScores
    inclusion: float = 0.5


class CombinedTest:
    """The tests behind `best`, each with its share of the error."""

    def __init__(self, scores: MembershipScores, coins: CoinScores | None, delta: float, seed: int) -> None:
        self.n = sum(map(len, scores))
        self._ladder = ThresholdLadder(scores, seed)
        self._one_run: OneRunLadder | None = None
        self.assumptions: tuple[str, ...] = THRESHOLD_ASSUMPTIONS
        if coins is not None and coin_problem(*coins) is None:
            fair = thinned(*coins, seed)
            one_run = OneRunLadder(fair, delta, seed)
            # Whether it takes part depends on how many canaries there are, and never on what it says.
            if one_run.tests:
                self._one_run = one_run
                self.assumptions = tuple(
                    dict.fromkeys((*THRESHOLD_ASSUMPTIONS, *coin_assumptions(coins.inclusion)))
                )

    def p_value(self, epsilon: float, delta: float) -> float:
        """The probability of scores that tell as clearly of training, at most, if (epsilon, delta) holds."""
        if self._one_run is None:
            return self._ladder.p_value(epsilon, delta)
        return min(
            1.0,
            self._ladder.p_value(epsilon, delta) / LADDER_SHARE,
            self._one_run.p_value(epsilon, delta) / ONE_RUN_SHARE,
        )


def one_run_p_value(coins: CoinScores | None, delta: float, seed: int) -> float | None:
    """The p-value of epsilon = 0 at delta by the coins of one training run; None where they allow no test."""
    if coins is None or coin_problem(*coins) is not None:
        return None
    ladder = OneRunLadder(thinned(*coins, seed), delta, seed)
    return ladder.p_value(0.0, delta) if ladder.tests else None


def epsilon_best(
    in_scores: ArrayLike,
    out_scores: ArrayLike,
    *,
    coins: CoinScores | None = None,
    delta: float = 0.0,
    confidence: float = 0.95,
    copies: int = 1,
    seed: int = 0,
) -> Estimate:
    """The strongest lower bound on epsilon that remains valid after choosing between the ladder and the one-run bound.

    `coins` are those of the canaries that a coin planted or withheld; without them the ladder stands alone.

    >>> scores = membership_scores(np.arange(200.0) + 150, np.arange(200.0))
    >>> epsilon_best(*scores, coins=CoinScores(scores)).low > 1
    True
    """
    level = checked_confidence(confidence)
    test = CombinedTest(membership_scores(in_scores, out_scores), coins, checked_delta(delta), seed)
    epsilon = largest_refuted(lambda e, d: test.p_value(e, d) <= 1.0 - level, delta, copies)
    return lower_bound(METHOD, epsilon, delta=delta, confidence=level, n=test.n, assumptions=test.assumptions)


def epsilon_ceiling(
    in_count: int,
    out_count: int,
    *,
    coin_counts: tuple[int, int] | None = None,
    inclusion: float = 0.5,
    delta: float = 0.0,
    confidence: float = 0.95,
    seed: int = 0,
) -> float:
    """The highest that `epsilon_best` can be for so many scores: its value for scores that do not overlap at all.

    `inclusion` is the probability with which the coins of `coin_counts` said "in".

    >>> epsilon_ceiling(5, 1000) < epsilon_ceiling(100, 1000)
    True
    """
    coins = None if coin_counts is None else CoinScores(_apart(*coin_counts), inclusion)
    apart = _apart(in_count, out_count)
    return epsilon_best(*apart, coins=coins, delta=delta, confidence=confidence, seed=seed).low or 0.0


def _apart(in_count: int, out_count: int) -> MembershipScores:
    return membership_scores(np.ones(in_count), np.zeros(out_count))
