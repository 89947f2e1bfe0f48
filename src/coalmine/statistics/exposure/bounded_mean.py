"""A confidence interval for the mean of numbers between 0 and 1 that holds for any distribution and any sample size.

The interval is found by betting (Estimating Means of Bounded Random Variables by Betting; Waudby-Smith and Ramdas, 2020,
arXiv:2010.09686). To test whether the mean is m, a gambler with a capital of 1 multiplies it, for each value x, by
(1 + b x) / (1 + b m), where the bet b > -1 was chosen before x was seen. If the mean is m, each factor is 1 on average, so by
Ville's inequality the capital ever reaches 1 / a with probability at most a: every m at which it did can be excluded. A bet b > 0
wins where m is too low and gives the low limit, one with b < 0 gives the high limit, and each side gets half of the error.

In this form of the bet the logarithm of the capital is a sum over the values minus a sum over the bets, and monotone in m. The bets
change only between blocks of draws, so a limit takes one pass over the values that are not 0 and the root of a function with one
term per block, and no grid of candidate means.

The bet of a block is the one that would give the tightest limit if all draws were like those before it. It does not depend on the
confidence, so the intervals of one sample are nested.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from coalmine.errors import InputError, NotMeasurableError
from coalmine.statistics.scores import (
    FloatArray,
    IntArray,
    checked_confidence,
    checked_count,
    number_row,
)

# Bets are chosen for the limits of a 95% interval. At 99% that costs about 3% of the width, at 50% or 99.99% about 10%.
AIMED_CAPITAL = math.log(2 / 0.05)
# Each block is half as long as all draws before it, so that the bets learn fast and there are few of them.
BLOCK_GROWTH = 1.5
# Pseudo-draws of the worst possible value, before a draw is seen: 0 would stake everything on never meeting it, and each
# further tenth widens the limit of a sample without any hit by about 5%.
PSEUDO_DRAWS = 0.2
# Bets and the values of past draws are taken from ladders with two rungs per power of 2. The ladders are long enough to
# distinguish the mean of a space of 10**40 members from 0 where the largest weight is of that order.
RUNGS_PER_OCTAVE = 2
SMALLEST_BET_OCTAVE = -14
LARGEST_RISE_OCTAVE = 150
LARGEST_FALL_OCTAVE = 14
SMALLEST_VALUE_OCTAVE = -150


class _Ladders(NamedTuple):
    """The bets to choose from, and the gain of each from a value on each rung, as natural logarithms."""

    rises: FloatArray  # (rises,), above 0
    rise_gains: FloatArray  # (rungs, rises)
    falls: FloatArray  # (falls,), between -1 and 0
    fall_gains: FloatArray  # (rungs, falls)


class _Stake(NamedTuple):
    """The history of one gambler: the log capital at m is `gained` - sum of lengths * log1p(bets * m)."""

    gained: float
    bets: FloatArray  # (blocks,)
    lengths: FloatArray  # (blocks,)


def bounded_mean_interval(values: ArrayLike, confidence: float = 0.95) -> tuple[float, float]:
    """A confidence interval for the mean of the distribution of independent draws between 0 and 1; valid for any number of them.

    It adapts to the variance: for draws that are 0 or 1 it is about 1.4 times as wide as the Clopper-Pearson interval,
    which assumes that they are, and it is far narrower where most draws are small. It always contains the mean of the draws.
    The draws must be in the order in which they were made, or in any order that does not depend on their values, because
    the bets learn from earlier draws.

    >>> low, high = bounded_mean_interval([0.0] * 10_000)
    >>> low, round(high * 10_000, 1)
    (0.0, 4.3)
    >>> low, high = bounded_mean_interval([0.4, 0.6] * 5_000)
    >>> round(low, 4), round(high, 4)
    (0.4973, 0.5028)
    """
    array = _checked_values(values)
    positions = np.flatnonzero(array)
    return sparse_mean_interval(len(array), positions, array[positions], confidence)


def sparse_mean_interval(
    n: int, positions: IntArray, values: FloatArray, confidence: float = 0.95
) -> tuple[float, float]:
    """`bounded_mean_interval` of `n` draws that are all 0 except for `values` (above 0, at most 1) at `positions`.

    >>> sparse_mean_interval(3, np.array([1]), np.array([0.5])) == bounded_mean_interval([0.0, 0.5, 0.0])
    True
    """
    needed = math.log(2.0) - math.log1p(-checked_confidence(confidence))
    rise, fall = _stakes(checked_count(n, "n"), positions, values)
    mean = min(float(values.sum()) / n, 1.0)
    # Only draws that drift can push a limit past the mean; the interval is then widened to it, which is always safe.
    return min(_low_limit(rise, needed), mean), max(_high_limit(fall, needed), mean)


def _stakes(n: int, positions: IntArray, values: FloatArray) -> tuple[_Stake, _Stake]:
    starts = _block_starts(n)
    lengths = np.diff(starts, append=n).astype(np.float64)
    blocks = np.searchsorted(starts, positions, side="right") - 1
    rises, falls = _bets(starts, blocks, values, n)
    return (
        _Stake(float(np.log1p(rises[blocks] * values).sum()), rises, lengths),
        _Stake(float(np.log1p(falls[blocks] * values).sum()), falls, lengths),
    )


def _bets(starts: IntArray, blocks: IntArray, values: FloatArray, n: int) -> tuple[FloatArray, FloatArray]:
    """The bets of each block, from the draws of the blocks before it; 0 where no bet would pay."""
    ladders = _ladders()
    rungs = len(ladders.rise_gains)
    rung = np.minimum((-RUNGS_PER_OCTAVE * np.log2(values)).astype(np.int64), rungs - 1)
    counts = np.bincount(blocks * rungs + rung, minlength=len(starts) * rungs).reshape(-1, rungs)
    before = np.cumsum(counts, axis=0) - counts  # (blocks, rungs)
    met = np.flatnonzero(before[-1])
    before = before[:, met].astype(np.float64)
    seen = starts[:, np.newaxis] + PSEUDO_DRAWS
    target = AIMED_CAPITAL / n

    # With one bet b for all n draws the limit is the m at which log1p(b m) is the mean gain minus the target.
    low_limits = np.expm1(before @ ladders.rise_gains[met] / seen - target) / ladders.rises
    rises = ladders.rises[low_limits.argmax(axis=1)]
    rises[low_limits.max(axis=1) <= 0.0] = 0.0

    # The pseudo-draw has the value 1, the worst for the high limit; for the low limit it is 0 and gains nothing.
    fall_gains = before @ ladders.fall_gains[met] + PSEUDO_DRAWS * ladders.fall_gains[0]
    high_limits = np.expm1(fall_gains / seen - target) / ladders.falls
    falls = ladders.falls[high_limits.argmin(axis=1)]
    # A high limit of 1 or more shows nothing, like a low limit of 0 or less, so no bet would be worth its risk.
    falls[high_limits.min(axis=1) >= 1.0] = 0.0

    # Nothing is known before the first draw.
    rises[0] = falls[0] = 0.0
    return rises, falls


def _low_limit(stake: _Stake, needed: float) -> float:
    """The largest m at which the capital, which falls in m, is as large as needed; 0 if there is none."""
    surplus = stake.gained - needed
    if surplus <= 0.0:
        return 0.0
    # log1p(b m) <= b m, so the root is no lower than this.
    nearest = surplus / float(stake.lengths @ stake.bets)
    return _root(stake, needed, nearest) if _log_capital(stake, 1.0) < needed else 1.0


def _high_limit(stake: _Stake, needed: float) -> float:
    """The smallest m at which the capital, which rises in m, is as large as needed; 1 if there is none."""
    if _log_capital(stake, 1.0) <= needed:
        return 1.0
    # -log1p(b m) <= -b m / (1 + b) for -1 < b <= 0 and m <= 1.
    nearest = (needed - stake.gained) / -float(stake.lengths @ (stake.bets / (1.0 + stake.bets)))
    return _root(stake, needed, nearest)


def _root(stake: _Stake, needed: float, nearest: float) -> float:
    """The m between `nearest` and 1 at which the log capital is `needed`; searched in log m, because m may be tiny."""
    from scipy.optimize import brentq

    def surplus(log_m: float) -> float:
        return _log_capital(stake, math.exp(log_m)) - needed

    # Slightly below, because rounding may put a bound that is nearly the root past it.
    lowest = math.log(nearest) - 1e-9
    return math.exp(float(brentq(surplus, min(lowest, -1e-9), 0.0, xtol=1e-13, rtol=1e-14)))


def _log_capital(stake: _Stake, m: float) -> float:
    return stake.gained - float(stake.lengths @ np.log1p(stake.bets * m))


def _block_starts(n: int) -> IntArray:
    starts = [0]
    while (start := math.ceil(max(starts[-1], 0.5) * BLOCK_GROWTH)) < n:
        starts.append(start)
    return np.array(starts)


@functools.cache
def _ladders() -> _Ladders:
    def powers(lowest: int, highest: int) -> FloatArray:
        return np.exp2(
            np.arange(lowest * RUNGS_PER_OCTAVE, highest * RUNGS_PER_OCTAVE + 1) / RUNGS_PER_OCTAVE
        )

    rises = powers(SMALLEST_BET_OCTAVE, LARGEST_RISE_OCTAVE)
    # For the complements of the values, a fall is a rise with the same odds.
    odds = powers(SMALLEST_BET_OCTAVE, LARGEST_FALL_OCTAVE)
    falls = -odds / (1.0 + odds)
    # From 1 downwards; a value counts as the rung at or above it.
    rungs = powers(SMALLEST_VALUE_OCTAVE, 0)[::-1]
    return _Ladders(rises, np.log1p(np.outer(rungs, rises)), falls, np.log1p(np.outer(rungs, falls)))


def _checked_values(values: ArrayLike) -> FloatArray:
    array = number_row(values, "values")
    if not len(array):
        raise NotMeasurableError("a mean needs at least one value, but there are none; draw some")
    wrong = np.flatnonzero(~((array >= 0.0) & (array <= 1.0)))
    if len(wrong):
        raise InputError(
            f"values must be between 0 and 1, got {array[wrong[0]]} at position {wrong[0]}; divide by the largest possible value"
        )
    return array
