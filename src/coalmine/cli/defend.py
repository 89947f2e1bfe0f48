"""`coalmine defend`: which defenses lower exposure, and what do they cost?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from coalmine.audits.defenses.options import DefenseOptions
from coalmine.audits.defenses.recipes import defenses_in_words
from coalmine.cli.options import Corpus, CorpusFields, format_option, out_option
from coalmine.cli.output import placed
from coalmine.cli.runner import Session, command
from coalmine.cli.taking import Arguments, Part
from coalmine.corpus.planting.options import PlantOptions
from coalmine.engines.options import EngineOptions
from coalmine.records.options import Option, named_values

REPORT_FILE = "report.html"


class Defend(Arguments, frozen=True, kw_only=True):
    """What `coalmine defend` takes."""

    corpus: Corpus
    out: Annotated[Path, out_option("Directory for the results, the models and the report.")]
    defense: Annotated[
        list[str] | None,
        Option(
            f"One of {defenses_in_words()}, or NAME=python:module:function for a training of yours; may be given many times. "
            "`none` is always compared with."
        ),
    ] = None
    format: Annotated[
        str | None, format_option("The format of the canaries; default: the random number is {digits:6}.")
    ] = None
    options: DefenseOptions
    planting: Annotated[PlantOptions, Part(("repeat", "canaries", "references", "withhold", "unseen"))]
    preset: Annotated[str, Option("How models are trained; `coalmine train` lists the presets.")] = (
        "char-lstm"
    )
    base: Annotated[
        Path | None,
        Option(
            "The directory of a transformers checkpoint, which is fine-tuned instead of training a preset."
        ),
    ] = None
    training: Annotated[
        list[str] | None,
        Option(
            "NAME=VALUE, an option of `coalmine train` for all models, such as epochs=5; may be given many times."
        ),
    ] = None
    columns: CorpusFields
    running: EngineOptions


@command("defend")
def defend(given: Defend, session: Session) -> None:
    """Train models with and without defenses on a planted corpus, audit all of them alike, and compare what each stops and costs.

    Writes DIR/defenses.json and DIR/report.html, the planted corpus to DIR/planted, and each model with its audit beside it to
    DIR/trainings. Run the same command again to resume a run that was stopped, or with further defenses to add them.
    """
    from coalmine.audits.defenses import report as shown
    from coalmine.audits.defenses.measure import DEFAULT_FORMAT, defend
    from coalmine.audits.runs import read_runs
    from coalmine.reports.page.html import report_page
    from coalmine.storage.files import write_bytes

    session.into(given.out, REPORT_FILE)
    bench = defend(
        given.corpus,
        given.out,
        given.defense or (),
        given.columns.into(given.options),
        format=given.format or DEFAULT_FORMAT,
        planting=given.planting,
        preset=given.preset,
        base=given.base,
        training=named_values(given.training or ()),
        engine=session.engine,
        progress=session.progress(),
        record=lambda made: session.record(seed=made.settings.seed, corpus_sha256=made.corpus_sha256),
    )
    report = given.out / REPORT_FILE
    write_bytes(report, report_page(read_runs(given.out)).encode())
    session.say(shown.DEFENSES_TABLE.terminal(bench.rows), "")
    compared = [row for row in bench.rows[1:] if row.trainings]
    if compared:
        session.say(shown.DIFFERENCES_TABLE.terminal(compared), "")
    session.say(shown.copies_table(bench).terminal(bench.rows), "")
    session.say(*shown.in_plain_words(bench), placed("Open the report", report))
    session.document(bench)
