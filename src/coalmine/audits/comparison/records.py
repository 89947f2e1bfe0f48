"""Results of `compare_runs`, its options, and what it compares: a training and its loss."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

import msgspec

from coalmine.audits.exposure.results import CandidateScores, Exposures
from coalmine.audits.options import Options
from coalmine.records import Estimate
from coalmine.records.documents import Document
from coalmine.records.estimate import Level, Positive, Share
from coalmine.statistics.differences import Difference
from coalmine.storage.files import PUBLIC

SCHEMA = "coalmine.comparison/3"
LossRelation = Literal["equal", "first better", "second better", "not told apart", "not known"]


class ComparisonOptions(Options, frozen=True, kw_only=True):
    """How trainings are compared.

    Attributes:
        equal_within: losses that differ by no more than this count as equal.

    >>> ComparisonOptions(confidence=0.9).equal_within
    0.02
    """

    equal_within: float = 0.02
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        self._require(0 <= self.equal_within < float("inf"), "equal_within", "a number of at least 0")


class Strategy(NamedTuple):
    """One training: what it exposes, and how good its model is."""

    name: str
    exposure: Exposures
    # Its loss: lower is better; None where it is not known.
    loss: float | None
    # Format id to the scores of the references or samples that its canaries were placed among, where they are there.
    others: Mapping[str, CandidateScores] = MappingProxyType({})
    # The way of training; runs with the same one are seeds of it. None where the run is the only one of its kind.
    side: str | None = None
    # What the loss was measured on; only equal ones can be compared. None where that is not known, and the user vouches for it.
    measured_on: str | None = None


class ComparedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One training beside the others, by its canaries of one format; formats are never mixed."""

    name: str
    side: str | None = None
    template: str = ""
    manifest_sha256: str
    canaries: Positive
    # The median over planted canaries, in bits.
    exposure: Estimate
    loss: float | None
    # Sides that are no worse in both and better in one, by their points (of several trainings, the means); None without a place.
    dominated_by: tuple[str, ...] | None

    @property
    def on_frontier(self) -> bool:
        """Whether no other side is as good in both and better in one."""
        return self.dominated_by == ()


class PairDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The exposure of a first side minus that of a second for one format, and how their losses compare."""

    first: str
    second: str
    template: str = ""
    # How many trainings each side has.
    trainings: tuple[int, int] = (1, 1)
    # None where it could not be measured, for the reason in `statement`.
    exposure: Difference | None
    # Raised for the number of pairs and formats that are compared (Holm).
    adjusted_p_value: Share | None = None
    loss_relation: LossRelation
    # The conclusion, in one sentence.
    statement: str

    @property
    def unit(self) -> str:
        """What varies by chance in `exposure`: canaries, for one training per side, or trainings."""
        return "canaries" if self.trainings == (1, 1) else "trainings"


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Trainings side by side: medians of exposure and their differences in bits, losses, and warnings; comparison.json.

    >>> compare_runs(["plain", "private"]).pairs[0].statement  # doctest: +SKIP
    'plain against private: 4.12 bits more (95% interval 3.00 to 5.34), p = 0.0078, 8 pairs; ...'
    """

    schema: str = SCHEMA
    equal_within: float
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
