"""`coalmine data`: what a corpus holds, and corpora without some of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec

from coalmine.audits.disagreement import measure as crosschecking
from coalmine.audits.disagreement.records import FLAGGED_TABLE, MOST_ROWS, CrosscheckOptions, in_plain_words
from coalmine.cli.options import Corpus, CorpusFields, Overwrite, Running, Training, format_from, lines_of
from coalmine.cli.output import noted, placed, table_of_records
from coalmine.cli.runner import Session
from coalmine.cli.taking import Argument, Arguments, Part
from coalmine.corpus.deduplication.deduplicating import deduplicate
from coalmine.corpus.deduplication.options import DedupOptions
from coalmine.corpus.index.building import build_index
from coalmine.corpus.index.options import IndexOptions
from coalmine.corpus.index.queries import CorpusIndex
from coalmine.corpus.planting.manifest import SECRETS_NAME
from coalmine.corpus.planting.recounting import recount_in_words
from coalmine.corpus.redaction import redacting
from coalmine.corpus.redaction.keys import SurrogateKey
from coalmine.corpus.redaction.options import RedactOptions
from coalmine.corpus.secrets import scanning
from coalmine.corpus.secrets.canaries import left_out_in_words
from coalmine.corpus.secrets.natural import NaturalOptions
from coalmine.corpus.secrets.scanned import canaries_of_scan
from coalmine.errors import InputError
from coalmine.evidence.tables import table_of
from coalmine.records.options import Option, named_values
from coalmine.visible import visible

Canaries = Annotated[
    Path | None,
    Option("The canaries.json of a planted corpus; default: the one beside CORPUS, if it belongs to it."),
]


class ScanArguments(Arguments, frozen=True, kw_only=True):
    """What `coalmine data scan` takes.

    Attributes:
        out: Directory for scan.json and the secrets that were found.
        kinds: Kinds to look for, such as ssn,card,email; default: all.
        format: A further kind, as a secret format, such as "employee {digits:6}"; may be given many times.
        index: An index of CORPUS; copies of each secret are counted anywhere in it too.
    """

    corpus: Corpus
    out: Path
    kinds: str | None = None
    format: list[str] | None = None
    index: Path | None = None
    options: Annotated[NaturalOptions, Part(("seed",))]
    overwrite: Overwrite = False
    columns: CorpusFields


def scan(given: ScanArguments, session: Session) -> None:
    """Find secrets in a corpus: personal numbers, payment cards, accounts, addresses, phone numbers, keys, and your own formats.

    Writes DIR/scan.json, which counts them by kind, user and number of copies and holds none of them; and DIR/occurrences.jsonl,
    DIR/distinct.jsonl, DIR/secrets.json and, with --field user=NAME, DIR/users.jsonl, which hold the secrets and are readable by you
    only. What chance alone would let pass is shown beside what was found. Well-known examples, such as 078-05-1120, are counted apart.

    DIR/secrets.json is a manifest like canaries.json, for `coalmine expose` and `coalmine extract`: each secret in its own
    context, with references of its kind that do not occur in the corpus.
    """
    session.into(given.out, SECRETS_NAME)
    formats = [format_from(one, None) for one in given.format or ()]
    found = scanning.scan(
        given.corpus,
        given.out,
        kinds=None if given.kinds is None else [name.strip() for name in given.kinds.split(",")],
        formats=formats,
        fields=given.columns.fields(),
        index=given.index,
        overwrite=given.overwrite,
        progress=session.progress(),
        record=lambda made: session.record(corpus_sha256=made.corpus_sha256, seed=given.options.seed),
    )
    made = canaries_of_scan(given.out, given.corpus, given.options, formats=formats)
    made.canaries.save(given.out / SECRETS_NAME)
    kinds = [one for one in found.kinds if one.shaped or one.specimens]
    numbers = ("secrets", "occurrences", "documents", "users", "shaped", "expected_by_chance", "p_value")
    session.say(table_of_records(kinds, "kind", *numbers, "specimens") if kinds else "No secret was found.")
    if found.not_searched:
        session.say(*noted([f"these fields were not searched: {', '.join(map(repr, found.not_searched))}"]))
    if found.repeated:
        session.say(
            "\nMost repeated:", table_of_records(found.repeated[:10], "kind", "masked", "copies", "document")
        )
    path = given.out / SECRETS_NAME
    place, number = visible(str(path)), len(made.canaries)
    session.say(
        "",
        *noted(left_out_in_words(made.left_out)),
        f"Secrets that can be measured: {number:,}; `coalmine expose MODEL {place}`, and `coalmine extract MODEL {place}`.",
        placed("The secrets themselves, for you only", path),
    )
    session.document(found)


class Redact(Arguments, frozen=True, kw_only=True):
    """What `coalmine data redact` takes.

    Attributes:
        out: Directory for the new corpus and the record.
        format: A format of your own, such as 'employee {digits:6}'; several may be given.
        key_file: A file with the key of surrogates, at least 16 bytes; without it, the variable COALMINE_REDACTION_KEY, or a random key.
    """

    corpus: Corpus
    out: Path
    options: Annotated[RedactOptions, Part(("mask", "replace", "drop", "drop_line", "keep"))]
    format: list[str] | None = None
    key_file: Path | None = None
    canaries: Canaries = None
    overwrite: Overwrite = False
    columns: CorpusFields


def redact(given: Redact, session: Session) -> None:
    """Mask, replace or drop the secrets in a corpus, by kind, and record what was done without the secrets.

    All kinds that `coalmine data scan` knows are masked unless something else is chosen. Writes DIR/corpus.* and DIR/redaction.json,
    readable by you only, and for a planted corpus DIR/canaries.json. A second scan finds nothing; everything else keeps its bytes.
    """
    session.into(given.out)
    report = redacting.redact(
        given.corpus,
        given.out,
        key=SurrogateKey.read(given.key_file),
        canaries=given.canaries,
        options=msgspec.structs.replace(
            given.options, formats=tuple(given.format or ()), fields=given.columns.fields()
        ),
        overwrite=given.overwrite,
        progress=session.progress(),
        record=lambda made: session.record(corpus_sha256=made.sha256_before),
    )
    kinds = sorted(report.kinds, key=lambda one: -one.found)
    table = table_of_records(kinds, "kind", "found", "masked", "replaced", "dropped")
    session.show(report, "New corpus", given.out / report.corpus, table, "")


class Dedup(Arguments, frozen=True, kw_only=True):
    """What `coalmine data dedup` takes.

    Attributes:
        out: Directory for the new corpus and the report.
    """

    corpus: Corpus
    out: Path
    options: Annotated[DedupOptions, Part(("exact", "keep", "near"))]
    canaries: Canaries = None
    overwrite: Overwrite = False
    columns: CorpusFields
    running: Running


def dedup(given: Dedup, session: Session) -> None:
    """Remove repeated text and near duplicates from a corpus, and report what was removed, where and why.

    Writes DIR/corpus.*, DIR/dedup.json and DIR/removed.jsonl, which has one line per removal; all are readable by you only. A
    second run on the result finds nothing left. For a planted corpus it also writes DIR/canaries.json, with the number of copies
    that are left of each canary: give that one to `coalmine expose`.
    """
    session.into(given.out)
    report = deduplicate(
        given.corpus,
        given.out,
        canaries=given.canaries,
        options=given.columns.into(given.options),
        overwrite=given.overwrite,
        **session.work,
        record=lambda made: session.record(seed=given.options.seed, corpus_sha256=made.sha256_before),
    )
    session.show(report, "New corpus", given.out / report.corpus)


class Index(Arguments, frozen=True, kw_only=True):
    """What `coalmine data index` takes.

    Attributes:
        out: Directory for the index.
        overwrite: Replace another index that is in --out.
    """

    corpus: Corpus
    out: Path
    options: IndexOptions
    overwrite: bool = False
    columns: CorpusFields
    running: Running


def index(given: Index, session: Session) -> None:
    """Index a corpus, so that `coalmine data count` and audits of recitation can look up any sequence of tokens in it.

    The index holds the training data and is readable by you only. Run the same command again to resume a build that was
    stopped.
    """
    session.into(given.out)
    manifest = build_index(
        given.corpus,
        given.out,
        options=given.columns.into(given.options),
        overwrite=given.overwrite,
        **session.work,
    ).manifest
    session.record(corpus_sha256=manifest.corpus.sha256, tokenizer_sha256=manifest.tokenizer.sha256)
    session.say(
        f"Indexed {manifest.documents:,} documents, {manifest.tokens:,} tokens ({manifest.tokenizer.kind}).",
        f'Query it with coalmine data count {visible(str(given.out))} "some text"',
    )
    session.document(manifest)


class Count(Arguments, frozen=True, kw_only=True):
    """What `coalmine data count` takes.

    Attributes:
        texts_file: A file with texts to look up, one per line.
        index: An index that `coalmine data index` made.
        texts: Texts to look up.
        places: How many places to show per text: document and offset.
    """

    index: Annotated[Path, Argument()]
    texts: Annotated[list[str] | None, Argument()] = None
    texts_file: Path | None = None
    places: int = 0


def count(given: Count, session: Session) -> None:
    """Count texts in an indexed corpus; overlapping copies count, and none extends over the end of a document.

    With an index over a model's tokens, the tokens of the text alone are counted: inside a longer text the
    tokenizer may split it differently. An index over bytes counts every copy.
    """
    asked = [*(given.texts or []), *(lines_of(given.texts_file, "the texts") if given.texts_file else [])]
    if not asked:
        raise InputError("counting needs texts to look up")
    opened = CorpusIndex.open(given.index, progress=session.progress())
    rows: list[dict[str, Any]] = []
    for text, number in zip(asked, opened.counts(asked).tolist(), strict=True):
        found = opened.locate(text, limit=given.places) if given.places > 0 else ()
        rows.append({"text": text, "count": number, "places": [place._asdict() for place in found]})
    places = [", ".join(f"{one['document']}:{one['offset']}" for one in row["places"]) for row in rows]
    cells = ((row["count"], row["text"], shown) for row, shown in zip(rows, places, strict=True))
    session.say(table_of(("count", "text", "document:offset"), cells))
    session.document(
        {"index": str(given.index), "corpus_sha256": opened.manifest.corpus.sha256, "texts": rows}
    )


class CrosscheckArguments(Arguments, frozen=True, kw_only=True):
    """What `coalmine data crosscheck` takes.

    Attributes:
        out: Directory for the results and the two models.
        drop: Also write the corpus without the flagged documents.
        preset: char-lstm by default, and translation for pairs; `coalmine train` lists the others.
        reveal: Show and keep the text over which the models disagree; without it, it is masked.
    """

    corpus: Corpus
    out: Path
    options: Annotated[CrosscheckOptions, Part(("share", "fdr", "seed"))]
    drop: bool = False
    preset: str | None = None
    training: Training = None
    reveal: bool = False
    overwrite: Overwrite = False
    columns: CorpusFields
    running: Running


def crosscheck(given: CrosscheckArguments, session: Session) -> None:
    """Train a model on each half of a corpus, and flag the documents on which the two disagree: text that only one half has.

    Writes DIR/crosscheck.json and DIR/documents.parquet, readable by you only, and the models to DIR/halves. With --drop it also writes
    DIR/corpus.* without the flagged documents, and for a planted corpus DIR/canaries.json. Run the same command again to resume a run that
    was stopped. What both halves have is not flagged, so this is no proof that a corpus holds no secrets.
    """
    session.into(given.out)
    result = crosschecking.crosscheck(
        given.corpus,
        given.out,
        given.columns.into(given.options),
        preset=given.preset,
        training=named_values(given.training or ()),
        drop=given.drop,
        reveal=given.reveal,
        overwrite=given.overwrite,
        **session.work,
        record=lambda made: session.record(seed=made.settings.seed, corpus_sha256=made.corpus.sha256),
    )
    kept = result.kept
    if result.flagged:
        session.say(FLAGGED_TABLE.terminal(result.flagged[:MOST_ROWS]), "")
    session.say(
        *in_plain_words(result),
        *noted(result.warnings),
        None if result.recount is None else recount_in_words(result.recount),
        None if kept is None else placed("New corpus", given.out / kept.name),
        placed("Results", given.out),
    )
    session.document(result)
