"""`coalmine index` and `coalmine count`: a corpus that is searchable by its tokens, and how often texts occur in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from coalmine.cli.options import Corpus, TextFields, out_option
from coalmine.cli.runner import Session, command
from coalmine.cli.taking import Arguments
from coalmine.corpus.index.options import IndexOptions
from coalmine.engines.options import EngineOptions
from coalmine.errors import InputError
from coalmine.records.options import Option
from coalmine.storage.files import check_place
from coalmine.visible import visible

if TYPE_CHECKING:
    from coalmine.corpus.index.queries import CorpusIndex


class Index(Arguments, frozen=True, kw_only=True):
    """What `coalmine index` takes."""

    corpus: Corpus
    out: Annotated[Path, out_option("Directory for the index.")]
    options: IndexOptions
    overwrite: Annotated[bool, Option("Replace another index that is in --out.")] = False
    columns: TextFields
    running: EngineOptions


@command("index")
def index(given: Index, session: Session) -> None:
    """Index a corpus, so that `coalmine count` and audits of recitation can look up any sequence of tokens in it.

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
        f'Index: {shown}; query it with coalmine count {shown} "some text"',
    )
    session.document(manifest)


class Count(Arguments, frozen=True, kw_only=True):
    """What `coalmine count` takes."""

    index: Annotated[Path, typer.Argument(help="An index that `coalmine index` made.")]
    texts: Annotated[list[str] | None, typer.Argument(help="Texts to look up.")] = None
    texts_file: Annotated[Path | None, Option("A file with texts to look up, one per line.")] = None
    places: Annotated[int, Option("How many places to show per text: document and offset.", least=0)] = 0
    longest: Annotated[bool, Option("Find the longest part of each text that occurs in the corpus.")] = False
    repeated: Annotated[
        int | None, Option("Instead: export all repeated sequences of this many tokens.", least=1)
    ] = None
    at_least: Annotated[int, Option("For --repeated: the least number of copies.", least=2)] = 2
    out: Annotated[Path | None, out_option("For --repeated: the .jsonl file to write.")] = None
    verify: Annotated[
        bool, Option("Compare the checksums of the index's files, and not only their sizes.")
    ] = True


@command("count")
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
    opened = CorpusIndex.open(given.index, verify=given.verify, progress=session.progress())
    if given.repeated is not None:
        _export(opened, given.repeated, given.at_least, given.out, session)
        return
    rows = _rows(opened, asked, places=given.places, longest=given.longest)
    session.say(_table(rows, longest=given.longest))
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


def _rows(opened: CorpusIndex, asked: list[str], *, places: int, longest: bool) -> list[dict[str, Any]]:
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


def _table(rows: list[dict[str, Any]], *, longest: bool) -> Any:
    from coalmine.evidence.tables import Right, plain_table

    shows_places = any("places" in row for row in rows)
    parts = ("longest part", Right("tokens")) if longest else ()
    table = plain_table(Right("count"), "text", *parts, *(["document:offset"] if shows_places else []))
    for row in rows:
        cells = [f"{row['count']:,}", visible(row["text"])]
        if longest:
            cells += [visible(row["longest"]["text"]), f"{row['longest']['tokens']:,}"]
        if shows_places:
            cells.append(", ".join(f"{place['document']}:{place['offset']}" for place in row["places"]))
        table.add_row(*cells)
    return table


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
