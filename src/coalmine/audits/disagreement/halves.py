"""Halves of a corpus: which documents each of two models is trained on, and the training of both."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.disagreement.options import CrosscheckOptions
from coalmine.corpus.files.documents import CorpusDocument
from coalmine.engines.engine import Engine
from coalmine.engines.ledger import Ledger
from coalmine.errors import CorpusError, InputError
from coalmine.models.protocols import IntArray
from coalmine.models.reference.tokens import CharacterTokenizer, ReferenceTokenizer, WordTokenizer
from coalmine.progress import Progress
from coalmine.randomness import arrays, child_seed
from coalmine.training.data import Documents, text_of
from coalmine.training.family import Goal, InMemory, TrainedModel, reach
from coalmine.training.options import TrainingOptions, options_of
from coalmine.training.work import Member, TrainingWork

HALVES_FOLDER = "halves"
# What all runs that train halves in a directory have in common: each may finish what another one began.
_RUN = "crosscheck halves/1"
# Fewer say nothing: a tenth of them is not one document.
_LEAST_GROUPS = 10


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
    if options.together == "document":
        groups: IntArray = np.arange(len(documents))
    else:
        names = [_name(document, options.together) for document in documents]
        _, groups = np.unique(np.array(names, dtype="S32"), return_inverse=True)
    number = int(groups.max(initial=-1)) + 1
    if number < _LEAST_GROUPS:
        raise CorpusError(
            f"there are {number} groups of documents to divide, and two halves need at least {_LEAST_GROUPS}; give a larger corpus"
        )
    coins = arrays(options.seed, "crosscheck", "halves").random(number) < 0.5
    first = coins[groups]
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


def training_options(
    preset: str | None, changes: dict[str, object], options: CrosscheckOptions
) -> TrainingOptions:
    """How both halves are trained: a preset with changes, and the seed of the whole."""
    if "seed" in changes:
        raise InputError("the seed of crosscheck is that of its trainings too; give it as seed alone")
    usual = "char-lstm" if options.fields.source is None else "translation"
    seed = child_seed(options.seed, "crosscheck", "training") % 2**31
    return options_of(preset or usual, {**changes, "seed": seed})


def train_halves(
    documents: Documents,
    halves: Halves,
    options: TrainingOptions,
    directory: Path,
    *,
    engine: Engine,
    progress: Progress,
) -> list[TrainedModel]:
    """Train a model on each half, validated on a share of the other half, into directories below `directory`.

    Both read texts with one tokenizer, made from all documents: a character that only one half has can be scored by both.
    """
    text = text_of(documents, tokenizer=_tokenizer(documents, options))
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
    return reach(
        goals, InMemory(text), Ledger(directory), named=lambda _: _RUN, engine=engine, progress=progress
    )


def _tokenizer(documents: Documents, options: TrainingOptions) -> ReferenceTokenizer:
    if options.tokens == "characters":
        return CharacterTokenizer.of(documents.sides())
    return WordTokenizer.of(documents.sides(), most=options.vocabulary)


def _held_out(others: IntArray, options: TrainingOptions, half: int) -> IntArray:
    """Documents of the other half that say when to stop; none where nothing is to be held out."""
    if not options.holdout:
        return others[:0]
    number = max(1, round(options.holdout * len(others)))
    chosen = arrays(options.seed, "crosscheck", "validation", half).choice(others, size=number, replace=False)
    return np.sort(chosen)
