"""Holm's procedure: several tests that share one probability of any false positive.

Holm, A Simple Sequentially Rejective Multiple Test Procedure, Scandinavian Journal of Statistics 6, 1979; section 5 has weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from coalmine.errors import InputError


class Holm(NamedTuple):
    """Which tests are significant, and the level that each p-value was compared with, in the order given."""

    shown: tuple[bool, ...]
    levels: tuple[float, ...]


def holm(p_values: Sequence[float], level: float, weights: Sequence[float] | None = None) -> Holm:
    """Judge tests together: any true null hypothesis is rejected with probability at most `level`, however the tests depend on each other.

    Each test gets a share of `level` in proportion to its weight. A test whose p-value is within its share is significant
    (`shown`), and its share goes to the others, again in proportion to their weights, until no further test is.

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
    if not all(0.0 <= one <= 1.0 for one in p_values):
        raise InputError(
            f"p-values must be between 0 and 1, got {list(p_values)}; check how they were computed"
        )
    order = sorted(range(len(p_values)), key=lambda place: p_values[place] / sizes[place])
    shown, levels = [False] * len(p_values), [0.0] * len(p_values)
    # Summed from the last to the first, so that each sum is of exactly the tests that are left.
    remaining = [0.0] * (len(order) + 1)
    for step in reversed(range(len(order))):
        remaining[step] = remaining[step + 1] + sizes[order[step]]
    stopped = len(order)
    for step, place in enumerate(order):
        share = level * sizes[place] / remaining[step]
        # A tolerance for rounding, so that three times 0.05 / 3 is 0.05.
        if p_values[place] > share * (1 + 1e-9):
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
