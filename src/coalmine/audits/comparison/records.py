"""Results of `compare_runs`, its options, and what it compares: a training and its utility."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec

from coalmine.audits.exposure.candidate_scores import CandidateScores
from coalmine.audits.exposure.results import Exposures
from coalmine.audits.options import Options
from coalmine.records import Estimate
from coalmine.records.documents import Document
from coalmine.records.estimate import Level, Positive, Share
from coalmine.statistics.differences import Difference
from coalmine.storage.files import PUBLIC

SCHEMA = "coalmine.comparison/1"
UtilityRelation = Literal["equal", "first better", "second better", "not told apart", "not known"]


class ComparisonOptions(Options, frozen=True, kw_only=True):
    """How trainings are compared.

    Attributes:
        utility_name: what the utility is called.
        higher_is_better: whether a higher utility is better, as for an accuracy; losses are lower.
        equal_within: utilities that differ by no more than this, in their own unit, count as equal.
        repetitions: compare only canaries that were planted exactly this many times; None compares all.
        confidence: the level of the intervals, between 0 and 1.
        seed: the root of all randomness.

    >>> ComparisonOptions(repetitions=4).utility_name
    'validation loss'
    """

    utility_name: str = "validation loss"
    higher_is_better: bool = False
    equal_within: float = 0.02
    repetitions: int | None = None
    confidence: float = 0.95
    seed: int = 0

    def check(self) -> None:
        """Reject values that nothing can be compared with."""
        self._require(0 <= self.equal_within < float("inf"), "equal_within", "a number of at least 0")


class UtilityMeasure(NamedTuple):
    """How good a model is: one number, and one per document if these are known."""

    estimate: Estimate
    documents: tuple[float, ...] | None = None
    # What it was measured on; only equal ones can be compared. None where the user vouches for it.
    measured_on: str | None = None


class Strategy(NamedTuple):
    """One training: what it exposes, and how good its model is (None where that is not known)."""

    name: str
    exposure: Exposures
    utility: UtilityMeasure | None
    # Format id to the scores of the references or samples that its canaries were placed among, where they are there.
    others: Mapping[str, CandidateScores] = MappingProxyType({})
    # The way of training; runs with the same one are seeds of it. None where the run is the only one of its kind.
    side: str | None = None
    # Of the exposure.json, where it was read from one.
    exposures_sha256: str | None = None


class ComparedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One training beside the others, by its canaries of one format; formats are never mixed."""

    name: str
    side: str | None = None
    format_id: str = ""
    template: str = ""
    manifest_sha256: str
    # As the model describes itself: one, or one for each file of the weights; None where it does not say.
    weights_sha256: Any = None
    exposures_sha256: str | None = None
    methods: tuple[str, ...]
    canaries: Positive
    # The median over planted canaries, in bits.
    exposure: Estimate
    utility: Estimate | None
    # None where it has no place in the figure; see the warnings of the comparison.
    on_frontier: bool | None
    # Sides that are no worse in both and better in one, by their points: of several trainings, the means.
    dominated_by: tuple[str, ...]


class PairDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The exposure of a first side minus that of a second for one format, and how their utilities compare."""

    first: str
    second: str
    format_id: str = ""
    template: str = ""
    # What varies by chance in `exposure`: canaries, for one training per side, or trainings.
    unit: Literal["canaries", "trainings"] = "canaries"
    # How many trainings each side has.
    trainings: tuple[int, int] = (1, 1)
    # None where it could not be measured, for the reason in `problem`.
    exposure: Difference | None
    problem: str | None
    # Raised for the number of pairs and formats that are compared (Holm).
    adjusted_p_value: Share | None
    by_repetitions: dict[str, Difference]
    utility_relation: UtilityRelation
    utility_statement: str
    # The conclusion, in one sentence.
    statement: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Trainings side by side: medians of exposure and their differences in bits, utilities, and warnings; comparison.json.

    >>> compare_runs(["plain", "private"]).pairs[0].statement  # doctest: +SKIP
    'plain against private: 4.12 bits more (95% interval 3.00 to 5.34), p = 0.0078, 8 pairs; ...'
    """

    schema: str = SCHEMA
    utility_name: str
    higher_is_better: bool
    equal_within: float
    # Only canaries with this many repetitions; None for all.
    repetitions: int | None
    confidence: Level
    seed: int
    runs: tuple[ComparedRun, ...]
    pairs: tuple[PairDifference, ...]
    warnings: tuple[str, ...] = ()


COMPARISONS = Document(
    record=Comparison,
    schema=SCHEMA,
    file="comparison.json",
    title="comparison",
    by="`coalmine report`",
    mode=PUBLIC,
    name_is_common=True,
)
