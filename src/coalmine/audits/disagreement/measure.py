"""Crosscheck: two models are trained on disjoint halves of a corpus, and documents on which they disagree are flagged.

Section 9.2 of "The Secret Sharer: Evaluating and Testing Unintended Memorization in Neural Networks" (Carlini, Liu, Erlingsson, Kos and
Song, 2019, arXiv:1802.08232) tried this as a filter for secrets of unknown format, and found that it misses some, and those in both halves.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.audits.disagreement.options import CrosscheckOptions
from coalmine.audits.disagreement.records import (
    CROSSCHECKS,
    DOCUMENTS_FILE,
    HALVES_FOLDER,
    RESULT_FILE,
    CheckedCorpus,
    ComparedModel,
    Crosscheck,
    FlaggedDocument,
    KeptCorpus,
)
from coalmine.audits.disagreement.scoring import DisagreementWork, Scores, check_models, score_documents
from coalmine.audits.recitation.measure import masked_text
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
from coalmine.errors import CorpusError, InputError, NotMeasurableError
from coalmine.models.loading import load_model
from coalmine.models.protocols import FloatArray, IntArray, Model
from coalmine.models.reference.tokens import CharacterTokenizer, ReferenceTokenizer, WordTokenizer
from coalmine.progress import Progress, Silent
from coalmine.randomness import arrays, child_seed
from coalmine.records.documents import beside, is_there
from coalmine.statistics.disagreement import beyond_chance, stronger
from coalmine.storage.directories import UNFINISHED_FILE
from coalmine.storage.files import (
    PRIVATE,
    check_places,
    no_empty_directory,
    remove_abandoned,
    sha256_of_file,
    together,
    whole_file,
)
from coalmine.training.data import Documents, text_of
from coalmine.training.family import Goal, InMemory, reach
from coalmine.training.options import TrainingOptions, options_of
from coalmine.training.work import Member, TrainingWork

# What all runs in a directory have in common: each may finish what another one began.
_RUN, _TRAINING_RUN = "crosscheck/1", "crosscheck halves/1"
# Fewer say nothing: a tenth of them is not one document.
_LEAST_GROUPS = 10


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
        training: options of `train` for both, such as `{"epochs": 5}`.
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
    how = _training_options(preset, dict(training or {}), given) if models is None else None
    source, folder = Path(corpus), Path(out)
    target = folder / f"corpus{kind_of(source).full_suffix}"
    pyarrow_for(DOCUMENTS_FILE)
    refuse_itself(source, target)
    kept_files = (target.name, MANIFEST_NAME) if drop else ()
    check_places(folder, RESULT_FILE, DOCUMENTS_FILE, UNITS_FILE, UNFINISHED_FILE, *kept_files)
    known = manifest_of(source) if drop else KnownManifest()
    dropped = [target.name, *([MANIFEST_NAME] if known.canaries is not None else [])] if drop else []
    places = [] if overwrite else [folder / name for name in (*dropped, RESULT_FILE)]
    asked = _Question(OriginalCorpus.of(source, given.fields), given, how, models, drop=drop, reveal=reveal)
    if (there := first_in_the_way(*places)) is not None:
        done = asked.finished_in(folder)
        if done is None:
            raise exists_already(there)
        return done
    shown, ledger = progress or Silent(), Ledger(folder)
    with (
        no_empty_directory(folder),
        sole_writing(folder, (*dropped, DOCUMENTS_FILE, RESULT_FILE), places),
        open_engine(engine) as opened,
    ):
        compared = asked.compared(folder, opened, ledger, shown)
        with together() as written:
            kept = None
            if drop:
                flagged, documents = compared.judged.flagged.tolist(), len(compared.documents)
                if len(flagged) == documents:
                    raise CorpusError(
                        "all documents are flagged, so that nothing would be left; flag a smaller share"
                    )
                digest = asked.source.write(target, Edits(changes=dict.fromkeys(flagged)), shown)
                recount = asked.source.recount(
                    target, known, written, shown, by="crosscheck", documents=documents
                )
                kept = KeptCorpus(
                    name=target.name, sha256=digest, documents=documents - len(flagged), canaries=recount
                )
            made = asked.result(compared, kept, _save_documents(folder, compared), known.warnings)
            CROSSCHECKS.save(folder, made)
            if record is not None:
                record(made)
        ledger.forget()
        remove_abandoned(folder)
    return made


def _training_options(
    preset: str | None, changes: dict[str, Any], options: CrosscheckOptions
) -> TrainingOptions:
    """How both halves are trained: a preset with changes, and the seed of the whole."""
    if "seed" in changes:
        raise InputError("the seed of crosscheck is that of its trainings too; give it as seed alone")
    usual = "char-lstm" if options.fields.source is None else "translation"
    seed = child_seed(options.seed, "crosscheck", "training") % 2**31
    return options_of(preset or usual, {**changes, "seed": seed})


class Halves(NamedTuple):
    """Which of two halves each document is in, and which documents are kept together."""

    # (documents,): True for the first half.
    first: NDArray[np.bool_]
    # (documents,): the number of the group of each document, from 0.
    groups: IntArray

    def places(self, half: int) -> IntArray:
        """The places of the documents of the first half (0) or of the second (1)."""
        return np.flatnonzero(self.first if half == 0 else ~self.first)


def divide(documents: Sequence[CorpusDocument], options: CrosscheckOptions) -> Halves:
    """Divide documents by fair coins, one for each group of documents that are kept together.

    The coins are independent of each other, so that halves are of about the same size and not of exactly the same.

    >>> few = [CorpusDocument(number, f"document {number % 7}") for number in range(1, 61)]
    >>> halves = divide(few, CrosscheckOptions(together="text"))
    Traceback (most recent call last):
    coalmine.errors.CorpusError: there are 7 groups of documents to divide, and two halves need at least 10; give a larger corpus
    """
    groups: IntArray = np.arange(len(documents))
    if options.together != "document":
        names = [_name(document, options.together) for document in documents]
        _, groups = np.unique(np.array(names, dtype="S32"), return_inverse=True)
    number = int(groups.max(initial=-1)) + 1
    if number < _LEAST_GROUPS:
        raise CorpusError(
            f"there are {number} groups of documents to divide, and two halves need at least {_LEAST_GROUPS}; give a larger corpus"
        )
    first = (arrays(options.seed, "crosscheck", "halves").random(number) < 0.5)[groups]
    if first.all() or not first.any():
        raise CorpusError(
            "by chance all documents are in one half, because there are few; use another seed, or give a larger corpus"
        )
    return Halves(first, groups)


def _name(document: CorpusDocument, together: str) -> bytes:
    """What documents that are kept together have in common."""
    if together == "user":
        # A document without a user is on its own.
        own = f"\0{document.number}" if document.user is None else f"\1{document.user}"
    else:
        own = f"{document.text}\0{document.source or ''}"
    return hashlib.sha256(own.encode("utf-8", "surrogatepass")).hexdigest()[:32].encode()


def _trained(
    documents: Documents,
    halves: Halves,
    options: TrainingOptions,
    directory: Path,
    engine: Engine,
    progress: Progress,
) -> list[Model]:
    """A model of each half, validated on a share of the other one, as `train` trains it, in directories below `directory`.

    Both read texts with one tokenizer, made from all documents: a character that only one half has can be scored by both.
    """
    tokenizer: ReferenceTokenizer = (
        CharacterTokenizer.of(documents.sides())
        if options.tokens == "characters"
        else WordTokenizer.of(documents.sides(), most=options.vocabulary)
    )
    text = text_of(documents, tokenizer=tokenizer)
    members = tuple(
        Member(
            options,
            None,
            label=f"half {half + 1}",
            part=halves.places(half),
            held_out=_held_out(halves.places(1 - half), options, half),
        )
        for half in (0, 1)
    )
    work = TrainingWork(text, members)
    goals = [
        Goal(directory / f"half-{half + 1}-{work.fingerprint(half)[:16]}", member)
        for half, member in enumerate(members)
    ]
    trained = reach(
        goals,
        InMemory(text),
        Ledger(directory),
        named=lambda _: _TRAINING_RUN,
        engine=engine,
        progress=progress,
    )
    return [load_model(one.path) for one in trained]


def _held_out(others: IntArray, options: TrainingOptions, half: int) -> IntArray:
    """Documents of the other half that say when to stop; none where nothing is to be held out."""
    if not options.holdout:
        return others[:0]
    number = max(1, round(options.holdout * len(others)))
    chosen = arrays(options.seed, "crosscheck", "validation", half).choice(others, size=number, replace=False)
    return np.sort(chosen)


class JudgedDocuments(NamedTuple):
    """Which documents are flagged, and why."""

    # (documents,): positive where the model that was trained on a document is ahead of the other, and negative where the other one is; of
    # two models of which that is not known, never negative. NaN for a document that was not read.
    scores: FloatArray
    # The least score that is beyond chance, and how many documents have it; None where no score is, or where chance is not known.
    threshold: float | None
    beyond: int | None
    # The places of the documents that are flagged, the strongest first.
    flagged: IntArray


def judge(found: Scores, halves: Halves | None, options: CrosscheckOptions) -> JudgedDocuments:
    """Flag documents; without halves, the two models are the user's, and nobody knows which was trained on what."""
    if options.statistic in {"share", "span"} and (found.tokens < 0).all():
        raise NotMeasurableError(
            "the two models cut texts into different tokens, so that no span can be compared; choose the statistic mean or total"
        )
    scores = _statistic(found, None if halves is None else halves.first, options)
    read = ~np.isnan(scores)
    if not read.any():
        raise NotMeasurableError(
            "neither document could be read by both models, so there is nothing to compare; check the models and the corpus"
        )
    candidates = read & (scores > 0)
    threshold: float | None = None
    beyond: int | None = None
    if halves is not None:
        # The documents of a group share one coin, so that they count once: the one that disagrees most, either way.
        places = np.flatnonzero(read)
        order = places[np.argsort(np.abs(scores[places]), kind="stable")]
        strongest: FloatArray = np.full(int(halves.groups.max()) + 1, np.nan)
        strongest[halves.groups[order]] = scores[order]  # of several, the last is kept
        threshold = beyond_chance(strongest[~np.isnan(strongest)], options.fdr)
        candidates &= scores >= (math.inf if threshold is None else threshold)
        beyond = int(candidates.sum())
    most = max(1, math.floor(options.share * int(read.sum())))
    places = np.flatnonzero(candidates)
    flagged = places[np.argsort(-scores[places], kind="stable")][:most]
    return JudgedDocuments(scores, threshold, beyond, flagged)


def _statistic(found: Scores, first: NDArray[np.bool_] | None, options: CrosscheckOptions) -> FloatArray:
    """The statistic of each document."""
    if options.statistic in {"share", "span"}:
        one, other = (
            (found.first_share, found.second_share)
            if options.statistic == "share"
            else (found.first_ahead, found.second_ahead)
        )
        if first is None:
            return np.maximum(np.maximum(one, other), 0.0)
        scores = stronger(np.where(first, one, other), np.where(first, other, one))
        return np.where(np.isnan(one), np.nan, scores)
    total = found.second_bits - found.first_bits
    total = np.abs(total) if first is None else np.where(first, total, -total)
    return total / np.maximum(1, found.characters) if options.statistic == "mean" else total


class _Compared(NamedTuple):
    """What was found out, before it is written."""

    documents: Sequence[CorpusDocument]
    halves: Halves | None
    models: tuple[ComparedModel, ComparedModel]
    scores: Scores
    judged: JudgedDocuments


class _Question(NamedTuple):
    """What one crosscheck is about."""

    source: OriginalCorpus
    options: CrosscheckOptions
    training: TrainingOptions | None
    models: tuple[Model, Model] | None
    drop: bool
    reveal: bool

    def finished_in(self, folder: Path) -> Crosscheck | None:
        """The result in a directory, if the very same call wrote it and all its files are unchanged."""
        try:
            there = CROSSCHECKS.load(folder)
        except InputError:
            return None
        found = (there.corpus.sha256, there.settings, there.training, there.kept is not None, there.revealed)
        if found != (self.source.sha256, self.options, self.training, self.drop, self.reveal):
            return None
        described = [msgspec.to_builtins(model.describe()) for model in self.models or ()]
        if self.models is not None and [one.description for one in there.models] != described:
            return None
        files = [beside(folder / RESULT_FILE, name) for name in CROSSCHECKS.companions(there)]
        return there if all(map(is_there, files)) else None

    def compared(self, folder: Path, engine: Engine, ledger: Ledger, progress: Progress) -> _Compared:
        """Train both models, ask them, and judge."""
        documents = list(read_documents(self.source.path, self.options.fields))
        pairs = self.options.fields.source is not None
        texts = Documents(
            [one.text for one in documents], [one.source or "" for one in documents] if pairs else None
        )
        halves = None if self.training is None else divide(documents, self.options)
        # Created before the first training, so that reports see by it what the models in `halves` are.
        ledger.begin(_RUN, instead=not os.path.lexists(folder / UNITS_FILE))
        if self.training is not None and halves is not None:
            models = _trained(texts, halves, self.training, folder / HALVES_FOLDER, engine, progress)
        else:
            models = list(self.models or ())
            check_models(*models, pairs=pairs)
        described = [
            ComparedModel(
                name=model.name if halves is None else f"half {half + 1}",
                description=model.describe(),
                documents=None if halves is None else len(halves.places(half)),
            )
            for half, model in enumerate(models)
        ]
        work = DisagreementWork(models[0], models[1], self.options.span)
        scores = score_documents(work, texts, engine=engine, ledger=ledger, progress=progress)
        return _Compared(
            documents, halves, (described[0], described[1]), scores, judge(scores, halves, self.options)
        )

    def result(
        self, compared: _Compared, kept: KeptCorpus | None, digest: str, warnings: tuple[str, ...]
    ) -> Crosscheck:
        """The result as it is written."""
        judged, number = compared.judged, len(compared.documents)
        unread = int(np.isnan(judged.scores).sum())
        if unread:
            warnings += (
                f"{unread:,} documents are empty or cannot be read by one of the models, so nothing is known about them",
            )
        if kept is not None and kept.canaries is not None:
            warnings += tuple(kept.canaries.warnings)
        return Crosscheck(
            corpus=CheckedCorpus(name=self.source.path.name, sha256=self.source.sha256, documents=number),
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
            warnings=warnings,
        )

    def _flagged(self, compared: _Compared, place: int) -> FlaggedDocument:
        document, halves, scores = compared.documents[place], compared.halves, compared.scores
        score = float(compared.judged.scores[place])
        if halves is None:
            of_first = bool(scores.first_share[place] >= scores.second_share[place])
        else:
            of_first = bool(halves.first[place]) == (score >= 0)
        begins, ends = (
            (scores.first_begin, scores.first_end) if of_first else (scores.second_begin, scores.second_end)
        )
        known = int(begins[place]) >= 0
        text = document.text[int(begins[place]) : int(ends[place])] if known else None
        return FlaggedDocument(
            document=document.number,
            half=None if halves is None else (1 if halves.first[place] else 2),
            score=score,
            begin=int(begins[place]) if known else None,
            end=int(ends[place]) if known else None,
            text=text if text is None or self.reveal else masked_text(text),
        )


def _save_documents(folder: Path, compared: _Compared) -> str:
    """Write documents.parquet, readable by its owner only: one row per document, without its text. Returns its SHA-256."""
    pa = pyarrow_for(DOCUMENTS_FILE)
    from pyarrow import parquet

    halves, number = compared.halves, len(compared.documents)
    flagged = np.zeros(number, dtype=bool)
    flagged[compared.judged.flagged] = True
    half = pa.nulls(number, pa.int64()) if halves is None else np.where(halves.first, 1, 2)
    columns: dict[str, Any] = {
        "document": np.array([one.number for one in compared.documents], dtype=np.int64),
        "half": half,
        **compared.scores._asdict(),
        "score": compared.judged.scores,
        "flagged": flagged,
    }
    with whole_file(folder / DOCUMENTS_FILE, mode=PRIVATE) as temporary:
        with open(temporary, "wb") as stream:
            parquet.write_table(pa.table(columns), stream, compression="zstd")
        return sha256_of_file(temporary)
