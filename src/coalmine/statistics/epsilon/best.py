"""The headline lower bound on epsilon, and a tighter one for scores that are independent.

A single training run gives independent coins, but not independent scores: its canaries share one model. So the headline (`best`)
assumes only the coins, and is the one-run bound. Next to it is the strongest bound for independent scores, such as those of many
training runs: an epsilon is refuted if the ladder of thresholds or the one-run bound refutes it with its share of the error, which
is fixed in advance, because the highest of several 95% bounds is not a 95% bound. Only tests that hold for every true epsilon
take part; the point estimate from exposures and the credible interval do not.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from coalmine.errors import InputError
from coalmine.records import Estimate
from coalmine.statistics.epsilon.lower_bounds import largest_refuted, lower_bound
from coalmine.statistics.epsilon.one_run import (
    FEWEST_GUESSES,
    OneRunLadder,
    coin_assumptions,
    coin_problem,
    thinned,
)
from coalmine.statistics.epsilon.thresholds import ASSUMPTIONS as THRESHOLD_ASSUMPTIONS
from coalmine.statistics.epsilon.thresholds import ThresholdLadder
from coalmine.statistics.scores import MembershipScores, checked_confidence, checked_delta, membership_scores

METHOD = "best"
INDEPENDENT = "best if scores are independent"
NO_COINS = (
    "one training run shows nothing about epsilon unless each canary was planted or withheld by a coin flip; plant with --withhold "
    "0.5, or declare that the scores come from many independent runs"
)
# The ladder is stronger with many references, the coins are with as many withheld canaries as planted ones.
LADDER_SHARE, ONE_RUN_SHARE = 0.5, 0.5
# Whether all scores come from one training run, or each from its own run.
TrainingRuns = Literal["one", "many"]


class CoinScores(NamedTuple):
    """The scores of canaries that were planted or withheld by coin flips, and the probability with which they were planted.

    >>> CoinScores(membership_scores([2.0, 3.0], [1.0]), inclusion=0.5).inclusion
    0.5
    """

    scores: MembershipScores
    inclusion: float = 0.5


class CoinTest:
    """The test of `best` for one training run, which assumes only the coins."""

    def __init__(
        self, coins: CoinScores | None, delta: float, seed: int, why_no_coins: str = NO_COINS
    ) -> None:
        self.n = 0
        self.assumptions: tuple[str, ...] = ()
        self._ladder: OneRunLadder | None = None
        # Why there is no test. Whether there is one depends on the numbers of canaries, and never on their scores.
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
        """The p-value of (epsilon, delta): an upper limit on the probability of scores that separate this well; 1 without a test."""
        return 1.0 if self._ladder is None else self._ladder.p_value(epsilon, delta)


class IndependentTest:
    """The tests of the bound for independent scores, each with its share of the error."""

    problem: str | None = None

    def __init__(self, scores: MembershipScores, coins: CoinScores | None, delta: float, seed: int) -> None:
        self.n = sum(map(len, scores))
        self._ladder = ThresholdLadder(scores, seed)
        self._coins = CoinTest(coins, delta, seed)
        self.assumptions: tuple[str, ...] = THRESHOLD_ASSUMPTIONS
        if self._coins.problem is None:
            self.assumptions = tuple(dict.fromkeys((*THRESHOLD_ASSUMPTIONS, *self._coins.assumptions)))

    def p_value(self, epsilon: float, delta: float) -> float:
        """The p-value of (epsilon, delta): an upper limit on the probability of scores that separate both sides this well."""
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
    runs: TrainingRuns,
    why_no_coins: str = NO_COINS,
) -> CoinTest | IndependentTest:
    """The test that assumes what one training run, or many, provide, and nothing more."""
    if runs not in ("one", "many"):
        raise InputError(
            f'runs must be "one" or "many", got {runs!r}; give the one that the scores come from'
        )
    if runs == "one":
        return CoinTest(coins, delta, seed, why_no_coins)
    return IndependentTest(scores, coins, delta, seed)


def epsilon_best(
    in_scores: ArrayLike,
    out_scores: ArrayLike,
    *,
    coins: CoinScores | None = None,
    runs: TrainingRuns = "one",
    delta: float = 0.0,
    confidence: float = 0.95,
    copies: int = 1,
    seed: int = 0,
    why_no_coins: str = NO_COINS,
) -> Estimate:
    """The headline lower bound on epsilon, which assumes only what the training runs provide.

    Scores are higher for what was trained on. `coins` has the scores of the canaries that were planted or withheld by coin flips.
    With `runs="one"` only they count, and without them nothing is measured. With `runs="many"` the scores are independent, and the
    ladder of thresholds takes part. `copies` is how often each canary was planted; the bound is then for one copy. `why_no_coins`
    becomes the reason where there are no coins.

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
    """The strongest lower bound on epsilon for independent scores, which those of one training run are not quite.

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
    runs: TrainingRuns = "one",
    delta: float = 0.0,
    confidence: float = 0.95,
    copies: int = 1,
    seed: int = 0,
) -> float:
    """The highest that `epsilon_best` can be for this many scores: its value for scores that do not overlap; 0 without one.

    `inclusion` is the probability with which the canaries of `coin_counts` were planted. With `copies` it is the highest for one copy.

    >>> epsilon_ceiling(5, 5, coin_counts=(5, 5)) < epsilon_ceiling(100, 100, coin_counts=(100, 100))
    True
    """
    coins = None if coin_counts is None else CoinScores(_apart(*coin_counts), inclusion)
    apart = _apart(in_count, out_count)
    best = epsilon_best(
        *apart, coins=coins, runs=runs, delta=delta, confidence=confidence, copies=copies, seed=seed
    )
    return best.low or 0.0


def _apart(in_count: int, out_count: int) -> MembershipScores:
    return membership_scores(np.ones(in_count), np.zeros(out_count))
