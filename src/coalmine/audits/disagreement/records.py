"""Options and results of `crosscheck`: crosscheck.json, what documents.parquet says of every document, and both in sentences."""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal, Self, get_args

import msgspec

from coalmine.audits.options import SEED, Option, Options
from coalmine.corpus.files.documents import Fields
from coalmine.corpus.planting.recounting import Recount
from coalmine.errors import InputError
from coalmine.evidence.tables import Column, Table
from coalmine.records.documents import Document, Origin
from coalmine.records.estimate import Count
from coalmine.statistics.scores import checked_count, checked_fdr
from coalmine.training.options import TrainingOptions

SCHEMA = "coalmine.crosscheck/3"
RESULT_FILE = "crosscheck.json"
DOCUMENTS_FILE = "documents.parquet"
# The two models.
HALVES_FOLDER = "halves"
# Rows that a terminal shows; the others are in the file.
MOST_ROWS = 20


Together = Literal["document", "text", "user"]


class CrosscheckOptions(Options, frozen=True, kw_only=True):
    """How documents are divided between the two models, and which are flagged; `settings` in crosscheck.json.

    A document is judged by the largest share of the other model's log-perplexity over `span` consecutive tokens that its own model is
    spared. None is flagged that does not disagree beyond chance at the false-discovery rate `fdr`.

    >>> CrosscheckOptions(span=8).share
    0.01
    """

    span: Annotated[int, Option("Tokens over which the models are compared.", decides=True)] = 16
    share: Annotated[float, Option("The most documents that are flagged, as a share of all.")] = 0.01
    fdr: Annotated[float, Option("The most of them that may disagree by chance, as a share.")] = 0.1
    together: Annotated[
        Together,
        Option(
            "What is never divided between the halves: a document, equal documents (text), or those of a user.",
            decides=True,
        ),
    ] = "document"
    seed: Annotated[int, SEED] = 0
    fields: Fields = Fields()

    def __post_init__(self) -> None:
        self._require(
            self.together in get_args(Together), "together", f"one of {', '.join(get_args(Together))}"
        )
        checked_count(self.span, "span")
        checked_fdr(self.fdr)
        self._require(0.0 < self.share <= 1.0, "share", "above 0 and at most 1")

    def checked(self) -> Self:
        """The same, once it is whole: users are told apart by a field, which the command knows later than the other options."""
        if self.together == "user" and self.fields.user is None:
            raise InputError(
                "documents of a user are kept together by the field that names the user; name it, or keep equal texts together"
            )
        return self


class CheckedCorpus(msgspec.Struct, frozen=True, kw_only=True):
    """A corpus: the one whose documents were compared, or the one that was written without those that are flagged."""

    name: str
    sha256: str
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
    # The models of the two halves, and how many documents each was trained on.
    models: tuple[dict[str, Any], dict[str, Any]]
    documents: tuple[Count, Count]
    # Documents that cannot be read, of which nothing is known.
    unread: Count
    # The least score that is beyond chance at the false-discovery rate of the settings, and how many documents have it; None without any.
    threshold: float | None
    beyond_chance: Count
    # Those that disagree most come first.
    flagged: tuple[FlaggedDocument, ...]
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
    settings, (first, second) = result.settings, result.documents
    limit = "" if result.threshold is None else f", from a share of {result.threshold:.2f} on"
    lines = [
        f"Documents: {result.corpus.documents:,}, of which {result.corpus.documents - result.unread:,} were compared.",
        f"Trained on: {first:,} and {second:,} of them.",
        f"Beyond chance, at a false-discovery rate of {100 * settings.fdr:g}%: {result.beyond_chance:,} documents{limit}.",
        f"Flagged, at most {100 * settings.share:g}% of all: {len(result.flagged):,}.",
    ]
    if not result.flagged:
        lines.append(
            "That nothing is flagged does not mean that there are no secrets: what both halves have is not seen."
        )
    return lines
