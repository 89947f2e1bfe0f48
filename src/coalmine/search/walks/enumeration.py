"""The log-perplexity of every member of a secret space, or of given members: each shared prefix is read once, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from coalmine.search.walks.frontier import Frontier, NodeBlock, Nodes

# The members of a unit of work: enough that the cost of starting one is negligible, few enough to lose one when killed.
UNIT_MEMBERS = 1_000_000


def enumerate_members(frontier: Frontier) -> Iterator[Nodes]:
    """Batches of leaves: `indices` are member numbers of the tree, `costs` are log-perplexities in bits.

    The walk is depth-first over batches, so at most one batch of states per level of the tree is held. The model is asked about
    each inner node once: 111,110 times for the million fillings of six digits.
    """
    block = frontier.root()
    if frontier.tree.is_leaf[0]:
        yield block.nodes
    yield from _below(frontier, block)


def enumerate_unit(frontier: Frontier, unit: Nodes) -> Iterator[Nodes]:
    """Batches of the leaves below the one node of a unit."""
    block = frontier.read_again(unit) if unit.depths[0] else frontier.root()
    yield from _below(frontier, block)


def split_into_units(frontier: Frontier, most_members: int | None = None) -> tuple[list[Nodes], Nodes]:
    """Nodes that are enumerated one by one, so that work can stop after each and resume with the next.

    Together they contain all members, in order, except for the leaves above them, which are returned as well. Below each are at most
    `most_members`, by default `UNIT_MEMBERS`.
    """
    most_members = UNIT_MEMBERS if most_members is None else most_members
    tree = frontier.tree
    block = frontier.root()
    above = [block.nodes.select(tree.is_leaf[block.nodes.states])]
    if tree.size <= most_members:
        return [block.nodes], above[0]
    units: list[Nodes] = []
    pending: list[tuple[NodeBlock, Iterator[Nodes]]] = []

    def unfold(block: NodeBlock) -> None:
        children = frontier.children(block)
        above.append(frontier.leaves(children))
        children = frontier.open(children)
        small = tree.log2_members[children.states] <= np.log2(most_members)
        units.extend(children.select([row]) for row in np.flatnonzero(small))
        pending.append((block, frontier.batches(children.select(~small))))

    unfold(block)
    while pending:
        block, batches = pending[-1]
        batch = next(batches, None)
        if batch is None:
            pending.pop()
        else:
            unfold(frontier.advance(block, batch))
    units.sort(key=lambda unit: unit.indices[0])
    return units, Nodes(*(np.concatenate(column) for column in zip(*above, strict=True)))


def _below(frontier: Frontier, block: NodeBlock) -> Iterator[Nodes]:
    pending: list[tuple[NodeBlock, Iterator[Nodes]]] = []

    def unfold(block: NodeBlock) -> Nodes:
        children = frontier.children(block)
        pending.append((block, frontier.batches(frontier.open(children))))
        return frontier.leaves(children)

    yield unfold(block)
    while pending:
        block, batches = pending[-1]
        batch = next(batches, None)
        if batch is None:
            pending.pop()
            continue
        leaves = unfold(frontier.advance(block, batch))
        if len(leaves.states):
            yield leaves


def walked_costs(frontier: Frontier, numbers: Sequence[int], *, endings: bool = True) -> NDArray[np.float64]:
    """The log-perplexity in bits of the members with these numbers of the tree, in their order; a NoNumberError where one has none.

    Without `endings`, it is that of the part of each member that no other member begins with alone, such as all but the text after a hole.
    """
    tree = frontier.tree
    different = np.array(sorted(set(numbers)), dtype=tree.index_type)
    costs: dict[int, float] = {}
    for start in range(0, len(different), frontier.batch):
        going = different[start : start + frontier.batch]
        block = frontier.root()
        if tree.is_leaf[0] and going[0] == tree.first_index:
            costs[int(going[0])] = float(block.nodes.costs[0])
            going = going[1:]
        while len(going):
            # Nodes of one depth are in order, and so are all their children: a member is below the last one that does not come
            # after it.
            children, _ = frontier.all_children(block)
            rows = np.searchsorted(children.indices, going, side="right") - 1
            ends = tree.is_leaf[children.states[rows]] & (children.indices[rows] == going)
            if not endings:
                ends |= tree.members[children.states[rows]] == 1
            costs.update(zip(going[ends].tolist(), children.costs[rows[ends]].tolist(), strict=True))
            going = going[~ends]
            if len(going):
                block = frontier.advance(block, children.select(np.unique(rows[~ends])))
    found = np.array([costs[int(number)] for number in numbers], dtype=np.float64)
    if np.isnan(found).any():
        raise frontier.no_number()
    return found
