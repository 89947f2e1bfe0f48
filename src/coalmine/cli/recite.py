"""`coalmine recite`: how much of its training data does a model recite?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coalmine.audits.recitation.options import RecitationOptions
from coalmine.cli.options import Loading, out_option
from coalmine.cli.output import noted, placed
from coalmine.cli.runner import Session, command
from coalmine.cli.taking import Arguments, Part
from coalmine.engines.options import EngineOptions
from coalmine.errors import InputError
from coalmine.models.options import LoadOptions
from coalmine.records.options import Option

_TWO = 2


class LoadingAsTrained(Loading, frozen=True, kw_only=True):
    """How a model is loaded that reads texts in its own context."""

    options: Annotated[LoadOptions, Part(("kind", "device", "device_map", "precision"))]


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


@command("recite")
def recite(given: Recite, session: Session) -> None:
    """Measure which share of sequences of the training data a model completes word for word.

    Writes recitation.json and sequences.parquet, readable by you only; `coalmine report` draws the figures. Run the same command again
    to resume a run that was stopped.
    """
    from coalmine.audits.recitation import display
    from coalmine.audits.recitation.measure import recite
    from coalmine.audits.recitation.records import RESULT_FILE, SEQUENCES_FILE
    from coalmine.corpus.index.queries import CorpusIndex

    *names, index = given.models_and_index
    _check_number(names, family=given.family)
    session.beside(names[0], "recitation", RESULT_FILE, SEQUENCES_FILE)
    opened = CorpusIndex.open(index, progress=session.progress())
    result = recite(
        [session.model(name) for name in names],
        opened,
        given.options,
        baseline=None if given.baseline is None else session.model(given.baseline),
        reveal=given.reveal,
        out=session.directory,
        engine=session.engine,
        progress=session.progress(),
        record=lambda made: session.record(
            seed=given.options.seed,
            models=[facts.description for facts in made.models],
            index=made.index,
            questions=made.questions,
        ),
    )
    for table in display.terminal_tables(result):
        session.say(table, "")
    session.say(
        display.in_plain_words(result),
        *(f"Note: {note}." for note in display.trend_notes(result)),
        *noted(result.warnings),
        placed("Results", session.directory),
    )
    session.document(result)


def _check_number(names: list[str], *, family: bool) -> None:
    if not names:
        raise InputError("recite needs a model and an index; give both, the index last")
    if len(names) > 1 and not family:
        raise InputError(
            f"{len(names)} models were given; add --family to compare them, or give one model and the index"
        )
    if family and len(names) < _TWO:
        raise InputError("--family compares several models; give two or more, and the index last")
