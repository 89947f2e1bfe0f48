"""Best-first search over a format's tree, many nodes a step: what exact ranks and certified extraction have in common.

Costs only grow along a path. So whatever the search has not expanded costs at least as much as the cheapest waiting node, and
a node beyond the search's limit can be cut with all that lies behind it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.search.walks.frontier import Frontier, NodeBlock, Nodes
from coalmine.search.walks.open_nodes import MEMORY_BYTES, OpenNodes


class BestFirstSearch(ABC):
    """Can be stopped between any two steps, and continued here or from a snapshot elsewhere."""

    def __init__(self, frontier: Frontier, *, memory_bytes: int = MEMORY_BYTES) -> None:
        self.frontier = frontier
        self.open = OpenNodes(frontier, memory_bytes=memory_bytes)
        self._cut_bits = np.inf

    @property
    @abstractmethod
    def limit(self) -> float:
        """Nodes that cost more than this are cut."""

    @abstractmethod
    def is_settled(self) -> bool:
        """Whether nothing that waits could change the answer."""

    @abstractmethod
    def keep(self, leaves: Nodes) -> None:
        """Take note of members that were found."""

    @property
    def cheapest_left(self) -> float:
        """The least cost of any node that was not expanded, whether it waits or was cut; infinite if all were."""
        return min(self.open.cheapest(), self._cut_bits)

    def nodes_in_next_step(self) -> int:
        """How many nodes to expand at a time."""
        return self.frontier.batch

    def start(self) -> None:
        """Begin at the root."""
        root = self.frontier.root()
        if self.frontier.tree.is_leaf[0]:
            self.keep(root.nodes)
        self._unfold(root)

    def run(
        self, most_expansions: int | None = None, after_step: Callable[[int], None] | None = None
    ) -> bool:
        """Search until the answer is settled (True), or so many more nodes were expanded (False).

        `after_step` is told how many nodes a step expanded; it may raise to stop the search, which loses nothing.
        """
        begun = self.frontier.expansions
        while not self.is_settled():
            allowed = min(self.nodes_in_next_step(), self.frontier.batch)
            if most_expansions is not None:
                allowed = min(allowed, most_expansions - (self.frontier.expansions - begun))
                if allowed < 1:
                    return False
            taken = self.open.take(allowed, self.limit)
            for block in list(self.open.expand(taken)):
                self._unfold(block)
            if after_step is not None:
                after_step(len(taken))
        return True

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """All that is needed to go on elsewhere, as plain arrays."""
        counters = np.array([self.frontier.expansions, self.frontier.reads], dtype=np.int64)
        return {"counters": counters, "cut": np.array(self._cut_bits), **self.open.to_arrays()}

    def restore(self, snapshot: dict[str, NDArray[Any]]) -> None:
        """Go on from a snapshot of the same search, instead of from the root."""
        self.frontier.expansions, self.frontier.reads = (int(number) for number in snapshot["counters"])
        self._cut_bits = float(snapshot["cut"])
        self.open.add_arrays(snapshot)

    def _unfold(self, block: NodeBlock) -> None:
        children = self.frontier.children(block)
        self.keep(self.frontier.leaves(children))
        waiting = self.frontier.open(children)
        kept = waiting.costs <= self.limit
        self.cut(float(waiting.costs[~kept].min(initial=np.inf)))
        self.open.add(block, waiting.select(kept))

    def cut(self, cheapest: float) -> None:
        """Take note of nodes that are left out, the cheapest of which costs so much."""
        self._cut_bits = min(self._cut_bits, cheapest)
