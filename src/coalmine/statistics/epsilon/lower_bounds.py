"""From tests of "training is (epsilon, delta) private" to a lower bound on epsilon: the largest epsilon that the scores refute.

A canary that was planted k times is a group of k records. If training is (e, d) private for one record, it is (k e, d_k) private
for the group, with d_k = d (exp(k e) - 1) / (exp(e) - 1): group privacy, as in Dwork and Roth, The Algorithmic Foundations of
Differential Privacy, 2014. So a bound for one copy comes from testing the group's pair. With delta = 0 that is the group's bound
divided by k; with delta > 0 it is less, and dividing would claim too much.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from coalmine.records import Estimate
from coalmine.records.estimate import rounded_down
from coalmine.statistics.scores import checked_count, checked_delta

# Whether the scores refute a pair (epsilon, delta) for a canary as a whole.
Refutes = Callable[[float, float], bool]

# No number of scores that fits into memory can refute more: exp(64) is 6e27.
LARGEST_EPSILON = 64.0
# Bounds are found to this precision, and are never above an epsilon that was refuted.
_PRECISION = 1e-6


def group_delta(epsilon: float, delta: float, copies: int) -> float:
    """The delta of a group of `copies` records, if one record has (epsilon, delta).

    >>> group_delta(0.0, 1e-5, 4)
    4e-05
    >>> group_delta(1.0, 1e-5, 1)
    1e-05
    """
    if delta == 0.0 or copies == 1:
        return delta
    if copies * epsilon > LARGEST_EPSILON:
        return 1.0
    growth = math.expm1(copies * epsilon) / math.expm1(epsilon) if epsilon > 0 else float(copies)
    return min(1.0, delta * growth)


def largest_refuted(refutes: Refutes, delta: float, copies: int = 1) -> float:
    """The largest refuted epsilon for one record; all smaller ones are refuted too. 0 where none is.

    >>> round(largest_refuted(lambda epsilon, delta: epsilon < 3.0, delta=0.0, copies=4), 4)
    0.75
    """
    delta, copies = checked_delta(delta), checked_count(copies, "copies")

    def refuted(epsilon: float) -> bool:
        whole = group_delta(epsilon, delta, copies)
        return whole < 1.0 and refutes(copies * epsilon, whole)

    return largest_where(refuted, 1.0 / copies, LARGEST_EPSILON / copies, _PRECISION)


def largest_where(holds: Callable[[float], bool], first: float, most: float, precision: float) -> float:
    """The largest number at which something holds that holds at all smaller ones, searched from `first` on; 0 where there is none.

    >>> round(largest_where(lambda number: number < 5.3, 1.0, 64.0, 1e-6), 4)
    5.3
    """
    if not holds(0.0):
        return 0.0
    low, high = 0.0, first
    while holds(high):
        if high >= most:
            return high
        low, high = high, 2.0 * high
    while high - low > precision:
        middle = (low + high) / 2.0
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def lower_bound(
    method: str,
    epsilon: float,
    *,
    delta: float,
    confidence: float,
    n: int,
    assumptions: tuple[str, ...],
    basis: str = "",
    warnings: tuple[str, ...] = (),
) -> Estimate:
    """A lower bound on epsilon as an estimate: `low` is the bound, and there is neither a value nor an upper limit."""
    at = "" if delta == 0 else f" at delta {delta:g}"
    return Estimate(
        method=method,
        status="lower_bound",
        value=None,
        low=epsilon,
        high=None,
        confidence=confidence,
        n=n,
        statement=f"epsilon is at least {rounded_down(epsilon)}{at} ({100 * confidence:g}% confidence){': ' + basis if basis else ''}",
        assumptions=assumptions,
        warnings=warnings,
    )
