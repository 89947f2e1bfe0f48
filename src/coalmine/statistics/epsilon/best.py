"""The headline lower bound on epsilon, and the tighter one for scores that are independent.

A single training run gives independent coins and not independent scores: its canaries share one model. So the headline (`best`)
rests on the coins alone, and is the one-run bound. Beside it is the strongest bound for independent scores, such as those of many
training runs: an epsilon is refuted if the ladder of thresholds or the one-run bound refutes it with its share of the error, which
was fixed beforehand, because the highest of several 95% bounds is not a 95% bound. Only tests that hold for every true epsilon
take part: neither the note's point estimate nor a credible interval can.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from coalmine.errors import InputError
from coalmine.records import Estimate
from coalmine.statistics.epsilon.hypothesis import largest_refuted, lower_bound
from coalmine.statistics.epsilon.one_run import (
    FEWEST_GUESSES,
    OneRunLadder,
    coin_assumptions,
    coin_problem,
    thinned,
)
from coalmine.statistics.epsilon.thresholds import ASSUMPTIONS as THRESHOLD_ASSUMPTIONS
from coalmine.statistics.epsilon.thresholds import ThresholdLadder
from coalmine.statistics.membership_scores import MembershipScores, checked_delta, membership_scores
from coalmine.statistics.score_arrays import checked_confidence

METHOD = "best"
INDEPENDENT = "best if scores are independent"
NO_COINS = (
    "one training run shows nothing about epsilon without a coin for each canary; plant with --withhold 0.5, or say that the scores "
    "come from many independent runs"
)
# The ladder is the stronger one with many references, the coins with as many withheld canaries as planted ones.
LADDER_SHARE, ONE_RUN_SHARE = 0.5, 0.5
# Whether the scores come from one training run, or each from a run of its own.
Runs = Literal["one", "many"]


class CoinScores(NamedTuple):
    """The scores of canaries that a coin planted or withheld, with the probability of "in"."""

    scores: MembershipScores
    inclusion: float = 0.5


class CoinTest:
    """The test behind `best` for one training run: the coins alone."""

    def __init__(
        self, coins: CoinScores | None, delta: float, seed: int, why_no_coins: str = NO_COINS
    ) -> None:
        self.n = 0
        self.assumptions: tuple[str, ...] = ()
        self._ladder: OneRunLadder | None = None
        # Why there is no test; whether there is one depends on the numbers of canaries, and never on their scores.
        self.problem: str | None = why_no_coins
        if coins is None:
            return
        self.n, self.assumptions = sum(map(len, coins.scores)), coin_assumptions(coins.inclusion)
        self.problem = coin_problem(*coins)
        if self.problem is None:
            ladder = OneRunLadder(thinned(*coins, seed), delta, seed)
            if ladder.tests:
                self._ladder = ladder
            else:
                self.problem = f"{self.n} canaries are too few for a bound from one training run: it takes at least {FEWEST_GUESSES}"

    def p_value(self, epsilon: float, delta: float) -> float:
        """The probability of scores that tell as clearly of training, at most, if (epsilon, delta) holds; 1 without a test."""
        return 1.0 if self._ladder is None else self._ladder.p_value(epsilon, delta)


class IndependentTest:
    """The tests behind the bound for independent scores, each with its share of the error."""

    problem: str | None = None

    def __init__(self, scores: MembershipScores, coins: CoinScores | None, delta: float, seed: int) -> None:
        self.n = sum(map(len, scores))
        self._ladder = ThresholdLadder(scores, seed)
        self._coins = CoinTest(coins, delta, seed)
        self.assumptions: tuple[str, ...] = THRESHOLD_ASSUMPTIONS
        if self._coins.problem is None:
            self.assumptions = tuple(dict.fromkeys((*THRESHOLD_ASSUMPTIONS, *self._coins.assumptions)))

    def p_value(self, epsilon: float, delta: float) -> float:
        """The probability of scores that tell as clearly of training, at most, if (epsilon, delta) holds."""
        if self._coins.problem is not None:
            return self._ladder.p_value(epsilon, delta)
        return min(
            1.0,
            self._ladder.p_value(epsilon, delta) / LADDER_SHARE,
            self._coins.p_value(epsilon, delta) / ONE_RUN_SHARE,
        )


def headline_test(
    scores: MembershipScores,
    coins: CoinScores | None,
    delta: float,
    seed: int,
    runs: Runs,
    why_no_coins: str = NO_COINS,
) -> CoinTest | IndependentTest:
    """The test that may assume what `runs` training runs provide, and nothing more."""
    if runs not in ("one", "many"):
        raise InputError(f'runs must be "one" or "many", got {runs!r}; say where the scores come from')
    if runs == "one":
        return CoinTest(coins, delta, seed, why_no_coins)
    return IndependentTest(scores, coins, delta, seed)


def epsilon_best(
    in_scores: ArrayLike,
    out_scores: ArrayLike,
    *,
    coins: CoinScores | None = None,
    runs: Runs = "one",
    delta: float = 0.0,
    confidence: float = 0.95,
    copies: int = 1,
    seed: int = 0,
    why_no_coins: str = NO_COINS,
) -> Estimate:
    """The headline bound on epsilon: it assumes only what the training runs behind the scores provide.

    `coins` are those of the canaries that a coin planted or withheld. With `runs="one"` they are all there is, and without them
    nothing is measured. With `runs="many"` the scores are independent, and the ladder of thresholds takes part.

    >>> scores = membership_scores(np.arange(200.0) + 150, np.arange(200.0))
    >>> epsilon_best(*scores, coins=CoinScores(scores)).low > 1
    True
    >>> epsilon_best(*scores).status
    'not_measured'
    """
    level = checked_confidence(confidence)
    scores = membership_scores(in_scores, out_scores)
    test = headline_test(scores, coins, checked_delta(delta), seed, runs, why_no_coins)
    return _bound(METHOD, test, delta, level, copies)


def epsilon_independent(
    in_scores: ArrayLike,
    out_scores: ArrayLike,
    *,
    coins: CoinScores | None = None,
    delta: float = 0.0,
    confidence: float = 0.95,
    copies: int = 1,
    seed: int = 0,
) -> Estimate:
    """The strongest bound for scores that are independent of each other, which those of one training run are not quite.

    >>> scores = membership_scores(np.arange(200.0) + 150, np.arange(200.0))
    >>> epsilon_independent(*scores).low > 3
    True
    """
    level = checked_confidence(confidence)
    scores = membership_scores(in_scores, out_scores)
    test = IndependentTest(scores, coins, checked_delta(delta), seed)
    return _bound(INDEPENDENT, test, delta, level, copies)


def _bound(
    method: str, test: CoinTest | IndependentTest, delta: float, level: float, copies: int
) -> Estimate:
    epsilon = largest_refuted(lambda e, d: test.p_value(e, d) <= 1.0 - level, delta, copies)
    if test.problem is not None:
        return Estimate.not_measured(method, test.problem, test.n)
    return lower_bound(method, epsilon, delta=delta, confidence=level, n=test.n, assumptions=test.assumptions)


def epsilon_ceiling(
    in_count: int,
    out_count: int,
    *,
    coin_counts: tuple[int, int] | None = None,
    inclusion: float = 0.5,
    runs: Runs = "one",
    delta: float = 0.0,
    confidence: float = 0.95,
    seed: int = 0,
) -> float:
    """The highest that `epsilon_best` can be for so many scores: its value for scores that do not overlap at all; 0 without one.

    `inclusion` is the probability with which the coins of `coin_counts` said "in".

    >>> epsilon_ceiling(5, 5, coin_counts=(5, 5)) < epsilon_ceiling(100, 100, coin_counts=(100, 100))
    True
    """
    coins = None if coin_counts is None else CoinScores(_apart(*coin_counts), inclusion)
    apart = _apart(in_count, out_count)
    best = epsilon_best(*apart, coins=coins, runs=runs, delta=delta, confidence=confidence, seed=seed)
    return best.low or 0.0


def _apart(in_count: int, out_count: int) -> MembershipScores:
    return membership_scores(np.ones(in_count), np.zeros(out_count))
