"""What given members cost when they are walked as a search walks them: through the frontier, in one batch for each level."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from coalmine.search.walks.frontier import Frontier


def walked_costs(frontier: Frontier, numbers: Sequence[int]) -> NDArray[np.float64]:
    """The log-perplexity in bits of the members with these numbers of the tree, in their order."""
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
            # Nodes of one depth are in order, and so are all their children: a member lies behind the last that does not come
            # after it.
            children = frontier.children(block)
            rows = np.searchsorted(children.indices, going, side="right") - 1
            ends = tree.is_leaf[children.states[rows]] & (children.indices[rows] == going)
            costs.update(zip(going[ends].tolist(), children.costs[rows[ends]].tolist(), strict=True))
            going = going[~ends]
            if len(going):
                block = frontier.advance(block, children.select(np.unique(rows[~ends])))
    return np.array([costs[int(number)] for number in numbers], dtype=np.float64)
