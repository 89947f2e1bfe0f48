"""`coalmine data redact`, `dedup`, `index`, `count` and `crosscheck`: what a corpus holds, and corpora without some of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from coalmine.audits.disagreement.options import CrosscheckOptions
from coalmine.cli.options import Corpus, CorpusFields, Overwrite, Running, Training
from coalmine.cli.output import noted, placed
from coalmine.cli.runner import Session
from coalmine.cli.taking import Arguments, Least, Part
from coalmine.corpus.deduplication.options import DedupOptions
from coalmine.corpus.index.options import IndexOptions
from coalmine.corpus.redaction.options import RedactOptions
from coalmine.errors import InputError
from coalmine.records.options import Option, named_values
from coalmine.storage.files import check_place
from coalmine.visible import visible

if TYPE_CHECKING:
    from rich.table import Table

    from coalmine.corpus.deduplication.report import Deduplication
    from coalmine.corpus.index.queries import CorpusIndex
    from coalmine.corpus.redaction.report import Redaction

Canaries = Annotated[
    Path | None,
    Option("The canaries.json of a planted corpus; default: the one beside CORPUS, if it belongs to it."),
]


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
    from coalmine.corpus.redaction.keys import SurrogateKey
    from coalmine.corpus.redaction.redacting import redact

    session.into(given.out)
    report = redact(
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
    if report.kinds:
        session.say(_redacted_table(report), "")
    session.say(*_redacted(report, given.out))
    session.document(report)


def _redacted_table(report: Redaction) -> Table:
    from coalmine.evidence.tables import table_of

    names = ("kind", "found", "masked", "replaced", "dropped")
    kinds = sorted(report.kinds, key=lambda one: -one.found)
    return table_of(names, ([getattr(one, name) for name in names] for one in kinds))


def _redacted(report: Redaction, out: Path) -> list[str]:
    from coalmine.corpus.planting.recounting import recount_in_words

    lines = [
        f"Documents: {report.documents_before:,} before, {report.documents_after:,} after; {report.documents_changed:,} changed."
    ]
    lines.append(
        f"Secrets: {report.found:,} {'was' if report.found == 1 else 'were'} redacted, and a second scan finds none."
        if report.found
        else "Secrets: none was found, so the new corpus is a copy."
    )
    if report.lines_dropped:
        lines.append(f"Lines left out: {report.lines_dropped:,}.")
    if report.key_fingerprint is not None:
        lines.append(f"Surrogates: made with the key whose fingerprint is {report.key_fingerprint}.")
    if report.canaries is not None:
        lines.append(recount_in_words(report.canaries))
    return [*lines, *noted(report.warnings), placed("New corpus", out / report.corpus)]


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
    from coalmine.corpus.deduplication.deduplicating import deduplicate

    session.into(given.out)
    report = deduplicate(
        given.corpus,
        given.out,
        canaries=given.canaries,
        options=given.columns.into(given.options),
        overwrite=given.overwrite,
        engine=session.engine,
        progress=session.progress(),
        record=lambda made: session.record(seed=given.options.seed, corpus_sha256=made.sha256_before),
    )
    session.say(_deduplicated(report, given.out))
    session.document(report)


def _deduplicated(report: Deduplication, out: Path) -> str:
    from coalmine.corpus.planting.recounting import recount_in_words

    share = 100 * (1 - report.bytes_after / max(1, report.bytes_before))
    lines = [
        f"Documents: {report.documents_before:,} before, {report.documents_after:,} after; {share:.1f}% of the text was removed."
    ]
    if report.exact is not None:
        exact = report.exact
        kept = "all but the first copy" if exact.keep == "one" else "all copies"
        lines.append(
            f"Repeated text of {exact.length} bytes or more, {kept}: {exact.parts:,} parts, {exact.bytes:,} bytes "
            f"({exact.documents_emptied:,} documents had nothing else); searches: {exact.rounds}, the last of which found nothing."
        )
    if report.near is not None:
        near = report.near
        lines.append(
            f"Near duplicates of earlier documents (similarity {near.threshold:g} or more): {near.documents:,} documents, "
            f"{near.bytes:,} bytes."
        )
    if report.canaries is not None:
        lines.append(recount_in_words(report.canaries))
    lines += [f"Note: {visible(warning)}" for warning in report.warnings]
    lines.append(
        f"New corpus: {visible(str(out / report.corpus))}; what was removed: {visible(str(out / 'removed.jsonl'))}"
    )
    return "\n".join(lines)


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
    from coalmine.corpus.index.building import build_index

    session.into(given.out)
    manifest = build_index(
        given.corpus,
        given.out,
        options=given.columns.into(given.options),
        overwrite=given.overwrite,
        engine=session.engine,
        progress=session.progress(),
    ).manifest
    session.record(corpus_sha256=manifest.corpus.sha256, tokenizer_sha256=manifest.tokenizer.sha256)
    shown = visible(str(given.out))
    session.say(
        f"Indexed {manifest.documents:,} documents, {manifest.tokens:,} tokens ({manifest.tokenizer.kind}), "
        f"shards: {len(manifest.shards)}.",
        f'Index: {shown}; query it with coalmine data count {shown} "some text"',
    )
    session.document(manifest)


class Count(Arguments, frozen=True, kw_only=True):
    """What `coalmine data count` takes.

    Attributes:
        texts_file: A file with texts to look up, one per line.
        longest: Find the longest part of each text that occurs in the corpus.
        out: For --repeated: the .jsonl file to write.
        index: An index that `coalmine data index` made.
        texts: Texts to look up.
        places: How many places to show per text: document and offset.
        repeated: Instead: export all repeated sequences of this many tokens.
        at_least: For --repeated: the least number of copies.
    """

    index: Annotated[Path, typer.Argument()]
    texts: Annotated[list[str] | None, typer.Argument()] = None
    texts_file: Path | None = None
    places: Annotated[int, Least(0)] = 0
    longest: bool = False
    repeated: Annotated[int | None, Least(1)] = None
    at_least: Annotated[int, Least(2)] = 2
    out: Path | None = None


def count(given: Count, session: Session) -> None:
    """Count texts in an indexed corpus; overlapping copies count, and none extends over the end of a document.

    With an index over a model's tokens, the tokens of the text alone are counted: inside a longer text the
    tokenizer may split it differently. An index over bytes counts every copy.
    """
    from coalmine.corpus.index.queries import CorpusIndex

    asked = [*(given.texts or []), *_lines(given.texts_file)]
    if bool(asked) == (given.repeated is not None):
        raise InputError("counting needs either texts to look up or --repeated LENGTH, and not both")
    if given.out is not None:
        check_place(given.out)
    opened = CorpusIndex.open(given.index, progress=session.progress())
    if given.repeated is not None:
        _export(opened, given.repeated, given.at_least, given.out, session)
        return
    rows = _counted(opened, asked, places=given.places, longest=given.longest)
    session.say(_counted_table(rows))
    session.document(
        {"index": str(given.index), "corpus_sha256": opened.manifest.corpus.sha256, "texts": rows}
    )


def _lines(path: Path | None) -> list[str]:
    if path is None:
        return []
    from coalmine.storage.files import read_text

    # As corpora are read: neither a byte order mark nor carriage returns belong to a text.
    lines = (line.removesuffix("\r") for line in read_text(path, "the list of texts").split("\n"))
    return [line for line in lines if line]


def _counted(opened: CorpusIndex, asked: list[str], *, places: int, longest: bool) -> list[dict[str, Any]]:
    counts = opened.counts(asked).tolist()
    rows: list[dict[str, Any]] = []
    for text, count in zip(asked, counts, strict=True):
        row: dict[str, Any] = {"text": text, "count": count}
        if places:
            row["places"] = [place._asdict() for place in opened.locate(text, limit=places)]
        if longest:
            match = opened.longest_match(text)
            tokens = opened.encode(text)[match.start : match.start + match.length]
            row["longest"] = {
                "text": opened.decode(tokens),
                "tokens": match.length,
                "start": match.start,
                "count": match.count,
                "first": None if match.first is None else match.first._asdict(),
            }
        rows.append(row)
    return rows


def _counted_table(rows: list[dict[str, Any]]) -> Any:
    from coalmine.evidence.tables import table_of

    return table_of(
        ("count", "text", "longest part", "tokens", "document:offset"),
        (
            (
                row["count"],
                row["text"],
                row.get("longest", {}).get("text"),
                row.get("longest", {}).get("tokens"),
                ", ".join(f"{place['document']}:{place['offset']}" for place in row.get("places", ())),
            )
            for row in rows
        ),
    )


def _export(opened: CorpusIndex, length: int, at_least: int, out: Path | None, session: Session) -> None:
    if out is None:
        raise InputError(
            "exporting repeated sequences needs a file for them: --repeated LENGTH --out FILE.jsonl"
        )
    from coalmine.corpus.index.sampling import repeated_sequences
    from coalmine.storage.files import PRIVATE, whole_file

    found = most = 0
    with whole_file(out, mode=PRIVATE) as temporary, open(temporary, "wb") as lines:
        for one in repeated_sequences(opened, length, at_least=at_least, progress=session.progress()):
            row = {
                "text": opened.decode(one.tokens),
                "tokens": one.tokens.tolist(),
                "count": one.count,
                "document": one.first.document,
                "offset": one.first.offset,
            }
            lines.write(msgspec.json.encode(row) + b"\n")
            found += 1
            most = max(most, one.count)
    session.say(
        f"Sequences of {length} tokens that occur at least {at_least} times: {found:,} (the most frequent: {most:,} times).\n"
        f"Written to {visible(str(out))}"
    )
    session.document(
        {"sequences": found, "most": most, "length": length, "at_least": at_least, "file": str(out)}
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
    from coalmine.audits.disagreement.measure import crosscheck
    from coalmine.audits.disagreement.records import FLAGGED_TABLE, MOST_ROWS, in_plain_words
    from coalmine.corpus.planting.recounting import recount_in_words

    session.into(given.out)
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
        session.say(FLAGGED_TABLE.terminal(result.flagged[:MOST_ROWS]), "")
    session.say(
        *in_plain_words(result),
        *noted(result.warnings),
        None if result.recount is None else recount_in_words(result.recount),
        None if kept is None else placed("New corpus", given.out / kept.name),
        placed("Results", given.out),
    )
    session.document(result)
