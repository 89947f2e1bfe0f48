"""How far can a proportion be from the one that was counted?"""

from __future__ import annotations

from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine.errors import InputError
from coalmine.statistics.score_arrays import checked_confidence

FloatArray = NDArray[np.float64]
# Closer to a whole number than this, a number of successes is that number.
_WHOLE = 1e-9


@overload
def clopper_pearson(successes: int, trials: int, confidence: float = ...) -> tuple[float, float]: ...
@overload
def clopper_pearson(
    successes: ArrayLike, trials: ArrayLike, confidence: float = ...
) -> tuple[FloatArray, FloatArray]: ...
def clopper_pearson(
    successes: ArrayLike, trials: ArrayLike, confidence: float = 0.95
) -> tuple[float, float] | tuple[FloatArray, FloatArray]:
    """The exact two-sided interval for a probability, from a count of successes; it never covers less than it says.

    Each side errs with probability at most (1 - confidence) / 2. The low limit is 0 for no success and the high limit
    is 1 for no failure. Arrays are broadcast against each other and give arrays; two numbers give two floats.

    >>> low, high = clopper_pearson(0, 10_000)
    >>> low, round(high * 10_000, 3)
    (0.0, 3.688)
    >>> low, high = clopper_pearson([1, 5], 10)
    >>> low.round(3), high.round(3)
    (array([0.003, 0.187]), array([0.445, 0.813]))
    """
    tail = (1.0 - checked_confidence(confidence)) / 2.0
    counts, totals = np.broadcast_arrays(_whole(successes, "successes"), _whole(trials, "trials"))
    _check_counts(counts, totals)
    low, high = _limits(counts.ravel(), totals.ravel(), tail)
    if counts.ndim == 0:
        return float(low[0]), float(high[0])
    return low.reshape(counts.shape), high.reshape(counts.shape)


def effective_interval(share: float, trials: float, confidence: float = 0.95) -> tuple[float, float]:
    """The interval of Clopper and Pearson around a share of trials that are worth `trials` independent ones, whole or not.

    >>> effective_interval(0.3, 10) == clopper_pearson(3, 10)
    True
    >>> low, high = effective_interval(0.3, 7.5)
    >>> round(low, 3), round(high, 3)
    (0.046, 0.707)
    """
    tail = (1.0 - checked_confidence(confidence)) / 2.0
    if not 0.0 <= share <= 1.0:
        raise InputError(f"a share must be between 0 and 1, got {share}; divide successes by trials")
    if not trials >= 1.0:
        raise InputError(f"trials must be worth at least 1, got {trials}; a share of nothing has no interval")
    count = share * trials
    # A whole number of successes is one, whatever the division before it was rounded to.
    count = float(round(count)) if abs(count - round(count)) < _WHOLE else count
    low, high = _limits(np.array([count]), np.array([float(trials)]), tail)
    return float(low[0]), float(high[0])


def _limits(counts: FloatArray, totals: FloatArray, tail: float) -> tuple[FloatArray, FloatArray]:
    from scipy.special import betainccinv, betaincinv

    low, high = np.zeros_like(counts), np.ones_like(counts)
    some = counts > 0
    low[some] = betaincinv(counts[some], totals[some] - counts[some] + 1.0, tail)
    # The complement keeps a small tail small: 1 - tail would round it away at high confidence.
    open_above = counts < totals
    high[open_above] = betainccinv(counts[open_above] + 1.0, totals[open_above] - counts[open_above], tail)
    # The ends have closed forms, which are better than any inversion.
    none, one, every = counts == 0, counts == 1, counts == totals
    high[none] = -np.expm1(np.log(tail) / totals[none])
    low[one] = -np.expm1(np.log1p(-tail) / totals[one])
    low[every] = np.exp(np.log(tail) / totals[every])
    return low, high


def _whole(numbers: ArrayLike, what: str) -> FloatArray:
    try:
        array = np.asarray(numbers, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{what} must be whole numbers, got {numbers!r}; count them") from None
    # Beyond 2**53 a float no longer holds every whole number.
    if not np.all(np.isfinite(array) & (array == np.floor(array)) & (np.abs(array) <= 2.0**53)):
        raise InputError(f"{what} must be whole numbers up to 2**53, got {numbers!r}; count them")
    return array


def _check_counts(counts: FloatArray, totals: FloatArray) -> None:
    if np.any(totals < 1):
        raise InputError(
            f"trials must be at least 1, got {totals.min():.0f}; a proportion of nothing has no interval"
        )
    wrong = np.flatnonzero((counts < 0) | (counts > totals))
    if len(wrong):
        count, total = counts.flat[wrong[0]], totals.flat[wrong[0]]
        raise InputError(
            f"successes must lie between 0 and trials, got {count:.0f} of {total:.0f}; check the counts"
        )
