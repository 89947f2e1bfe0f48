"""Results of `crosscheck`: crosscheck.json, what documents.parquet says of every document, and both in a table and in sentences."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from coalmine.audits.disagreement.options import CrosscheckOptions
from coalmine.corpus.planting.recounting import Recount
from coalmine.evidence.tables import Column, Table
from coalmine.records.documents import Document, Origin
from coalmine.records.estimate import Count
from coalmine.training.options import TrainingOptions

SCHEMA = "coalmine.crosscheck/2"
RESULT_FILE = "crosscheck.json"
DOCUMENTS_FILE = "documents.parquet"
# The two models.
HALVES_FOLDER = "halves"
# Rows that a terminal shows; the others are in the file.
MOST_ROWS = 20


class CheckedCorpus(msgspec.Struct, frozen=True, kw_only=True):
    """A corpus: the one whose documents were compared, or the one that was written without those that are flagged."""

    name: str
    sha256: str
    documents: Count


class HalfModel(msgspec.Struct, frozen=True, kw_only=True):
    """The model of one half, and how many documents it was trained on."""

    description: dict[str, Any]
    documents: Count


class FlaggedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document on which the two models disagree."""

    # The line or row of the document.
    document: Count
    # The half that it was in, 1 or 2.
    half: int
    # The share of the other model's bits that its own model is spared, where that is largest.
    score: float
    # These characters, and their text, masked unless the user asked to reveal it; None where they cannot be found in the text.
    begin: int | None
    end: int | None
    text: str | None


class Crosscheck(msgspec.Struct, frozen=True, kw_only=True):
    """The documents on which two models disagree; crosscheck.json. What both say about every document is in documents.parquet.

    >>> result = crosscheck("mail.jsonl", "crosscheck/", preset="char-lstm", epochs=5)  # doctest: +SKIP
    >>> [one.document for one in result.flagged]  # doctest: +SKIP
    [812, 77]
    """

    schema: str = SCHEMA
    corpus: CheckedCorpus
    settings: CrosscheckOptions
    # How the two halves were trained.
    training: TrainingOptions
    models: tuple[HalfModel, HalfModel]
    # Documents that cannot be read, of which nothing is known.
    unread: Count
    # The least score that is beyond chance at the false-discovery rate of the settings, and how many documents have it; None without any.
    threshold: float | None
    beyond_chance: Count
    # Those that disagree most come first.
    flagged: tuple[FlaggedDocument, ...]
    revealed: bool
    # Of the documents.parquet that was written with it.
    documents_sha256: str | None = None
    # The corpus without the flagged documents, and what became of the copies of canaries where its manifest is known.
    kept: CheckedCorpus | None = None
    recount: Recount | None = None
    # One sentence each; none of them shows a text.
    warnings: tuple[str, ...] = ()


CROSSCHECKS = Document(
    record=Crosscheck,
    schema=SCHEMA,
    file=RESULT_FILE,
    title="crosscheck",
    by="`coalmine data crosscheck`",
    others={DOCUMENTS_FILE: "what both models say about every document: numbers, no text"},
    companions=lambda result: {
        DOCUMENTS_FILE: result.documents_sha256,
        **({} if result.kept is None else {result.kept.name: result.kept.sha256}),
        **({} if result.recount is None else {result.recount.manifest: result.recount.manifest_sha256}),
    },
    other_models=HALVES_FOLDER,
    origin=Origin(
        manifests=lambda result: [] if result.recount is None else [result.recount.manifest_sha256]
    ),
)


def read_crosscheck(path: str | os.PathLike[str]) -> Crosscheck:
    """A crosscheck.json, or the one in a directory.

    >>> read_crosscheck("crosscheck/").beyond_chance  # doctest: +SKIP
    31
    """
    return CROSSCHECKS.load(path)


FLAGGED_TABLE = Table[FlaggedDocument](
    (
        Column("document", lambda one: str(one.document)),
        Column("half", lambda one: one.half),
        Column("share", lambda one: one.score),
        Column("where they disagree most", lambda one: one.text),
    )
)


def in_plain_words(result: Crosscheck) -> list[str]:
    """What was compared, and what is flagged."""
    settings, (first, second) = result.settings, result.models
    limit = "" if result.threshold is None else f", from a share of {result.threshold:.2f} on"
    more = len(result.flagged) - MOST_ROWS
    shown = f" ({more:,} of them are not in the table)" if more > 0 else ""
    lines = [
        f"Documents: {result.corpus.documents:,}, of which {result.corpus.documents - result.unread:,} were compared.",
        f"Trained on: {first.documents:,} and {second.documents:,} of them.",
        f"Beyond chance, at a false-discovery rate of {100 * settings.fdr:g}%: {result.beyond_chance:,} documents{limit}.",
        f"Flagged, at most {100 * settings.share:g}% of all: {len(result.flagged):,}{shown}.",
    ]
    if not result.flagged:
        lines.append(
            "That nothing is flagged does not mean that there are no secrets: what both halves have is not seen."
        )
    return lines
