"""`coalmine count`: how often texts occur in a corpus, and what is repeated in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coalmine.cli.options import Printing, Seed, out_option
from coalmine.cli.output import Output
from coalmine.cli.taking import Arguments, takes
from coalmine.errors import InputError
from coalmine.records.options import Option

if TYPE_CHECKING:
    from coalmine.corpus.index.queries import CorpusIndex


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
    seed: Seed = 0
    printing: Printing


@takes
def command(given: Count) -> int:
    """Count texts in an indexed corpus; overlapping copies count, and none extends over the end of a document.

    With an index over a model's tokens, the tokens of the text alone are counted: inside a longer text the
    tokenizer may split it differently. An index over bytes counts every copy. Nothing here is random: --seed changes nothing.
    """
    with given.printing.output() as output:
        asked = [*(given.texts or []), *_lines(given.texts_file)]
        if bool(asked) == (given.repeated is not None):
            raise InputError("counting needs either texts to look up or --repeated LENGTH, and not both")
        if given.out is not None:
            from coalmine.storage.files import check_place

            check_place(given.out)
        from coalmine.corpus.index.queries import CorpusIndex

        opened = CorpusIndex.open(given.index, verify=given.verify, progress=output.progress())
        if given.repeated is not None:
            return _export(opened, given.repeated, given.at_least, given.out, output)
        rows = _rows(opened, asked, places=given.places, longest=given.longest)
        output.say(_table(rows, longest=given.longest))
        output.document(
            {"index": str(given.index), "corpus_sha256": opened.manifest.corpus.sha256, "texts": rows}
        )
    return 0


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
    from coalmine.visible import visible

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


def _export(opened: CorpusIndex, length: int, at_least: int, out: Path | None, output: Output) -> int:
    if out is None:
        raise InputError(
            "exporting repeated sequences needs a file for them: --repeated LENGTH --out FILE.jsonl"
        )
    import msgspec

    from coalmine.corpus.index.sampling import repeated_sequences
    from coalmine.storage.files import PRIVATE, whole_file
    from coalmine.visible import visible

    found = most = 0
    with whole_file(out, mode=PRIVATE) as temporary, open(temporary, "wb") as lines:
        for one in repeated_sequences(opened, length, at_least=at_least, progress=output.progress()):
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
    output.say(
        f"Sequences of {length} tokens that occur at least {at_least} times: {found:,} (the most frequent: {most:,} times).\n"
        f"Written to {visible(str(out))}"
    )
    output.document(
        {"sequences": found, "most": most, "length": length, "at_least": at_least, "file": str(out)}
    )
    return 0
