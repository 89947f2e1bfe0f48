"""Several tests judged together: Holm's procedure, that of Benjamini and Hochberg, and Simes's test of all of them at once.

Holm's bounds the probability of any false positive. That of Benjamini and Hochberg bounds the false-discovery rate: the expected
proportion of false positives among the positives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from coalmine.errors import InputError
from coalmine.statistics.scores import checked_fdr

# For rounding, so that three times 0.05 / 3 is 0.05.
TOLERANCE = 1 + 1e-9


class Holm(NamedTuple):
    """Which tests are significant, and the level that each p-value was compared with, in the order given."""

    shown: tuple[bool, ...]
    levels: tuple[float, ...]


def holm(p_values: Sequence[float], level: float, weights: Sequence[float] | None = None) -> Holm:
    """Judge tests together: any true null hypothesis is rejected with probability at most `level`, however the tests depend on each other.

    Each test gets a share of `level` in proportion to its weight. A test whose p-value is within its share is significant
    (`shown`), and its share goes to the others, again in proportion to their weights, until no further test is. (Holm, A Simple
    Sequentially Rejective Multiple Test Procedure, Scandinavian Journal of Statistics 6, 1979; section 5 has weights.)

    >>> holm([0.01, 0.04, 0.03], 0.05).shown  # 0.01 <= 0.05 / 3, then 0.03 > 0.05 / 2
    (True, False, False)
    >>> holm([0.01, 0.03, 0.02], 0.05).shown
    (True, True, True)
    >>> holm([0.03, 0.03], 0.05, [3.0, 1.0]).shown
    (True, True)
    """
    sizes = [1.0] * len(p_values) if weights is None else list(weights)
    if len(sizes) != len(p_values) or not all(size > 0 and math.isfinite(size) for size in sizes):
        raise InputError(f"every test needs a weight above 0, got {sizes} for {len(p_values)} p-values")
    _check(p_values)
    order = sorted(range(len(p_values)), key=lambda place: p_values[place] / sizes[place])
    shown, levels = [False] * len(p_values), [0.0] * len(p_values)
    # Summed from the last to the first, so that each sum is of exactly the tests that are left.
    remaining = [0.0] * (len(order) + 1)
    for step in reversed(range(len(order))):
        remaining[step] = remaining[step + 1] + sizes[order[step]]
    stopped = len(order)
    for step, place in enumerate(order):
        share = level * sizes[place] / remaining[step]
        if p_values[place] > share * TOLERANCE:
            stopped = step
            break
        shown[place], levels[place] = True, share
    for place in order[stopped:]:
        levels[place] = level * sizes[place] / remaining[stopped]
    return Holm(tuple(shown), tuple(levels))


def adjusted_p_values(p_values: Sequence[float]) -> list[float]:
    """Holm-adjusted p-values: reject those at most a level, and any of the rejections is wrong with at most that probability.

    >>> [round(p, 3) for p in adjusted_p_values([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, p_values[place] * (len(p_values) - rank)))
        adjusted[place] = highest
    return adjusted


class BenjaminiHochberg(NamedTuple):
    """Which tests are significant, and the adjusted p-values, in the order given; a test is shown if its own is at most the FDR."""

    shown: tuple[bool, ...]
    adjusted: tuple[float, ...]


def benjamini_hochberg(p_values: Sequence[float], fdr: float) -> BenjaminiHochberg:
    """Judge tests together: of those that are shown, an expected proportion of at most `fdr` are true null hypotheses.

    This holds for independent tests, and for those that depend on each other positively, as conformal p-values with the same
    non-members do. (Benjamini and Hochberg, Controlling the False Discovery Rate, Journal of the Royal Statistical Society B 57,
    1995; Benjamini and Yekutieli, The Control of the False Discovery Rate in Multiple Testing under Dependency, Annals of
    Statistics 29, 2001.)

    >>> found = benjamini_hochberg([0.01, 0.5, 0.04, 0.02], fdr=0.05)
    >>> found.shown
    (True, False, False, True)
    >>> [round(p, 3) for p in found.adjusted]
    [0.04, 0.5, 0.053, 0.04]
    """
    level, adjusted = checked_fdr(fdr), _step_up(p_values)
    return BenjaminiHochberg(tuple(one <= level * TOLERANCE for one in adjusted), adjusted)


def simes(p_values: Sequence[float]) -> float:
    """The p-value of "all null hypotheses are true", under the same conditions as `benjamini_hochberg`: its smallest adjusted one.

    Simes, An Improved Bonferroni Procedure for Multiple Tests of Significance, Biometrika 73, 1986.

    >>> simes([0.01, 0.5, 0.04, 0.02])
    0.04
    """
    if not len(p_values):
        raise InputError("a test of all null hypotheses needs at least one p-value, got none")
    return min(_step_up(p_values))


def _step_up(p_values: Sequence[float]) -> tuple[float, ...]:
    """The smallest false-discovery rate at which each test is shown."""
    _check(p_values)
    tests = len(p_values)
    adjusted, lowest = [1.0] * tests, 1.0
    order = sorted(range(tests), key=lambda place: p_values[place])
    # From the largest to the smallest: a test is shown wherever one with a larger p-value is.
    for rank in range(tests, 0, -1):
        place = order[rank - 1]
        lowest = min(lowest, float(p_values[place]) * tests / rank)
        adjusted[place] = lowest
    return tuple(adjusted)


def _check(p_values: Sequence[float]) -> None:
    if not all(0.0 <= one <= 1.0 for one in p_values):
        raise InputError(
            f"p-values must be between 0 and 1, got {list(p_values)}; check how they were computed"
        )
