"""`coalmine audit`: everything that can be tested of a model with its training data, on one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coalmine.audits.whole.records import ReviewOptions
from coalmine.cli.options import CorpusFields, LoadedModel, Running, Where
from coalmine.cli.output import placed
from coalmine.cli.runner import Session
from coalmine.cli.taking import Arguments
from coalmine.visible import visible

if TYPE_CHECKING:
    from rich.table import Table

    from coalmine.audits.whole.records import Review


class AuditArguments(Arguments, frozen=True, kw_only=True):
    """What `coalmine audit` takes.

    Attributes:
        held_out: Text like the training data that the model was not trained on, to compare with.
        reference: A model without this training data; for an adapter, its base is taken without asking.
        canaries: The canaries.json of canaries that were planted in the training data.
        index: An index of --data with the model's tokenizer, if there is one already.
        out: Directory for all results and report.html; default: MODEL-audit/review.
        data: The training data of the model, or a part of it.
    """

    model: Where
    data: Path
    held_out: Path | None = None
    reference: str | None = None
    canaries: Path | None = None
    index: Path | None = None
    out: Path | None = None
    options: ReviewOptions
    columns: CorpusFields
    loading: LoadedModel
    running: Running


def audit(given: AuditArguments, session: Session) -> int:
    """Test what a model remembers of its training data, as far as the inputs and the time allow, and write one report page.

    Reads the training data and the held-out text, measures how fast the model is, and plans: secrets, recitation, membership of documents,
    provenance of users, and exposure, extraction and membership of canaries. A step that does not fit into --minutes is cut down or left
    out, and the page says so. Run the same command again to resume a run that was stopped; steps that have their results are not repeated.
    """
    from coalmine.audits.runs import read_runs
    from coalmine.audits.whole.auditing import REPORT_FILE, audit
    from coalmine.corpus.planting.manifest import CanarySet
    from coalmine.reports.conclusion import reported

    session.beside(given.model, "review")
    review = audit(
        given.model,
        given.data,
        session.directory,
        given.options,
        held_out=given.held_out,
        reference=given.reference,
        canaries=None if given.canaries is None else CanarySet.load(given.canaries),
        fields=given.columns.fields(),
        index=given.index,
        loading=given.loading,
        engine=session.engine,
        progress=session.progress(),
        record=lambda made: session.record(
            seed=given.options.seed, model=made.model, data_sha256=made.data_sha256
        ),
    )
    (found,) = reported(read_runs(session.directory))
    session.say(
        steps_table(review),
        *(
            f"{visible(one.title)}: {visible(one.why or one.cut)}."
            for one in review.steps
            if one.why or one.cut
        ),
        "",
        visible(found.conclusion.sentence),
        placed("Open the report", session.directory / REPORT_FILE),
    )
    session.document(review)
    # Where nothing could be tested, nothing was measured.
    return 0 if review.tested else 2


def steps_table(review: Review) -> Table:
    """The steps of an audit, what was asked, and how long each took."""
    from coalmine.cli.progress import duration
    from coalmine.evidence.tables import table_of

    return table_of(
        ("step", "outcome", "what was asked", "planned", "took"),
        (
            (
                one.title,
                "tested" if one.tested else "not tested",
                one.size,
                duration(one.expected_seconds) if one.expected_seconds else "",
                "" if one.seconds is None else duration(one.seconds),
            )
            for one in review.steps
        ),
    )
