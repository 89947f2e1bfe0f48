"""The limits of exposures at the level that a rule asks for, and how many references or samples would decide it."""

from __future__ import annotations

import math

from coalmine.audits.exposure.chance import counted_better
from coalmine.audits.exposure.estimators import estimator_of
from coalmine.evidence.limits import MOST_ADVISED, rounded_up, widened_low
from coalmine.records import Estimate
from coalmine.statistics.intervals import clopper_pearson


def lower_limit(estimate: Estimate, level: float) -> float:
    """The lower limit of an exposure, in bits, at a confidence of `level`.

    A rank among references or samples gives it exactly. Other intervals are widened as those of a normal error would be, or of
    Student's t for splitting, which uses a few runs; a number that is exact or proven stays as it is.

    >>> from coalmine.statistics.exposure.ranks import reference_exposure
    >>> best = reference_exposure(1.0, range(2, 1002))
    >>> [round(lower_limit(best, level), 2) for level in (0.95, 0.999)]
    [8.09, 7.05]
    """
    better = counted_better(estimate)
    known = estimate.low is None or estimate.confidence is None or estimate.confidence >= level
    if better is not None and not known and estimate.low is not None:
        return min(estimate.low, bits(clopper_pearson(better, estimate.n, level)[1]))
    return widened_low(estimate, level, estimator_of(estimate.method).degrees_of_freedom)


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
    while n <= MOST_ADVISED:
        count = math.floor(share * n)
        low_p, high_p = clopper_pearson(count, n, level)
        by_chance = 2.0 * canaries * (count + 1) / (n + 1)
        if above and bits(high_p) > limit and by_chance <= chance_level:
            return rounded_up(n)
        if not above and bits(low_p) <= limit:
            return rounded_up(n)
        n = math.ceil(n * 1.25)
    return None
