"""Confidence intervals that hold for any sample size: of proportions, of rates of clustered trials, and of medians.

Trials of one cluster, such as sequences from one document, may succeed or fail together, and few clusters cannot show how
strongly: documents that are recited in full may be rare, and none of them in the sample. So the worst case is assumed, that all
trials of a cluster agree. A mean over clusters of sizes m then has the variance of (sum of m)^2 / (sum of m^2) independent trials
(Kish, Survey Sampling, 1965), and an interval for that many covers the truth however strongly trials of one cluster agree.
"""

from __future__ import annotations

from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine.errors import InputError
from coalmine.records import Estimate
from coalmine.records.estimate import rounded_down, rounded_up
from coalmine.statistics.scores import FloatArray, checked_confidence

# A number of successes closer than this to a whole number counts as that number.
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
    """The exact two-sided confidence interval for a probability, from a count of successes; its coverage is never below nominal.

    Each side errs with probability at most (1 - confidence) / 2. The low limit is 0 without a success and the high limit
    is 1 without a failure. Arrays are broadcast against each other and give arrays; two numbers give two floats. (Clopper and
    Pearson, The Use of Confidence or Fiducial Limits Illustrated in the Case of the Binomial, Biometrika 26, 1934.)

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
    """The Clopper-Pearson interval around a proportion of trials that are worth `trials` independent ones, whole or not.

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
    # Undo the rounding of a division, so that a whole number of successes stays whole.
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
    # The ends have closed forms, which are more accurate than any inversion.
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
            f"successes must be between 0 and trials, got {count:.0f} of {total:.0f}; check the counts"
        )


def cluster_sizes(clusters: ArrayLike) -> NDArray[np.int64]:
    """The number of trials in each cluster, from the cluster label of each trial."""
    labels = np.asarray(clusters)
    if labels.ndim != 1 or not len(labels):
        raise InputError(f"clusters must be one label per trial, got an array of shape {labels.shape}")
    return np.unique(labels, return_counts=True)[1]


def effective_trials(clusters: ArrayLike) -> float:
    """The number of independent trials that clustered trials are worth if all trials of one cluster agree.

    >>> effective_trials([1, 2, 3, 4]), effective_trials([1, 1, 2, 2]), effective_trials([1, 1, 1, 2])
    (4.0, 2.0, 1.6)
    """
    sizes = cluster_sizes(clusters).astype(np.float64)
    return float(sizes.sum() ** 2 / (sizes**2).sum())


def clustered_interval(
    successes: int, clusters: ArrayLike, confidence: float = 0.95
) -> tuple[float, float, float]:
    """The confidence interval of a rate of clustered trials as (low, high, effective trials).

    `clusters` has the cluster label of each trial. Where every trial is its own cluster, the interval is Clopper-Pearson.

    >>> low, high, worth = clustered_interval(3, [1, 1, 2, 2, 3, 3, 4, 4, 5, 5])
    >>> round(low, 3), round(high, 3), worth
    (0.023, 0.791, 5.0)
    """
    sizes = cluster_sizes(clusters)
    trials, worth = int(sizes.sum()), effective_trials(clusters)
    if len(sizes) == trials:
        return (*clopper_pearson(successes, trials, confidence), float(trials))
    return (*effective_interval(successes / trials, worth, confidence), worth)


def median_estimate(
    lows: ArrayLike, highs: ArrayLike, *, most: float, confidence: float = 0.95, unit: str = "bits"
) -> Estimate:
    """The median of numbers, each of which is known to be between a low and a high limit, from 0 to `most`.

    The interval is given by order statistics, so it holds for any distribution; with fewer than six numbers at 95% it is the whole
    range. Where the limits leave the median itself open, the result is a lower bound.

    >>> median_estimate([1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 6, 7], most=10).statement
    'median of 7: 4.00 bits (95% interval 1.00 to 7.00)'
    """
    from scipy.special import bdtr

    low_row, high_row = (
        np.sort(np.asarray(lows, dtype=np.float64)),
        np.sort(np.asarray(highs, dtype=np.float64)),
    )
    level, n = checked_confidence(confidence), len(low_row)
    if not n or len(high_row) != n:
        raise InputError(
            f"a median needs a low and a high limit per number, got {n} and {len(high_row)}; give at least one of each"
        )
    # This many of the smallest, and of the largest, can be left out.
    outside = int(np.searchsorted(bdtr(np.arange(n), n, 0.5), (1.0 - level) / 2.0, side="right"))
    low = float(low_row[outside - 1]) if outside else 0.0
    high = float(high_row[-outside]) if outside else most
    middle, highest = float(np.median(low_row)), float(np.median(high_row))
    known = highest - middle <= 1e-9
    shown = (
        f"median of {n}: {'' if known else 'at least '}{middle:.2f} {unit} ({100 * level:g}% interval "
        f"{rounded_down(low)} to {rounded_up(high)})"
    )
    few = (
        ()
        if outside
        else (f"a sample of {n} is too small for a {100 * level:g}% interval that excludes anything",)
    )
    return Estimate(
        method="median",
        status="measured" if known else "lower_bound",
        value=middle if known else None,
        low=min(low, middle),
        high=max(high, highest),
        confidence=level,
        n=n,
        statement=shown,
        assumptions=("the canaries are independent draws from those that could have been planted",),
        warnings=few,
    )
