"""Best-first search over a format's tree, many nodes per step: the base of exact ranks and of certified extraction.

Costs only grow along a path. So everything that the search has not expanded costs at least as much as the cheapest waiting node,
and a node beyond the limit of the search can be cut with everything below it.
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
    """A search that can be stopped between any two steps, and resumed here or from a snapshot elsewhere."""

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
        """Whether no waiting node could change the answer."""

    @abstractmethod
    def keep(self, leaves: Nodes) -> None:
        """Record members that were found."""

    @property
    def cheapest_left(self) -> float:
        """The lowest cost of any node that was not expanded, waiting or cut; infinite if all were expanded."""
        return min(self.open.cheapest(), self._cut_bits)

    def nodes_in_next_step(self) -> int:
        """How many nodes to expand at a time."""
        return self.frontier.batch

    def start(self) -> None:
        """Start at the root."""
        root = self.frontier.root()
        if self.frontier.tree.is_leaf[0]:
            self.keep(root.nodes)
        self._unfold(root)

    def run(
        self, most_expansions: int | None = None, after_step: Callable[[int], None] | None = None
    ) -> bool:
        """Search until the answer is settled (True), or this many more nodes were expanded (False).

        `after_step` gets the number of nodes that a step expanded; it may raise to stop the search, which loses nothing.
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

    def snapshot(self, *, states: bool = False) -> dict[str, NDArray[Any]]:
        """All that is needed to resume elsewhere, as plain arrays; with `states`, in exactly the same way."""
        counters = np.array([self.frontier.expansions, self.frontier.reads], dtype=np.int64)
        return {
            "counters": counters,
            "cut": np.array(self._cut_bits),
            **self.open.to_arrays(states=states),
        }

    def restore(self, snapshot: dict[str, NDArray[Any]]) -> None:
        """Resume from a snapshot of the same search, instead of starting at the root."""
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
        """Record that nodes are left out, the cheapest of which has this cost."""
        self._cut_bits = min(self._cut_bits, cheapest)
