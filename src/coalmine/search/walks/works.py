"""Works over the members of a format that every engine can run: scoring texts, scoring members one by one, cutting the tree in parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.engines.courses import Course, CourseStep, one_result
from coalmine.engines.units import Arrays, Running, Unit
from coalmine.errors import CoalmineError, NotMeasurableError, WorkerLostError
from coalmine.models.protocols import Model
from coalmine.models.works import ModelWork
from coalmine.search.walks import enumeration
from coalmine.search.walks.frontier import Nodes
from coalmine.search.walks.members import Members
from coalmine.search.walks.plain_arrays import plain_integers, whole_integers

_SURVIVED = (NotMeasurableError, WorkerLostError)


@dataclass(frozen=True)
class MembersWork(ModelWork):
    """The base of works that ask a model about the members of a format."""

    members: Members

    @property
    def models(self) -> tuple[Model, ...]:
        """The one that is asked."""
        return (self.members.model,)

    @property
    def facts(self) -> Any:
        """What all results depend on."""
        return self.members.facts

    @property
    def memory_bytes(self) -> int:
        """What the states of a walk may take."""
        return self.members.memory_bytes


class ScoreTexts(MembersWork):
    """The log-perplexities (bits) of texts; the payload has the names of the texts in messages."""

    name = "score texts/1"
    memory_bytes = 0

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Score the texts of a unit."""
        del running
        return {"bits": self.members.score(unit.inputs, unit.payload)}


class ScoreMembers(MembersWork):
    """The log-perplexities (bits) of members from one place of the format to another."""

    name = "score members/1"
    memory_bytes = 0

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Score those that begin as given."""
        del running
        form, given = self.members.format, self.members.given
        places = [place for place in range(*unit.inputs) if form.at(place).startswith(given)]
        bits = self.members.score([form.at(place) for place in places]) if places else np.empty(0)
        return {"indices": np.array(places, dtype=np.int64), "bits": bits}


class CutTree(MembersWork):
    """Nodes below which at most as many members are as the input says, and the leaves above them."""

    name = "cut tree/1"

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Cut the whole tree."""
        del running
        frontier = self.members.frontier("a walk", "score the texts instead")
        parts, above = enumeration.split_into_units(frontier, unit.inputs)
        below = Nodes(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        return {
            **nodes_to_arrays(below, "part"),
            **nodes_to_arrays(above, "above"),
            "expansions": np.array(frontier.expansions),
        }


class TreeParts(NamedTuple):
    """A tree in parts.

    Attributes:
        units: one unit per part, whose payload is its node; None as payload is the whole tree.
        above: the members that are in none of them.
        expansions: what cutting took.
    """

    units: list[Unit]
    above: Nodes
    expansions: int


def cut_tree(members: Members) -> Course[TreeParts]:
    """The parts of a tree that are walked one by one: a tree of at most `enumeration.UNIT_MEMBERS` is one part."""
    tree, most = members.tree, enumeration.UNIT_MEMBERS
    if tree.size <= most:
        none = np.empty(0, dtype=np.int64)
        above = Nodes(none, np.empty(0), none.astype(tree.index_type), none, none, none)
        return TreeParts([Unit("all", size=tree.size)], above, 0)
    found = yield from one_result(CourseStep(CutTree(members), [Unit(most)], "Cutting the tree"))
    below = nodes_from_arrays(found, "part", tree.index_type)
    units = []
    for row in range(len(below.costs)):
        node = below.select([row])
        size = int(tree.members[node.states[0]])
        units.append(Unit((str(node.indices[0]), int(node.depths[0]), float(node.costs[0])), node, size))
    return TreeParts(units, nodes_from_arrays(found, "above", tree.index_type), int(found["expansions"]))


def score_in_batches(
    members: Members,
    texts: Sequence[str],
    names: Sequence[str] | None,
    task: str,
    *,
    survives: tuple[type[CoalmineError], ...] = _SURVIVED,
) -> Course[NDArray[np.float64]]:
    """The log-perplexities of texts (bits), in units of as many as the model is given at once."""
    starts = range(0, len(texts), members.batch)
    cuts = [slice(start, start + members.batch) for start in starts]
    units = [
        Unit(tuple(texts[cut]), None if names is None else tuple(names[cut]), len(texts[cut])) for cut in cuts
    ]
    found = yield CourseStep(ScoreTexts(members), units, task, len(texts), survives=survives)
    return np.concatenate([one["bits"] for one in found]) if found else np.empty(0)


def score_every_member(members: Members, take: Callable[[int, Arrays], None]) -> Course[None]:
    """Every member with its log-perplexity (bits); `take` gets the places and bits of each batch, in any order."""
    size = members.format.size
    units = [
        Unit((start, stop), size=stop - start)
        for start in range(0, size, members.batch)
        for stop in [min(start + members.batch, size)]
    ]
    yield CourseStep(ScoreMembers(members), units, f"Scoring {size:,} members", size, take)


def nodes_to_arrays(nodes: Nodes, prefix: str) -> Arrays:
    """Nodes as plain arrays."""
    return {f"{prefix}_{name}": plain_integers(getattr(nodes, name)) for name in Nodes._fields}


def nodes_from_arrays(arrays: Arrays, prefix: str, index_type: Any) -> Nodes:
    """What `nodes_to_arrays` was given."""
    nodes = Nodes(*(arrays[f"{prefix}_{name}"] for name in Nodes._fields))
    return nodes._replace(indices=whole_integers(nodes.indices, index_type))
