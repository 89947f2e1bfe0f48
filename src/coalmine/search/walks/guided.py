"""Importance sampling of members: guided draws, each with the exact probability with which it was drawn.

A draw starts at one of the nodes that a bounded search left open, chosen in proportion to its probability, and follows the
model's own distribution, at each step renormalized over the tokens from which the format can still be completed. A share of the
draws is uniform instead, so that no member has too large a weight. Draws that pass through the same node share its state, so the
model is asked about each different prefix once. Each draw has its own random numbers: its path depends neither on other draws nor
on the order in which nodes are read, and so not on memory, batches or interruptions. Any range of the draws can be followed by
itself, in another process.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.models.protocols import IntArray
from coalmine.search.tree.token_tree import TokenTree
from coalmine.search.walks.frontier import Frontier, NodeBlock, Nodes
from coalmine.search.walks.open_nodes import OpenNodes, as_nodes

UNIFORM_SHARE = 0.1
# Draws that are followed together and share what they read: enough that few prefixes are read more than once.
DRAWS_AT_A_TIME = 8_192


class Draws(NamedTuple):
    """Independent draws from the members below some nodes; arrays are (draws,)."""

    indices: NDArray[Any]
    # Log-perplexities in bits. A draw that exceeded every threshold was not followed further: its cost is that of a
    # prefix, and too high to count.
    costs: NDArray[np.float64]
    # -log2 of the probability with which this member is drawn.
    log2_weights: NDArray[np.float64]
    # Of the nodes that draws start from: log2 of their probability and of their members, and `TokenTree.most_stops`.
    log2_mass: float
    log2_members: float
    most_stops: int

    def most_log2_weight(self, thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
        """An upper bound on the log2 weight of any member that costs no more than a threshold, drawn or not.

        Such a member has a model probability of at least 2^-threshold, and so at least that over the mass of the nodes; renormalizing
        only raises it, and each state at which a member may end halves it at most.
        """
        by_model = self.log2_mass + thresholds + self.most_stops - math.log2(1 - UNIFORM_SHARE)
        by_uniform = self.log2_members - math.log2(UNIFORM_SHARE)
        return np.minimum(by_model, by_uniform)


class _Walkers(NamedTuple):
    """Draws at some nodes, and the log2 probability with which a guided draw reaches each node."""

    draws: IntArray  # (draws,), their numbers
    rows: IntArray  # (draws,), the node of each
    log2_guided: NDArray[np.float64]  # (nodes,)

    def select(self, nodes: IntArray) -> _Walkers:
        """The draws at some of the nodes."""
        place = np.full(len(self.log2_guided), -1)
        place[nodes] = np.arange(len(nodes))
        rows = place[self.rows]
        here = rows >= 0
        return _Walkers(self.draws[here], rows[here], self.log2_guided[nodes])


class _Arrival(NamedTuple):
    """Where draws ended; each array is (draws,)."""

    draws: IntArray
    indices: NDArray[Any]
    costs: NDArray[np.float64]
    log2_guided: NDArray[np.float64]


class _Chance:
    """A stream of random numbers per draw, by SplitMix64; `is_uniform` marks the draws that are not guided."""

    def __init__(self, seeds: NDArray[np.uint64]) -> None:
        self._seeds = seeds
        self.all = np.arange(len(seeds))
        self.is_uniform = self.of(self.all, np.zeros(len(seeds), dtype=np.int64)) < UNIFORM_SHARE

    def of(self, draws: IntArray, places: IntArray) -> NDArray[np.float64]:
        """For each of these draws, the number in [0, 1) at a position of its stream."""
        bits = self._seeds[draws] + (places.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(((bits ^ (bits >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53)


class DrawnBelow(NamedTuple):
    """Some of the draws, with the nodes that they start from; they can be followed without the others."""

    seeds: NDArray[np.uint64]  # (draws,)
    rows: IntArray  # (draws,), the node of each
    nodes: Nodes
    log2_guided: NDArray[np.float64]  # (nodes,), the log2 probability with which a guided draw starts there


class FollowedDraws(NamedTuple):
    """Where draws ended, in their order; each array is (draws,). `log2_guided` is the log2 probability of a guided draw of the member."""

    indices: NDArray[Any]
    costs: NDArray[np.float64]
    log2_guided: NDArray[np.float64]


class DrawPlan:
    """Where each draw starts, and what the nodes that draws start from have in common."""

    def __init__(
        self, tree: TokenTree, waiting: NDArray[Any], number: int, generator: np.random.Generator
    ) -> None:
        """`waiting` are the open nodes of a search, in any order."""
        self.number, self._tree = number, tree
        starts = waiting[np.argsort(waiting["index"], kind="stable")]
        cheapest = float(starts["cost"].min())
        mass = np.exp2(cheapest - starts["cost"])
        self._log2_mass = math.log2(mass.sum()) - cheapest
        log2_below = tree.log2_below[starts["state"]]
        members = np.exp2(log2_below - log2_below.max())
        self._log2_members = float(log2_below.max() + math.log2(members.sum()))
        self._seeds = generator.integers(2**64, size=number, dtype=np.uint64)
        chance = _Chance(self._seeds)
        where = chance.of(chance.all, np.ones(number, dtype=np.int64))
        self._chosen = np.where(chance.is_uniform, _picked(members, where), _picked(mass, where))
        self._starts = starts

    def part(self, begin: int, end: int) -> DrawnBelow:
        """The draws with these numbers."""
        places, rows = np.unique(self._chosen[begin:end], return_inverse=True)
        nodes = as_nodes(self._starts[places])
        return DrawnBelow(self._seeds[begin:end], rows, nodes, -nodes.costs - self._log2_mass)

    def draws(self, parts: Sequence[FollowedDraws]) -> Draws:
        """All draws, of which `parts` are consecutive."""
        indices, costs, log2_guided = (np.concatenate(column) for column in zip(*parts, strict=True))
        log2_q = np.logaddexp2(
            math.log2(1 - UNIFORM_SHARE) + log2_guided, math.log2(UNIFORM_SHARE) - self._log2_members
        )
        return Draws(
            indices=indices,
            costs=costs,
            log2_weights=-log2_q,
            log2_mass=self._log2_mass,
            log2_members=self._log2_members,
            most_stops=self._tree.most_stops,
        )


def follow_draws(frontier: Frontier, drawn: DrawnBelow, limit: float) -> FollowedDraws:
    """Follow draws to their ends; the states of the nodes that they start from are computed from the start of the text.

    Draws that exceed `limit` (bits) count for no threshold up to it, and are not followed further.
    """
    chance = _Chance(drawn.seeds)
    walkers = _Walkers(chance.all, drawn.rows, drawn.log2_guided)
    arrivals: list[_Arrival] = []
    for depth in np.unique(drawn.nodes.depths):
        level = np.flatnonzero(drawn.nodes.depths == depth)
        for start in range(0, len(level), frontier.batch):
            here = level[start : start + frontier.batch]
            block = frontier.read_again(drawn.nodes.select(here))
            arrivals += _walk(frontier, block, walkers.select(here), chance, limit)
    draws, indices, costs, log2_guided = (np.concatenate(column) for column in zip(*arrivals, strict=True))
    order = np.argsort(draws)
    return FollowedDraws(indices[order], costs[order], log2_guided[order])


def draw_members(
    frontier: Frontier, open_nodes: OpenNodes, number: int, generator: np.random.Generator, limit: float
) -> Draws:
    """Draw members below the open nodes, which stay open."""
    plan = DrawPlan(frontier.tree, open_nodes.all(), number, generator)
    cuts = range(0, number, DRAWS_AT_A_TIME)
    parts = (plan.part(begin, min(begin + DRAWS_AT_A_TIME, number)) for begin in cuts)
    return plan.draws([follow_draws(frontier, part, limit) for part in parts])


def _picked(shares: NDArray[np.float64], where: NDArray[np.float64]) -> IntArray:
    """The position at which the running sum of the shares passes each fraction, in [0, 1), of the whole."""
    ends = np.cumsum(shares)
    return np.asarray(np.minimum(np.searchsorted(ends, where * ends[-1], side="right"), len(shares) - 1))


def _walk(
    frontier: Frontier, block: NodeBlock, walkers: _Walkers, chance: _Chance, limit: float
) -> Iterator[_Arrival]:
    """Follow all draws at the nodes of a block to their ends, depth-first, with one batch of states per level of the tree."""
    pending: list[tuple[NodeBlock, Iterator[tuple[Nodes, _Walkers]]]] = []
    while True:
        children, arrived = _scatter(frontier, block, walkers, chance)
        lost = children.costs > limit
        ends = frontier.tree.is_leaf[children.states] & ~lost
        goes_on = (frontier.tree.edge_count[children.states] > 0) & ~lost
        stops = ~goes_on[arrived.rows]
        both = ends & goes_on
        if both.any():
            # The probability of a guided draw is halved whichever way it takes.
            stops |= both[arrived.rows] & _stopping(frontier, children, arrived, chance)
            arrived = arrived._replace(log2_guided=arrived.log2_guided - both)
        rows = arrived.rows[stops]
        yield _Arrival(
            arrived.draws[stops], children.indices[rows], children.costs[rows], arrived.log2_guided[rows]
        )
        going = arrived._replace(draws=arrived.draws[~stops], rows=arrived.rows[~stops])
        onward = np.unique(going.rows)
        pending.append((block, _batches(frontier, children.select(onward), going.select(onward))))
        while (following := next(pending[-1][1], None)) is None:
            pending.pop()
            if not pending:
                return
        nodes, walkers = following
        block = frontier.advance(pending[-1][0], nodes)


def _batches(frontier: Frontier, nodes: Nodes, walkers: _Walkers) -> Iterator[tuple[Nodes, _Walkers]]:
    for start in reversed(range(0, len(nodes.costs), frontier.batch)):
        part = np.arange(start, min(start + frontier.batch, len(nodes.costs)))
        yield nodes.select(part), walkers.select(part)


def _scatter(
    frontier: Frontier, block: NodeBlock, walkers: _Walkers, chance: _Chance
) -> tuple[Nodes, _Walkers]:
    """Move each draw from its node to a child; only children that a draw reached are returned."""
    children = frontier.children(block)
    parents = children.parents
    counts = np.bincount(parents, minlength=len(block.nodes.costs))
    firsts = np.cumsum(counts) - counts
    place = np.arange(len(parents)) - firsts[parents]  # the position of a child among its siblings
    likely = np.zeros((len(counts), counts.max()))
    likely[parents, place] = np.exp2(block.nodes.costs[parents] - children.costs)
    likely /= likely.sum(axis=1, keepdims=True)
    even = np.zeros_like(likely)
    log2_members = frontier.tree.log2_members[children.states]
    even[parents, place] = np.exp2(log2_members - log2_members.max())
    even /= even.sum(axis=1, keepdims=True)
    where = chance.of(walkers.draws, 2 * block.nodes.depths[walkers.rows] + 2)
    uniform = chance.is_uniform[walkers.draws]
    child = np.empty(len(where), dtype=np.int64)
    for shares, which in ((likely, ~uniform), (even, uniform)):
        rows = walkers.rows[which]
        # One ascending array of all running sums: that of row r is between r and r + 1.
        ends = (np.cumsum(shares, axis=1) + np.arange(len(shares))[:, None]).ravel()
        found = np.searchsorted(ends, rows + where[which], side="right") - rows * shares.shape[1]
        child[which] = firsts[rows] + np.clip(found, 0, counts[rows] - 1)
    came, rows = np.unique(child, return_inverse=True)
    log2_step = np.log2(likely[parents[came], place[came]])
    return children.select(came), _Walkers(
        walkers.draws, rows, walkers.log2_guided[parents[came]] + log2_step
    )


def _stopping(frontier: Frontier, nodes: Nodes, arrived: _Walkers, chance: _Chance) -> NDArray[np.bool_]:
    """Where a member ends and others continue, a guided draw ends with probability 1/2, and a uniform one with that of the member."""
    where = chance.of(arrived.draws, 2 * nodes.depths[arrived.rows] + 1)
    even = np.exp2(-frontier.tree.log2_members[nodes.states])
    return where < np.where(chance.is_uniform[arrived.draws], even[arrived.rows], 0.5)
