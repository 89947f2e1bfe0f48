"""The verdict on a claimed (epsilon, delta): consistent with the scores, violated by them, or beyond the audit's power.

The test is that of the headline bound: for one training run it assumes only the coins.

A claim that was not refuted means something only if the audit would have refuted a worse mechanism. So the power is computed: the
probability that this very test, on as many canaries, refutes the claim when the mechanism leaks twice the claimed epsilon (and at
least 1 more) in the clearest possible way: it reveals membership with probability delta, and otherwise answers by randomized
response, which dominates every (epsilon, delta) mechanism (Kairouz, Oh and Viswanath, The Composition Theorem for Differential
Privacy, 2013, arXiv:1311.0776).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from coalmine.randomness import arrays
from coalmine.records.estimate import Amount, Level, Positive, Share
from coalmine.statistics.epsilon.best import (
    NO_COINS,
    CoinScores,
    CoinTest,
    IndependentTest,
    TrainingRuns,
    headline_test,
)
from coalmine.statistics.epsilon.lower_bounds import group_delta
from coalmine.statistics.epsilon.thresholds import SMALLEST_P_VALUE
from coalmine.statistics.scores import (
    FloatArray,
    MembershipScores,
    checked_confidence,
    checked_count,
    checked_delta,
    checked_epsilon,
    membership_scores,
)

TOO_LITTLE_POWER = "the audit has too little power to say"
Outcome = Literal["consistent", "violated", "too little power"]
# The power that an audit needs for "not refuted" to count as consistent.
ENOUGH_POWER = 0.8
MOST_AUDITS, FEWEST_AUDITS = 100, 20
# The most scores on one side of a simulated audit, and in all of them.
MOST_SIMULATED, MOST_IN_ALL = 200_000, 2_000_000


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the scores show about a claimed (epsilon, delta).

    >>> judge_claim([9.0] * 50, [1.0] * 50, claimed_epsilon=0.5, runs="many").outcome
    'violated'
    """

    outcome: Outcome
    # "consistent", "violated at 95%" or "the audit has too little power to say".
    words: str
    claimed_epsilon: Amount
    claimed_delta: Share
    # How often each canary was planted; the claim is for one copy.
    copies: Positive
    confidence: Level
    # An upper limit on the probability of scores that separate both sides this well, if the claim holds.
    p_value: Share
    # The probability of detecting a mechanism that leaks `alternative_epsilon`; None where a violation was found.
    power: Share | None
    alternative_epsilon: Amount
    statement: str
    # The reason, which ends the statement; empty in files of earlier versions.
    why: str = ""


def judge_claim(
    in_scores: ArrayLike,
    out_scores: ArrayLike,
    *,
    claimed_epsilon: float,
    claimed_delta: float = 0.0,
    coins: CoinScores | None = None,
    runs: TrainingRuns = "one",
    confidence: float = 0.95,
    copies: int = 1,
    seed: int = 0,
    why_no_coins: str = NO_COINS,
) -> Verdict:
    """The verdict on a claim of (epsilon, delta) privacy for one record; the scores, `coins` and `runs` are as in `epsilon_best`.

    >>> scores = np.arange(300.0)
    >>> judge_claim(scores + 290, scores, claimed_epsilon=0.5, runs="many").words
    'violated at 95%'
    >>> judge_claim(scores, scores, claimed_epsilon=0.5, runs="many").words
    'consistent'
    >>> judge_claim(scores + 290, scores, claimed_epsilon=0.5).words  # one run, and no coins
    'the audit has too little power to say'
    """
    scores, level = membership_scores(in_scores, out_scores), checked_confidence(confidence)
    epsilon, delta = checked_epsilon(claimed_epsilon), checked_delta(claimed_delta)
    copies = checked_count(copies, "copies")
    test = headline_test(scores, coins, delta, seed, runs, why_no_coins)
    p_value = _p_value(test, epsilon, delta, copies)
    alternative = max(2.0 * epsilon, epsilon + 1.0)
    power_of = partial(claim_power, scores, coins, copies=copies, confidence=level, seed=seed, runs=runs)
    power_of_test = partial(power_of, claim=(epsilon, delta), alternative=(alternative, delta))
    outcome, power, why = _outcome(p_value, level, test.problem, power_of_test, alternative)
    words = verdict_words(outcome, level)
    return Verdict(
        outcome=outcome,
        words=words,
        claimed_epsilon=epsilon,
        claimed_delta=delta,
        copies=copies,
        confidence=level,
        p_value=p_value,
        power=power,
        alternative_epsilon=alternative,
        statement=verdict_statement(epsilon, delta, words, why),
        why=why,
    )


def _outcome(
    p_value: float, level: float, problem: str | None, power_of_test: Callable[[], float], alternative: float
) -> tuple[Outcome, float | None, str]:
    """The outcome, the power where no violation was found, and the reason in words."""
    if p_value <= 1.0 - level:
        shown = f"at most {p_value:.2g}" if p_value > SMALLEST_P_VALUE else "below 1e-12"
        return (
            "violated",
            None,
            f"if the claim held, the probability of scores that separate this well would be {shown}",
        )
    if problem is not None:
        return "too little power", 0.0, problem
    power = power_of_test()
    why = (
        f"the audit would have detected a mechanism that leaks an epsilon of {alternative:g} as clearly as possible with "
        f"probability {power:.2f}"
    )
    return ("consistent" if power >= ENOUGH_POWER else "too little power"), power, why


def verdict_words(outcome: Outcome, confidence: float) -> str:
    """An outcome as it is shown.

    >>> verdict_words("violated", 0.95)
    'violated at 95%'
    """
    shown = {"violated": f"violated at {100 * confidence:g}%", "too little power": TOO_LITTLE_POWER}
    return shown.get(outcome, outcome)


def verdict_statement(epsilon: float, delta: float, words: str, why: str) -> str:
    """The verdict on a claim in a sentence."""
    return f"claimed epsilon {epsilon:g} at delta {delta:g}: {words}; {why}"


def claim_p_value(
    scores: MembershipScores,
    coins: CoinScores | None,
    epsilon: float,
    delta: float,
    copies: int,
    seed: int,
    runs: TrainingRuns = "one",
) -> float:
    """The p-value of a claim for one record, where each canary was planted `copies` times."""
    return _p_value(headline_test(scores, coins, delta, seed, runs), epsilon, delta, copies)


def _p_value(test: CoinTest | IndependentTest, epsilon: float, delta: float, copies: int) -> float:
    whole = group_delta(epsilon, delta, copies)
    if whole >= 1.0:
        return 1.0
    return max(SMALLEST_P_VALUE, test.p_value(copies * epsilon, whole))


def claim_power(
    scores: MembershipScores,
    coins: CoinScores | None,
    *,
    claim: tuple[float, float],
    alternative: tuple[float, float],
    copies: int,
    confidence: float,
    seed: int,
    runs: TrainingRuns = "one",
) -> float:
    """The share of simulated audits of the same size that refute the claim when the mechanism is the alternative.

    Sides with more than 200,000 scores are simulated with that many, which gives slightly less power than there is.
    """
    sides = [*map(len, scores), *(map(len, coins.scores) if coins is not None else (0, 0))]
    in_count, out_count, coin_in, coin_out = (min(side, MOST_SIMULATED) for side in sides)
    leak = copies * alternative[0], group_delta(*alternative, copies)
    found = 0
    audits = min(MOST_AUDITS, max(FEWEST_AUDITS, MOST_IN_ALL // (in_count + out_count)))
    for number in range(audits):
        chance = arrays(seed, "membership", "power", number)
        made_in = revealing_response(*leak, max(in_count, coin_in), chance)
        made_out = -revealing_response(*leak, max(out_count, coin_out), chance)
        made = MembershipScores(made_in[:in_count], made_out[:out_count])
        tossed = None
        if coins is not None:
            tossed = CoinScores(MembershipScores(made_in[:coin_in], made_out[:coin_out]), coins.inclusion)
        found += int(claim_p_value(made, tossed, *claim, copies, seed, runs) <= 1.0 - confidence)
    return float(found / audits)


def revealing_response(epsilon: float, delta: float, count: int, chance: np.random.Generator) -> FloatArray:
    """Scores of members under the least private (epsilon, delta) mechanism; those of non-members are their negatives.

    2 reveals membership; 1 and -1 are randomized response.
    """
    truthful = chance.random(count) < 1.0 / (1.0 + math.exp(-epsilon))
    revealed = chance.random(count) < delta
    return np.where(revealed, 2.0, np.where(truthful, 1.0, -1.0))
