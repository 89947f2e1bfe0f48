"""The works of extraction that every engine can run: the search, brute force over a part of the tree, beams, and unaided members."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from coalmine.engines.units import Arrays, Running, Unit, advance_and_keep
from coalmine.models.protocols import Scorer, TokenSequence
from coalmine.search.walks.beam import beam_search
from coalmine.search.walks.enumeration import enumerate_members, enumerate_unit
from coalmine.search.walks.shortest_path import FoundMember, ShortestPaths
from coalmine.search.walks.works import MembersWork

_ADVICE = "use the brute method"


@dataclass(frozen=True)
class Searching(MembersWork):
    """The search for the cheapest members. Its result is the search as `snapshot` gives it, settled or with its budget spent.

    A unit begins where an earlier search ended: its input is how many nodes that had expanded, its payload is what it had proven. The
    budget is not a fact: what a search with a smaller one has proven is as good, and the caller continues from it.
    """

    top: int
    budget: int

    name = "extract/1"

    @property
    def memory_bytes(self) -> int:
        """The states, and two copies of them while they are kept."""
        return 3 * self.members.memory_bytes

    @property
    def facts(self) -> Any:
        """The members, and how many are asked for."""
        return self.members.facts, self.top

    def restored(self, saved: Arrays | None) -> ShortestPaths:
        """A search as it was saved, or one that has just started."""
        frontier = self.members.frontier("extraction", _ADVICE)
        search = ShortestPaths(frontier, self.top, memory_bytes=self.members.memory_bytes)
        if saved is None:
            search.start()
        else:
            search.restore(saved)
        return search

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Search until it is settled or the budget is spent."""
        saved = running.kept()
        search = self.restored(unit.payload if saved is None else saved)
        running.advance(search.frontier.expansions)
        keep = partial(search.snapshot, states=True)

        def after_step(expanded: int) -> None:
            best = search.found()
            note = f"best {best[0].log_perplexity_bits:.2f} bits" if best else ""
            advance_and_keep(running, expanded, keep, note)

        search.run(self.budget - search.frontier.expansions, after_step)
        return search.snapshot()


@dataclass(frozen=True)
class Trying(MembersWork):
    """The cheapest members below a node, or of all, by walking every one of them."""

    top: int

    name = "brute force/1"

    @property
    def facts(self) -> Any:
        """The members, and how many are asked for."""
        return self.members.facts, self.top

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Walk the members below the node of a unit."""
        frontier = self.members.frontier("extraction", _ADVICE)
        best: list[tuple[float, int]] = []
        every = unit.payload is None
        for leaves in enumerate_members(frontier) if every else enumerate_unit(frontier, unit.payload):
            best = cheapest(self.top, best, leaves.costs.tolist(), leaves.indices.tolist())
            running.advance(len(leaves.costs))
        return {
            "costs": np.array([cost for cost, _ in best], dtype=np.float64),
            "members": np.array([str(member) for _, member in best], dtype=str),
            "expansions": np.array(frontier.expansions),
        }


class Beaming(MembersWork):
    """The cheapest members that a beam finds; the input of a unit is how many, and the width of the beam."""

    name = "beam/1"

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Follow one beam."""
        del running
        top, width = unit.inputs
        frontier = self.members.frontier("extraction", _ADVICE)
        found = beam_search(frontier, top, width)
        return {
            "costs": np.array([one.log_perplexity_bits for one in found], dtype=np.float64),
            "members": np.array([str(one.member) for one in found], dtype=str),
            "each": np.array([one.expansions for one in found], dtype=np.int64),
            "expansions": np.array(frontier.expansions),
        }


@dataclass(frozen=True)
class Unaided(MembersWork):
    """Whether the model would write texts by itself after the tokens that all members begin with, `prefix` of them."""

    prefix: int

    name = "unaided/1"
    memory_bytes = 0

    @property
    def facts(self) -> Any:
        """The members, and how many tokens are given."""
        return self.members.facts, self.prefix

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Score the texts of a unit; -1 where the model gives no probabilities."""
        del running
        model = self.members.model
        if not isinstance(model, Scorer) or not unit.inputs:
            return {"unaided": np.full(len(unit.inputs), -1, dtype=np.int8)}
        encoded = [tuple(model.tokenizer.encode(text)) for text in unit.inputs]
        sequences = [TokenSequence(model.context + one[: self.prefix], one[self.prefix :]) for one in encoded]
        return {
            "unaided": np.array(
                [bool(score.is_argmax.all()) for score in model.score(sequences)], dtype=np.int8
            )
        }


def cheapest(
    top: int, best: Sequence[tuple[float, int]], costs: Iterable[float], members: Iterable[int]
) -> list[tuple[float, int]]:
    """The `top` cheapest of what is known and what comes, each with the number of its member; among ties, the lowest number first."""
    return heapq.nsmallest(top, [*best, *zip(costs, members, strict=True)])


def found_members(arrays: Arrays) -> list[FoundMember]:
    """What a beam found."""
    columns = (arrays["members"].tolist(), arrays["costs"].tolist(), arrays["each"].tolist())
    return [FoundMember(int(member), cost, at) for member, cost, at in zip(*columns, strict=True)]
