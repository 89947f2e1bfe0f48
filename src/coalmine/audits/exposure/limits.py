"""The limits of intervals at the level that a rule asks for, and how much more measuring would decide."""

from __future__ import annotations

import math

from coalmine.audits.exposure.chance import counted_better
from coalmine.records import Estimate
from coalmine.statistics.intervals import clopper_pearson

# More references or samples than this are not advised: another method is cheaper.
_MOST_ADVISED = 10_000_000
# Degrees of freedom of an interval from a few independent runs, which has heavier tails than a normal one.
_FEW_RUNS = 7


def lower_limit(estimate: Estimate, level: float) -> float:
    """The lower limit of an exposure in bits, or of another number, at a confidence of `level`.

    A rank among references or samples gives it exactly. Other intervals are widened as those of a normal error would be, or of
    Student's t for splitting, which rests on a few runs; a number that is exact or proven stays.

    >>> from coalmine.statistics.exposure.estimates import reference_exposure
    >>> best = reference_exposure(1.0, range(2, 1002))
    >>> [round(lower_limit(best, level), 2) for level in (0.95, 0.999)]
    [8.09, 7.05]
    """
    if estimate.low is None:
        return -math.inf
    if estimate.confidence is None or estimate.confidence >= level:
        return estimate.low
    better = counted_better(estimate)
    if better is not None:
        return min(estimate.low, bits(clopper_pearson(better, estimate.n, level)[1]))
    middle = estimate.value if estimate.value is not None else estimate.high
    if middle is None or estimate.confidence <= 0:
        return -math.inf
    freedom = _FEW_RUNS if estimate.method == "splitting" else math.inf
    return middle - (middle - estimate.low) * _width(level, freedom) / _width(estimate.confidence, freedom)


def _width(level: float, freedom: float) -> float:
    from scipy.special import ndtri, stdtrit

    return float(ndtri(0.5 + level / 2) if math.isinf(freedom) else stdtrit(freedom, 0.5 + level / 2))


def bits(probability: float) -> float:
    """Minus log2 of a probability."""
    return math.inf if probability <= 0 else abs(math.log2(probability))


def others_needed(
    estimate: Estimate, limit: float, level: float, chance_level: float, canaries: int
) -> int | None:
    """How many references or samples would decide whether an exposure is above `limit` bits, if their share stays as it is.

    None where more than ten million would not, because the share is too close to the limit.
    """
    better = counted_better(estimate)
    if better is None:
        return None
    share = better / estimate.n
    above = share < 2.0**-limit
    n = 2 * estimate.n
    while n <= _MOST_ADVISED:
        count = math.floor(share * n)
        low_p, high_p = clopper_pearson(count, n, level)
        by_chance = 2.0 * canaries * (count + 1) / (n + 1)
        if above and bits(high_p) > limit and by_chance <= chance_level:
            return _rounded(n)
        if not above and bits(low_p) <= limit:
            return _rounded(n)
        n = math.ceil(n * 1.25)
    return None


def _rounded(n: int) -> int:
    """Up to two digits, because it is a guess."""
    scale = int(10 ** max(0, len(str(n)) - 2))
    return math.ceil(n / scale) * scale


def scores_needed(estimate: Estimate, limit: float, n: int) -> int | None:
    """How many scores would decide whether a rate is above `limit`, if it stays where it is; None where it is at the limit."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return None
    distance = abs(estimate.value - limit)
    half = estimate.high - estimate.value if estimate.value <= limit else estimate.value - estimate.low
    if distance <= 1e-9 or half <= 0:
        return None
    needed = math.ceil(n * (half / distance) ** 2)
    return _rounded(max(needed, n + 1)) if needed <= _MOST_ADVISED else None
