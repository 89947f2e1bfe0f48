"""The batched frontier of the tree walk, and the only place where a model is asked about the members of a format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.errors import NoNumberError
from coalmine.models.protocols import (
    IntArray,
    RestReader,
    Scorer,
    Step,
    Stepper,
    after_context,
    step_row_bytes,
)
from coalmine.search.tree.token_tree import TokenTree

# Rows per step: beyond this, throughput on a CPU no longer grows, and the states of waiting rows only take memory.
BATCH = 2048
# The most memory that the states of all held rows may take.
MEMORY_BYTES = 1 << 30
# Copies of a batch's states during a step: the gathered states of the parents, the same as the model reads them, and the new ones.
COPIES_IN_A_STEP = 3


class Nodes(NamedTuple):
    """Nodes of the tree with their costs; each array is (nodes,)."""

    states: IntArray  # of the token tree
    costs: NDArray[np.float64]  # bits, from the start of the text
    indices: NDArray[Any]  # of the first member below each node
    parents: IntArray  # rows of the block whose children they are
    columns: IntArray  # positions in tree.columns of the tokens that lead to them
    depths: IntArray  # tokens after the shared prefix

    def select(self, rows: Any) -> Nodes:
        """Some of the nodes."""
        return Nodes(*(array[rows] for array in self))


class NodeBlock(NamedTuple):
    """Nodes with the model's states and next-token probabilities."""

    nodes: Nodes
    model_states: Any
    log2_probabilities: NDArray[np.float64]  # (nodes, columns)


class Frontier:
    """Expands nodes of a token tree in batches and counts every expansion.

    An expansion is one node advanced by the model; the shared prefix is read once and is not counted. `reads` is the number of
    calls of the model.

    The state of a row may be large: that of a transformer has the keys and values of all tokens so far. So a batch has no more rows
    than `memory_bytes` allows, measured on the state after the shared prefix and scaled to the longest path: a walk that holds one
    batch per level of the tree, and a search that keeps waiting states in half of the memory, both stay within it. What rows share,
    such as the keys and values of the prefix, counts once. The logits of a row count too, if the model makes those of its whole
    vocabulary at once. A batch has at least one row.

    A child whose log-probability is not a finite number is a NoNumberError. With `leave_out`, it is left out with all members below it,
    and `without_number` counts these.
    """

    def __init__(
        self,
        model: Stepper,
        tree: TokenTree,
        *,
        batch: int = BATCH,
        memory_bytes: int = MEMORY_BYTES,
        leave_out: bool = False,
    ) -> None:
        self.model = model
        self.tree = tree
        self.memory_bytes = memory_bytes
        self.without_number = 0
        self._leave_out = leave_out
        self.expansions = 0
        self.reads = 0
        self._most_rows = batch
        self._row_bytes: int | None = None
        self._shared_bytes = 0
        # The state after the shared prefix, if rows that were dropped can be read again from there.
        self._root_states: Any = None
        self._edge_count = tree.edge_count

    @property
    def batch(self) -> int:
        """The rows of a step: as many as requested, if the memory has room for them."""
        held = max(self.tree.depth, COPIES_IN_A_STEP) + COPIES_IN_A_STEP
        a_row = held * self.row_bytes + step_row_bytes(self.model)
        return max(1, min(self._most_rows, (self.memory_bytes - self.shared_bytes) // a_row))

    @property
    def row_bytes(self) -> int:
        """The bytes of one row's state at the end of the longest path."""
        if self._row_bytes is None:
            self._measure(self._start().states)
        return self._row_bytes or 1

    @property
    def shared_bytes(self) -> int:
        """The bytes that are there once, however many rows there are."""
        if self._row_bytes is None:
            self._measure(self._start().states)
        return self._shared_bytes

    def own_bytes(self, model_states: Any) -> int:
        """The bytes of a batch's states without what all rows share."""
        return max(0, self.model.state_bytes(model_states) - self.shared_bytes)

    @property
    def step_bytes(self) -> int:
        """The bytes of all copies of states during a step, and of its logits."""
        return self.batch * (COPIES_IN_A_STEP * self.row_bytes + step_row_bytes(self.model))

    def limit_memory(self, memory_bytes: int) -> None:
        """Use at most this much memory from now on."""
        self.memory_bytes = min(self.memory_bytes, memory_bytes)

    def root(self) -> NodeBlock:
        """The block of the root, which is after the shared prefix."""
        cost = self._prefix_cost()
        if not np.isfinite(cost):
            raise self.no_number()
        step = self._start()
        self._measure(step.states)
        zero = np.zeros(1, dtype=np.int64)
        first = np.array([self.tree.first_index], dtype=self.tree.index_type)
        nodes = Nodes(zero, np.array([cost]), first, zero, zero, zero)
        return NodeBlock(nodes, step.states, np.asarray(step.log2_probabilities, dtype=np.float64))

    def children(self, block: NodeBlock) -> Nodes:
        """The children of a block's nodes, in order; the model is not asked."""
        children, all_known = self.all_children(block)
        if all_known:
            return children
        if not self._leave_out:
            raise self.no_number()
        lost = np.isnan(children.costs)
        self.without_number += int(self.tree.members[children.states[lost]].sum())
        return children.select(~lost)

    def all_children(self, block: NodeBlock) -> tuple[Nodes, bool]:
        """All of them, with NaN as the cost of one that has no number, and below it; and whether there is none of these."""
        nodes, tree = block.nodes, self.tree
        counts = self._edge_count[nodes.states]
        parents = np.repeat(np.arange(len(counts)), counts)
        # The edges of each node are consecutive: count up from the first edge of each.
        ends = np.cumsum(counts)
        edges = np.arange(len(parents)) + np.repeat(tree.first_edge[nodes.states] - (ends - counts), counts)
        columns = tree.edge_column[edges]
        bits = -block.log2_probabilities[parents, columns]
        finite = np.isfinite(bits)
        all_known = bool(finite.all())
        children = Nodes(
            states=tree.edge_next[edges],
            costs=nodes.costs[parents] + (bits if all_known else np.where(finite, bits, np.nan)),
            indices=nodes.indices[parents] + tree.edge_offset[edges],
            parents=parents,
            columns=columns,
            depths=nodes.depths[parents] + 1,
        )
        return children, all_known

    def no_number(self) -> NoNumberError:
        """What to raise where a member has no finite log-perplexity."""
        return NoNumberError(
            f"the model {self.model.name!r} gave a log-probability that is not finite for a member of "
            f"{self.tree.format.template!r}; no conclusion is possible: check the weights"
        )

    def leaves(self, nodes: Nodes) -> Nodes:
        """The nodes at which a member ends."""
        return nodes.select(self.tree.is_leaf[nodes.states])

    def open(self, nodes: Nodes) -> Nodes:
        """The nodes that have children."""
        return nodes.select(self._edge_count[nodes.states] > 0)

    def advance(self, block: NodeBlock, children: Nodes) -> NodeBlock:
        """Ask the model about some children of a block."""
        return self.advance_from(block.model_states, children)

    def advance_from(self, model_states: Any, children: Nodes) -> NodeBlock:
        """Ask the model about nodes whose parents are rows of these states."""
        tokens = self.tree.columns[children.columns]
        step = self.model.step(model_states, children.parents, tokens, columns=self.tree.columns)
        return self._asked(children, step)

    def read_again(self, nodes: Nodes) -> NodeBlock:
        """Ask the model about nodes of one depth from the start of the text, where the states of their parents were dropped."""
        pairs = zip(nodes.indices.tolist(), nodes.depths.tolist(), strict=True)
        rests = [self.tree.tokens_to(index, depth) for index, depth in pairs]
        if self.shared_bytes and isinstance(self.model, RestReader) and len(rests[0]):
            # They share the prefix with all others, which are not to have another copy of it.
            parents = np.zeros(len(rests), dtype=np.int64)
            step = self.model.read_after(self._root_states, parents, rests, columns=self.tree.columns)
            return self._asked(nodes, step)
        start = [*self.model.context, *self.tree.prefix]
        contexts = [[*start, *rest] for rest in rests]
        return self._asked(nodes, self.model.start(contexts, columns=self.tree.columns))

    def _asked(self, nodes: Nodes, step: Step) -> NodeBlock:
        self.reads += 1
        self.expansions += len(nodes.costs)
        return NodeBlock(nodes, step.states, np.asarray(step.log2_probabilities, dtype=np.float64))

    def batches(self, nodes: Nodes) -> Iterator[Nodes]:
        """The nodes in batches."""
        for start in range(0, len(nodes.states), self.batch):
            yield nodes.select(slice(start, start + self.batch))

    def _start(self) -> Step:
        self.reads += 1
        return self.model.start([[*self.model.context, *self.tree.prefix]], columns=self.tree.columns)

    def _measure(self, states: Any) -> None:
        read = len(self.model.context) + len(self.tree.prefix)
        one = self.model.state_bytes(states)
        if isinstance(self.model, RestReader):
            # What is left without rows is there once.
            none = self.model.gather([(states, np.empty(0, dtype=np.int64))])
            self._shared_bytes = self.model.state_bytes(none)
            self._root_states = states
        own = one - self._shared_bytes
        longest = own if self.model.mixes_depths else own + one * self.tree.depth // read
        self._row_bytes = max(1, longest)

    def _prefix_cost(self) -> float:
        """Bits of the tokens that every member begins with, in one pass where the model can score."""
        if isinstance(self.model, Scorer):
            (score,) = self.model.score([after_context(self.model.context, self.tree.prefix)])
            return score.log_perplexity_bits
        step = self.model.start([self.model.context])
        cost = 0.0
        for token in self.tree.prefix:
            cost -= float(step.log2_probabilities[0, token])
            step = self.model.step(step.states, np.zeros(1, dtype=np.int64), np.array([token]))
        return cost
