"""The question that every estimator is asked, about the canaries of one format, and its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure.candidate_scores import CandidateScores
from coalmine.audits.exposure.estimators import ESTIMATORS
from coalmine.audits.exposure.options import ExposureOptions
from coalmine.engines.courses import Course, CourseStep, one_result
from coalmine.engines.units import Arrays, Running, Unit
from coalmine.errors import ModelOutputError
from coalmine.formats.format import Format
from coalmine.models.protocols import Model
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
    """What one method found for the canaries of one format, in their order."""

    estimates: list[Estimate]
    candidates: CandidateScores | None = None
    ranks: list[int | None] | None = None
    expansions: int = 0
    fit: TailFit | None = None
    # The cost of each canary as it was compared with the others; None if that is its score in the question.
    own: NDArray[np.float64] | None = None
    resolution: Resolution | None = None

    def among(self, places: Sequence[int], others: Sequence[Estimate]) -> Measured:
        """The same among all canaries: those measured are at `places`, and the others have the estimates given for all places."""
        estimates, own = list(others), np.full(len(others), np.nan)
        ranks: list[int | None] = [None] * len(others)
        for number, place in enumerate(places):
            estimates[place] = self.estimates[number]
            ranks[place] = None if self.ranks is None else self.ranks[number]
            own[place] = np.nan if self.own is None else self.own[number]
        return self._replace(
            estimates=estimates,
            ranks=None if self.ranks is None else ranks,
            own=None if self.own is None else own,
        )


class FormatQuestion(NamedTuple):
    """The canaries of one format, and how they are to be measured."""

    members: Members
    format_id: str
    references: tuple[str, ...]
    canary_ids: list[str]
    canary_texts: tuple[str, ...]
    canary_scores: NDArray[np.float64]
    # With the method and its number of samples, whatever the caller left open.
    options: ExposureOptions

    @property
    def samples(self) -> int:
        """How many members are drawn."""
        return self.options.samples or 0

    @property
    def model(self) -> Model:
        """The model that is asked."""
        return self.members.model

    @property
    def format(self) -> Format:
        """The format that is asked about."""
        return self.members.format

    @property
    def canary_names(self) -> list[str]:
        """The name of each canary in error messages."""
        return [f"canary {name}" for name in self.canary_ids]

    def frontier(self, method: str) -> Frontier:
        """The frontier over this format, for a model that supports incremental decoding."""
        return self.members.frontier(f"the {method} method", f"use the {methods_without_walking()} method")

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
    def resolutions(self) -> NDArray[np.float64]:
        """For each canary, in bits."""
        return self.resolution.at(self.costs)

    @property
    def margins(self) -> NDArray[np.float64]:
        """How far from the cost of each canary members are kept apart: as far as it may turn out to cost, and its resolution."""
        allowed = allowed_bits(self.question.model.resolution_bits, self.costs)
        return np.asarray(np.minimum(MOST_RESOLUTIONS * self.resolutions, allowed) + self.resolutions)

    def ranks(self, counter: ThresholdCounter) -> Ranks:
        """What was counted, for each canary; a ModelOutputError if one turned out to have a quite different cost."""
        resolutions = self.resolutions
        differences = np.array(
            [
                abs(counter.noted.get(index, cost) - cost)
                for index, cost in zip(self.indices, self.costs.tolist(), strict=True)
            ]
        )
        check_same(
            self.question.members,
            self.question.canary_names,
            differences,
            self.costs,
            self.margins - resolutions,
        )
        return count_ranks(counter, self.indices, resolutions)

    def check_reached(self, ranks: Ranks) -> None:
        """Reject a canary that was not among the members that cost no more than it does."""
        for name, cost, reached in zip(self.question.canary_names, ranks.own, ranks.reached, strict=True):
            if not reached:
                raise ModelOutputError(
                    f"the model {self.question.model.name!r} scores {name} differently when it is asked a second time: it is not "
                    f"among the members that cost no more than its {cost:.2f} bits; its adapter does not conform: run "
                    "coalmine.models.conformance.check_model on it"
                )


def warned(estimate: Estimate, warning: str) -> Estimate:
    """The same with one more warning."""
    return msgspec.structs.replace(estimate, warnings=(*estimate.warnings, warning))


def without_numbers(estimate: Estimate, members: int) -> Estimate:
    """The same with a warning that the model gave no number for some members, if there are any."""
    if not members:
        return estimate
    have = "member has" if members == 1 else "members have"
    return warned(
        estimate,
        f"{members:,} {have} no number by this model, and may be more or less surprising than the canary",
    )


def methods_without_walking(*, but: str = "") -> str:
    """The methods for a model that only scores texts, as a message lists them; those that are not evidence are not advised."""
    *names, last = (
        one.name
        for one in ESTIMATORS
        if one.needs != "incremental decoding" and one.is_evidence and one.name != but
    )
    return f"{', '.join(names)} or {last}"


def compared(question: FormatQuestion, *, walked: bool) -> Course[Compared]:
    """The canaries as a walk finds them, whose expansions are not counted as those of the search; or as they are scored one by one."""
    # Refused here where there is no tree.
    number_of = question.frontier("walk").tree.index_of if walked else question.format.index
    unit = Unit((question.canary_texts, question.canary_scores, question.options.seed), question.canary_names)
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
