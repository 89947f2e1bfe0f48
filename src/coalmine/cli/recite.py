"""`coalmine recite`: how much of its training data does a model recite?"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coalmine.audits.recitation.options import RecitationOptions
from coalmine.cli.model_argument import LoadingAsTrained, open_model, results_directory
from coalmine.cli.options import Printing, out_option
from coalmine.cli.output import Output
from coalmine.cli.taking import Arguments, takes
from coalmine.engines.options import EngineOptions
from coalmine.errors import InputError, MissingExtraError
from coalmine.records.options import Option
from coalmine.storage.files import no_empty_directory
from coalmine.storage.unfinished import sole_use

if TYPE_CHECKING:
    from coalmine.audits.recitation.results import Recitation

_TWO = 2


class Recite(Arguments, frozen=True, kw_only=True):
    """What `coalmine recite` takes."""

    models_and_index: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL... INDEX",
            help="A model, or with --family several, and last the index that `coalmine index --tokenizer MODEL` wrote.",
        ),
    ]
    family: Annotated[bool, Option("Several models of growing size: adds the trend with size.")] = False
    baseline: Annotated[str | None, Option("A model that was not trained on this corpus.")] = None
    options: RecitationOptions
    out: Annotated[
        Path | None,
        out_option("Directory for the results; default: MODEL-audit/recitation, of the first MODEL."),
    ] = None
    loading: LoadingAsTrained
    running: EngineOptions
    reveal: Annotated[bool, Option("Show and keep the text of examples; without it they are masked.")] = False
    printing: Printing


@takes
def command(given: Recite) -> int:
    """Measure which share of sequences of the training data a model completes word for word.

    Writes recitation.json and sequences.parquet, readable by you only, and figures where the extra `figures` is installed. Run the
    same command again to resume a run that was stopped.
    """
    *names, index = given.models_and_index
    _check_number(names, family=given.family)
    with given.printing.output() as output, ExitStack() as held:
        from coalmine.audits.recitation.curves import FIGURE_FILES
        from coalmine.audits.recitation.measuring import recite
        from coalmine.audits.recitation.results import RESULT_FILE, SEQUENCES_FILE
        from coalmine.cli.run_record import RUN_FILE, RunClock
        from coalmine.corpus.index.queries import CorpusIndex
        from coalmine.storage.files import check_places

        clock = RunClock()
        place = results_directory(names[0], given.out, "recitation")
        check_places(place, RESULT_FILE, SEQUENCES_FILE, *FIGURE_FILES, RUN_FILE)
        opened = CorpusIndex.open(index, progress=output.progress())
        held.enter_context(no_empty_directory(place))
        first, directory = open_model(names[0], given.out, "recitation", given.loading)
        held.enter_context(sole_use(directory))
        others, beside = (
            [open_model(name, directory, "recitation", given.loading)[0] for name in these]
            for these in (names[1:], [] if given.baseline is None else [given.baseline])
        )
        figures: list[str] = []

        def record(made: Recitation) -> None:
            figures.append(_draw(made, directory))
            _save_record(clock, directory, made, given, [first, *others, *beside])

        result = recite(
            [first, *others],
            opened,
            given.options,
            baseline=beside[0] if beside else None,
            reveal=given.reveal,
            out=directory,
            engine=held.enter_context(given.running.opened()),
            progress=output.progress(),
            record=record,
        )
        _show(result, output, directory, figures[0])
    return 0


def _check_number(names: list[str], *, family: bool) -> None:
    if not names:
        raise InputError("recite needs a model and an index; give both, the index last")
    if len(names) > 1 and not family:
        raise InputError(
            f"{len(names)} models were given; add --family to compare them, or give one model and the index"
        )
    if family and len(names) < _TWO:
        raise InputError("--family compares several models; give two or more, and the index last")


def _save_record(clock: Any, directory: Path, made: Recitation, given: Recite, models: list[Any]) -> None:
    from coalmine.cli.run_record import identity_of, memory_of

    clock.save(
        directory,
        seed=given.options.seed,
        engine=given.running.engine,
        threads=given.running.threads,
        models=[facts.description for facts in made.models],
        index=made.index,
        questions=made.questions,
        **identity_of(*models),
        **memory_of(*models),
    )


def _draw(result: Recitation, directory: Path) -> str:
    from coalmine.audits.recitation.curves import draw_recitation

    try:
        paths = draw_recitation(result, directory)
    except MissingExtraError as missing:
        return f"No figure was drawn: {missing}"
    return f"Figures: {', '.join(str(path) for path in paths)}"


def _show(result: Recitation, output: Output, directory: Path, figures: str) -> None:
    from coalmine.audits.recitation import table as tables
    from coalmine.visible import visible

    shown: list[Any] = [tables.by_context_table(result), "", tables.by_copies_table(result)]
    for table in (
        tables.other_ways_table(result),
        tables.trends_table(result),
        tables.exclusive_table(result),
        tables.examples_table(result),
    ):
        if table is not None:
            shown += ["", table]
    notes = [*tables.trend_notes(result), *(visible(warning) for warning in result.warnings)]
    shown += ["", tables.in_plain_words(result), *(f"Note: {note}." for note in notes)]
    output.say(*shown, f"Results: {visible(str(directory))}", visible(figures))
    output.document(result)
