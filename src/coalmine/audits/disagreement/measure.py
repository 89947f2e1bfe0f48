"""Crosscheck: two models are trained on disjoint halves of a corpus, and documents on which they disagree are flagged.

Section 9.2 of "The Secret Sharer: Evaluating and Testing Unintended Memorization in Neural Networks" (Carlini, Liu, Erlingsson, Kos and
Song, 2019, arXiv:1802.08232) tried this as a filter for secrets of unknown format, and found that it misses some, and those in both halves.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.disagreement.records import (
    CROSSCHECKS,
    DOCUMENTS_FILE,
    HALVES_FOLDER,
    RESULT_FILE,
    CheckedCorpus,
    Crosscheck,
    CrosscheckOptions,
    FlaggedDocument,
)
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
from coalmine.engines.units import Arrays, Running, Unit
from coalmine.errors import CorpusError, InputError, ModelOutputError, NotMeasurableError
from coalmine.models.loading import load_model
from coalmine.models.protocols import (
    FloatArray,
    IntArray,
    Model,
    OpenTokenizer,
    PairModel,
    Tokenizer,
    TokenSequence,
    after_context,
    max_length,
)
from coalmine.models.reference.tokens import CharacterTokenizer, ReferenceTokenizer, WordTokenizer
from coalmine.models.works import ModelWork
from coalmine.progress import Progress, Silent
from coalmine.randomness import arrays, child_seed
from coalmine.statistics.disagreement import beyond_chance, span_share, stronger
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
from coalmine.visible import visible

# What all runs in a directory have in common: each may finish what another one began.
_RUN, _TRAINING_RUN = "crosscheck/1", "crosscheck halves/1"
# Few enough to take seconds.
_DOCUMENTS_AT_A_TIME = 256
# Fewer say nothing: a tenth of them is not one document.
_LEAST_GROUPS = 10


def crosscheck(
    corpus: str | os.PathLike[str],
    out: str | os.PathLike[str],
    options: CrosscheckOptions | None = None,
    *,
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
    span or share takes as long as asking both models. All documents are held in memory.

    Args:
        corpus: a corpus file of any kind that `read_documents` reads.
        out: the directory for crosscheck.json, documents.parquet and the two models, in `halves`.
        options: how documents are divided and judged, and how many are flagged.
        preset: a name of `PRESETS`; without it, that of The Secret Sharer for texts or for pairs.
        training: options of `train` for both, such as `{"epochs": 5}`.
        drop: also write the corpus without the flagged documents to `out`, and for a planted corpus its canaries.json with new counts.
        reveal: keep the text over which the models disagree most; without it, it is masked.
        overwrite: replace what an earlier run wrote to `out`.
        engine: where the halves are trained and asked, such as "processes:2"; the results are the same.
        progress: gets the characters that were trained on, and the documents.
        record: called with the result; what it writes appears together with it.
        changes: fields of `CrosscheckOptions` by name, such as `share=0.02`.

    >>> result = crosscheck("mail.jsonl", "crosscheck/", training={"epochs": 5}, share=0.005)  # doctest: +SKIP
    >>> len(result.flagged), result.beyond_chance  # doctest: +SKIP
    (20, 31)
    """
    given = CrosscheckOptions.of(options, changes).checked()
    if "seed" in (training or {}):
        raise InputError("the seed of crosscheck is that of its trainings too; give it as seed alone")
    how = options_of(
        preset or ("char-lstm" if given.fields.source is None else "translation"),
        {**(training or {}), "seed": child_seed(given.seed, "crosscheck", "training") % 2**31},
    )
    source, folder = Path(corpus), Path(out)
    target = folder / f"corpus{kind_of(source).full_suffix}"
    pyarrow_for(DOCUMENTS_FILE)
    refuse_itself(source, target)
    kept_files = (target.name, MANIFEST_NAME) if drop else ()
    check_places(folder, RESULT_FILE, DOCUMENTS_FILE, UNITS_FILE, UNFINISHED_FILE, *kept_files)
    known = manifest_of(source) if drop else KnownManifest()
    dropped = [target.name, *([MANIFEST_NAME] if known.canaries is not None else [])] if drop else []
    places = [] if overwrite else [folder / name for name in (*dropped, RESULT_FILE)]
    original = OriginalCorpus.of(source, given.fields)
    if (there := first_in_the_way(*places)) is not None:
        raise exists_already(there)
    shown, ledger = progress or Silent(), Ledger(folder)
    with (
        no_empty_directory(folder),
        sole_writing(folder, (*dropped, DOCUMENTS_FILE, RESULT_FILE), places),
        open_engine(engine) as opened,
    ):
        documents = list(read_documents(source, given.fields))
        pairs = None if given.fields.source is None else [one.source or "" for one in documents]
        texts, halves = Documents([one.text for one in documents], pairs), divide(documents, given)
        # Created before the first training, so that reports see by it what the models in `halves` are.
        ledger.begin(_RUN, instead=not os.path.lexists(folder / UNITS_FILE))
        first, second = _trained(texts, halves, how, folder / HALVES_FOLDER, opened, shown)
        scores = _scored(first, second, texts, halves, given.span, (opened, ledger, shown))
        judged = judge(scores, halves.groups, given)
        flagged, unread = judged.flagged.tolist(), int(np.isnan(judged.scores).sum())
        warnings = known.warnings
        if unread:
            warnings += (f"{unread:,} documents are empty or cannot be read, so nothing is known about them",)
        with together() as written:
            kept, recount = None, None
            if drop:
                digest = original.write(target, Edits(changes=dict.fromkeys(flagged)), shown)
                number = len(documents)
                recount = original.recount(target, known, written, shown, by="crosscheck", documents=number)
                kept = CheckedCorpus(name=target.name, sha256=digest, documents=number - len(flagged))
                warnings += () if recount is None else recount.warnings
            made = Crosscheck(
                corpus=CheckedCorpus(name=source.name, sha256=original.sha256, documents=len(documents)),
                settings=given,
                training=how,
                models=(first.describe(), second.describe()),
                documents=(len(halves.places(0)), len(halves.places(1))),
                unread=unread,
                threshold=judged.threshold,
                beyond_chance=judged.beyond,
                flagged=tuple(
                    _flagged(documents, place, halves, scores, judged, reveal) for place in flagged
                ),
                documents_sha256=_save_documents(folder, documents, halves, scores, judged),
                kept=kept,
                recount=recount,
                warnings=warnings,
            )
            CROSSCHECKS.save(folder, made)
            if record is not None:
                record(made)
        ledger.forget()
        remove_abandoned(folder)
    return made


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
        _, groups = np.unique([_name(one, options.together) for one in documents], return_inverse=True)
    number = int(groups.max(initial=-1)) + 1
    if number < _LEAST_GROUPS:
        raise CorpusError(
            f"there are {number} groups of documents to divide, and two halves need at least {_LEAST_GROUPS}; give a larger corpus"
        )
    first = (arrays(options.seed, "crosscheck", "halves").random(number) < 0.5)[groups]
    return Halves(first, groups)


def _name(document: CorpusDocument, together: str) -> str:
    """What documents that are kept together have in common; a document without a user is on its own."""
    own = f"{document.text}\0{document.source or ''}"
    if together == "user":
        own = f"\0{document.number}" if document.user is None else f"\1{document.user}"
    return hashlib.sha256(own.encode("utf-8", "surrogatepass")).hexdigest()[:32]


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

    def held_out(half: int) -> IntArray:
        """Documents of the other half that say when to stop; none where nothing is to be held out."""
        others, chance = halves.places(1 - half), arrays(options.seed, "crosscheck", "validation", half)
        number = max(1, round(options.holdout * len(others))) if options.holdout else 0
        return np.sort(chance.choice(others, size=number, replace=False))

    members = tuple(
        Member(
            options,
            None,
            label=f"half {half + 1}",
            part=halves.places(half),
            held_out=held_out(half),
        )
        for half in (0, 1)
    )
    work = TrainingWork(text, members)
    goals = [
        Goal(directory / f"half-{half + 1}-{work.fingerprint(half)[:16]}", member)
        for half, member in enumerate(members)
    ]
    source, ledger = InMemory(text), Ledger(directory)
    trained = reach(goals, source, ledger, named=lambda _: _TRAINING_RUN, engine=engine, progress=progress)
    return [load_model(one.path) for one in trained]


class Scores(NamedTuple):
    """What a document's own model, which was trained on it, and the other one say about documents; one row each.

    Attributes:
        own_bits, other_bits: the log-perplexity of the document under each model; NaN where it cannot be read.
        own_share, other_share: the largest share of the other model's bits over a span that each model is spared; NaN likewise.
        begin, end: the span of `own_share` in characters; -1 where it is not known.
    """

    own_bits: FloatArray
    other_bits: FloatArray
    own_share: FloatArray
    other_share: FloatArray
    begin: IntArray
    end: IntArray


@dataclass(frozen=True)
class DisagreementWork(ModelWork):
    """Documents to ask two models about."""

    first: Model
    second: Model
    span: int

    name = "crosscheck/2"

    @property
    def models(self) -> tuple[Model, ...]:
        """Both."""
        return (self.first, self.second)

    @property
    def facts(self) -> Any:
        """The models, and the length of spans."""
        return [super().facts, self.span]

    def units(self, documents: Documents, in_first: Sequence[bool]) -> Iterator[Unit]:
        """All documents with their halves, cut in the same way for every engine."""
        rows = list(zip(documents.texts, documents.sources or [""] * len(in_first), in_first, strict=True))
        for start in range(0, len(rows), _DOCUMENTS_AT_A_TIME):
            part = rows[start : start + _DOCUMENTS_AT_A_TIME]
            yield Unit(part, size=len(part))

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Rows of `Scores`."""
        asked = [_log2(model, unit.inputs) for model in self.models]
        running.advance(len(unit.inputs))
        rows = []
        for (text, _, in_first), first, second in zip(unit.inputs, *asked, strict=True):
            own, other = (first, second) if in_first else (second, first)
            if own is None or other is None:
                rows.append((*[np.nan] * 4, -1, -1))
                continue
            ahead = span_share(own, other, self.span)
            places = _places(text, len(own))
            span = (-1, -1)
            if places is not None:
                last = min(ahead.begin + self.span, len(own)) - 1
                span = places[ahead.begin][0], places[last][1]
            shares = (ahead.size, span_share(other, own, self.span).size)
            rows.append((-float(own.sum()), -float(other.sum()), *shares, *span))
        columns = zip(*rows, strict=True)
        return {name: np.array(column) for name, column in zip(Scores._fields, columns, strict=True)}


def _log2(model: Any, rows: Sequence[tuple[str, str, bool]]) -> list[FloatArray | None]:
    """The log2 probability of each token of each text, 0 for an unknown one; None for a text without any.

    A text is read as training saw it, and one that is too long for the model in pieces.
    """
    owners: list[int] = []
    sequences: list[TokenSequence] = []
    most = max_length(model)
    for place, (text, source, _) in enumerate(rows):
        tokens = _tokens(model.tokenizer, text)
        before = tuple(_tokens(model.source_tokenizer, source))[:most] if isinstance(model, PairModel) else ()
        if isinstance(model, PairModel) and not before:
            continue
        size = max(1, len(tokens)) if most is None else max(2, most - len(model.context))
        for start in range(0, len(tokens), size):
            sequences.append(after_context(model.context, tokens[start : start + size], before))
            owners.append(place)
    unknown = model.tokenizer.unknown if isinstance(model.tokenizer, OpenTokenizer) else None
    parts: list[list[FloatArray]] = [[] for _ in rows]
    for owner, sequence, score in zip(owners, sequences, model.score(sequences), strict=True):
        log2 = np.asarray(score.log2_probabilities, dtype=np.float64)
        if np.isnan(log2).any():
            raise ModelOutputError(
                f"the model {visible(model.name)!r} gave nan as the log-probability of a token; check the weights"
            )
        # A probability of 0 is read as the smallest that a double holds.
        parts[owner].append(np.where(np.array(sequence.target) == unknown, 0.0, np.maximum(log2, -1074.0)))
    return [np.concatenate(own) if own else None for own in parts]


def _tokens(tokenizer: Tokenizer, text: str) -> list[int]:
    return (
        tokenizer.encode_open(text) if isinstance(tokenizer, OpenTokenizer) else list(tokenizer.encode(text))
    )


def _places(text: str, tokens: int) -> Sequence[tuple[int, int]] | None:
    """Where each token is in a text, which is a character or a word; None where that is not known."""
    if tokens == len(text):
        return [(place, place + 1) for place in range(tokens)]
    words = [found.span() for found in re.finditer(r"\S+", text)]
    return words if len(words) == tokens else None


def _scored(
    first: Model,
    second: Model,
    texts: Documents,
    halves: Halves,
    span: int,
    running: tuple[Engine, Ledger, Progress],
) -> Scores:
    """What both models say about each document, in their order."""
    engine, ledger, progress = running
    work = DisagreementWork(first, second, span)
    units = list(work.units(texts, halves.first.tolist()))
    parts: list[Arrays] = [{}] * len(units)
    progress.start("Comparing the two models", len(texts.texts))
    for outcome in engine.map(work, units, ledger=ledger, progress=progress):
        parts[outcome.number] = outcome.value()
    progress.finish()
    return Scores(*(np.concatenate([part[name] for part in parts]) for name in Scores._fields))


class JudgedDocuments(NamedTuple):
    """Which documents are flagged, and why."""

    # (documents,): positive where the model that was trained on a document is ahead of the other, and negative where the other one is.
    # NaN for a document that was not read.
    scores: FloatArray
    # The least score that is beyond chance, None where no score is, and how many documents have it.
    threshold: float | None
    beyond: int
    # The places of the documents that are flagged, the strongest first.
    flagged: IntArray


def judge(found: Scores, groups: IntArray, options: CrosscheckOptions) -> JudgedDocuments:
    """Flag documents that disagree beyond chance, at most the wanted share of them."""
    read = ~np.isnan(found.own_share)
    if not read.any():
        raise NotMeasurableError(
            "no document could be read, so there is nothing to compare; check the corpus"
        )
    scores = np.where(read, stronger(found.own_share, found.other_share), np.nan)
    # The documents of a group share one coin, so that they count once: the one that disagrees most, either way.
    places = np.flatnonzero(read)
    order = places[np.argsort(np.abs(scores[places]), kind="stable")]
    strongest: FloatArray = np.full(int(groups.max()) + 1, np.nan)
    strongest[groups[order]] = scores[order]  # of several, the last is kept
    threshold = beyond_chance(strongest[~np.isnan(strongest)], options.fdr)
    places = np.flatnonzero(read & (scores >= (math.inf if threshold is None else threshold)))
    most = max(1, math.floor(options.share * int(read.sum())))
    flagged = places[np.argsort(-scores[places], kind="stable")][:most]
    return JudgedDocuments(scores, threshold, len(places), flagged)


def _flagged(
    documents: Sequence[CorpusDocument],
    place: int,
    halves: Halves,
    scores: Scores,
    judged: JudgedDocuments,
    reveal: bool,
) -> FlaggedDocument:
    """A flagged document: its own model is ahead, over the span that is known of it."""
    span = (int(scores.begin[place]), int(scores.end[place]))
    begin, end = (None, None) if span[0] < 0 else span
    text = None if begin is None else documents[place].text[begin:end]
    return FlaggedDocument(
        document=documents[place].number,
        half=1 if halves.first[place] else 2,
        score=float(judged.scores[place]),
        begin=begin,
        end=end,
        text=text if text is None or reveal else masked_text(text),
    )


def _save_documents(
    folder: Path, documents: Sequence[CorpusDocument], halves: Halves, scores: Scores, judged: JudgedDocuments
) -> str:
    """Write documents.parquet, readable by its owner only: one row per document, without its text. Returns its SHA-256."""
    pa = pyarrow_for(DOCUMENTS_FILE)
    from pyarrow import parquet

    columns: dict[str, Any] = {
        "document": np.array([one.number for one in documents], dtype=np.int64),
        "half": np.where(halves.first, 1, 2),
        **scores._asdict(),
        "score": judged.scores,
        "flagged": np.isin(np.arange(len(documents)), judged.flagged),
    }
    with whole_file(folder / DOCUMENTS_FILE, mode=PRIVATE) as temporary:
        with open(temporary, "wb") as stream:
            parquet.write_table(pa.table(columns), stream, compression="zstd")
        return sha256_of_file(temporary)
