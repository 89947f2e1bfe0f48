"""Certified extraction: the least surprising members of a secret space, with a proof, and the search that checks such a proof.

This is the shortest-path search of The Secret Sharer (Carlini et al., 2019, arXiv:1802.08232, section 8), batched. Dijkstra's search
stops when the cheapest waiting node is a leaf. Expanding many nodes per step loses that rule, but not the proof: the best leaves
found are the best there are as soon as no waiting node is cheaper.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.records.estimate import Bits, Count
from coalmine.search.walks.best_first import BestFirstSearch
from coalmine.search.walks.frontier import Frontier, Nodes
from coalmine.search.walks.open_nodes import MEMORY_BYTES

# Nodes per step: few at first, so that few are expanded in vain, and more as the search turns out to be long.
FEWEST_A_STEP, MOST_A_STEP = 64, 2048


class FoundMember(NamedTuple):
    """The number of a member, its log-perplexity, and how many nodes had been expanded when it was found."""

    member: int
    log_perplexity_bits: float
    expansions: int


class Certificate(msgspec.Struct, frozen=True):
    """The proof that the members found are the least surprising ones, or how far from proven that is.

    `best_open_bits` is the lowest cost of any node that was not expanded, and no member below it costs less: a search is proven
    where it is at least the cost of the last member found. It is None where every node was expanded (`exhausted`), and for methods
    that prove nothing. `gap_bits` is by how much the last of the members found could still be beaten: 0 where proven, None where
    not enough members were found.
    """

    proven: bool
    expansions: Count
    best_open_bits: Bits | None
    gap_bits: Bits | None
    exhausted: bool = False


class ShortestPaths(BestFirstSearch):
    """Finds the `top` cheapest members."""

    def __init__(
        self,
        frontier: Frontier,
        top: int,
        *,
        nodes_a_step: int | None = None,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        """`nodes_a_step` fixes the nodes per step, which otherwise grow with the search."""
        super().__init__(frontier, memory_bytes=memory_bytes)
        self._nodes_a_step = nodes_a_step
        self.top = min(top, frontier.tree.size)
        self._best: list[FoundMember] = []
        self._cut = np.inf

    def nodes_in_next_step(self) -> int:
        """At most a quarter as many as were expanded so far, so few are expanded in vain."""
        if self._nodes_a_step is not None:
            return self._nodes_a_step
        return min(max(FEWEST_A_STEP, self.frontier.expansions // 4), MOST_A_STEP)

    @property
    def limit(self) -> float:
        """The cost of the last of the best, once there are enough."""
        return self._best[-1].log_perplexity_bits if len(self._best) >= self.top else np.inf

    def is_settled(self) -> bool:
        """Whether no waiting node is cheaper than the last of the best."""
        return not len(self.open) or (len(self._best) >= self.top and self.open.cheapest() >= self.limit)

    def keep(self, leaves: Nodes) -> None:
        """Keep the best; among ties, the one with the lowest number."""
        if not len(leaves.costs):
            return
        if len(leaves.costs) > self.top:
            # Ties at the cut are all kept here, so that their numbers decide below.
            most = np.partition(leaves.costs, self.top - 1)[self.top - 1]
            leaves = leaves.select(leaves.costs <= most)
        pairs = zip(leaves.indices.tolist(), leaves.costs.tolist(), strict=True)
        found = [FoundMember(index, cost, self.frontier.expansions) for index, cost in pairs]
        self._best = sorted(self._best + found, key=lambda one: (one.log_perplexity_bits, one.member))[
            : self.top
        ]
        if self.limit < self._cut:
            self._cut = self.limit
            self.cut(self.open.discard_above(self._cut))

    def found(self) -> list[FoundMember]:
        """The best members so far, least surprising first."""
        return list(self._best)

    def certificate(self) -> Certificate:
        """The proof, as far as the search has come."""
        cheapest, spent = self.cheapest_left, self.frontier.expansions
        exhausted = cheapest == np.inf
        open_bits = None if exhausted else cheapest
        if self.is_settled():
            return Certificate(True, spent, open_bits, 0.0, exhausted)
        gap = self.limit - cheapest
        return Certificate(False, spent, open_bits, None if gap == np.inf else gap)

    def snapshot(self, *, states: bool = False) -> dict[str, NDArray[Any]]:
        """Including the best so far."""
        return {
            **super().snapshot(states=states),
            "best_index": np.array([str(one.member) for one in self._best], dtype=str),
            "best_cost": np.array([one.log_perplexity_bits for one in self._best], dtype=np.float64),
            "best_expansions": np.array([one.expansions for one in self._best], dtype=np.int64),
        }

    def restore(self, snapshot: dict[str, NDArray[Any]]) -> None:
        """Including the best so far."""
        super().restore(snapshot)
        columns = (snapshot["best_index"], snapshot["best_cost"], snapshot["best_expansions"])
        self._best = [FoundMember(int(i), float(cost), int(at)) for i, cost, at in zip(*columns, strict=True)]
        self._cut = self.limit


class CheaperMembers(BestFirstSearch):
    """Expands every node that costs no more than a limit (bits), to check a proof; `members` maps member numbers to costs."""

    def __init__(self, frontier: Frontier, limit: float, *, memory_bytes: int = MEMORY_BYTES) -> None:
        super().__init__(frontier, memory_bytes=memory_bytes)
        self._limit = limit
        self.members: dict[int, float] = {}

    @property
    def limit(self) -> float:
        """The given limit."""
        return self._limit

    def is_settled(self) -> bool:
        """Whether nothing waits."""
        return not len(self.open)

    def keep(self, leaves: Nodes) -> None:
        """Keep the members within the limit."""
        within = np.flatnonzero(leaves.costs <= self._limit)
        pairs = zip(leaves.indices[within].tolist(), leaves.costs[within].tolist(), strict=True)
        self.members.update(pairs)
