"""`coalmine crosscheck`: on which documents do two models disagree?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from coalmine.audits.disagreement.options import CrosscheckOptions
from coalmine.cli.options import Corpus, CorpusFields, Overwrite, out_option
from coalmine.cli.output import noted, placed
from coalmine.cli.runner import Session, command
from coalmine.cli.taking import Arguments
from coalmine.engines.options import EngineOptions
from coalmine.records.options import Option, named_values


class CrosscheckArguments(Arguments, frozen=True, kw_only=True):
    """What `coalmine crosscheck` takes."""

    corpus: Corpus
    out: Annotated[Path, out_option("Directory for the results and the two models.")]
    options: CrosscheckOptions
    drop: Annotated[bool, Option("Also write the corpus without the flagged documents.")] = False
    preset: Annotated[
        str | None,
        Option("char-lstm by default, and translation for pairs; `coalmine train` lists the others."),
    ] = None
    training: Annotated[
        list[str] | None,
        Option(
            "NAME=VALUE, an option of `coalmine train` for both models, such as epochs=5; may be given many times."
        ),
    ] = None
    reveal: Annotated[
        bool, Option("Show and keep the text over which the models disagree; without it, it is masked.")
    ] = False
    overwrite: Overwrite = False
    columns: CorpusFields
    running: EngineOptions


@command("crosscheck")
def crosscheck(given: CrosscheckArguments, session: Session) -> None:
    """Train a model on each half of a corpus, and flag the documents on which the two disagree: text that only one half has.

    Writes DIR/crosscheck.json and DIR/documents.parquet, readable by you only, and the models to DIR/halves. With --drop it also writes
    DIR/corpus.* without the flagged documents, and for a planted corpus DIR/canaries.json. Run the same command again to resume a run that
    was stopped. What both halves have is not flagged, so this is no proof that a corpus holds no secrets.
    """
    from coalmine.audits.disagreement.measure import check_outputs, crosscheck
    from coalmine.audits.disagreement.report import MOST_ROWS, flagged_table, in_plain_words
    from coalmine.corpus.planting.recounting import recount_in_words

    session.into(given.out)
    check_outputs(given.corpus, given.out, drop=given.drop)
    result = crosscheck(
        given.corpus,
        given.out,
        given.columns.into(given.options),
        preset=given.preset,
        training=named_values(given.training or ()),
        drop=given.drop,
        reveal=given.reveal,
        overwrite=given.overwrite,
        engine=session.engine,
        progress=session.progress(),
        record=lambda made: session.record(seed=made.settings.seed, corpus_sha256=made.corpus.sha256),
    )
    kept = result.kept
    if result.flagged:
        session.say(flagged_table(result).terminal(result.flagged[:MOST_ROWS]), "")
    session.say(
        *in_plain_words(result),
        *noted(result.warnings),
        None if kept is None or kept.canaries is None else recount_in_words(kept.canaries),
        None if kept is None else placed("New corpus", given.out / kept.name),
        placed("Results", given.out),
    )
    session.document(result)
