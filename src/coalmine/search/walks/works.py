"""Works over the members of a format that every engine can run: scoring texts, scoring members one by one, cutting the tree in parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.engines.courses import SURVIVED, Course, CourseStep, one_result
from coalmine.engines.units import Arrays, Running, Unit
from coalmine.errors import CoalmineError, NoNumberError
from coalmine.models.protocols import Model
from coalmine.models.works import ModelWork
from coalmine.search.walks import enumeration
from coalmine.search.walks.frontier import Nodes
from coalmine.search.walks.members import Members
from coalmine.search.walks.plain_arrays import plain_integers, whole_integers
from coalmine.search.walks.scoring import Scored


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
        """What all results depend on: the members, and the other fields of the work."""
        others = [getattr(self, one.name) for one in fields(self) if one.name != "members"]
        # Numbers of members may have more than 64 bits.
        return self.members.facts, [[*map(str, one)] if isinstance(one, tuple) else one for one in others]

    @property
    def memory_bytes(self) -> int:
        """What the states of a walk may take."""
        return self.members.memory_bytes


class ScoreTexts(MembersWork):
    """The log-perplexities (bits) of texts.

    A text without one has NaN and a reason; if none has one, the unit fails with the first reason.
    """

    name = "score texts/3"
    memory_bytes = 0

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Score the texts of a unit."""
        del running
        return _with_reasons(self.members.score_each(unit.inputs))


class ScoreMembers(MembersWork):
    """The log-perplexities (bits) of members from one place of the format to another, in the same way."""

    name = "score members/3"
    memory_bytes = 0

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Score those that begin as given."""
        del running
        form, given = self.members.format, self.members.given
        places = [place for place in range(*unit.inputs) if form.at(place).startswith(given)]
        texts = [form.at(place) for place in places]
        scored = self.members.score_each(texts) if places else Scored(np.empty(0), {}, {})
        return {"indices": np.array(places, dtype=np.int64), **_with_reasons(scored)}


class CutTree(MembersWork):
    """Nodes below which at most as many members are as the input says, and the leaves above them.

    Members that have no number are in neither, and counted.
    """

    name = "cut tree/2"

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Cut the whole tree."""
        del running
        frontier = self.members.frontier("a walk", "score the texts instead", leave_out=True)
        parts, above = enumeration.split_into_units(frontier, unit.inputs)
        below = Nodes(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        return {
            **nodes_to_arrays(below, "part"),
            **nodes_to_arrays(above, "above"),
            "expansions": np.array(frontier.expansions),
            "without_number": np.array(str(frontier.without_number)),
        }


class TreeParts(NamedTuple):
    """A tree in parts.

    Attributes:
        units: one unit per part, whose payload is its node; None as payload is the whole tree.
        above: the members that are in none of them.
        expansions: what cutting took.
        without_number: how many members the model gave no number for while it was cut; they are in no part either.
    """

    units: list[Unit]
    above: Nodes
    expansions: int
    without_number: int = 0


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
    above = nodes_from_arrays(found, "above", tree.index_type)
    return TreeParts(units, above, int(found["expansions"]), int(str(found["without_number"])))


def score_in_batches(
    members: Members,
    texts: Sequence[str],
    task: str,
    *,
    survives: tuple[type[CoalmineError], ...] = SURVIVED,
) -> Course[Scored]:
    """The log-perplexities of texts (bits), in units of as many as the model is given at once.

    Texts without one do not stop the others; where no text has one, the first problem is raised.
    """
    starts = range(0, len(texts), members.batch)
    cuts = [slice(start, start + members.batch) for start in starts]
    units = [Unit(tuple(texts[cut]), size=len(texts[cut])) for cut in cuts]
    scored = Scored(np.full(len(texts), np.nan), {}, {})

    def take(number: int, found: Arrays) -> None:
        scored.bits[cuts[number]] = found["bits"]
        own = scored_from(found)
        scored.problems.update({starts[number] + place: one for place, one in own.problems.items()})

    def failed(number: int, problem: CoalmineError) -> None:
        scored.problems.update(dict.fromkeys(range(len(texts))[cuts[number]], problem))

    yield CourseStep(ScoreTexts(members), units, task, len(texts), take, survives, failed)
    if texts and len(scored.problems) == len(texts):
        raise scored.problems[0]
    return scored


class EveryMember(NamedTuple):
    """Every member of a format with its log-perplexity (bits), in the order of the format; and what those without one cost at least.

    `problem` is why the first of these has none.
    """

    indices: NDArray[np.int64]
    bits: NDArray[np.float64]
    least: NDArray[np.float64]
    problem: CoalmineError | None

    @property
    def without_number(self) -> int:
        """How many have none."""
        return len(self.least)


def score_every_member(members: Members) -> Course[EveryMember]:
    """Every member, scored by itself; where none has a log-perplexity, the first problem is raised."""
    size = members.format.size
    units = [
        Unit((start, stop), size=stop - start)
        for start in range(0, size, members.batch)
        for stop in [min(start + members.batch, size)]
    ]
    kept: dict[int, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
    problems: dict[
        int, tuple[list[float], CoalmineError]
    ] = {}  # by unit, with what its members cost at least

    def take(number: int, found: Arrays) -> None:
        known = ~np.isnan(found["bits"])
        kept[number] = found["indices"][known], found["bits"][known]
        scored = scored_from(found)
        if scored.problems:
            problems[number] = [*scored.least.values()], scored.problems[min(scored.problems)]

    def failed(number: int, problem: CoalmineError) -> None:
        problems[number] = [0.0] * units[number].size, problem

    yield CourseStep(ScoreMembers(members), units, f"Scoring {size:,} members", size, take, failed=failed)
    first = problems[min(problems)][1] if problems else None
    if first is not None and not any(len(bits) for _, bits in kept.values()):
        raise first
    indices, bits = (np.concatenate(column) for column in zip(*(kept[i] for i in sorted(kept)), strict=True))
    least = np.array([bound for bounds, _ in problems.values() for bound in bounds], dtype=np.float64)
    return EveryMember(indices, bits, least, first)


def _with_reasons(scored: Scored) -> Arrays:
    """Scores as plain arrays, with the places and reasons of those that are missing; raises if all are, and nothing is known of them."""
    places = sorted(scored.problems)
    least = [scored.least.get(place, 0.0) for place in places]
    if places and len(places) == len(scored.bits) and not any(least):
        raise scored.problems[places[0]]
    reasons = [str(scored.problems[place]) for place in places]
    return {
        "least": np.array(least, dtype=np.float64),
        "bits": scored.bits,
        "missing": np.array(places, dtype=np.int64),
        "reasons": np.array(reasons, dtype=str),
    }


def scored_from(arrays: Arrays) -> Scored:
    """The scores of a unit."""
    places = arrays["missing"].tolist()
    pairs = zip(places, arrays["reasons"].tolist(), strict=True)
    least = dict(zip(places, arrays["least"].tolist(), strict=True))
    return Scored(arrays["bits"], {place: NoNumberError(reason) for place, reason in pairs}, least)


def nodes_to_arrays(nodes: Nodes, prefix: str) -> Arrays:
    """Nodes as plain arrays."""
    return {f"{prefix}_{name}": plain_integers(getattr(nodes, name)) for name in Nodes._fields}


def nodes_from_arrays(arrays: Arrays, prefix: str, index_type: Any) -> Nodes:
    """What `nodes_to_arrays` was given."""
    nodes = Nodes(*(arrays[f"{prefix}_{name}"] for name in Nodes._fields))
    return nodes._replace(indices=whole_integers(nodes.indices, index_type))
