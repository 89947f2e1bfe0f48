"""Every member of a secret space with its log-perplexity: each shared prefix is read once, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

from coalmine.search.frontier import Block, Frontier, Nodes


def enumerate_members(frontier: Frontier) -> Iterator[Nodes]:
    """Batches of leaves: `indices` are places in the format's order, `costs` are log-perplexities in bits.

    The walk is depth-first over batches, so at most one batch of states for each level of the tree is held. A space of n
    fillings a hole costs one expansion for each inner node: 111,110 for the million fillings of six digits.
    """
    root = frontier.root()
    if frontier.tree.is_leaf[0]:
        yield root.nodes
    pending: list[tuple[Block, Iterator[Nodes]]] = []

    def unfold(block: Block) -> Nodes:
        children = frontier.children(block)
        pending.append((block, frontier.batches(frontier.open(children))))
        return frontier.leaves(children)

    yield unfold(root)
    while pending:
        block, batches = pending[-1]
        batch = next(batches, None)
        if batch is None:
            pending.pop()
            continue
        leaves = unfold(frontier.advance(block, batch))
        if len(leaves.states):
            yield leaves
