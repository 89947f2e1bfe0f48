"""How many members cost no more than each of some thresholds? Exact, by cutting every subtree that costs more already.

Whenever the search stops, everything below the cheapest waiting node is settled, and the rest is bounded from both sides.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.search.best_first import BestFirstSearch
from coalmine.search.frontier import Frontier, Nodes
from coalmine.search.open_nodes import MEMORY_BYTES
from coalmine.search.thresholds import ThresholdCounter


class RankBounds(NamedTuple):
    """What is proven of one threshold's rank; the rank is exact where both are equal."""

    least: int
    most: int


class BoundedSearch(BestFirstSearch):
    """Counts, for each threshold, the members that cost no more.

    Attributes:
        thresholds: in bits; members that cost no more count.
        noted: of the indices in `noting`, those that were found.
    """

    def __init__(
        self,
        frontier: Frontier,
        thresholds: NDArray[np.float64],
        *,
        noting: tuple[int, ...] = (),
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        super().__init__(frontier, memory_bytes=memory_bytes)
        self.thresholds = np.asarray(thresholds, dtype=np.float64)
        self.noted: set[int] = set()
        self._noting = np.array(sorted(noting), dtype=frontier.tree.index_type)
        self._counter = ThresholdCounter(self.thresholds)

    @property
    def limit(self) -> float:
        """The largest threshold."""
        return self._counter.largest

    def is_settled(self) -> bool:
        """Whether every node that any threshold could need was expanded."""
        return not len(self.open)

    def keep(self, leaves: Nodes) -> None:
        """Count members."""
        self._counter.add(leaves.costs)
        if len(self._noting):
            self.noted.update(int(index) for index in leaves.indices[np.isin(leaves.indices, self._noting)])

    @property
    def known(self) -> NDArray[np.int64]:
        """For each threshold, in the order given, how many members are known to count."""
        return self._counter.counts

    def bounds(self) -> list[RankBounds]:
        """For each threshold what is proven so far.

        Behind a waiting node at cost c, no more members can cost at most t than lie behind it. Of members none of which begins
        another, no more than 2^(t - c) can, because each has at least that share of the node's probability; where members go
        on from others, that holds for each of the sets that they can be sorted into by how many of them they go on from.
        """
        sets = math.log2(1 + self.frontier.tree.most_stops)
        waiting = self.open.all()
        costs, log2_behind = waiting["cost"], self.frontier.tree.log2_behind[waiting["state"]]
        found = []
        for threshold, known in zip(self.thresholds.tolist(), self.known.tolist(), strict=True):
            inside = costs <= threshold
            most_bits = np.minimum(log2_behind[inside], threshold - costs[inside] + sets)
            found.append(
                RankBounds(known, min(self.frontier.tree.size, known + _at_least_sum_of_powers(most_bits)))
            )
        return found

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """With the counts."""
        noted = np.array([str(index) for index in sorted(self.noted)], dtype=str)
        return {**super().snapshot(), "between": self._counter.between, "noted": noted}

    def restore(self, snapshot: dict[str, NDArray[Any]]) -> None:
        """With the counts."""
        super().restore(snapshot)
        self._counter.between = snapshot["between"]
        self.noted = {int(index) for index in snapshot["noted"]}


def _at_least_sum_of_powers(bits: NDArray[np.float64]) -> int:
    """A whole number that is at least the sum of the whole parts of 2^bits, also where that is beyond a float."""
    if not len(bits):
        return 0
    most = math.floor(float(bits.max()))
    # The sum of whole parts is at most the whole part of the sum; the factor covers the rounding of the sum.
    scaled = float(np.exp2(bits - most).sum()) * (1 + 1e-9)
    return math.floor(scaled * 2**most) if most < 50 else math.ceil(scaled * 2**50) << (most - 50)
