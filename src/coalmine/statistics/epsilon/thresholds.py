"""Lower bounds on epsilon from the true- and false-positive rates at thresholds that were chosen without cheating.

(epsilon, delta) privacy allows no threshold at which TPR > exp(epsilon) FPR + delta, and none at which 1 - FPR > exp(epsilon)
(1 - TPR) + delta (Kairouz, Oh and Viswanath, The Composition Theorem for Differential Privacy, 2013, arXiv:1311.0776). Rates are
known from counts only, and a threshold that was picked because its counts look good must pay for that. There are three valid ways:

- fixed: the threshold was chosen before the scores were seen; Clopper-Pearson on both rates, each with half of the error, as in
  Auditing Differentially Private Machine Learning: How Private is Private SGD? (Jagielski, Ullman and Oprea, 2020,
  arXiv:2006.07709);
- split: some of the scores choose the threshold, and the rest are counted as if it had been fixed;
- ladder: a few thresholds that are defined by how many scores of the other side are above them: 0, 3, 15, 63, ... The error is
  shared among them by fixed weights, so more canaries add rungs and take next to nothing from the existing ones.

For the ladder the test of one rung is exact. The rate at which the other side is above its own k-th largest score is, at most, a
beta variable F with parameters k and n - k + 1, and the count x of m on this side is binomial given the threshold. So the
probability of a count this high, if (epsilon, delta) holds, is P(G <= exp(epsilon) F + delta), where G is beta with x, m - x + 1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from coalmine.errors import InputError
from coalmine.records import Estimate
from coalmine.statistics.epsilon.beta_comparison import BetaPairs
from coalmine.statistics.epsilon.lower_bounds import LARGEST_EPSILON, largest_refuted, lower_bound
from coalmine.statistics.intervals import clopper_pearson
from coalmine.statistics.roc import INDEPENDENCE, SAME_DRAW
from coalmine.statistics.scores import (
    FloatArray,
    IntArray,
    MembershipScores,
    checked_confidence,
    checked_delta,
    membership_scores,
)

ASSUMPTIONS = (INDEPENDENCE, SAME_DRAW)
# The k-th largest score of the other side, for k = 1, 4, 16, ..., and the share of the side's error that each rung gets. The middle
# rungs get most, because small counts are uncertain and high rates show little.
RUNGS = tuple(4**place for place in range(10))
RUNG_WEIGHTS = (0.12, 0.18, 0.22, 0.18, 0.12, 0.07, 0.05, 0.03, 0.02, 0.01)
CHOOSING_SHARE = 0.2
# The integrals leave out less than this, so no smaller p-value is reported.
SMALLEST_P_VALUE = 1e-12
# Standard errors by which a chosen threshold should clear the bound. With 2 to 3, splitting gave the highest bounds on normal scores.
CAUTION = 2.5


class ThresholdCounts(NamedTuple):
    """The counts at a threshold: `hits` of `trials` scores are claimed correctly, `errors` of `others` wrongly.

    >>> ThresholdCounts(hits=90, trials=100, errors=10, others=100).refutes(1.0, 0.0, confidence=0.95)
    True
    """

    hits: int
    trials: int
    errors: int
    others: int

    def refutes(self, epsilon: float, delta: float, confidence: float) -> bool:
        """Whether the Clopper-Pearson limits, each at half of the error, exclude (epsilon, delta)."""
        # Two-sided limits at `confidence` err on each side with half of the error.
        if epsilon > LARGEST_EPSILON:
            return False
        least = clopper_pearson(self.hits, self.trials, confidence)[0]
        most = clopper_pearson(self.errors, self.others, confidence)[1]
        return least - delta > math.exp(epsilon) * most


class ThresholdRule(NamedTuple):
    """An attack that says "in" above the threshold, or "out" below it."""

    threshold: float
    says_in: bool

    def counts(self, scores: MembershipScores) -> ThresholdCounts:
        """The counts of the rule; scores equal to the threshold are not claimed."""
        if self.says_in:
            own, other = scores.in_scores > self.threshold, scores.out_scores > self.threshold
        else:
            own, other = scores.out_scores < self.threshold, scores.in_scores < self.threshold
        return ThresholdCounts(int(own.sum()), len(own), int(other.sum()), len(other))

    def in_words(self) -> str:
        """The rule as part of a sentence."""
        side, place = ("in", "above") if self.says_in else ("out", "below")
        return f'"{side}" {place} {self.threshold:.6g}'


def epsilon_fixed(
    in_scores: ArrayLike,
    out_scores: ArrayLike,
    threshold: float,
    *,
    delta: float = 0.0,
    confidence: float = 0.95,
    copies: int = 1,
) -> Estimate:
    """A lower bound on epsilon from "in above `threshold`", which must have been chosen before the scores were seen.

    `copies` is how often each canary was planted; the bound is then for one copy. Epsilon has no unit (it is a natural logarithm).

    >>> print(epsilon_fixed([1.0] * 90 + [0.0] * 10, [1.0] * 10 + [0.0] * 90, 0.5).statement)
    epsilon is at least 1.54 (95% confidence): 90 of 100 in and 10 of 100 out, "in" above 0.5
    """
    scores = membership_scores(in_scores, out_scores)
    if not math.isfinite(threshold):
        raise InputError(
            f"a threshold must be a finite number, got {threshold}; choose one between the scores"
        )
    rule = ThresholdRule(float(threshold), says_in=True)
    return _counted("Clopper-Pearson, threshold fixed before", scores, rule, delta, confidence, copies)


def epsilon_split(
    in_scores: ArrayLike,
    out_scores: ArrayLike,
    *,
    delta: float = 0.0,
    confidence: float = 0.95,
    copies: int = 1,
    choosing_share: float = CHOOSING_SHARE,
    seed: int = 0,
) -> Estimate:
    """A lower bound on epsilon by sample splitting: a random share of the scores chooses the threshold, the rest are counted.

    >>> scores = np.arange(200.0)
    >>> epsilon_split(scores + 150, scores).low > 1
    True
    """
    method = "Clopper-Pearson, threshold chosen on a part"
    scores = membership_scores(in_scores, out_scores)
    parts = split_scores(scores, choosing_share, seed)
    if parts is None:
        return Estimate.not_measured(
            method,
            f"{len(scores.in_scores)} in and {len(scores.out_scores)} out scores are too few to choose a threshold on one part and "
            "count on the other: it takes at least 2 of each",
            sum(map(len, scores)),
        )
    choosing, counted = parts
    rule = chosen_rule(choosing, counted, delta=checked_delta(delta))
    return _counted(method, counted, rule, delta, confidence, copies)


def split_scores(
    scores: MembershipScores, choosing_share: float, seed: int
) -> tuple[MembershipScores, MembershipScores] | None:
    """A random part of both sides, and the rest; None where a side has only one score."""
    if not 0.0 < choosing_share < 1.0:
        raise InputError(f"the choosing share must be strictly between 0 and 1, got {choosing_share}")
    chance = scores.chance(seed, "split")
    first, second = [], []
    for side in scores:
        if len(side) < 2:
            return None
        mixed = chance.permutation(side)
        cut = min(len(side) - 1, max(1, round(choosing_share * len(side))))
        first.append(mixed[:cut])
        second.append(mixed[cut:])
    return MembershipScores(*first), MembershipScores(*second)


def chosen_rule(choosing: MembershipScores, counted: MembershipScores, *, delta: float) -> ThresholdRule:
    """The rule that promises the highest bound for as many scores as will be counted, judged by the choosing part alone."""
    best, best_promise = ThresholdRule(float(np.median(choosing.out_scores)), says_in=True), -np.inf
    for says_in in (True, False):
        sign = 1.0 if says_in else -1.0
        own, other = (sign * side for side in (choosing if says_in else choosing[::-1]))
        trials, others = (len(side) for side in (counted if says_in else counted[::-1]))
        thresholds = np.unique(np.concatenate([own, other]))
        own_rate = 1.0 - np.searchsorted(np.sort(own), thresholds, side="right") / len(own)
        errors = len(other) - np.searchsorted(np.sort(other), thresholds, side="right")
        # Half an error more than was counted: where there was none, one may have been close.
        other_rate = (errors + 0.5) / (len(other) + 1.0)
        uncertainty = np.sqrt(1.0 / np.maximum(own_rate * trials, 0.5) + 1.0 / (other_rate * others + 0.5))
        room = np.maximum(own_rate - delta, 1e-300)
        promises = np.log(room / (other_rate + 0.5 / others)) - CAUTION * uncertainty
        place = int(np.argmax(promises))
        if promises[place] > best_promise:
            best_promise = promises[place]
            best = ThresholdRule(float(sign * thresholds[place]), says_in)
    return best


def _counted(
    method: str, scores: MembershipScores, rule: ThresholdRule, delta: float, confidence: float, copies: int
) -> Estimate:
    level = checked_confidence(confidence)
    counts = rule.counts(scores)
    epsilon = largest_refuted(lambda e, d: counts.refutes(e, d, level), delta, copies)
    own, other = ("in", "out") if rule.says_in else ("out", "in")
    return lower_bound(
        method,
        epsilon,
        delta=delta,
        confidence=level,
        n=counts.trials + counts.others,
        assumptions=ASSUMPTIONS,
        basis=(
            f"{counts.hits:,} of {counts.trials:,} {own} and {counts.errors:,} of {counts.others:,} {other}, {rule.in_words()}"
        ),
    )


class ThresholdLadder:
    """The exact tests of all rungs of both sides."""

    def __init__(self, scores: MembershipScores, seed: int = 0) -> None:
        in_places, out_places = scores.places(seed)
        rungs = [_rungs(in_places, out_places), _rungs(-out_places, -in_places)]
        hits, trials, rank, others, weights = (
            np.concatenate([np.asarray(side[field], dtype=np.float64) for side in rungs])
            for field in range(5)
        )
        promised = sum(_promised_weight(side) for side in map(len, scores))
        self.n = sum(map(len, scores))
        # A rung without a hit refutes nothing.
        reached = hits > 0
        self._weights: FloatArray = weights[reached] / promised
        self._pairs = BetaPairs(
            hits[reached], (trials - hits + 1.0)[reached], rank[reached], (others - rank + 1.0)[reached]
        )

    def p_value(self, epsilon: float, delta: float) -> float:
        """The p-value of (epsilon, delta): an upper limit on the probability of scores that separate both sides this well."""
        if not len(self._weights) or epsilon > LARGEST_EPSILON:
            return 1.0
        below = self._pairs.probability_below(math.exp(epsilon), delta)
        return min(1.0, max(SMALLEST_P_VALUE, float(np.min(below / self._weights))))


def _promised_weight(others: int) -> float:
    """The total weight of the rungs that this many scores of the other side give, and the part of the next rung that is set aside.

    If the next rung took its share all at once, one more canary would loosen the bound. The part that is set aside grows more
    slowly with the canaries than what they contribute.

    >>> _promised_weight(1), _promised_weight(8) - _promised_weight(7) < 0.03
    (0.12, True)
    """
    ready = np.clip(1.0 + np.log(others / (2.0 * np.array(RUNGS))) / math.log(4.0), 0.0, 1.0)
    ready[0] = 1.0
    return float(ready @ RUNG_WEIGHTS)


def _rungs(own: IntArray, other: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray, FloatArray]:
    """For each rung: how many of `own` are above it, of how many, its k, of how many, and its weight."""
    # Past the middle of the other side a false-positive rate is higher than any attacker would accept.
    usable = [k for k in RUNGS if k <= max(1, len(other) // 2)]
    rank = np.array(usable, dtype=np.int64)
    thresholds = np.sort(other)[::-1][rank - 1]
    hits = len(own) - np.searchsorted(np.sort(own), thresholds, side="right")
    return (
        hits.astype(np.int64),
        np.full(len(rank), len(own)),
        rank,
        np.full(len(rank), len(other)),
        np.array(RUNG_WEIGHTS[: len(rank)]),
    )


def epsilon_ladder(
    in_scores: ArrayLike,
    out_scores: ArrayLike,
    *,
    delta: float = 0.0,
    confidence: float = 0.95,
    copies: int = 1,
    seed: int = 0,
) -> Estimate:
    """A lower bound on epsilon from a ladder of thresholds on both sides, corrected for their number; `seed` only breaks ties.

    >>> scores = np.arange(200.0)
    >>> epsilon_ladder(scores + 150, scores).low > 3
    True
    """
    level = checked_confidence(confidence)
    ladder = ThresholdLadder(membership_scores(in_scores, out_scores), seed)
    epsilon = largest_refuted(lambda e, d: ladder.p_value(e, d) <= 1.0 - level, delta, copies)
    return lower_bound(
        "exact test, ladder of thresholds",
        epsilon,
        delta=delta,
        confidence=level,
        n=ladder.n,
        assumptions=ASSUMPTIONS,
    )
