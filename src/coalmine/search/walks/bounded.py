"""Exact ranks by best-first search: how many members cost no more than each threshold, cutting every subtree that already costs more.

Whenever the search stops, everything cheaper than the cheapest waiting node is settled, and the rest is bounded from both sides.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.search.walks.best_first import BestFirstSearch
from coalmine.search.walks.frontier import Frontier, Nodes
from coalmine.search.walks.open_nodes import MEMORY_BYTES
from coalmine.search.walks.thresholds import ThresholdCounter


class RankBounds(NamedTuple):
    """The proven bounds on the rank of one threshold; the rank is exact where both are equal."""

    least: int
    most: int


class BoundedSearch(BestFirstSearch):
    """Counts, for each threshold, the members that cost no more.

    Attributes:
        thresholds: in bits; members that cost no more count.
        counter: the counts, also for values within `margins` of the thresholds, and the costs of the members in `noting`.
    """

    def __init__(
        self,
        frontier: Frontier,
        thresholds: NDArray[np.float64],
        *,
        margins: NDArray[np.float64] | None = None,
        noting: tuple[int, ...] = (),
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        super().__init__(frontier, memory_bytes=memory_bytes)
        self.thresholds = np.asarray(thresholds, dtype=np.float64)
        self.counter = ThresholdCounter(self.thresholds, margins, noting)

    @property
    def limit(self) -> float:
        """The largest threshold, with its margin."""
        return self.counter.largest

    def is_settled(self) -> bool:
        """Whether every node that any threshold could need was expanded."""
        return not len(self.open)

    def keep(self, leaves: Nodes) -> None:
        """Count members."""
        self.counter.add(leaves.costs, leaves.indices)

    @property
    def known(self) -> NDArray[np.int64]:
        """For each threshold, in the order given, how many members are known to count."""
        return self.counter.counts

    def bounds(self) -> list[RankBounds]:
        """The proven bounds for each threshold so far."""
        known = self.known.tolist()
        below = self.most_below(self.thresholds)
        pairs = zip(known, below, strict=True)
        return [RankBounds(least, min(self.frontier.tree.size, least + more)) for least, more in pairs]

    def most_below(self, thresholds: NDArray[np.float64]) -> list[int]:
        """For each threshold, an upper bound on the number of members below waiting nodes that cost no more.

        Below a waiting node at cost c, no more members can cost at most t than there are below it. Of members none of which is a
        prefix of another, no more than 2^(t - c) can, because each has at least that share of the node's probability; where members
        continue others, that holds for each of the sets that they can be sorted into by how many of them they continue.
        """
        sets = math.log2(1 + self.frontier.tree.most_stops)
        waiting = self.open.all()
        costs, log2_below = waiting["cost"], self.frontier.tree.log2_below[waiting["state"]]
        found = []
        for threshold in thresholds.tolist():
            inside = costs <= threshold
            most_bits = np.minimum(log2_below[inside], threshold - costs[inside] + sets)
            found.append(_at_least_sum_of_powers(most_bits))
        return found

    def snapshot(self, *, states: bool = False) -> dict[str, NDArray[Any]]:
        """Including the counts, and how many members have no number."""
        unknown = np.array(str(self.frontier.without_number))
        return {**super().snapshot(states=states), **self.counter.state(), "without_number": unknown}

    def restore(self, snapshot: dict[str, NDArray[Any]]) -> None:
        """Including the counts."""
        super().restore(snapshot)
        self.counter.restore(snapshot)
        self.frontier.without_number = int(str(snapshot["without_number"]))


def _at_least_sum_of_powers(bits: NDArray[np.float64]) -> int:
    """A whole number that is at least the sum of the whole parts of 2^bits, even where that exceeds a float."""
    if not len(bits):
        return 0
    most = math.floor(float(bits.max()))
    # The sum of whole parts is at most the whole part of the sum; the factor covers the rounding of the sum.
    scaled = float(np.exp2(bits - most).sum()) * (1 + 1e-9)
    return math.floor(scaled * 2**most) if most < 50 else math.ceil(scaled * 2**50) << (most - 50)
