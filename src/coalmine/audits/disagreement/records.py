"""Results of `crosscheck`: crosscheck.json, and what documents.parquet says of every document."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from coalmine.audits.disagreement.options import CrosscheckOptions
from coalmine.corpus.planting.recounting import Recount
from coalmine.records.documents import Document, Origin
from coalmine.records.estimate import Count
from coalmine.training.options import TrainingOptions

SCHEMA = "coalmine.crosscheck/1"
RESULT_FILE = "crosscheck.json"
DOCUMENTS_FILE = "documents.parquet"
# The two models.
HALVES_FOLDER = "halves"


class CheckedCorpus(msgspec.Struct, frozen=True, kw_only=True):
    """The corpus whose documents were compared."""

    name: str
    sha256: str
    documents: Count


class ComparedModel(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two models."""

    name: str
    description: dict[str, Any]
    # How many documents it was trained on; None for a model of the user's, of which that is not known.
    documents: Count | None = None


class FlaggedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document on which the two models disagree."""

    # The line or row of the document.
    document: Count
    # The half that it was in, 1 or 2; None for models of the user's.
    half: int | None
    # In bits, for "mean" in bits per character, and for "share" a share.
    score: float
    # The characters over which the models disagree most, and their text, masked unless the user asked to reveal it; None where the tokens
    # of the models cannot be found in the text.
    begin: int | None
    end: int | None
    text: str | None


class KeptCorpus(msgspec.Struct, frozen=True, kw_only=True):
    """The corpus that was written without the flagged documents."""

    name: str
    sha256: str
    documents: Count
    # What became of the copies of canaries; None where no manifest of the corpus is known.
    canaries: Recount | None = None


class Crosscheck(msgspec.Struct, frozen=True, kw_only=True):
    """The documents on which two models disagree; crosscheck.json. What both say about every document is in documents.parquet.

    >>> result = crosscheck("mail.jsonl", "crosscheck/", preset="char-lstm", epochs=5)  # doctest: +SKIP
    >>> [one.document for one in result.flagged]  # doctest: +SKIP
    [812, 77]
    """

    schema: str = SCHEMA
    corpus: CheckedCorpus
    settings: CrosscheckOptions
    # How the two halves were trained; None for models of the user's.
    training: TrainingOptions | None
    models: tuple[ComparedModel, ComparedModel]
    # Documents that both models could read, and the others, of which nothing is known.
    compared: Count
    unread: Count
    # The least score that is beyond chance at the false-discovery rate of the settings, and how many documents have it. Without any such
    # score the threshold is None; for models of the user's both are, because nobody knows what chance does.
    threshold: float | None
    beyond_chance: Count | None
    # Those that disagree most come first.
    flagged: tuple[FlaggedDocument, ...]
    revealed: bool
    # Of the documents.parquet that was written with it.
    documents_sha256: str | None = None
    kept: KeptCorpus | None = None
    # One sentence each; none of them shows a text.
    warnings: tuple[str, ...] = ()

    @property
    def recount(self) -> Recount | None:
        """What became of the copies of canaries, if the corpus was written again and its manifest is known."""
        return None if self.kept is None else self.kept.canaries


CROSSCHECKS = Document(
    record=Crosscheck,
    schema=SCHEMA,
    file=RESULT_FILE,
    title="crosscheck",
    by="`coalmine data crosscheck`",
    others={
        DOCUMENTS_FILE: "what both models say about every document: numbers, no text",
    },
    companions=lambda result: {
        DOCUMENTS_FILE: result.documents_sha256,
        **({} if result.kept is None else {result.kept.name: result.kept.sha256}),
        **({} if result.recount is None else {result.recount.manifest: result.recount.manifest_sha256}),
    },
    other_models=HALVES_FOLDER,
    origin=Origin(
        manifests=lambda result: [] if result.recount is None else [result.recount.manifest_sha256],
    ),
)


def read_crosscheck(path: str | os.PathLike[str]) -> Crosscheck:
    """A crosscheck.json, or the one in a directory.

    >>> read_crosscheck("crosscheck/").beyond_chance  # doctest: +SKIP
    31
    """
    return CROSSCHECKS.load(path)
