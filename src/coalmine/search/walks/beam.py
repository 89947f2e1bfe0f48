"""Beam and greedy search, for comparison: they ask the model little, and prove nothing."""

from __future__ import annotations

import numpy as np

from coalmine.models.protocols import IntArray
from coalmine.search.walks.frontier import Frontier, Nodes
from coalmine.search.walks.shortest_path import Found


def beam_search(frontier: Frontier, top: int, width: int) -> list[Found]:
    """The `top` cheapest members met while only the `width` cheapest nodes of each depth are followed.

    With a width of 1 this is greedy search: the likeliest token at each step, among those that the format allows.
    """
    block = frontier.root()
    found: list[Found] = []
    if frontier.tree.is_leaf[0]:
        found += _found(block.nodes, 0)
    while True:
        children = frontier.children(block)
        followed = children.select(_cheapest(children, width))
        found += _found(frontier.leaves(followed), frontier.expansions)
        waiting = frontier.open(followed)
        if not len(waiting.costs):
            break
        # A beam is at most a few hundred nodes, so it is one batch.
        block = frontier.advance(block, waiting)
    return sorted(found, key=lambda one: (one.log_perplexity_bits, one.member))[:top]


def _cheapest(nodes: Nodes, width: int) -> IntArray:
    order = np.argsort(nodes.costs, kind="stable")[:width]
    return np.sort(order)


def _found(leaves: Nodes, expansions: int) -> list[Found]:
    pairs = zip(leaves.indices.tolist(), leaves.costs.tolist(), strict=True)
    return [Found(index, cost, expansions) for index, cost in pairs]
