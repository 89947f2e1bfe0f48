"""A priority queue of nodes to expand, cheapest first, with the model's states that they need, within a memory budget.

A waiting node is a child that the model has not been asked about: it has the row of its parent's state and the token that leads to
it. States that do not fit are dropped, and computed again from the start of the text when their turn comes: that costs time, but
never changes an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.models.protocols import IntArray, StateKeeper
from coalmine.search.tree.token_tree import TokenTree
from coalmine.search.walks.frontier import MEMORY_BYTES, Frontier, NodeBlock, Nodes
from coalmine.search.walks.plain_arrays import pack_states, plain_integers, unpack_states, whole_integers

__all__ = ["MEMORY_BYTES", "OpenNodes", "as_nodes", "node_type"]

# Waiting nodes near the cheapest are kept separate, so that finding the cheapest does not scan all of them.
NEAR = 1 << 14
_SAVED = ("cost", "state", "depth", "column")


def node_type(tree: TokenTree) -> np.dtype[Any]:
    """A waiting node as a row of an array."""
    return np.dtype(
        [
            ("cost", np.float64),
            ("index", tree.index_type),
            ("state", np.int32),
            ("depth", np.int32),
            ("column", np.int32),
            ("block", np.int32),  # -1 where the parent's state is not held
            ("row", np.int32),
        ]
    )


class OpenNodes:
    """A priority queue of nodes and a store of states."""

    def __init__(self, frontier: Frontier, *, memory_bytes: int = MEMORY_BYTES) -> None:
        """The states of waiting nodes and those of the current step share `memory_bytes`."""
        self.frontier = frontier
        frontier.limit_memory(memory_bytes)
        self._type = node_type(frontier.tree)
        self._near = np.empty(0, dtype=self._type)
        self._far: list[NDArray[Any]] = []
        self._cutoff = np.inf
        self._states: dict[int, Any] = {}
        self._waiting: dict[int, int] = {}
        self._bytes: dict[int, int] = {}
        self._next_block = 0

    def __len__(self) -> int:
        return len(self._near) + sum(map(len, self._far))

    def add(self, block: NodeBlock, children: Nodes) -> None:
        """Add children of a block."""
        if not len(children.costs):
            return
        number = self._next_block
        self._next_block += 1
        self._states[number] = block.model_states
        self._waiting[number] = len(children.costs)
        self._bytes[number] = self.frontier.own_bytes(block.model_states)
        added = np.empty(len(children.costs), dtype=self._type)
        added["cost"], added["index"], added["state"] = children.costs, children.indices, children.states
        added["column"], added["row"] = children.columns, children.parents
        added["depth"], added["block"] = children.depths, number
        self._put(added)
        room = self.frontier.memory_bytes - self.frontier.shared_bytes - self.frontier.step_bytes
        if sum(self._bytes.values()) > room:
            self._drop_states(room // 2)

    def take(self, most: int, limit: float = np.inf) -> NDArray[Any]:
        """Remove and return the cheapest nodes, at most `most`, none of which costs more than `limit`."""
        if not len(self._near):
            self._refill()
        if len(self._near) > most:
            order = np.argpartition(self._near["cost"], most)
            taken, self._near = self._near[order[:most]], self._near[order[most:]]
        else:
            taken, self._near = self._near, self._near[:0]
        beyond = taken["cost"] > limit
        if beyond.any():
            self._near = np.concatenate([self._near, taken[beyond]])
            taken = taken[~beyond]
        return taken

    def expand(self, taken: NDArray[Any]) -> Iterator[NodeBlock]:
        """Ask the model about nodes that were taken, in as few batches as their states allow.

        Blocks come one by one, and no nodes may be added before the last one: to make room, their states might be dropped.
        """
        held = taken["block"] >= 0
        for level in [taken[held]] if self.frontier.model.mixes_depths else _by_depth(taken[held]):
            yield from self._expand_held(level)
        for level in _by_depth(
            taken[~held]
        ):  # contexts that are read from the start have one length per batch
            for start in range(0, len(level), self.frontier.batch):
                yield self.frontier.read_again(as_nodes(level[start : start + self.frontier.batch]))

    def cheapest(self) -> float:
        """The lowest cost of any waiting node; infinite if none waits."""
        parts = [part["cost"].min() for part in (self._near, *self._far) if len(part)]
        return float(min(parts, default=np.inf))

    def discard_above(self, limit: float) -> float:
        """Discard nodes that cost more than `limit`; returns the lowest cost of any of them, infinite if there are none."""
        kept, cheapest = [], np.inf
        for part in (self._near, *self._far):
            beyond = part["cost"] > limit
            if beyond.any():
                self._release(part[beyond]["block"])
                cheapest = min(cheapest, float(part["cost"][beyond].min()))
            kept.append(part[~beyond])
        self._near, self._far = kept[0], [part for part in kept[1:] if len(part)]
        return cheapest

    def all(self) -> NDArray[Any]:
        """Every waiting node, in no particular order."""
        return np.concatenate([self._near, *self._far])

    def to_arrays(self, *, states: bool = False) -> dict[str, NDArray[Any]]:
        """Every waiting node as plain arrays; with `states`, and if the model can, also the states that they need.

        With states, a search that is restored takes the same nodes in the same batches as one that was never stopped.
        """
        waiting = self.all()
        saved = {f"open_{name}": waiting[name] for name in _SAVED}
        saved["open_index"] = plain_integers(waiting["index"])
        model = self.frontier.model
        if not states or not isinstance(model, StateKeeper):
            return saved
        return {
            **saved,
            "open_block": waiting["block"],
            "open_row": waiting["row"],
            "open_parts": np.array([len(part) for part in (self._near, *self._far)], dtype=np.int64),
            "open_cutoff": np.array(self._cutoff),
            "open_next_block": np.array(self._next_block),
            **pack_states((number, model.states_to_arrays(one)) for number, one in self._states.items()),
        }

    def add_arrays(self, saved: dict[str, NDArray[Any]]) -> None:
        """Add nodes that `to_arrays` saved; states that were not saved are computed again when they are needed."""
        waiting = np.zeros(len(saved["open_cost"]), dtype=self._type)
        for name in _SAVED:
            waiting[name] = saved[f"open_{name}"]
        waiting["index"] = whole_integers(saved["open_index"], self.frontier.tree.index_type)
        model = self.frontier.model
        if "open_block" not in saved or not isinstance(model, StateKeeper):
            waiting["block"] = -1
            self._put(waiting)
            return
        waiting["block"], waiting["row"] = saved["open_block"], saved["open_row"]
        self._near, *self._far = np.split(waiting, np.cumsum(saved["open_parts"])[:-1])
        self._cutoff, self._next_block = float(saved["open_cutoff"]), int(saved["open_next_block"])
        for number, arrays in unpack_states(saved).items():
            self._states[number] = model.states_from_arrays(arrays)
            self._waiting[number] = int((waiting["block"] == number).sum())
            self._bytes[number] = self.frontier.own_bytes(self._states[number])

    def _put(self, added: NDArray[Any]) -> None:
        near = added["cost"] <= self._cutoff
        if near.any():
            self._near = np.concatenate([self._near, added[near]])
        if not near.all():
            self._far.append(added[~near])
        if len(self._near) > 4 * NEAR:
            order = np.argpartition(self._near["cost"], NEAR)
            self._cutoff = float(self._near["cost"][order[:NEAR]].max())
            beyond = self._near["cost"] > self._cutoff
            self._far.append(self._near[beyond])
            self._near = self._near[~beyond]

    def _refill(self) -> None:
        if not self._far:
            self._cutoff = np.inf
            return
        every = np.concatenate(self._far)
        if len(every) <= NEAR:
            self._near, self._far, self._cutoff = every, [], np.inf
            return
        order = np.argpartition(every["cost"], NEAR)
        self._cutoff = float(every["cost"][order[:NEAR]].max())
        near = every["cost"] <= self._cutoff
        self._near, self._far = every[near], [every[~near]]

    def _expand_held(self, level: NDArray[Any]) -> Iterator[NodeBlock]:
        level = level[np.argsort(level["block"], kind="stable")]
        for start in range(0, len(level), self.frontier.batch):
            part = level[start : start + self.frontier.batch]
            numbers, firsts = np.unique(part["block"], return_index=True)
            rows = np.split(part["row"], firsts[1:])
            states = self.frontier.model.gather(
                [(self._states[int(number)], own) for number, own in zip(numbers, rows, strict=True)]
            )
            nodes = as_nodes(part)._replace(parents=np.arange(len(part)))
            self._release(part["block"])
            yield self.frontier.advance_from(states, nodes)

    def _release(self, blocks: IntArray) -> None:
        numbers, counts = np.unique(blocks[blocks >= 0], return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            self._waiting[number] -= count
            if not self._waiting[number]:
                self._forget(number)

    def _forget(self, number: int) -> None:
        del self._states[number], self._waiting[number], self._bytes[number]

    def _drop_states(self, most_bytes: int) -> None:
        """Drop the states whose nodes will wait longest, until the rest take no more than `most_bytes`."""
        cheapest = dict.fromkeys(self._states, np.inf)
        for part in (self._near, *self._far):
            held = part[part["block"] >= 0]
            order = np.lexsort((held["cost"], held["block"]))
            numbers, firsts = np.unique(held["block"][order], return_index=True)
            for number, cost in zip(numbers.tolist(), held["cost"][order][firsts].tolist(), strict=True):
                cheapest[number] = min(cheapest[number], cost)
        total = sum(self._bytes.values())
        dropped = []
        for number in sorted(cheapest, key=cheapest.__getitem__, reverse=True):
            if total <= most_bytes:
                break
            total -= self._bytes[number]
            dropped.append(number)
            self._forget(number)
        for part in (self._near, *self._far):
            part["block"][np.isin(part["block"], dropped)] = -1


def _by_depth(nodes: NDArray[Any]) -> list[NDArray[Any]]:
    return [nodes[nodes["depth"] == depth] for depth in np.unique(nodes["depth"])]


def as_nodes(part: NDArray[Any]) -> Nodes:
    """Waiting nodes as nodes."""
    return Nodes(
        states=part["state"].astype(np.int64),
        costs=part["cost"],
        indices=part["index"],
        parents=part["row"].astype(np.int64),
        columns=part["column"].astype(np.int64),
        depths=part["depth"].astype(np.int64),
    )
