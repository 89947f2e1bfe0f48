"""review.json: what one `coalmine audit` tested and what it did not, within which time, and the speeds by which it was planned."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from coalmine.records.documents import Document, Origin
from coalmine.records.options import SEED, Option, Options


class ReviewOptions(Options, frozen=True, kw_only=True):
    """How long an audit may take.

    Attributes:
        minutes: the time for everything. Each step is cut down to fit into it, or left out with the reason.
        seed: the root of all randomness.

    >>> ReviewOptions(minutes=5).seed
    0
    """

    minutes: Annotated[
        float, Option("The time for everything; what does not fit is cut down, or left out with the reason.")
    ] = 30.0
    seed: Annotated[int, SEED] = 0

    def __post_init__(self) -> None:
        self._require(0 < self.minutes < float("inf"), "minutes", "more than 0")


SCHEMA = "coalmine.review/2"

# "no_time": it did not fit into the time that was given; "not_applicable": an input is missing, or the model cannot be asked.
Status = Literal["planned", "running", "done", "no_time", "not_applicable"]


class StepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One step: what it asks, how it was planned, and what became of it.

    Attributes:
        name: the name of the step, which is that of its folder.
        title: what it asks, in a few words.
        audits: the audits whose results it gives.
        status: what became of it.
        size: what was asked, in words; empty where nothing was.
        cut: what was left out to fit into the time; empty where nothing was.
        why: why it was not run; empty where it was.
        settings: what was decided about it, by name, so that a run that is resumed asks the same.
        expected_seconds: what it takes by the measured speeds; for a step that did not fit, what the least of it would take.
        seconds: what it took.

    >>> StepRecord(name="recitation", title="Recitation", audits=("recitation",), status="no_time").seconds is None
    True
    """

    name: str
    title: str
    audits: tuple[str, ...]
    status: Status = "planned"
    size: str = ""
    cut: str = ""
    why: str = ""
    settings: dict[str, Any] = {}
    expected_seconds: float = 0.0
    seconds: float | None = None

    @property
    def tested(self) -> bool:
        """Whether it has results."""
        return self.status == "done"


class Speeds(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a model is; None for what it cannot be asked.

    Attributes:
        lines: lines of text scored per second.
        steps: steps of incremental decoding per second.
    """

    lines: float | None = None
    steps: float | None = None


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of one audit, and what became of it; the content of review.json.

    Attributes:
        model: the model's description of itself.
        reference: that of the model that it is compared with, if there is one.
        data_sha256: the hash of each file that was given, by its role.
        minutes: the time that was given.
        settings: the other options, by name.
        speeds: of the model and of the reference.
        prepared_seconds: what loading, reading and measuring took.
        steps: the steps, in the order in which they run.
        warnings: what to know about the data.

    >>> step = StepRecord(name="recitation", title="Recitation", audits=("recitation",), status="done")
    >>> Review(model={}, minutes=5, steps=(step,)).tested
    True
    """

    schema: str = SCHEMA
    model: dict[str, Any]
    reference: dict[str, Any] | None = None
    data_sha256: dict[str, str] = {}
    minutes: float
    settings: dict[str, Any] = {}
    speeds: dict[str, Speeds] = {}
    prepared_seconds: float = 0.0
    steps: tuple[StepRecord, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def tested(self) -> bool:
        """Whether the model was asked anything: any step that gives results of an audit has them."""
        return any(one.tested and one.audits for one in self.steps)

    def step(self, name: str) -> StepRecord:
        """One step by its name."""
        return next(one for one in self.steps if one.name == name)


REVIEWS = Document(
    record=Review,
    schema=SCHEMA,
    file="review.json",
    title="plan of an audit",
    by="coalmine audit",
    origin=Origin(model=lambda document: document.model),
)
"""review.json: `run.all(REVIEWS)` gives what `coalmine audit` tested in a run, and what it did not."""
