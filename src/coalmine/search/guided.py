"""Members drawn where the model expects them, each with the exact probability with which it was drawn.

A draw starts at one of the nodes that a bounded search left open, chosen in proportion to its probability, and follows the
model's own distribution, at each step renormalized over the tokens from which the format can still be finished. A share of
the draws is uniform instead, so that no member is drawn too rarely to be weighed. Draws that pass through the same node share
its state, so the model is asked about each different prefix once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.search.frontier import Block, Frontier, Nodes
from coalmine.search.open_nodes import OpenNodes

UNIFORM_SHARE = 0.1


class Draws(NamedTuple):
    """Independent draws from the members behind some nodes; arrays are (draws,)."""

    indices: NDArray[Any]
    # Log-perplexities in bits. A draw that came to cost more than any threshold was left there: its cost is that of a
    # prefix, and too much to count.
    costs: NDArray[np.float64]
    # Minus log2 of the probability with which this member is drawn.
    log2_weights: NDArray[np.float64]
    # Of the nodes that draws start from: their probability, the members behind them, and `TokenTree.most_stops`.
    log2_mass: float
    log2_members: float
    most_stops: int

    def most_log2_weight(self, thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
        """The most that any member that costs no more than a threshold can weigh, drawn or not.

        Such a member has at least the share 2^-threshold of the model's probability, and of the nodes' that over their mass;
        renormalizing only raises it, and each state at which a member may end halves it at most.
        """
        by_model = self.log2_mass + thresholds + self.most_stops - math.log2(1 - UNIFORM_SHARE)
        by_uniform = self.log2_members - math.log2(UNIFORM_SHARE)
        return np.minimum(by_model, by_uniform)


class _Walkers(NamedTuple):
    """Draws at some nodes: how many of either kind, and how likely a guided one was to come there."""

    guided: NDArray[np.int64]
    uniform: NDArray[np.int64]
    log2_guided: NDArray[np.float64]

    def select(self, rows: Any) -> _Walkers:
        return _Walkers(self.guided[rows], self.uniform[rows], self.log2_guided[rows])

    @property
    def total(self) -> NDArray[np.int64]:
        return self.guided + self.uniform


class _Arrival(NamedTuple):
    """Where draws ended."""

    indices: NDArray[Any]
    costs: NDArray[np.float64]
    times: NDArray[np.int64]
    log2_guided: NDArray[np.float64]


def draw_members(
    frontier: Frontier, open_nodes: OpenNodes, number: int, generator: np.random.Generator, limit: float
) -> Draws:
    """Draw members from behind the open nodes; nodes stay open.

    Draws that come to cost more than `limit` count for no threshold up to it, and are not followed further.
    """
    tree = frontier.tree
    open_nodes.leave_room(tree.depth)
    starts = open_nodes.all()
    starts = starts[
        np.argsort(starts["index"], kind="stable")
    ]  # the same draws in whatever order nodes were left
    cheapest = float(starts["cost"].min())
    mass = np.exp2(cheapest - starts["cost"])
    log2_mass = math.log2(mass.sum()) - cheapest
    log2_behind = tree.log2_behind[starts["state"]]
    log2_members = float(log2_behind.max() + math.log2(np.exp2(log2_behind - log2_behind.max()).sum()))
    uniform = int(generator.binomial(number, UNIFORM_SHARE))
    walkers = _Walkers(
        guided=generator.multinomial(number - uniform, _normalized(mass)),
        uniform=generator.multinomial(uniform, _normalized(np.exp2(log2_behind - log2_behind.max()))),
        log2_guided=-starts["cost"] - log2_mass,
    )
    chosen = walkers.total > 0
    starts, walkers = starts[chosen], walkers.select(chosen)
    arrivals = []
    for block in open_nodes.expand(starts, keep=True):
        places = np.searchsorted(starts["index"], block.nodes.indices)
        arrivals += list(_walk(frontier, block, walkers.select(places), generator, limit))
    indices, costs, times, log2_guided = (np.concatenate(column) for column in zip(*arrivals, strict=True))
    log2_q = np.logaddexp2(
        math.log2(1 - UNIFORM_SHARE) + log2_guided, math.log2(UNIFORM_SHARE) - log2_members
    )
    # Equal draws came out side by side; independent draws come in any order, and an interval may rely on that.
    order = generator.permutation(int(times.sum()))
    return Draws(
        indices=np.repeat(indices, times)[order],
        costs=np.repeat(costs, times)[order],
        log2_weights=np.repeat(-log2_q, times)[order],
        log2_mass=log2_mass,
        log2_members=log2_members,
        most_stops=tree.most_stops,
    )


def _walk(
    frontier: Frontier, block: Block, walkers: _Walkers, generator: np.random.Generator, limit: float
) -> Iterator[_Arrival]:
    """Lead all draws at the nodes of a block to their ends, depth-first, one batch of states for each level of the tree."""
    pending: list[tuple[Block, Iterator[tuple[Nodes, _Walkers]]]] = []
    while True:
        children, arrived = _scatter(frontier, block, walkers, generator)
        lost = children.costs > limit
        yield _ended(children, arrived, lost)
        ends = frontier.tree.is_leaf[children.states] & ~lost
        goes_on = (frontier.tree.edge_count[children.states] > 0) & ~lost
        yield _ended(children, arrived, ends & ~goes_on)
        both = ends & goes_on
        if both.any():
            stopping, arrived = _stop(frontier, children, arrived, both, generator)
            yield stopping
        onward = goes_on & (arrived.total > 0)
        pending.append((block, _batches(frontier, children.select(onward), arrived.select(onward))))
        while (following := next(pending[-1][1], None)) is None:
            pending.pop()
            if not pending:
                return
        nodes, walkers = following
        block = frontier.advance(pending[-1][0], nodes)


def _batches(frontier: Frontier, nodes: Nodes, walkers: _Walkers) -> Iterator[tuple[Nodes, _Walkers]]:
    for start in reversed(range(0, len(nodes.costs), frontier.batch)):
        part = slice(start, start + frontier.batch)
        yield nodes.select(part), walkers.select(part)


def _scatter(
    frontier: Frontier, block: Block, walkers: _Walkers, generator: np.random.Generator
) -> tuple[Nodes, _Walkers]:
    """Send each draw from its node to a child; only children that a draw came to are returned."""
    children = frontier.children(block)
    parents = children.parents
    counts = np.bincount(parents, minlength=len(block.nodes.costs))
    place = np.arange(len(parents)) - np.repeat(
        np.cumsum(counts) - counts, counts
    )  # of a child among its siblings
    likely = np.zeros((len(counts), counts.max()))
    likely[parents, place] = np.exp2(block.nodes.costs[parents] - children.costs)
    allowed = likely.sum(axis=1, keepdims=True)
    likely /= allowed
    even = np.zeros_like(likely)
    log2_members = frontier.tree.log2_members[children.states]
    even[parents, place] = np.exp2(log2_members - log2_members.max())
    even /= even.sum(axis=1, keepdims=True)
    guided = generator.multinomial(walkers.guided, likely)[parents, place]
    uniform = generator.multinomial(walkers.uniform, even)[parents, place]
    came = guided + uniform > 0
    log2_step = np.log2(likely[parents[came], place[came]])
    arrived = _Walkers(guided[came], uniform[came], walkers.log2_guided[parents[came]] + log2_step)
    return children.select(came), arrived


def _stop(
    frontier: Frontier,
    nodes: Nodes,
    arrived: _Walkers,
    both: NDArray[np.bool_],
    generator: np.random.Generator,
) -> tuple[_Arrival, _Walkers]:
    """Where a member ends and others go on, a guided draw ends with probability 1/2, and a uniform one as it should."""
    members = np.exp2(-frontier.tree.log2_members[nodes.states])
    guided = generator.binomial(arrived.guided, np.where(both, 0.5, 0.0))
    uniform = generator.binomial(arrived.uniform, np.where(both, members, 0.0))
    log2_guided = arrived.log2_guided - both
    stopping = _ended(nodes, _Walkers(guided, uniform, log2_guided), guided + uniform > 0)
    return stopping, _Walkers(arrived.guided - guided, arrived.uniform - uniform, log2_guided)


def _ended(nodes: Nodes, walkers: _Walkers, which: NDArray[np.bool_]) -> _Arrival:
    return _Arrival(
        nodes.indices[which], nodes.costs[which], walkers.total[which], walkers.log2_guided[which]
    )


def _normalized(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(shares / shares.sum())
