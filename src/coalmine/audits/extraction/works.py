"""What extraction asks of engines: the search, brute force over a part of the tree, beams, unaided members; and searches kept to resume."""

from __future__ import annotations

import hashlib
import heapq
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coalmine.engines.units import Arrays, Running, Unit, advance_and_keep
from coalmine.errors import InputError
from coalmine.formats.format import Format
from coalmine.models.protocols import Scorer, TokenSequence
from coalmine.search.walks.beam import beam_search
from coalmine.search.walks.enumeration import enumerate_members, enumerate_unit
from coalmine.search.walks.shortest_path import ShortestPaths
from coalmine.search.walks.works import MembersWork
from coalmine.storage.files import guarded_file, read_guarded, to_json

_ADVICE = "use the brute method"
# Members scored one by one where a model does not support incremental decoding.
SCORED_UP_TO = 1_000_000


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


class SpentSearch:
    """What the search of one format that spent its budget has proven, kept in a directory, so that a larger budget resumes from it.

    `facts` say which search it is, and another one is rejected. Without a directory nothing is kept. The file is private, because
    costs and indices show what the model remembers.
    """

    def __init__(self, directory: Path | None, secret: Format, given: str, facts: Any) -> None:
        # Formats of secrets that are already there differ in their words alone, which hold the context.
        told_by = "\0".join([secret.template, given, *(secret.words or ())])
        name = hashlib.sha256(told_by.encode()).hexdigest()[:8]
        self.path = None if directory is None else directory / f"unfinished-extraction-{name}.npz"
        self._fingerprint = hashlib.sha256(to_json(facts)).hexdigest()

    def load(self) -> Arrays | None:
        """What the search had proven, or None where nothing was left."""
        if self.path is None or not os.path.lexists(self.path):
            return None
        content = read_guarded(self.path, "a search that was stopped")
        with np.load(io.BytesIO(content), allow_pickle=False) as saved:
            arrays: Arrays = {name: saved[name] for name in saved.files}
        if str(arrays.pop("fingerprint")) != self._fingerprint:
            raise InputError(
                f"{self.path} belongs to another search (another model or other options); choose another output directory, or remove it"
            )
        return arrays

    def save(self, arrays: Arrays) -> None:
        """Keep what the search has proven."""
        if self.path is not None:
            with guarded_file(self.path) as stream:
                np.savez(stream, fingerprint=np.array(self._fingerprint), **arrays)  # type: ignore[arg-type]  # the stubs take a flag here
