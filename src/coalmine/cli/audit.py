"""`coalmine audit`: everything that can be tested of a model with its training data, on one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coalmine.cli.model_argument import Where, results_directory
from coalmine.cli.options import CorpusFields, Printing, out_option
from coalmine.cli.taking import Arguments, takes
from coalmine.engines.options import EngineOptions
from coalmine.errors import InputError
from coalmine.models.options import LoadOptions
from coalmine.records.options import Option
from coalmine.review.options import ReviewOptions

if TYPE_CHECKING:
    from rich.table import Table

    from coalmine.audits.steps.results import Review

FOLDER = "review"


class WholeAudit(Arguments, frozen=True, kw_only=True):
    """What `coalmine audit` takes."""

    model: Where
    data: Annotated[Path, typer.Option("--data", help="The training data of the model, or a part of it.")]
    held_out: Annotated[
        Path | None, Option("Text like the training data that the model was not trained on, to compare with.")
    ] = None
    reference: Annotated[
        str | None,
        Option("A model without this training data; for an adapter, its base is taken without asking."),
    ] = None
    canaries: Annotated[
        Path | None, Option("The canaries.json of canaries that were planted in the training data.")
    ] = None
    index: Annotated[
        Path | None, Option("An index of --data with the model's tokenizer, if there is one already.")
    ] = None
    out: Annotated[
        Path | None, out_option("Directory for all results and report.html; default: MODEL-audit/review.")
    ] = None
    options: ReviewOptions
    columns: CorpusFields
    loading: LoadOptions
    running: EngineOptions
    printing: Printing


@takes
def command(given: WholeAudit) -> int:
    """Test what a model remembers of its training data, as far as the inputs and the time allow, and write one report page.

    Reads the training data and the held-out text, measures how fast the model is, and plans: secrets, recitation, membership of documents,
    provenance of users, and exposure, extraction and membership of canaries. A step that does not fit into --minutes is cut down or left
    out, and the page says so. Run the same command again to resume a run that was stopped; steps that have their results are not repeated.
    """
    with given.printing.output() as output:
        from coalmine.audits.runs import read_runs
        from coalmine.cli.run_record import RUN_FILE, RunClock
        from coalmine.corpus.planting.manifest import CanarySet
        from coalmine.models.loading import is_endpoint
        from coalmine.reports.reported import reported
        from coalmine.review.auditing import REPORT_FILE, audit
        from coalmine.storage.files import check_places
        from coalmine.visible import visible

        if given.out is None and is_endpoint(given.model):
            raise InputError("results of an endpoint need a directory of their own; name one with --out")
        clock, out = RunClock(), results_directory(given.model, given.out, FOLDER)
        check_places(out, RUN_FILE)
        with given.running.opened() as engine:

            def record(review: Review) -> None:
                clock.save(
                    out,
                    seed=given.options.seed,
                    model=review.model,
                    engine=given.running.engine,
                    threads=given.running.threads,
                    data_sha256=review.data_sha256,
                )

            review = audit(
                given.model,
                given.data,
                out,
                given.options,
                held_out=given.held_out,
                reference=given.reference,
                canaries=None if given.canaries is None else CanarySet.load(given.canaries),
                fields=given.columns.fields(),
                index=given.index,
                loading=given.loading,
                engine=engine,
                progress=output.progress(),
                record=record,
            )
        (found,) = reported(read_runs(out))
        output.say(
            steps_table(review),
            *(f"{visible(one.title)}: {visible(one.why)}." for one in review.steps if one.why),
            "",
            visible(found.conclusion.sentence),
            f"Open the report: {visible(str(out / REPORT_FILE))}",
        )
        output.document(review)
    return 0


def steps_table(review: Review) -> Table:
    """The steps of an audit, what was asked, and how long each took."""
    from rich.table import Table

    from coalmine.cli.progress import duration

    table = Table("step", "outcome", "what was asked", "planned", "took", box=None, pad_edge=False)
    for one in review.steps:
        outcome = "tested" if one.tested else "not tested"
        planned = duration(one.expected_seconds) if one.expected_seconds else ""
        table.add_row(
            one.title, outcome, one.size, planned, "" if one.seconds is None else duration(one.seconds)
        )
    return table
