"""Every member that costs no more than a limit, and the cheapest node beyond it: what a proof of extraction is replayed by."""

from __future__ import annotations

import numpy as np

from coalmine.search.walks.best_first import BestFirstSearch
from coalmine.search.walks.frontier import Frontier, Nodes
from coalmine.search.walks.open_nodes import MEMORY_BYTES


class CheaperMembers(BestFirstSearch):
    """Expands every node that costs no more than a limit (bits); `members` has the cost of each member by its number."""

    def __init__(self, frontier: Frontier, limit: float, *, memory_bytes: int = MEMORY_BYTES) -> None:
        super().__init__(frontier, memory_bytes=memory_bytes)
        self._limit = limit
        self.members: dict[int, float] = {}

    @property
    def limit(self) -> float:
        """The one that was given."""
        return self._limit

    def is_settled(self) -> bool:
        """Whether nothing waits."""
        return not len(self.open)

    def keep(self, leaves: Nodes) -> None:
        """Keep those within the limit."""
        within = np.flatnonzero(leaves.costs <= self._limit)
        pairs = zip(leaves.indices[within].tolist(), leaves.costs[within].tolist(), strict=True)
        self.members.update(pairs)
