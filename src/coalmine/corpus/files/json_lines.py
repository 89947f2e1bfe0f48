"""Corpora in JSON Lines: one JSON object per line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from coalmine.corpus.chat.rows import kind_in, mixed_with
from coalmine.corpus.files.corpora import CorpusKind
from coalmine.corpus.files.documents import (
    BOUNDARY,
    CorpusDocument,
    Fields,
    LineBlock,
    TextPiece,
    missing_field,
)
from coalmine.corpus.files.json_places import json_type, value_span
from coalmine.corpus.files.lines import LineCorpus
from coalmine.corpus.files.strings import changed_json, repeated
from coalmine.errors import CorpusError
from coalmine.storage.decoding import UndecodableError, decode_python_json

if TYPE_CHECKING:
    from coalmine.corpus.chat.turns import PlacedTurn
    from coalmine.corpus.files.strings import Change

# What the values of some roles may be, apart from strings.
_NOT_TEXT: dict[str, tuple[type, ...]] = {"user": (int, type(None)), "date": (int, float, type(None))}

_OPENING, _CLOSING = b"{}"
# Names of fields that are noted.
_MOST_NAMES = 100


class _JsonBlock(LineBlock):
    """Some whole lines of JSON; a line of white space is not a document, and stays where it is."""

    def __init__(self, corpus: JsonLinesCorpus, raw: bytes, first: int, line: int) -> None:
        self.raw = raw
        self.first = first
        self._corpus = corpus
        self._line = line
        objects = _objects_on_lines(raw)
        self._is_plain = objects is not None
        self.lines = raw.count(b"\n") if objects is None else objects
        self.count = self.lines if self._is_plain else sum(bool(one.strip()) for one in self._contents)

    @cached_property
    def _contents(self) -> list[bytes]:
        return self.raw.split(b"\n")

    def spans(self) -> list[tuple[int, int]]:
        """Where in `raw` each document begins and ends."""
        spans: list[tuple[int, int]] = []
        start = 0
        for content in self._contents:
            end = start + len(content) + 1
            if content.strip():
                spans.append((start, min(end, len(self.raw))))
            start = end
        return spans

    def documents(self) -> list[CorpusDocument]:
        """The documents on these lines."""
        decode = self._corpus.decode
        lines = enumerate(self._contents, self._line)
        return [decode(number, content) for number, content in lines if content.strip()]

    def conversations(self) -> list[Sequence[PlacedTurn]]:
        """The turns of each document; nothing where documents are texts."""
        turns = self._corpus.turns
        lines = enumerate(self._contents, self._line)
        return [turns(number, content) for number, content in lines if content.strip()]

    def rewritten(self, at: int, change: Change) -> object:
        """Pass every string of a row through `change`."""
        if self._is_plain:
            return self._corpus.rewritten(self._contents[at], change)
        return self._corpus.rewritten([content for content in self._contents if content.strip()][at], change)

    def piece(self, *, users: bool) -> TextPiece:
        """The texts one after the other, without making a document of each; of conversations, all else in their rows too."""
        if self._corpus.rows is not None:
            return self._of_conversations(users=users)
        numbers, rows = self._rows()
        encoded = [row.text.encode("utf-8") for row in rows]
        if len(self._corpus.text_name.findall(self.raw)) > len(rows):
            contents = [content for content in self._contents if content.strip()]
            encoded = list(map(self._corpus.with_repeated, encoded, contents))
        ends = list(accumulate([len(text) + 1 for text in encoded]))
        encoded.append(b"")
        names = [None if row.user is None else str(row.user) for row in rows] if users else None
        return TextPiece(numbers, names, ends, BOUNDARY.join(encoded))

    def _of_conversations(self, *, users: bool) -> TextPiece:
        lines = [
            (number, content) for number, content in enumerate(self._contents, self._line) if content.strip()
        ]
        searched = [self._corpus.searched(*line) for line in lines]
        return TextPiece(
            [number for number, _ in lines],
            [user for _, user in searched] if users else None,
            list(accumulate([len(content) + 1 for content, _ in searched])),
            BOUNDARY.join([*(content for content, _ in searched), b""]),
        )

    def _rows(self) -> tuple[Sequence[int], list[Any]]:
        """The number of each line that is a document, and what is on it."""
        if self._is_plain:
            rows = self._corpus.decode_rows(self.raw)
            if rows is not None and len(rows) == self.lines:
                return range(self._line, self._line + self.lines), rows
        lines = [
            (number, content) for number, content in enumerate(self._contents, self._line) if content.strip()
        ]
        return [number for number, _ in lines], [self._corpus.decode_row(*line) for line in lines]


def _objects_on_lines(raw: bytes) -> int | None:
    """How many lines there are, if each is an object or no JSON at all, so that they can be read together; None if that is not known.

    JSON has no line breaks within strings, so that all of them are between two objects if they look like it.
    """
    if not raw.startswith(b"{") or not raw.endswith(b"}\n"):
        return None
    find, at, last, count = raw.find, raw.find(b"\n"), len(raw) - 1, 1
    while at < last and raw[at + 1] == _OPENING and raw[at - 1] == _CLOSING:
        at = find(b"\n", at + 1)
        count += 1
    return count if at == last else None


class JsonLinesCorpus(LineCorpus):
    """A .jsonl corpus: each line that is not white space is a JSON object, and a document."""

    def __init__(self, path: Path, fields: Fields, kind: CorpusKind, *, hashed: bool = False) -> None:
        super().__init__(path, fields, kind, hashed=hashed)
        self.roles = fields.named()
        self._decoder = _decoder(self.roles)
        # The names of other fields, and what knows all names so far and rejects others.
        self._others: dict[str, None] = {}
        self._naming = _decoder(self.roles, self._others)
        # Where a row may name its text.
        self.text_name = re.compile(re.escape(json.dumps(fields.scored, ensure_ascii=False).encode("utf-8")))

    def blocks(self) -> Iterator[_JsonBlock]:
        """The documents in order."""
        first = 0
        for raw in self.whole_lines():
            block = _JsonBlock(self, raw, first, self.line)
            yield block
            first += block.count
            self.line += block.lines

    def decode_row(self, number: int, content: bytes) -> Any:
        """What is on a line: a record with the roles in use, or, if it is not strict JSON, the document itself."""
        try:
            return (self._naming if self.names_fields else self._decoder).decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._decode_slowly(number, content)

    def unsearched(self) -> list[str]:
        """All fields but that of the text; of conversations, those that say whose they are and when they were written."""
        if self.rows is not None:
            return [name for name in self.kept if name is not None]
        names = [name for name in (*self.roles.values(), *self._others) if name != self.fields.scored]
        return [*names, "..."] if len(self._others) >= _MOST_NAMES else names

    def with_repeated(self, text: bytes, content: bytes) -> bytes:
        """The text of a row, and what is under the same name before it, which is searched too; separated as documents are."""
        if len(self.text_name.findall(content)) == 1:
            return text
        others = [
            one for name, one in repeated(content) if name == self.fields.scored and isinstance(one, str)
        ]
        return BOUNDARY.join([text, *(one.encode("utf-8", "replace") for one in others)])

    def first_row(self) -> dict[str, Any]:
        """The object on the first line that is not white space, or only that it has a text; nothing in an empty corpus."""
        for block in self.whole_lines():
            for number, content in enumerate(block.split(b"\n"), self.line):
                if content.strip():
                    has_text = self.fields.rows is UNSET and self._decodes(content)
                    return {self.fields.text: ""} if has_text else self.decode_object(number, content)
            self.line += block.count(b"\n")
        return {}

    def _decodes(self, content: bytes) -> bool:
        """Whether a line has the fields in use."""
        try:
            self._decoder.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return True

    def decode_rows(self, content: bytes) -> list[Any] | None:
        """What is on some lines, each as `decode_row` gives it; None if one of them is not strict JSON, or has fields that are new."""
        try:
            return (self._naming if self.names_fields else self._decoder).decode_lines(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def decode(self, number: int, content: bytes) -> CorpusDocument:
        """The document on a line."""
        row = self.decode_row(number, content)
        if isinstance(row, CorpusDocument):
            return row
        user, date = getattr(row, "user", None), getattr(row, "date", None)
        return CorpusDocument(
            number,
            row.text,
            None if user is None else str(user),
            getattr(row, "source", None),
            None if date is None or date == "" else str(date),
        )

    def _decode_slowly(self, number: int, content: bytes) -> CorpusDocument:
        """Read a line that is not strict JSON (Python's json writes NaN), or raise a CorpusError that says what is wrong with it."""
        row = self.decode_object(number, content)
        values = self.values_of(row, self.place(number))
        if self.names_fields and len(self._others) < _MOST_NAMES:
            self._others |= dict.fromkeys(name for name in row if name not in self.roles.values())
            self._naming = _decoder(self.roles, self._others)
        return CorpusDocument(
            number,
            values["text"] or "",
            values.get("user"),
            values.get("source"),
            values.get("date") or None,
        )

    def decode_object(self, number: int, content: bytes) -> dict[str, Any]:
        """The object on a line, with all of its fields."""
        place = self.place(number)
        try:
            row = decode_python_json(content, surrogates=True)
        except UndecodableError as problem:
            raise CorpusError(
                f"{place} is not JSON ({problem}); each line should be one JSON object"
            ) from None
        if not isinstance(row, dict):
            raise CorpusError(
                f'{place} is not a JSON object but {json_type(row)}; write it as {{"text": ...}}'
            )
        return row

    def values_of(self, row: dict[str, Any], place: str) -> dict[str, str | None]:
        """Role to what an object has for it."""
        values: dict[str, str | None] = {}
        for role, field in self.roles.items():
            if field not in row:
                raise mixed_with(row, field, place) or missing_field(place, field, sorted(row))
            value = row[field]
            if type(value) in _NOT_TEXT.get(role, ()):
                value = None if value is None else str(value)
            elif not isinstance(value, str):
                raise CorpusError(
                    f"{place}: field {field!r} should be a string, but is {json_type(value)}; fix the row"
                )
            elif not value.isascii() and not _is_encodable(value):
                raise CorpusError(
                    f"{place}: field {field!r} holds half a surrogate pair, which is not text; fix the row"
                )
            values[role] = value
        return values

    def turns(self, number: int, content: bytes) -> Sequence[PlacedTurn]:  # noqa: ARG002
        """The turns of the conversation on a line; none where rows are texts."""
        return ()

    def searched(self, number: int, content: bytes) -> tuple[bytes, str | None]:  # noqa: ARG002
        """All strings of the conversation on a line, and whose it is."""
        raise TypeError("rows of texts are searched together")

    def rewritten(self, row: bytes, change: Change) -> bytes:
        """The object in which every string went through `change`; its other bytes stay as they are."""
        return changed_json(row.decode("utf-8"), change, self.kept, self.text_names).encode("utf-8")

    def row(self, values: Mapping[str, str]) -> bytes:
        """A new document as a line, without its line break; it has only the fields in use."""
        given = {
            field: values.get(role) if role == "date" else values[role] for role, field in self.roles.items()
        }
        return json.dumps(given, ensure_ascii=False).encode("utf-8")

    def changed_row(self, document: CorpusDocument, row: bytes, text: str) -> bytes:
        """The object with another text; its other bytes stay as they are."""
        spliced = _spliced(row, self.fields.scored, text)
        if spliced is not None:
            return spliced
        try:
            values = decode_python_json(row, surrogates=True)
        except UndecodableError as problem:
            # It was read without looking into the fields that are not in use.
            raise CorpusError(
                f"{self.place(document.number)} cannot be written again ({problem}); fix the row"
            ) from None
        values[self.fields.scored] = text
        try:
            return json.dumps(values, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            # Half a surrogate pair in another field is not text, but its escape is JSON.
            return json.dumps(values).encode("ascii")


def _decoder(roles: Mapping[str, str], others: Mapping[str, None] | None = None) -> msgspec.json.Decoder[Any]:
    """What reads only the fields in use, several times as fast as making a dictionary of each row.

    With `others`, it passes over fields of these names, and rejects all further ones until there are too many.
    """
    types: dict[str, Any] = {
        "text": str,
        "user": str | int | None,
        "source": str,
        "date": str | int | float | None,
    }
    passed = {f"other_{number}": name for number, name in enumerate(others or ())}
    row = msgspec.defstruct(
        "Row",
        [(role, types[role]) for role in roles] + [(name, msgspec.Raw, msgspec.Raw()) for name in passed],
        rename={**roles, **passed},
        forbid_unknown_fields=others is not None and len(others) < _MOST_NAMES,
        gc=False,
    )
    return msgspec.json.Decoder(row)


def _spliced(row: bytes, field: str, text: str) -> bytes | None:
    """An object with another string as the value of a field; None where its place is not found."""
    content = row.decode("utf-8")
    try:
        begin, end = value_span(content, [field])
    except (ValueError, IndexError, RecursionError, TypeError):  # as the parsers of the standard library fail
        return None
    # Whoever escaped what is not ASCII does so in the new text too.
    written = json.dumps(text, ensure_ascii=row.isascii())
    return (content[:begin] + written + content[end:]).encode("utf-8")


def _is_encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _open(path: Path, fields: Fields, kind: CorpusKind, *, hashed: bool = False) -> JsonLinesCorpus:
    """Open a file; its first row says whether it holds texts or conversations."""
    if fields.rows != "text" and fields.target is None:
        from coalmine.corpus.chat.lines import ChatLinesCorpus  # which is made from this module

        with JsonLinesCorpus(path, fields, kind) as corpus:
            first = corpus.first_row()
        rows = kind_in(first, fields)
        if first and rows is not None:
            return ChatLinesCorpus(path, fields, kind, hashed=hashed, rows=rows, first=first)
    return JsonLinesCorpus(path, fields, kind, hashed=hashed)


JSON_LINES = CorpusKind(".jsonl", "JSON Lines", _open, has_conversations=True)
