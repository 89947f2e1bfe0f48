"""`coalmine defend`: which defenses lower exposure, and what do they cost?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from coalmine.audits.defenses.defense import defenses_in_words
from coalmine.audits.defenses.options import DefenseOptions
from coalmine.cli.options import Corpus, CorpusFields, Printing, out_option
from coalmine.cli.taking import Arguments, Changes, Part, takes
from coalmine.corpus.planting.options import PlantOptions
from coalmine.engines.options import EngineOptions
from coalmine.records.options import Option
from coalmine.training.options import TrainingOptions
from coalmine.training.private.options import PREFIX, PrivateOptions

if TYPE_CHECKING:
    from coalmine.audits.defenses.results import Bench
    from coalmine.cli.output import Output

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
        str | None,
        typer.Option(
            "--format", "-f", help="The format of the canaries; default: the random number is {digits:6}."
        ),
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
        dict[str, Any], Changes(TrainingOptions, without=("seed", "threads", "device", "holdout"))
    ]
    private: Annotated[
        dict[str, Any], Changes(PrivateOptions, without=("epsilon", "noise", "delta"), prefix=PREFIX)
    ]
    columns: CorpusFields
    running: EngineOptions
    printing: Printing


@takes
def command(given: Defend) -> int:
    """Train models with and without defenses on a planted corpus, audit all of them alike, and compare what each stops and costs.

    Writes DIR/defenses.json and DIR/report.html, the planted corpus to DIR/planted, and each model with its audit beside it to
    DIR/trainings. Run the same command again to resume a run that was stopped, or with further defenses to add them.
    """
    with given.printing.output() as output, given.running.opened() as engine:
        from coalmine.audits.defenses.measuring import DEFAULT_FORMAT, defend
        from coalmine.cli.run_record import RUN_FILE, RunClock
        from coalmine.storage.files import check_places

        clock = RunClock()
        check_places(given.out, RUN_FILE, REPORT_FILE)
        bench = defend(
            given.corpus,
            given.out,
            given.defense or (),
            msgspec.structs.replace(given.options, fields=given.columns.fields()),
            format=given.format or DEFAULT_FORMAT,
            planting=given.planting,
            preset=given.preset,
            base=given.base,
            training={**given.training, **given.private},
            engine=engine,
            progress=output.progress(),
            record=lambda made: clock.save(
                given.out,
                seed=made.settings.seed,
                corpus_sha256=made.corpus_sha256,
                engine=given.running.engine,
                threads=given.running.threads,
            ),
        )
        _show(bench, output, given.out)
    return 0


def _show(bench: Bench, output: Output, directory: Path) -> None:
    from coalmine.audits.defenses.table import copies_table, defense_table, difference_table, in_plain_words
    from coalmine.audits.runs import read_runs
    from coalmine.reports.page.html import report_page
    from coalmine.storage.files import write_bytes
    from coalmine.visible import visible

    report = directory / REPORT_FILE
    write_bytes(report, report_page(read_runs(directory)).encode())
    compared = difference_table(bench)
    for table in (defense_table(bench), *(() if compared is None else (compared,)), copies_table(bench)):
        output.say(table, "")
    output.say(*in_plain_words(bench), f"Open the report: {visible(str(report))}")
    output.document(bench)
