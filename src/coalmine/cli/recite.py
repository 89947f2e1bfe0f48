"""`coalmine recite`: how much of its training data does a model recite?"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coalmine.audits.recitation.options import RecitationOptions
from coalmine.cli.model_argument import ModelOptions, open_model, results_directory
from coalmine.cli.options import Json, Quiet, takes
from coalmine.cli.output import Output
from coalmine.errors import InputError, MissingExtraError
from coalmine.storage.files import no_empty_directory
from coalmine.storage.unfinished import sole_use

if TYPE_CHECKING:
    from coalmine.audits.recitation.results import Recitation

_TWO = 2


@takes(options=RecitationOptions, loading=ModelOptions)
def command(
    models_and_index: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL... INDEX",
            help="A model, or with --family several, and last the index that `coalmine index --tokenizer MODEL` wrote.",
        ),
    ],
    family: Annotated[
        bool, typer.Option("--family", help="Several models of growing size: adds the trend with size.")
    ] = False,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="A model that was not trained on this corpus.")
    ] = None,
    *,
    options: RecitationOptions,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Directory for the results; default: MODEL-audit/recitation, of the first MODEL.",
        ),
    ] = None,
    loading: ModelOptions,
    reveal: Annotated[
        bool, typer.Option("--reveal", help="Show and keep the text of examples; without it they are masked.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Measure which share of sequences of the training data a model completes word for word.

    Writes recitation.json and sequences.parquet, readable by you only, and figures where the extra `figures` is installed. Run the
    same command again to resume a run that was stopped.
    """
    *names, index = models_and_index
    if not names:
        raise InputError("recite needs a model and an index; give both, the index last")
    if len(names) > 1 and not family:
        raise InputError(
            f"{len(names)} models were given; add --family to compare them, or give one model and the index"
        )
    if family and len(names) < _TWO:
        raise InputError("--family compares several models; give two or more, and the index last")
    with Output(json=json, quiet=quiet) as output, ExitStack() as held:
        from coalmine.audits.recitation.curves import FIGURE_FILES
        from coalmine.audits.recitation.measuring import recite
        from coalmine.audits.recitation.results import RESULT_FILE, SEQUENCES_FILE
        from coalmine.cli.run_record import RUN_FILE, RunClock, identity_of
        from coalmine.corpus.index.queries import CorpusIndex
        from coalmine.storage.files import check_places

        clock = RunClock()
        place = results_directory(names[0], out, "recitation")
        check_places(place, RESULT_FILE, SEQUENCES_FILE, *FIGURE_FILES, RUN_FILE)
        opened = CorpusIndex.open(index, progress=output.progress())
        held.enter_context(no_empty_directory(place))
        first, directory = open_model(names[0], out, "recitation", loading)
        held.enter_context(sole_use(directory))
        others = [open_model(name, directory, "recitation", loading)[0] for name in names[1:]]
        beside = None if baseline is None else open_model(baseline, directory, "recitation", loading)[0]
        figures: list[str] = []

        def record(made: Recitation) -> None:
            figures.append(_draw(made, directory))
            clock.save(
                directory,
                seed=options.seed,
                models=[facts.description for facts in made.models],
                index=made.index,
                questions=made.questions,
                **identity_of(first, *others, *([] if beside is None else [beside])),
            )

        result = recite(
            [first, *others],
            opened,
            options,
            baseline=beside,
            reveal=reveal,
            out=directory,
            progress=output.progress(),
            record=record,
        )
        _show(result, output, directory, figures[0])
        output.document(result)
    return 0


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
