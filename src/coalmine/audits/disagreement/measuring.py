"""Crosscheck: two models are trained on disjoint halves of a corpus, and documents on which they disagree are flagged.

Section 9.2 of "The Secret Sharer: Evaluating and Testing Unintended Memorization in Neural Networks" (Carlini, Liu, Erlingsson, Kos and
Song, 2019, arXiv:1802.08232) tried this as a filter for secrets of unknown format, and found that it misses some, and those in both halves.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from coalmine.audits.disagreement.halves import (
    HALVES_FOLDER,
    Halves,
    divide,
    train_halves,
    training_options,
)
from coalmine.audits.disagreement.judging import JudgedDocuments, judge, span_of
from coalmine.audits.disagreement.options import CrosscheckOptions
from coalmine.audits.disagreement.results import (
    CROSSCHECKS,
    DOCUMENTS_FILE,
    RESULT_FILE,
    CheckedCorpus,
    ComparedModel,
    Crosscheck,
    FlaggedDocument,
    KeptCorpus,
    save_documents,
)
from coalmine.audits.disagreement.scoring import DisagreementWork, Scores, check_models, score_documents
from coalmine.audits.recitation.examples import masked_text
from coalmine.corpus.files.corpora import Edits
from coalmine.corpus.files.documents import CorpusDocument
from coalmine.corpus.files.kinds import kind_of
from coalmine.corpus.files.reading import read_documents
from coalmine.corpus.files.streams import pyarrow_for
from coalmine.corpus.outputs import exists_already, first_in_the_way, sole_writing
from coalmine.corpus.planting.manifest import MANIFEST_NAME
from coalmine.corpus.planting.recounting import KnownManifest, manifest_of
from coalmine.corpus.rewriting import OriginalCorpus, refuse_itself
from coalmine.engines.engine import Engine, open_engine
from coalmine.engines.ledger import UNITS_FILE, Ledger
from coalmine.errors import CorpusError, InputError
from coalmine.models.loading import load_model
from coalmine.models.protocols import Model
from coalmine.progress import Progress, Silent
from coalmine.records.documents import beside
from coalmine.storage.directories import UNFINISHED_FILE
from coalmine.storage.files import (
    FileGroup,
    check_places,
    no_empty_directory,
    remove_abandoned,
    sha256_of_file,
    together,
)
from coalmine.training.data import Documents
from coalmine.training.options import TrainingOptions

_RUN = "crosscheck/1"


def crosscheck(
    corpus: str | os.PathLike[str],
    out: str | os.PathLike[str],
    options: CrosscheckOptions | None = None,
    *,
    models: tuple[Model, Model] | None = None,
    preset: str | None = None,
    training: Mapping[str, Any] | None = None,
    drop: bool = False,
    reveal: bool = False,
    overwrite: bool = False,
    engine: Engine | str | None = None,
    progress: Progress | None = None,
    record: Callable[[Crosscheck], None] | None = None,
    **changes: Any,
) -> Crosscheck:
    """Train a model on each of two random halves of a corpus, and flag the documents on which the two disagree.

    A document that only the model that was trained on it expects is one that this model remembers. What both halves have, both remember, so
    that it is not flagged: this finds text that is rare, whatever its format, and proves nothing about the text that it leaves.

    A run that was stopped resumes when the same call is made again. Halves that are trained already are not trained again, so that another
    statistic or share takes as long as asking both models. All documents are held in memory.

    Args:
        corpus: a corpus file of any kind that `read_documents` reads.
        out: the directory for crosscheck.json, documents.parquet and the two models, in `halves`.
        options: by what documents are judged, and how many are flagged.
        models: two models of yours instead, which are then compared in both directions; which documents they were trained on is not
            known, so that nothing can be said about chance.
        preset: a name of `PRESETS`; without it, that of The Secret Sharer for texts or for pairs.
        training: options of both trainings that differ from the preset's, such as `{"epochs": 5}`.
        drop: also write the corpus without the flagged documents to `out`, and for a planted corpus its canaries.json with new counts.
        reveal: keep the text over which the models disagree most; without it, it is masked.
        overwrite: replace what an earlier run wrote to `out`. Without it, what the very same call wrote there is left as it is, and
            anything else is refused.
        engine: where the halves are trained and asked, such as "processes:2"; the results are the same.
        progress: gets the characters that were trained on, and the documents.
        record: called with the result; what it writes appears together with it.
        changes: fields of `CrosscheckOptions` by name, such as `share=0.02`.

    >>> result = crosscheck("mail.jsonl", "crosscheck/", training={"epochs": 5}, share=0.005)  # doctest: +SKIP
    >>> len(result.flagged), result.beyond_chance  # doctest: +SKIP
    (20, 31)
    """
    given = CrosscheckOptions.of(options, changes).checked()
    if models is not None and (preset is not None or training):
        raise InputError(
            "two models were given, so that none is trained; leave out the preset and options of training"
        )
    how = training_options(preset, dict(training or {}), given) if models is None else None
    run = _Run(Path(corpus), Path(out), given, how, models, drop=drop, reveal=reveal)
    check_outputs(run.source, run.folder, drop=drop)
    source = OriginalCorpus.of(run.source, given.fields)
    known = manifest_of(run.source) if drop else KnownManifest()
    names = run.names(planted=known.canaries is not None)
    places = [] if overwrite else [run.folder / name for name in names if name != DOCUMENTS_FILE]
    if (there := first_in_the_way(*places)) is not None:
        done = run.finished_before(source.sha256)
        if done is None:
            raise exists_already(there)
        return done
    with no_empty_directory(run.folder), sole_writing(run.folder, names, places):
        return run.result(source, known, engine, progress or Silent(), record)


def check_outputs(source: Path, folder: Path, *, drop: bool) -> None:
    """Refuse places that cannot be written to, before any model is loaded."""
    pyarrow_for(DOCUMENTS_FILE)
    target = folder / f"corpus{kind_of(source).full_suffix}"
    refuse_itself(source, target)
    names = (RESULT_FILE, DOCUMENTS_FILE, UNITS_FILE, UNFINISHED_FILE)
    check_places(folder, *names, *((target.name, MANIFEST_NAME) if drop else ()))


class _Compared(NamedTuple):
    """What was found out, before it is written."""

    documents: Sequence[CorpusDocument]
    halves: Halves | None
    models: tuple[ComparedModel, ComparedModel]
    scores: Scores
    judged: JudgedDocuments


class _Run:
    """One crosscheck: what it is about, and where its files go."""

    def __init__(
        self,
        source: Path,
        folder: Path,
        options: CrosscheckOptions,
        training: TrainingOptions | None,
        models: tuple[Model, Model] | None,
        *,
        drop: bool,
        reveal: bool,
    ) -> None:
        self.source, self.folder, self.options = source, folder, options
        self.training, self.models, self.drop, self.reveal = training, models, drop, reveal
        self.target = folder / f"corpus{kind_of(source).full_suffix}"

    def names(self, *, planted: bool) -> tuple[str, ...]:
        """The files that are written, those that describe others last."""
        corpus = (self.target.name, *((MANIFEST_NAME,) if planted else ())) if self.drop else ()
        return (*corpus, DOCUMENTS_FILE, RESULT_FILE)

    def finished_before(self, sha256: str) -> Crosscheck | None:
        """The result in the directory, if the very same call wrote it and all its files are unchanged."""
        path = self.folder / RESULT_FILE
        try:
            there = CROSSCHECKS.alone(path)
        except InputError:
            return None
        found = (there.corpus.sha256, there.settings, there.training, there.kept is not None, there.revealed)
        if found != (sha256, self.options, self.training, self.drop, self.reveal):
            return None
        if self.models is not None and [one.description for one in there.models] != [
            msgspec.to_builtins(model.describe()) for model in self.models
        ]:
            return None
        files = {beside(path, name): digest for name, digest in CROSSCHECKS.companions(there).items()}
        whole = all(one.is_file() and sha256_of_file(one) == digest for one, digest in files.items())
        return there if whole else None

    def result(
        self,
        source: OriginalCorpus,
        known: KnownManifest,
        engine: Engine | str | None,
        progress: Progress,
        record: Callable[[Crosscheck], None] | None,
    ) -> Crosscheck:
        """Compare, judge and write."""
        documents = list(read_documents(self.source, self.options.fields))
        halves = None if self.models is not None else divide(documents, self.options)
        ledger = Ledger(self.folder)
        # Created before the first training, so that reports see by it what the models in `halves` are. Its keys tell runs apart.
        ledger.begin(_RUN, instead=not os.path.lexists(self.folder / UNITS_FILE))
        with open_engine(engine) as opened:
            compared = self._compared(documents, halves, opened, ledger, progress)
        with together() as written:
            kept = self._kept(source, known, compared, written, progress) if self.drop else None
            digest = save_documents(
                self.folder,
                np.array([one.number for one in compared.documents]),
                compared.scores,
                compared.halves,
                compared.judged,
            )
            made = self._made(source, compared, kept, digest, known.warnings)
            CROSSCHECKS.save(self.folder, made)
            if record is not None:
                record(made)
        ledger.forget()
        remove_abandoned(self.folder)
        return made

    def _compared(
        self,
        documents: Sequence[CorpusDocument],
        halves: Halves | None,
        engine: Engine,
        ledger: Ledger,
        progress: Progress,
    ) -> _Compared:
        pairs = self.options.fields.source is not None
        texts = Documents(
            [one.text for one in documents], [one.source or "" for one in documents] if pairs else None
        )
        if self.models is not None:
            first, second = self.models
            check_models(first, second, pairs=pairs)
            known = tuple(ComparedModel(name=one.name, description=one.describe()) for one in self.models)
        elif halves is not None:
            first, second, known = self._trained(texts, halves, engine, progress)
        work = DisagreementWork(first, second, self.options.span)
        scores = score_documents(work, texts, engine=engine, ledger=ledger, progress=progress)
        judged = judge(scores, halves, self.options)
        return _Compared(documents, halves, (known[0], known[1]), scores, judged)

    def _trained(
        self, texts: Documents, halves: Halves, engine: Engine, progress: Progress
    ) -> tuple[Model, Model, tuple[ComparedModel, ...]]:
        """Models of both halves, trained now or before."""
        if self.training is None:
            raise TypeError("halves are trained in some way")
        trained = train_halves(
            texts, halves, self.training, self.folder / HALVES_FOLDER, engine=engine, progress=progress
        )
        loaded = [load_model(one.path) for one in trained]
        known = tuple(
            ComparedModel(
                name=f"half {half + 1}", description=model.describe(), documents=len(halves.places(half))
            )
            for half, model in enumerate(loaded)
        )
        return loaded[0], loaded[1], known

    def _kept(
        self,
        source: OriginalCorpus,
        known: KnownManifest,
        compared: _Compared,
        written: FileGroup,
        progress: Progress,
    ) -> KeptCorpus:
        """Write the corpus without the flagged documents."""
        before, flagged = len(compared.documents), compared.judged.flagged
        if len(flagged) == before:
            raise CorpusError(
                "all documents are flagged, so that nothing would be left; flag a smaller share"
            )
        digest = source.write(self.target, Edits(changes=dict.fromkeys(flagged.tolist())), progress)
        recount = source.recount(self.target, known, written, progress, by="crosscheck", documents=before)
        return KeptCorpus(
            name=self.target.name, sha256=digest, documents=before - len(flagged), canaries=recount
        )

    def _made(
        self,
        source: OriginalCorpus,
        compared: _Compared,
        kept: KeptCorpus | None,
        digest: str,
        warnings: tuple[str, ...],
    ) -> Crosscheck:
        """The result as it is written."""
        judged, number = compared.judged, len(compared.documents)
        unread = int(np.isnan(judged.scores).sum())
        return Crosscheck(
            corpus=CheckedCorpus(name=self.source.name, sha256=source.sha256, documents=number),
            settings=self.options,
            training=self.training,
            models=compared.models,
            compared=number - unread,
            unread=unread,
            threshold=judged.threshold,
            beyond_chance=judged.beyond,
            flagged=tuple(self._flagged(compared, place) for place in judged.flagged.tolist()),
            revealed=self.reveal,
            documents_sha256=digest,
            kept=kept,
            warnings=(
                *warnings,
                *(_unread_words(unread) if unread else ()),
                *(() if kept is None or kept.canaries is None else kept.canaries.warnings),
            ),
        )

    def _flagged(self, compared: _Compared, place: int) -> FlaggedDocument:
        document, halves = compared.documents[place], compared.halves
        score = float(compared.judged.scores[place])
        begin, end = span_of(compared.scores, place, score, None if halves is None else halves.first)
        text = document.text[begin:end] if begin >= 0 else None
        return FlaggedDocument(
            document=document.number,
            half=None if halves is None else (1 if halves.first[place] else 2),
            score=score,
            begin=begin if begin >= 0 else None,
            end=end if begin >= 0 else None,
            text=text if text is None or self.reveal else masked_text(text),
        )


def _unread_words(unread: int) -> tuple[str, ...]:
    return (
        f"{unread:,} documents are empty or cannot be read by one of the models, so nothing is known about them",
    )
