"""How many members cost no more than each of some thresholds, counted as they come in."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class ThresholdCounter:
    """Counts costs (bits) against many thresholds at once; `between` is all its state, for a snapshot.

    >>> counter = ThresholdCounter(np.array([20.0, 10.0]))
    >>> counter.add(np.array([9.0, 10.0, 15.0, 30.0]))
    >>> counter.counts.tolist()
    [3, 2]
    """

    def __init__(self, thresholds: NDArray[np.float64]) -> None:
        self._order = np.argsort(thresholds, kind="stable")
        self._ascending = np.asarray(thresholds, dtype=np.float64)[self._order]
        # How many costs lie above the threshold before, in ascending order, and not above this one; at last those above all.
        self.between = np.zeros(len(self._order) + 1, dtype=np.int64)

    @property
    def largest(self) -> float:
        """The largest threshold."""
        return float(self._ascending[-1])

    @property
    def counts(self) -> NDArray[np.int64]:
        """For each threshold, in the order given, how many costs are no more than it."""
        counts = np.empty(len(self._order), dtype=np.int64)
        counts[self._order] = np.cumsum(self.between[:-1])
        return counts

    def add(self, costs: NDArray[np.float64]) -> None:
        """Count some costs; one equal to a threshold counts for it."""
        places = np.searchsorted(self._ascending, costs)
        self.between = self.between + np.bincount(places, minlength=len(self.between))
