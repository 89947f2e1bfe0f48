"""Lower bounds on epsilon from a single training run, in which each canary was planted or withheld by a coin.

Of m canaries, each planted by a fair coin, an auditor guesses r, "in" or "out", abstains from the rest, and is right C times. If
training is (epsilon, delta) private, then however the canaries depend on each other, two inequalities hold for every v:

- P(C >= v) <= P(B >= v) + 2 m delta max over i in 1 .. v of P(v - i <= B < v) / i, where B is binomial with r trials of probability
  exp(epsilon) / (1 + exp(epsilon)) (Privacy Auditing with One (1) Training Run; Steinke, Nasr and Jagielski, 2023,
  arXiv:2305.08846).
- Flipping the coin of one canary turns a right guess into a wrong one and leaves the guesses about all others as they were. Summed
  over canaries, E[C; C > j] <= exp(epsilon) E[r - C; C >= j] + m delta for every j (as in Auditing f-Differential Privacy in One
  Run; Mahloujifar, Melis and Chaudhuri, 2024, arXiv:2410.22235, for any trade-off curve). The largest P(C >= v) that these
  inequalities allow has all of it at v and a binomial shape below, which gives it in closed form.

The first is exact for delta = 0; the second is nearly so, and pays less for delta. Both bound the same probability, so the smaller
one is the p-value.

The guesses must not depend on the coins. Either the r / 2 highest scores are guessed "in" and the r / 2 lowest "out", or only the r
highest are guessed "in", which finds the few that are memorized among many that are not. The numbers of guesses are m, m / 4,
m / 16, ..., and the error is shared among all of these.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine.errors import InputError
from coalmine.randomness import arrays
from coalmine.records import Estimate
from coalmine.statistics.epsilon.lower_bounds import largest_refuted, lower_bound
from coalmine.statistics.scores import (
    FloatArray,
    MembershipScores,
    checked_confidence,
    checked_count,
    checked_delta,
    membership_scores,
)

METHOD = "one training run"
FEWEST_GUESSES = 6
# A mechanism may reveal r random canaries with probability m delta / r, so too few guesses refute nothing.
GUESSES_PER_FAILURE = 250
# Counts of in and out that the declared coin gives with less than this probability are not accepted as its counts.
UNFAIR = 1e-3


def coin_assumptions(inclusion: float = 0.5) -> tuple[str, ...]:
    """What the bound assumes, for coins that plant with probability `inclusion`."""
    return (
        f"each canary was planted or withheld by its own coin flip, and planted with probability {inclusion:g}",
        "the scores depend on the coin flips only through the model",
    )


class Guesses(NamedTuple):
    """Of `canaries` that were assigned by coin flips, `guessed` were guessed, and `right` of these guesses were right."""

    canaries: int
    guessed: int
    right: int


class OneRunTest:
    """The test for one number of guesses: its p-value as a function of epsilon and delta."""

    def __init__(self, guesses: Guesses) -> None:
        from scipy.special import gammaln

        m, r, v = guesses
        if not 0 <= v <= r <= m:
            raise InputError(f"right, guessed and canaries must be in ascending order, got {v}, {r} and {m}")
        self.guesses = guesses
        fewer = np.arange(v - 1, -1, -1, dtype=np.float64)  # v - i for i = 1 .. v
        self._fewer: FloatArray = fewer
        self._log_ways: FloatArray = gammaln(r + 1.0) - gammaln(fewer + 1.0) - gammaln(r - fewer + 1.0)

    def p_value(self, epsilon: float, delta: float) -> float:
        """An upper limit on the probability of this many right guesses, if (epsilon, delta) holds.

        >>> OneRunTest(Guesses(canaries=3, guessed=3, right=3)).p_value(0.0, 0.0)
        0.125
        """
        if delta == 0.0:
            return self.dominated(epsilon, delta)
        return min(self.dominated(epsilon, delta), self.averaged(epsilon, delta))

    def dominated(self, epsilon: float, delta: float) -> float:
        """The first inequality, of Steinke, Nasr and Jagielski (2023, arXiv:2305.08846)."""
        from scipy.special import betainc

        m, r, v = self.guesses
        if v == 0:
            return 1.0
        as_many = float(betainc(v, r - v + 1.0, math.exp(-np.logaddexp(0.0, -epsilon))))
        if delta == 0.0:
            return as_many
        chances = self._chances(epsilon, self._fewer, self._log_ways)
        steepest = float(np.max(np.cumsum(chances) / np.arange(1.0, v + 1.0)))
        return min(1.0, as_many + 2.0 * m * delta * steepest)

    def averaged(self, epsilon: float, delta: float) -> float:
        """The second inequality: the largest probability that flipping single coins allows.

        With all of it at v, the inequality at v - 1 requires P(C = v - 1) to be at least (slack P(C >= v) - m delta exp(-epsilon)) /
        (r - v + 1), those below require the ratios of the binomial distribution, and the total is at most 1.

        >>> test = OneRunTest(Guesses(canaries=60, guessed=20, right=20))
        >>> round(test.dominated(1.0, 1e-3), 4), round(test.averaged(1.0, 1e-3), 4)
        (0.0166, 0.0049)
        """
        from scipy.special import betaincc

        m, r, v = self.guesses
        odds = math.exp(-epsilon)
        slack = odds * v - (r - v)
        if v == 0 or slack <= 0.0:
            return 1.0
        below = float(betaincc(v, r - v + 1.0, math.exp(-np.logaddexp(0.0, -epsilon))))
        if below <= 0.0:
            return 1.0
        steps = self._chances(epsilon, self._fewer[:1], self._log_ways[:1]).item() * (r - v + 1.0) / below
        return min(1.0, (steps + odds * m * delta) / (steps + slack))

    def _chances(self, epsilon: float, right: FloatArray, log_ways: FloatArray) -> FloatArray:
        """Binomial probabilities of these numbers of right guesses."""
        # 1 / (1 + exp(epsilon)) and its complement as logarithms, because the first is tiny where the second is close to 1.
        log_wrong, log_right = -np.logaddexp(0.0, epsilon), -np.logaddexp(0.0, -epsilon)
        return np.asarray(np.exp(log_ways + right * log_right + (self.guesses.guessed - right) * log_wrong))


class OneRunLadder:
    """The tests for several numbers of guesses, each with its share of the error."""

    def __init__(self, scores: MembershipScores, delta: float, seed: int = 0) -> None:
        in_places, out_places = scores.places(seed)
        is_in = np.zeros(len(in_places) + len(out_places), dtype=bool)
        is_in[in_places] = True
        m = len(is_in)
        fewest = min(max(FEWEST_GUESSES, GUESSES_PER_FAILURE * m * delta), max(m, FEWEST_GUESSES))
        numbers = guess_numbers(m, fewest)
        self.tests = [OneRunTest(guesses_at_ends(is_in, r)) for r in numbers]
        self.tests += [OneRunTest(guesses_at_top(is_in, r)) for r in numbers[1:]]
        # The next number of guesses takes its share gradually. If it took it all at once, one more canary would loosen the bound.
        self.shares = 1.0 + 2.0 * math.log(max(m, fewest) / fewest, 4)

    def p_value(self, epsilon: float, delta: float) -> float:
        """The p-value of (epsilon, delta): an upper limit on the probability of scores that separate both sides this well."""
        if not self.tests:
            return 1.0
        return min(1.0, self.shares * min(test.p_value(epsilon, delta) for test in self.tests))


def guess_numbers(canaries: int, fewest: float = FEWEST_GUESSES) -> list[int]:
    """The numbers of guesses that are tried: all (except for an odd one), a quarter, a sixteenth, ..., down to `fewest`.

    >>> guess_numbers(401)
    [400, 100, 24, 6]
    """
    numbers = []
    while canaries >= fewest:
        numbers.append(canaries - canaries % 2)
        canaries //= 4
    return numbers


def guesses_at_ends(is_in: NDArray[np.bool_], guessed: int) -> Guesses:
    """Guess "in" for the highest and "out" for the lowest scores, half each; `is_in` is ordered by score, lowest first."""
    each = guessed // 2
    right = int(np.sum(~is_in[:each])) + int(np.sum(is_in[len(is_in) - each :]))
    return Guesses(canaries=len(is_in), guessed=guessed, right=right)


def guesses_at_top(is_in: NDArray[np.bool_], guessed: int) -> Guesses:
    """Guess "in" for the highest scores and abstain from the others."""
    return Guesses(len(is_in), guessed, int(np.sum(is_in[len(is_in) - guessed :])))


def one_run_bound(
    canaries: int,
    guessed: int,
    right: int,
    *,
    delta: float = 0.0,
    confidence: float = 0.95,
    copies: int = 1,
) -> Estimate:
    """The lower bound on epsilon for a number of guesses that was fixed in advance (Steinke, Nasr and Jagielski, 2023, arXiv:2305.08846).

    >>> print(one_run_bound(canaries=1000, guessed=100, right=95, delta=1e-5).statement)
    epsilon is at least 2.16 at delta 1e-05 (95% confidence): 95 of 100 guesses right, 900 abstentions
    """
    counts = [
        checked_count(number + 1, name) - 1 for number, name in ((guessed, "guessed"), (right, "right"))
    ]
    guesses = Guesses(checked_count(canaries, "canaries"), *counts)
    test, level = OneRunTest(guesses), checked_confidence(confidence)
    epsilon = largest_refuted(lambda e, d: test.p_value(e, d) <= 1.0 - level, checked_delta(delta), copies)
    return lower_bound(
        METHOD,
        epsilon,
        delta=delta,
        confidence=level,
        n=canaries,
        assumptions=coin_assumptions(),
        basis=f"{right:,} of {guessed:,} guesses right, {canaries - guessed:,} abstentions",
    )


def epsilon_one_run(
    in_scores: ArrayLike,
    out_scores: ArrayLike,
    *,
    delta: float = 0.0,
    confidence: float = 0.95,
    copies: int = 1,
    inclusion: float = 0.5,
    seed: int = 0,
) -> Estimate:
    """A lower bound on epsilon from canaries that were planted or withheld by coin flips, in one training run.

    Scores are higher for what was trained on. Only canaries with a coin may be given, so no references that could not have been
    planted. `inclusion` is the probability with which a canary was planted; where it is not 0.5, canaries of the likelier side are
    dropped at random until the coin is fair. `copies` is how often each was planted; the bound is then for one copy.

    >>> scores = np.arange(100.0)
    >>> epsilon_one_run(scores + 90, scores).low > 1
    True
    """
    level, scores = checked_confidence(confidence), membership_scores(in_scores, out_scores)
    delta, n = checked_delta(delta), sum(map(len, scores))
    problem = coin_problem(scores, inclusion)
    if problem is not None:
        return Estimate.not_measured(METHOD, problem, n)
    ladder = OneRunLadder(thinned(scores, inclusion, seed), delta, seed)
    if not ladder.tests:
        reason = (
            f"{n} canaries are too few for a bound from one training run: it takes at least {FEWEST_GUESSES}"
        )
        return Estimate.not_measured(METHOD, reason, n)
    epsilon = largest_refuted(lambda e, d: ladder.p_value(e, d) <= 1.0 - level, delta, copies)
    used = ladder.tests[0].guesses.canaries
    warnings = (
        (
            f"{used:,} of {n:,} canaries are used: the likelier side was thinned at random to make the coin fair",
        )
        if used < n
        else ()
    )
    return lower_bound(
        METHOD,
        epsilon,
        delta=delta,
        confidence=level,
        n=used,
        assumptions=coin_assumptions(inclusion),
        warnings=warnings,
    )


def coin_problem(scores: MembershipScores, inclusion: float) -> str | None:
    """Why these counts cannot come from such coins, or None where they can."""
    from scipy.special import bdtr, bdtrc

    if not 0.0 < inclusion < 1.0:
        raise InputError(
            f"the probability of inclusion must be strictly between 0 and 1, got {inclusion}; give that of the coin"
        )
    m, n = len(scores.in_scores), len(scores.out_scores)
    tails = bdtr(m, m + n, inclusion), bdtrc(m - 1, m + n, inclusion) if m else 1.0
    if 2.0 * min(tails) < UNFAIR:
        return (
            f"{m:,} in and {n:,} out are not plausible for coins that plant with probability {inclusion:g}, and a bound from one "
            "training run needs coins: plant with --withhold 0.5, or give their probability with --inclusion"
        )
    return None


def thinned(scores: MembershipScores, inclusion: float, seed: int) -> MembershipScores:
    """The scores as a fair coin would have assigned them: some of the likelier side are dropped at random."""
    if inclusion == 0.5:
        return scores
    chance = arrays(seed, "membership", "fair coin", *map(len, scores))
    in_kept, out_kept = (
        int(chance.binomial(len(side), min(1.0, (1.0 - probability) / probability)))
        for side, probability in zip(scores, (inclusion, 1.0 - inclusion), strict=True)
    )
    return scores.part(in_kept, out_kept, seed, "fair coin")
