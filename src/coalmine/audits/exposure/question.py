"""The question that every estimator is asked, about the canaries of one format, and its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure.candidate_scores import CandidateScores
from coalmine.audits.exposure.estimators import BY_SCORES
from coalmine.audits.exposure.options import ExposureOptions
from coalmine.engines.courses import Course, CourseStep, one_result
from coalmine.engines.units import Arrays, Running, Unit
from coalmine.errors import ModelOutputError
from coalmine.formats.format import Format
from coalmine.models.resolution import allowed_bits
from coalmine.records import Estimate
from coalmine.search.walks.enumeration import walked_costs
from coalmine.search.walks.frontier import Frontier
from coalmine.search.walks.members import Members
from coalmine.search.walks.resolution import Resolution, check_same, measure_resolution
from coalmine.search.walks.thresholds import Ranks, ThresholdCounter, count_ranks, in_steps
from coalmine.search.walks.works import MembersWork
from coalmine.statistics.exposure.extrapolation import TailFit

# The resolution is measured on this many canaries, and on as many members drawn at random.
ASKED_CANARIES = 4
# How many times its resolution a canary may cost more or less among the members than when it is walked by itself.
MOST_RESOLUTIONS = 16.0


class Measured(NamedTuple):
    """What one method found for the canaries of a question, in their order."""

    estimates: list[Estimate]
    candidates: CandidateScores | None = None
    ranks: Sequence[int | None] | None = None
    expansions: int = 0
    fit: TailFit | None = None
    # The cost of each canary as it was compared with the others; None if that is its score in the question.
    own: NDArray[np.float64] | None = None
    resolution: Resolution | None = None


class FormatQuestion(NamedTuple):
    """The canaries of one format that have a score, and how they are to be measured; the options have the number of samples."""

    members: Members
    format_id: str
    references: tuple[str, ...]
    canary_ids: list[str]
    canary_texts: tuple[str, ...]
    canary_scores: NDArray[np.float64]
    options: ExposureOptions

    @property
    def samples(self) -> int:
        """How many members are drawn."""
        return self.options.samples or 0

    @property
    def format(self) -> Format:
        """The format that is asked about."""
        return self.members.format

    def frontier(self, method: str) -> Frontier:
        """The frontier over this format, for a model that supports incremental decoding."""
        return self.members.frontier(f"the {method} method", f"use the {BY_SCORES} method")

    def places(self, texts: Sequence[str]) -> NDArray[Any]:
        """The places of members in the order of the format."""
        return self.index_array([self.format.index(text) for text in texts])

    def index_array(self, indices: list[int]) -> NDArray[Any]:
        """Indices as an array, of 64 bits where the space allows."""
        return np.array(indices, dtype=np.int64 if self.format.size < 2**62 else object)


class Compared(NamedTuple):
    """The canaries of one format as they are found among the members that they are compared with.

    Attributes:
        indices: the number of each canary among the members.
        costs: what each of them costs (bits), asked in the way in which the members are.
        resolution: how far apart costs must be for their order to be known.
    """

    question: FormatQuestion
    indices: tuple[int, ...]
    costs: NDArray[np.float64]
    resolution: Resolution

    @property
    def reach(self) -> NDArray[np.float64]:
        """How far from its cost each canary may turn out to be among the members (bits)."""
        allowed = allowed_bits(self.question.members.model.resolution_bits, self.costs)
        return np.asarray(np.minimum(MOST_RESOLUTIONS * self.resolution.at(self.costs), allowed))

    def counted_by(self) -> tuple[NDArray[np.float64], NDArray[np.float64], tuple[int, ...]]:
        """What works count members against: the costs, how far from them members are kept apart, and the canaries' numbers."""
        return self.costs, self.reach + self.resolution.at(self.costs + self.reach), self.indices

    def ranks(self, counter: ThresholdCounter, *, complete: bool) -> Ranks:
        """What was counted, for each canary; a ModelOutputError if one has a quite different cost, or is missing though all was counted."""
        question = self.question
        pairs = zip(self.indices, self.costs.tolist(), strict=True)
        own = np.array([counter.noted.get(index, cost) for index, cost in pairs])
        names = [f"canary {name}" for name in question.canary_ids]
        check_same(question.members, names, np.abs(own - self.costs), self.costs, self.reach)
        ranks = count_ranks(counter, self.indices, self.resolution.at(own))
        if complete and not ranks.reached.all():
            name = names[int(np.argmin(ranks.reached))]
            raise ModelOutputError(
                f"the model {question.members.model.name!r} scores {name} differently when it is asked a second time: it is not among the "
                "members that cost no more; its adapter does not conform: run coalmine.models.conformance.check_model on it"
            )
        return ranks


@dataclass(frozen=True)
class CountingWork(MembersWork):
    """The base of works that count members against the costs of canaries."""

    thresholds: NDArray[np.float64]
    margins: NDArray[np.float64]
    indices: tuple[int, ...]


def warned(estimate: Estimate, warning: str) -> Estimate:
    """The same with one more warning."""
    return msgspec.structs.replace(estimate, warnings=(*estimate.warnings, warning))


def without_numbers(estimate: Estimate, members: int) -> Estimate:
    """The same with a warning that the model gave no number for some members, if there are any."""
    have = "member has" if members == 1 else "members have"
    warning = (
        f"{members:,} {have} no number by this model, and may be more or less surprising than the canary"
    )
    return warned(estimate, warning) if members else estimate


def compared(question: FormatQuestion, *, walked: bool) -> Course[Compared]:
    """The canaries as a walk finds them, whose expansions are not counted as those of the search; or as they are scored one by one."""
    # Refused here where there is no tree.
    number_of = question.frontier("walk").tree.index_of if walked else question.format.index
    names = [f"canary {name}" for name in question.canary_ids]
    unit = Unit((question.canary_texts, question.canary_scores, question.options.seed), names)
    work = _Comparing(question.members, walked)
    found = yield from one_result(CourseStep(work, [unit], "Asking about canaries a second time", 1))
    resolution = msgspec.msgpack.decode(found["resolution"].tobytes(), type=Resolution)
    return Compared(question, tuple(map(number_of, question.canary_texts)), found["costs"], resolution)


@dataclass(frozen=True)
class _Comparing(MembersWork):
    """The costs of canaries as members are asked about, and the resolution: measured on a few of them, and on as many drawn members."""

    walked: bool

    name = "compare canaries/3"

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Ask about the canaries of the format."""
        del running
        members, (texts, scores, seed), names, costs = self.members, unit.inputs, unit.payload, unit.inputs[1]
        if self.walked:
            frontier = members.frontier("a walk", "score the texts instead")
            costs = in_steps(walked_costs(frontier, [frontier.tree.index_of(text) for text in texts]))
            check_same(members, names, np.abs(costs - scores), costs)
        step = max(1, -(-len(texts) // ASKED_CANARIES))
        drawn = [members.format.at(i) for i in members.format.sample_indices(ASKED_CANARIES, seed)]
        bits = members.score_each(drawn).bits
        known = np.flatnonzero(~np.isnan(bits)).tolist()
        resolution = measure_resolution(
            members,
            [*texts[::step], *(drawn[place] for place in known)],
            [*names[::step], *["a member"] * len(known)],
            np.concatenate([scores[::step], bits[known]]),
        )
        encoded = np.frombuffer(msgspec.msgpack.encode(resolution), dtype=np.uint8)
        return {"costs": costs, "resolution": encoded}
