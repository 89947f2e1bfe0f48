"""What is the median of numbers that may be known only within limits?"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from coalmine.errors import InputError
from coalmine.records import Estimate
from coalmine.statistics.score_arrays import checked_confidence


def median_estimate(
    lows: ArrayLike, highs: ArrayLike, *, most: float, confidence: float = 0.95, unit: str = "bits"
) -> Estimate:
    """The median of numbers that are each known to lie between a low and a high limit, from 0 to `most`.

    The interval is that of order statistics, which holds for any distribution; with fewer than six numbers at 95% it has all
    that is possible. Where the limits leave the median itself open, there is only a lower bound.

    >>> median_estimate([1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 6, 7], most=10).statement
    'median 4.00 bits (95% interval 1.00 to 7.00) of 7'
    """
    from scipy.special import bdtr

    low_row, high_row = (
        np.sort(np.asarray(lows, dtype=np.float64)),
        np.sort(np.asarray(highs, dtype=np.float64)),
    )
    level, n = checked_confidence(confidence), len(low_row)
    if not n or len(high_row) != n:
        raise InputError(
            f"a median takes a low and a high limit for each number, got {n} and {len(high_row)}; give at least one of each"
        )
    # So many of the smallest, and of the largest, can be left out.
    outside = int(np.searchsorted(bdtr(np.arange(n), n, 0.5), (1.0 - level) / 2.0, side="right"))
    low = float(low_row[outside - 1]) if outside else 0.0
    high = float(high_row[-outside]) if outside else most
    middle, highest = float(np.median(low_row)), float(np.median(high_row))
    known = highest - middle <= 1e-9
    shown = (
        f"median {'' if known else 'at least '}{middle:.2f} {unit} ({100 * level:g}% interval "
        f"{math.floor(low * 100) / 100:.2f} to {math.ceil(high * 100) / 100:.2f}) of {n}"
    )
    few = () if outside else (f"{n} are too few for an interval at {100 * level:g}% that excludes anything",)
    return Estimate(
        method="median",
        status="measured" if known else "lower_bound",
        value=middle if known else None,
        low=min(low, middle),
        high=max(high, highest),
        confidence=level,
        n=n,
        statement=shown,
        assumptions=("the canaries are independent draws of those that could have been planted",),
        warnings=few,
    )
