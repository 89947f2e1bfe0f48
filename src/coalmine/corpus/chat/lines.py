"""Conversations in JSON Lines: one per line, of which a turn can be changed while every other byte stays."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from coalmine.corpus.chat.rows import RowKind, text_of, unchangeable
from coalmine.corpus.chat.turns import BadRowError, PlacedTurn
from coalmine.corpus.files.corpora import Addition, CorpusKind
from coalmine.corpus.files.documents import CorpusDocument, Fields
from coalmine.corpus.files.json_lines import JsonLinesCorpus
from coalmine.corpus.files.json_places import value_span
from coalmine.errors import CorpusError


class ChatLinesCorpus(JsonLinesCorpus):
    """A .jsonl corpus whose rows are conversations of one kind."""

    def __init__(
        self,
        path: Path,
        fields: Fields,
        kind: CorpusKind,
        *,
        hashed: bool = False,
        rows: RowKind,
        first: Mapping[str, Any],
    ) -> None:
        super().__init__(path, fields, kind, hashed=hashed)
        self.rows: RowKind = rows
        self.fields = rows.recorded(fields)
        # New rows are written as the first one is.
        self._first = first
        # The text is not a field of its own.
        self.roles = {role: field for role, field in self.roles.items() if role != "text"}

    def decode_row(self, number: int, content: bytes) -> CorpusDocument:
        """The document on a line, whose text is that of all turns."""
        row = self._object(number, content)
        self.note_unread(number, row)
        values = self.values_of(row, self.place(number)) if self.roles else {}
        text = text_of(self._turns_of(row, number))
        return CorpusDocument(number, text, values.get("user"), None, values.get("date") or None)

    def decode_rows(self, content: bytes) -> list[Any] | None:  # noqa: ARG002
        """None: each row is checked on its own."""
        return None

    def searched(self, number: int, content: bytes) -> tuple[bytes, str | None]:
        """All strings of the conversation on a line, and whose it is."""
        row = self._object(number, content)
        values = self.values_of(row, self.place(number)) if self.roles else {}
        return self.rows.searched(row, self._turns_of(row, number), self.kept, content), values.get("user")

    def turns(self, number: int, content: bytes) -> Sequence[PlacedTurn]:
        """The turns of the conversation on a line."""
        return self._turns_of(self._object(number, content), number)

    def row(self, values: Mapping[str, str]) -> bytes:
        """A new conversation as a line: the document's text as a turn, and the turns of the frame around it."""
        if self.frame is None:
            raise TypeError("a new row of chat data needs the frame of its text")
        try:
            made = self.rows.new_row(self.frame.conversation(values["text"]), self._first)
        except BadRowError as problem:
            raise CorpusError(f"{self.path}: {problem}") from None
        others = {field: None if role == "date" else values[role] for role, field in self.roles.items()}
        return json.dumps(made | others, ensure_ascii=False).encode("utf-8")

    def changed_row(self, document: CorpusDocument, row: bytes, text: str) -> bytes:  # noqa: ARG002
        """Conversations are kept or left out as a whole."""
        raise unchangeable(self.place(document.number))

    def added_row(self, turns: Sequence[PlacedTurn], row: bytes, addition: Addition) -> bytes:
        """The conversation with something put at the beginning of a turn; its other bytes stay as they are."""
        content, at = row.decode("utf-8"), _beginning(row, addition.turn_in(turns))
        return (content[:at] + _escaped(addition.text, row) + content[at:]).encode("utf-8")

    def without_addition(self, row: bytes, turn: PlacedTurn, text: str) -> bytes:
        """The conversation as it was before `added_row` put a text at the beginning of a turn."""
        content, at = row.decode("utf-8"), _beginning(row, turn)
        added = _escaped(text, row)
        return (content[:at] + content[at:].removeprefix(added)).encode("utf-8")

    def _object(self, number: int, content: bytes) -> dict[str, Any]:
        try:
            row = msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            row = None
        return row if isinstance(row, dict) else self.decode_object(number, content)

    def _turns_of(self, row: Mapping[str, Any], number: int) -> list[PlacedTurn]:
        try:
            return self.rows.turns(row)
        except BadRowError as problem:
            raise CorpusError(f"{self.place(number)}: {problem}") from None


def _beginning(row: bytes, turn: PlacedTurn) -> int:
    """Where the first character of a turn's content is."""
    if turn.path is None:
        raise ValueError("the turn has no text")
    begin, _ = value_span(row.decode("utf-8"), turn.path)
    return begin + 1  # after the quotation mark


def _escaped(text: str, row: bytes) -> str:
    """A text as it is written within a string; whoever escaped what is not ASCII does so in the new text too."""
    return json.dumps(text, ensure_ascii=row.isascii())[1:-1]
