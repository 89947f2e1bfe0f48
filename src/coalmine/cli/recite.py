"""`coalmine recite`: how much of its training data does a model recite?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coalmine.audits.recitation.options import RecitationOptions
from coalmine.cli.options import LoadedModel, Reveal, Running, Source
from coalmine.cli.output import noted, placed
from coalmine.cli.runner import Session
from coalmine.cli.taking import Arguments, Part
from coalmine.errors import InputError


class Recite(Arguments, frozen=True, kw_only=True):
    """What `coalmine recite` takes.

    Attributes:
        baseline: A model that was not trained on this corpus.
        out: Directory for the results; default: MODEL-audit/recitation, of the first MODEL.
        models_and_index: A model, or several of growing size, and last the index that `coalmine data index --tokenizer MODEL` wrote.
    """

    models_and_index: Annotated[list[str], typer.Argument(metavar="MODEL... INDEX")]
    baseline: str | None = None
    out: Path | None = None
    reveal: Reveal = False
    options: Annotated[
        RecitationOptions,
        Part(
            (*("suffix", "contexts", "lengths", "max_sequences", "tries", "beam", "seed"),),
            title="What is asked",
        ),
    ]
    source: Source = None
    loading: LoadedModel
    running: Running


def recite(given: Recite, session: Session) -> None:
    """Measure which share of sequences of the training data a model completes word for word.

    Writes recitation.json and sequences.parquet, readable by you only; `coalmine report` draws the figures. Run the same command again
    to resume a run that was stopped.
    """
    from coalmine.audits.recitation import report
    from coalmine.audits.recitation.measure import recite
    from coalmine.audits.recitation.records import RECITATIONS, SEQUENCES_FILE
    from coalmine.corpus.index.queries import CorpusIndex

    *names, index = given.models_and_index
    if not names:
        raise InputError("recite needs a model and an index; give both, the index last")
    session.beside(names[0], "recitation", RECITATIONS.file, SEQUENCES_FILE)
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
    for table in report.terminal_tables(result):
        session.say(table, "")
    session.say(
        report.in_plain_words(result),
        *noted(result.warnings),
        placed("Results", session.directory),
    )
    session.document(result)
