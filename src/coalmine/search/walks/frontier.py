"""The batched frontier of the tree walk, and the only place where a format's members are asked of a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.errors import ModelOutputError
from coalmine.models.protocols import IntArray, Scorer, Step, Stepper, after_context
from coalmine.search.tree.token_tree import TokenTree

# Rows a step: past this, throughput on a CPU no longer grows, and states of waiting rows only take memory.
BATCH = 2048
# What the states of all rows that are held at a time may take.
MEMORY_BYTES = 1 << 30
# Copies of a batch's states while a step is made: the parents' gathered, the same as the model reads them, and the new ones.
COPIES_IN_A_STEP = 3


class Nodes(NamedTuple):
    """Places in the tree, with what it costs to get there; each array is (nodes,)."""

    states: IntArray  # of the token tree
    costs: NDArray[np.float64]  # bits, from the start of the text
    indices: NDArray[Any]  # of the first member behind each node
    parents: IntArray  # rows of the block that they are children of
    columns: IntArray  # places in tree.columns of the tokens that lead to them
    depths: IntArray  # tokens behind the shared prefix

    def select(self, rows: Any) -> Nodes:
        """Some of the nodes."""
        return Nodes(*(array[rows] for array in self))


class NodeBlock(NamedTuple):
    """Nodes that the model has been asked about."""

    nodes: Nodes
    model_states: Any
    log2_probabilities: NDArray[np.float64]  # (nodes, columns)


class Frontier:
    """Expands nodes of a token tree in batches and counts every expansion.

    An expansion is one node advanced by the model; the shared prefix is read once and is not counted. `reads` is the number of
    times the model was asked.

    A row's state may be large: that of a transformer holds keys and values of all that it has read. So a batch has no more rows than
    `memory_bytes` allows, measured on the state behind the shared prefix and scaled to the longest path: a walk that holds a batch
    for each level of the tree, and a search that lets states wait in half of the memory, stay within it both. One row is the least.
    """

    def __init__(
        self, model: Stepper, tree: TokenTree, *, batch: int = BATCH, memory_bytes: int = MEMORY_BYTES
    ) -> None:
        self.model = model
        self.tree = tree
        self.memory_bytes = memory_bytes
        self.expansions = 0
        self.reads = 0
        self._most_rows = batch
        self._row_bytes: int | None = None
        self._edge_count = tree.edge_count

    @property
    def batch(self) -> int:
        """The rows of a step: as many as were asked for, and as the memory has room for."""
        held = max(self.tree.depth, COPIES_IN_A_STEP) + COPIES_IN_A_STEP
        return max(1, min(self._most_rows, self.memory_bytes // (held * self.row_bytes)))

    @property
    def row_bytes(self) -> int:
        """The bytes of one row's state at the end of the longest path."""
        if self._row_bytes is None:
            self._measure(self._start().states)
        return self._row_bytes or 1

    @property
    def step_bytes(self) -> int:
        """The bytes of all copies of states while a step is made."""
        return COPIES_IN_A_STEP * self.batch * self.row_bytes

    def limit_memory(self, memory_bytes: int) -> None:
        """Make do with less."""
        self.memory_bytes = min(self.memory_bytes, memory_bytes)

    def root(self) -> NodeBlock:
        """The block of the one node behind the shared prefix."""
        cost = self._prefix_cost()
        step = self._start()
        self._measure(step.states)
        zero = np.zeros(1, dtype=np.int64)
        first = np.array([self.tree.first_index], dtype=self.tree.index_type)
        nodes = Nodes(zero, np.array([cost]), first, zero, zero, zero)
        return NodeBlock(nodes, step.states, np.asarray(step.log2_probabilities, dtype=np.float64))

    def children(self, block: NodeBlock) -> Nodes:
        """All children of a block's nodes, in order; asks nothing of the model."""
        nodes, tree = block.nodes, self.tree
        counts = self._edge_count[nodes.states]
        parents = np.repeat(np.arange(len(counts)), counts)
        # The edges of each node are consecutive: count up from the first edge of each.
        ends = np.cumsum(counts)
        edges = np.arange(len(parents)) + np.repeat(tree.first_edge[nodes.states] - (ends - counts), counts)
        columns = tree.edge_column[edges]
        bits = -block.log2_probabilities[parents, columns]
        if not np.isfinite(bits).all():
            raise ModelOutputError(
                f"the model {self.model.name!r} gave a log-probability that is not finite for a member of "
                f"{tree.format.template!r}; nothing can be concluded from it: check the weights"
            )
        return Nodes(
            states=tree.edge_next[edges],
            costs=nodes.costs[parents] + bits,
            indices=nodes.indices[parents] + tree.edge_offset[edges],
            parents=parents,
            columns=columns,
            depths=nodes.depths[parents] + 1,
        )

    def leaves(self, nodes: Nodes) -> Nodes:
        """Those of the nodes at which a member ends."""
        return nodes.select(self.tree.is_leaf[nodes.states])

    def open(self, nodes: Nodes) -> Nodes:
        """Those of the nodes that members go on from."""
        return nodes.select(self._edge_count[nodes.states] > 0)

    def advance(self, block: NodeBlock, children: Nodes) -> NodeBlock:
        """Ask the model about some children of a block."""
        return self.advance_from(block.model_states, children)

    def advance_from(self, model_states: Any, children: Nodes) -> NodeBlock:
        """Ask the model about nodes whose parents are rows of some states."""
        tokens = self.tree.columns[children.columns]
        step = self.model.step(model_states, children.parents, tokens, columns=self.tree.columns)
        return self._asked(children, step)

    def read_again(self, nodes: Nodes) -> NodeBlock:
        """Ask the model about nodes of one depth from the start of the text, where their parents' states are gone."""
        start = [*self.model.context, *self.tree.prefix]
        pairs = zip(nodes.indices.tolist(), nodes.depths.tolist(), strict=True)
        contexts = [[*start, *self.tree.tokens_to(index, depth)] for index, depth in pairs]
        return self._asked(nodes, self.model.start(contexts, columns=self.tree.columns))

    def _asked(self, nodes: Nodes, step: Step) -> NodeBlock:
        self.reads += 1
        self.expansions += len(nodes.costs)
        return NodeBlock(nodes, step.states, np.asarray(step.log2_probabilities, dtype=np.float64))

    def batches(self, nodes: Nodes) -> Iterator[Nodes]:
        """The nodes in pieces of at most one batch."""
        for start in range(0, len(nodes.states), self.batch):
            yield nodes.select(slice(start, start + self.batch))

    def _start(self) -> Step:
        self.reads += 1
        return self.model.start([[*self.model.context, *self.tree.prefix]], columns=self.tree.columns)

    def _measure(self, states: Any) -> None:
        read = len(self.model.context) + len(self.tree.prefix)
        own = self.model.state_bytes(states)
        longest = own if self.model.mixes_depths else own * (read + self.tree.depth) // read
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
