"""Many tests that share one probability of any false alarm: Holm's procedure with weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from coalmine.errors import InputError


class Holm(NamedTuple):
    """Which tests are shown, and the p-value that each test needed, or would have needed, in the order given."""

    shown: tuple[bool, ...]
    levels: tuple[float, ...]


def holm(p_values: Sequence[float], level: float, weights: Sequence[float] | None = None) -> Holm:
    """Judge tests together: the probability that any true null hypothesis is rejected is at most `level`, whatever their dependence.

    Each test gets a share of `level` in proportion to its weight. A test whose p-value is within its share is shown, and its share
    goes to the others, again in proportion to their weights, until no further test is shown (Holm, A simple sequentially rejective
    multiple test procedure, Scandinavian Journal of Statistics 6, 1979; with weights: section 5 there).

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
        raise InputError(f"p-values must lie between 0 and 1, got {list(p_values)}; check how they were made")
    order = sorted(range(len(p_values)), key=lambda place: p_values[place] / sizes[place])
    shown, levels = [False] * len(p_values), [0.0] * len(p_values)
    # From the last to the first, so that the sum is that of exactly those that are left.
    remaining = [0.0] * (len(order) + 1)
    for step in reversed(range(len(order))):
        remaining[step] = remaining[step + 1] + sizes[order[step]]
    stopped = len(order)
    for step, place in enumerate(order):
        share = level * sizes[place] / remaining[step]
        # A hair more than the share, so that 0.05 / 3 three times is 0.05.
        if p_values[place] > share * (1 + 1e-9):
            stopped = step
            break
        shown[place], levels[place] = True, share
    for place in order[stopped:]:
        levels[place] = level * sizes[place] / remaining[stopped]
    return Holm(tuple(shown), tuple(levels))
