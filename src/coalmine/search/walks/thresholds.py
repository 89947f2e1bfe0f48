"""Ranks by counting: how many members cost no more than each threshold, with the costs near a threshold kept for its resolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

# Costs are compared in whole steps of this many bits (about 1e-9), so that sums of the same numbers in another order are equal.
STEP_BITS = 2.0**-30
# The most separate costs near a threshold before equal ones are merged.
HELD = 1 << 20


def in_steps(costs: FloatArray) -> FloatArray:
    """Costs (bits) rounded to whole steps; numbers that differ only by the order of a sum become equal.

    >>> bool(in_steps(np.array([0.1 + 0.2]))[0] == in_steps(np.array([0.3]))[0])
    True
    """
    return np.asarray(np.round(np.asarray(costs, dtype=np.float64) / STEP_BITS) * STEP_BITS)


class ThresholdCounter:
    """Counts costs (bits) against many thresholds at once.

    Costs within the margin of a threshold are kept, so that `counts_to` is known for every value near it. `noted` has the costs of
    the members whose indices are in `noting`.

    >>> counter = ThresholdCounter(np.array([20.0, 10.0]), margins=np.array([8.0, 0.0]), noting=[7])
    >>> counter.add(np.array([9.0, 10.0, 15.0, 30.0]), np.array([4, 5, 6, 7]))
    >>> counter.counts.tolist(), counter.counts_to(np.array([14.0, 10.0])).tolist()
    ([3, 2], [2, 2])
    >>> counter.noted
    {7: 30.0}
    """

    def __init__(
        self, thresholds: FloatArray, margins: FloatArray | None = None, noting: Sequence[int] = ()
    ) -> None:
        self.thresholds = in_steps(thresholds)
        margins = np.zeros(len(self.thresholds)) if margins is None else margins
        self._lows, self._highs = in_steps(self.thresholds - margins), in_steps(self.thresholds + margins)
        self._order = np.argsort(self._lows, kind="stable")
        self._ascending = self._lows[self._order]
        self._begins, self._ends = _merged(self._ascending, self._highs[self._order])
        # How many costs are below each low, in ascending order, but not below the one before; the last entry has those below none.
        self._between = np.zeros(len(self._order) + 1, dtype=np.int64)
        self._near = [(np.empty(0), np.empty(0, dtype=np.int64))]  # different costs, and how many have each
        self._held = 0
        self._noting = np.array(sorted(set(noting)), dtype=object)
        self.noted: dict[int, float] = {}

    @property
    def largest(self) -> float:
        """The largest cost that has to be counted, including half a step for rounding."""
        return float(self._highs.max()) + STEP_BITS / 2

    @property
    def total(self) -> int:
        """How many costs were counted."""
        return int(self._between.sum())

    @property
    def counts(self) -> NDArray[np.int64]:
        """For each threshold, in the order given, how many costs are no more than it."""
        return self.counts_to(self.thresholds)

    def counts_to(self, values: FloatArray, *, equal: bool = True) -> NDArray[np.int64]:
        """How many costs are at most a value per threshold, within its margin; without `equal`, how many are less."""
        costs, numbers = self._put_together()
        values = np.clip(in_steps(values), self._lows, self._highs)
        sums = np.concatenate([[0], np.cumsum(numbers)])
        upto = sums[np.searchsorted(costs, values, side="right" if equal else "left")]
        counts = np.empty(len(self._order), dtype=np.int64)
        counts[self._order] = np.cumsum(self._between[:-1])
        return np.asarray(counts + upto - sums[np.searchsorted(costs, self._lows, side="left")])

    def add(self, costs: FloatArray, indices: NDArray[Any] | None = None) -> None:
        """Count costs; one equal to a threshold counts for it."""
        costs = in_steps(costs)
        places = np.searchsorted(self._ascending, costs, side="right")
        self._between = self._between + np.bincount(places, minlength=len(self._between))
        band = np.searchsorted(self._begins, costs, side="right") - 1
        near = (band >= 0) & (costs <= self._ends[band])
        if near.any():
            self._near.append(np.unique(costs[near], return_counts=True))
            self._held += len(self._near[-1][0])
            if self._held > HELD:
                self._put_together()
        if len(self._noting) and indices is not None:
            found = np.isin(indices, self._noting.astype(indices.dtype))
            self.noted.update(zip(indices[found].tolist(), costs[found].tolist(), strict=True))

    def state(self) -> dict[str, NDArray[Any]]:
        """All counts, as plain arrays."""
        costs, numbers = self._put_together()
        return {
            "between": self._between,
            "near_costs": costs,
            "near_numbers": numbers,
            "noted": np.array([str(index) for index in sorted(self.noted)], dtype=str),
            "noted_costs": np.array([self.noted[index] for index in sorted(self.noted)], dtype=np.float64),
        }

    def merge(self, state: dict[str, NDArray[Any]]) -> None:
        """Add the counts of another counter of the same thresholds, by its state; in any order the sum is the same.

        >>> first, second = (ThresholdCounter(np.array([10.0]), noting=[2]) for _ in range(2))
        >>> first.add(np.array([9.0, 11.0]), np.array([1, 2]))
        >>> second.merge(first.state())
        >>> second.counts.tolist(), second.noted
        ([1], {2: 11.0})
        """
        self._between = self._between + state["between"]
        self._near.append((state["near_costs"], state["near_numbers"]))
        self._held += len(state["near_costs"])
        if self._held > HELD:
            self._put_together()
        self.noted.update(_noted(state))

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Resume from a state."""
        self._between = state["between"]
        self._near = [(state["near_costs"], state["near_numbers"])]
        self.noted = _noted(state)

    def _put_together(self) -> tuple[FloatArray, NDArray[np.int64]]:
        if len(self._near) > 1:
            costs, numbers = (np.concatenate(column) for column in zip(*self._near, strict=True))
            different, places = np.unique(costs, return_inverse=True)
            self._near = [(different, np.bincount(places, weights=numbers).astype(np.int64))]
            self._held = 0
        return self._near[0]


class Ranks(NamedTuple):
    """The ranks of canaries by counting; each array is (canaries,).

    `own` is the cost of a canary as it was counted, or as it was scored where it was not `reached`. `rank` counts the members that
    cost no more. `least` and `most` allow every other member within the canary's resolution to be on its other side: `least` counts
    none of these, `most` all of them. Members of equal cost are ties, and count in all three.
    """

    own: FloatArray
    reached: NDArray[np.bool_]
    least: NDArray[np.int64]
    rank: NDArray[np.int64]
    most: NDArray[np.int64]


def count_ranks(counter: ThresholdCounter, canaries: Sequence[int], resolutions: FloatArray) -> Ranks:
    """The ranks of the canaries with these indices, one per threshold.

    Canaries are recognized by their indices; one that was not reached has the cost of its threshold.

    >>> counter = ThresholdCounter(np.array([10.0]), margins=np.array([1.0]), noting=[3])
    >>> counter.add(np.array([8.0, 9.75, 10.25, 10.5, 30.0]), np.array([1, 2, 3, 4, 5]))
    >>> [column.tolist() for column in count_ranks(counter, [3], np.array([0.5]))]
    [[10.25], [True], [2], [3], [4]]
    """
    reached = np.array([index in counter.noted for index in canaries], dtype=bool)
    pairs = list(zip(canaries, counter.thresholds.tolist(), strict=True))
    own = np.array([counter.noted.get(index, cost) for index, cost in pairs], dtype=np.float64)
    unseen = {index: cost for index, cost in pairs if index not in counter.noted}
    also = np.sort(np.array(list(unseen.values()), dtype=np.float64))

    def counted(values: FloatArray, *, equal: bool) -> NDArray[np.int64]:
        found = counter.counts_to(values, equal=equal)
        return np.asarray(found + np.searchsorted(also, in_steps(values), side="right" if equal else "left"))

    rank = counted(own, equal=True)
    return Ranks(
        own=own,
        reached=reached,
        least=counted(own - resolutions, equal=False) + rank - counted(own, equal=False),
        rank=rank,
        most=counted(own + resolutions, equal=True),
    )


def _noted(state: dict[str, NDArray[Any]]) -> dict[int, float]:
    pairs = zip(state["noted"].tolist(), state["noted_costs"].tolist(), strict=True)
    return {int(index): cost for index, cost in pairs}


def _merged(lows: FloatArray, highs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The union of intervals as disjoint ones, by their lows and highs; `lows` are ascending."""
    reach = np.maximum.accumulate(highs)
    fresh = np.concatenate([[True], lows[1:] > reach[:-1]])
    last = np.concatenate([fresh[1:], [True]])
    return lows[fresh], reach[last]
