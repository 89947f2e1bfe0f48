"""Corpora with a document on each line: plain text and JSON Lines."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from coalmine.corpus.files.documents import BOUNDARY, Document, Fields, missing_field
from coalmine.corpus.files.streams import CorpusKind, decompressed_blocks, open_metered
from coalmine.errors import CorpusError
from coalmine.storage.decoding import UndecodableError, decode_python_json

# As long as a document can be that is indexed; a few kilobytes of compressed data can stand for a line of any length.
LONGEST_LINE = 1 << 31


class OpenLines:
    """A file of UTF-8 lines that is open for one pass: what plain text, JSON Lines and CSV share."""

    def __init__(self, path: Path, fields: Fields, kind: CorpusKind, *, hashed: bool = False) -> None:
        self.path = path
        self.fields = fields
        self.kind = kind
        self._file = open_metered(path, hashed=hashed)
        self.size = path.stat().st_size
        self.header = b""
        self.line_break = b"\n"
        # The number of the first line of the block at hand; whoever takes the blocks moves it on.
        self.line = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def position(self) -> int:
        """How many of the file's bytes were read so far."""
        return self._file.position

    def sha256(self) -> str:
        """The SHA-256 of the file's bytes."""
        return self._file.hexdigest()

    def place(self, line: int) -> str:
        """How a message names a line."""
        return f"{self.path}, line {line}"

    def whole_lines(self) -> Iterator[bytes]:
        """The content, without the byte order mark, in blocks that end with a line."""
        for raw in self._cut_after_lines():
            try:
                # Mostly it is ASCII, which is known sooner.
                _ = raw.isascii() or raw.decode("utf-8")
            except UnicodeDecodeError as error:
                at = self.line + raw.count(b"\n", 0, error.start)
                raise CorpusError(
                    f"{self.place(at)} is not UTF-8 (byte 0x{raw[error.start]:02x}); convert the corpus to UTF-8"
                ) from None
            yield raw

    def _cut_after_lines(self) -> Iterator[bytes]:
        waiting: list[bytes] = []
        begun = False
        for block in decompressed_blocks(self._file, self.path, self.kind.compression):
            cut = block.rfind(b"\n") + 1
            if not cut:
                waiting.append(block)
                if sum(map(len, waiting)) > LONGEST_LINE:
                    raise CorpusError(
                        f"{self.path} has a line of more than {LONGEST_LINE:,} bytes, and a document is one line; divide it"
                    )
                continue
            whole = b"".join([*waiting, block[:cut]])
            waiting = [block[cut:]] if cut < len(block) else []
            if not begun:
                whole = self._begin(whole)
                begun = True
            if whole:
                yield whole
        rest = b"".join(waiting)
        if not begun:
            rest = self._begin(rest)
        if rest:
            yield rest

    def _begin(self, start: bytes) -> bytes:
        if start.startswith(codecs.BOM_UTF8):
            self.header = codecs.BOM_UTF8
            start = start[len(codecs.BOM_UTF8) :]
        if start[: start.find(b"\n") + 1].endswith(b"\r\n"):
            self.line_break = b"\r\n"
        return start


class _PlainBlock:
    """Some whole lines of plain text; an empty line is no document, and stays where it is."""

    def __init__(self, raw: bytes, first: int, line: int) -> None:
        import numpy as np

        self.raw = raw
        self.first = first
        self._line = line
        content = np.frombuffer(raw, dtype=np.uint8)
        breaks = np.flatnonzero(content == ord("\n"))
        self.lines = len(breaks)
        # Where each line ends without its line break, and with it.
        if not raw.endswith(b"\n"):
            breaks = np.append(breaks, len(raw))
        self._ends = np.minimum(breaks + 1, len(raw))
        self._starts = np.concatenate(([0], self._ends[:-1]))
        lengths = breaks - self._starts
        self._full = (lengths > 1) | ((lengths == 1) & (content[self._starts] != ord("\r")))
        self.count = int(np.count_nonzero(self._full))

    def spans(self) -> list[tuple[int, int]]:
        """Where in `raw` each document begins and ends."""
        return list(zip(self._starts[self._full].tolist(), self._ends[self._full].tolist(), strict=True))

    def documents(self) -> list[Document]:
        """The documents on these lines."""
        return [
            Document(number, line.removesuffix(b"\r").decode("utf-8"))
            for number, line in enumerate(self.raw.split(b"\n"), self._line)
            if line not in {b"", b"\r"}
        ]

    def haystack(self) -> bytes:
        """The lines as they are."""
        return self.raw

    def number_at(self, offset: int) -> int:
        """The number of the line that holds a byte."""
        return self._line + self.raw.count(b"\n", 0, offset)


class PlainTextCorpus(OpenLines):
    """A .txt corpus: each line that is not empty is a document."""

    def __init__(self, path: Path, fields: Fields, kind: CorpusKind, *, hashed: bool = False) -> None:
        if fields != Fields():
            raise CorpusError(
                f"{path} is plain text, which has no fields, but {list(fields.named().values())} were named; "
                "leave the fields out, or use .jsonl, .csv or .parquet"
            )
        super().__init__(path, fields, kind, hashed=hashed)

    def blocks(self) -> Iterator[_PlainBlock]:
        """The documents in order."""
        first = 0
        for raw in self.whole_lines():
            block = _PlainBlock(raw, first, self.line)
            yield block
            first += block.count
            self.line += block.lines

    def row(self, values: Mapping[str, str]) -> bytes:
        """A new document as a line, without its line break."""
        text = values["text"]
        if not text or "\n" in text or "\r" in text:
            raise CorpusError(
                f"a document of {self.path.name} is one line, but a canary is empty or has several; "
                "use another format, or a .jsonl corpus"
            )
        return text.encode("utf-8")


class _JsonBlock:
    """Some whole lines of JSON; a line of white space is no document, and stays where it is."""

    def __init__(self, corpus: JsonLinesCorpus, raw: bytes, first: int, line: int) -> None:
        self.raw = raw
        self.first = first
        self._corpus = corpus
        self._line = line
        lines = raw.split(b"\n")
        self.lines = len(lines) - 1
        self.count = sum(1 for content in lines if content.strip())

    def spans(self) -> list[tuple[int, int]]:
        """Where in `raw` each document begins and ends."""
        spans: list[tuple[int, int]] = []
        start = 0
        for content in self.raw.split(b"\n"):
            end = start + len(content) + 1
            if content.strip():
                spans.append((start, min(end, len(self.raw))))
            start = end
        return spans

    def documents(self) -> list[Document]:
        """The documents on these lines."""
        decode = self._corpus.decode
        lines = enumerate(self.raw.split(b"\n"), self._line)
        return [decode(number, content) for number, content in lines if content.strip()]

    def haystack(self) -> bytes:
        """The decoded texts."""
        return BOUNDARY.join([document.text.encode("utf-8") for document in self.documents()])

    def number_at(self, offset: int) -> int:
        """The number of the line whose decoded text holds a byte."""
        return self.documents()[self.haystack().count(BOUNDARY, 0, offset)].number


class JsonLinesCorpus(OpenLines):
    """A .jsonl corpus: each line that is not white space is a JSON object, and a document."""

    def __init__(self, path: Path, fields: Fields, kind: CorpusKind, *, hashed: bool = False) -> None:
        super().__init__(path, fields, kind, hashed=hashed)
        types: dict[str, Any] = {"text": str, "user": str | int | None, "source": str}
        roles = fields.named()
        row = msgspec.defstruct("Row", [(role, types[role]) for role in roles], rename=roles)
        # Reads only the fields in use, which is several times as fast as making a dictionary of each row.
        self._decoder = msgspec.json.Decoder(row)
        self._roles = roles

    def blocks(self) -> Iterator[_JsonBlock]:
        """The documents in order."""
        first = 0
        for raw in self.whole_lines():
            block = _JsonBlock(self, raw, first, self.line)
            yield block
            first += block.count
            self.line += block.lines

    def decode(self, number: int, content: bytes) -> Document:
        """The document on a line."""
        try:
            row: Any = self._decoder.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._decode_slowly(number, content)
        user = getattr(row, "user", None)
        return Document(number, row.text, None if user is None else str(user), getattr(row, "source", None))

    def _decode_slowly(self, number: int, content: bytes) -> Document:
        """Say what is wrong with a line, or read it after all: Python's json writes NaN, which is not quite JSON."""
        place = self.place(number)
        try:
            row = decode_python_json(content, surrogates=True)
        except UndecodableError as problem:
            raise CorpusError(
                f"{place} is not JSON ({problem}); each line should be one JSON object"
            ) from None
        if not isinstance(row, dict):
            raise CorpusError(
                f'{place} is not a JSON object but {_json_type(row)}; write it as {{"text": ...}}'
            )
        values: dict[str, str | None] = {}
        for role, field in self._roles.items():
            if field not in row:
                raise missing_field(place, field, sorted(row))
            value = row[field]
            if role == "user" and (value is None or type(value) is int):
                value = None if value is None else str(value)
            elif not isinstance(value, str):
                raise CorpusError(
                    f"{place}: field {field!r} should be a string, but is {_json_type(value)}; fix the row"
                )
            elif not value.isascii() and not _is_encodable(value):
                raise CorpusError(
                    f"{place}: field {field!r} holds half a surrogate pair, which is no text; fix the row"
                )
            values[role] = value
        return Document(number, values["text"] or "", values.get("user"), values.get("source"))

    def row(self, values: Mapping[str, str]) -> bytes:
        """A new document as a line, without its line break; it has only the fields in use."""
        return json.dumps(
            {self._roles[role]: values[role] for role in self._roles}, ensure_ascii=False
        ).encode("utf-8")


def _is_encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _json_type(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
