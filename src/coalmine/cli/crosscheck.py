"""`coalmine crosscheck`: on which documents do two models disagree?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from coalmine.audits.disagreement.options import CrosscheckOptions
from coalmine.cli.options import Corpus, CorpusFields, Overwrite, Printing, out_option
from coalmine.cli.taking import Arguments, Changes, Part, takes
from coalmine.engines.options import EngineOptions
from coalmine.models.options import LoadOptions
from coalmine.records.options import Option
from coalmine.training.options import TrainingOptions

if TYPE_CHECKING:
    from coalmine.audits.disagreement.results import Crosscheck
    from coalmine.cli.output import Output
    from coalmine.models.protocols import Model


class CrosscheckArguments(Arguments, frozen=True, kw_only=True):
    """What `coalmine crosscheck` takes."""

    corpus: Corpus
    out: Annotated[Path, out_option("Directory for the results and the two models.")]
    options: CrosscheckOptions
    drop: Annotated[bool, Option("Also write the corpus without the flagged documents.")] = False
    models: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--models", metavar="A B", help="Two models of yours; without them, one is trained on each half."
        ),
    ] = None
    loading: Annotated[LoadOptions, Part(("kind", "device", "device_map", "precision"))]
    preset: Annotated[
        str | None,
        Option("char-lstm by default, and translation for pairs; `coalmine train` lists the others."),
    ] = None
    training: Annotated[dict[str, Any], Changes(TrainingOptions, without=("seed", "threads", "device"))]
    reveal: Annotated[
        bool, Option("Show and keep the text over which the models disagree; without it, it is masked.")
    ] = False
    overwrite: Overwrite = False
    columns: CorpusFields
    running: EngineOptions
    printing: Printing


@takes
def command(given: CrosscheckArguments) -> int:
    """Train a model on each half of a corpus, and flag the documents on which the two disagree: text that only one half has.

    Writes DIR/crosscheck.json and DIR/documents.parquet, readable by you only, and the models to DIR/halves. With --drop it also writes
    DIR/corpus.* without the flagged documents, and for a planted corpus DIR/canaries.json. Run the same command again to resume a run that
    was stopped. What both halves have is not flagged, so this is no proof that a corpus holds no secrets.
    """
    with given.printing.output() as output, given.running.opened() as engine:
        from coalmine.audits.disagreement.measuring import check_outputs, crosscheck
        from coalmine.cli.run_record import RUN_FILE, RunClock
        from coalmine.storage.files import check_places

        clock = RunClock()
        check_places(given.out, RUN_FILE)
        check_outputs(given.corpus, given.out, drop=given.drop)
        result = crosscheck(
            given.corpus,
            given.out,
            msgspec.structs.replace(given.options, fields=given.columns.fields()),
            models=_models(given),
            preset=given.preset,
            training=given.training,
            drop=given.drop,
            reveal=given.reveal,
            overwrite=given.overwrite,
            engine=engine,
            progress=output.progress(),
            record=lambda made: clock.save(
                given.out,
                seed=made.settings.seed,
                corpus_sha256=made.corpus.sha256,
                engine=given.running.engine,
                threads=given.running.threads,
            ),
        )
        _show(result, output, given.out)
    return 0


def _models(given: CrosscheckArguments) -> tuple[Model, Model] | None:
    if given.models is None:
        return None
    from coalmine.models.loading import load_model

    first, second = given.models
    return load_model(first, given.loading), load_model(second, given.loading)


def _show(result: Crosscheck, output: Output, directory: Path) -> None:
    from coalmine.audits.disagreement.table import flagged_table, in_plain_words
    from coalmine.corpus.planting.recounting import recount_in_words
    from coalmine.visible import visible

    table = flagged_table(result)
    shown: list[Any] = [] if table is None else [table, ""]
    shown += [in_plain_words(result)]
    shown += [f"Note: {visible(warning)}." for warning in result.warnings]
    if result.kept is not None:
        if result.kept.canaries is not None:
            shown.append(recount_in_words(result.kept.canaries))
        shown.append(f"New corpus: {visible(str(directory / result.kept.name))}")
    output.say(*shown, f"Results: {visible(str(directory))}")
    output.document(result)
