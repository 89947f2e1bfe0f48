"""The limits of intervals at the level that a rule asks for, and how many scores would decide it."""

from __future__ import annotations

import math

from coalmine.records import Estimate

# More scores than this are not advised: another way to measure is cheaper.
MOST_ADVISED = 10_000_000


def widened_low(estimate: Estimate, level: float, freedom: float = math.inf) -> float:
    """The lower limit of an estimate at a confidence of `level`.

    The interval is widened as that of a normal error would be, or of Student's t with so many degrees of freedom; a number that is exact
    or proven stays as it is.
    """
    if estimate.low is None:
        return -math.inf
    if estimate.confidence is None or estimate.confidence >= level:
        return estimate.low
    middle = estimate.value if estimate.value is not None else estimate.high
    if middle is None or estimate.confidence <= 0:
        return -math.inf
    return middle - (middle - estimate.low) * _width(level, freedom) / _width(estimate.confidence, freedom)


def _width(level: float, freedom: float) -> float:
    from scipy.special import ndtri, stdtrit

    return float(ndtri(0.5 + level / 2) if math.isinf(freedom) else stdtrit(freedom, 0.5 + level / 2))


def rounded_up(n: int) -> int:
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
    return rounded_up(max(needed, n + 1)) if needed <= MOST_ADVISED else None
