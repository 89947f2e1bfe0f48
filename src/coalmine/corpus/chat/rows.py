"""The registry of kinds of row that hold a conversation: how each is read, and how a new one is written."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from coalmine.corpus.chat.turns import SPEAKERS, BadRowError, PlacedTurn, check_text, text_turn, turns_in
from coalmine.corpus.files.documents import BOUNDARY, Fields
from coalmine.corpus.files.strings import changed_text, leaves, repeated, strings_of
from coalmine.errors import CorpusError
from coalmine.records.chat import Turn

# What the text of a conversation has between its turns.
BETWEEN_TURNS = "\n"
# Fields beside the turns that trainers put into what a model is trained on too.
ASIDE = ("tools", "functions", "documents", "system", "history")
# What is no text: who speaks, and what says which part is which.
_LABELS = ("role", "from", "type", "id", "tool_call_id")

# What no secret looks like.
_PLAIN_NAME = re.compile("[A-Za-z_]{1,24}")
# Where a name in JSON ends: at a quotation mark, but not after a backslash, unless that comes after another.
_NAME_ENDS = [re.compile(pattern) for pattern in (rb'"\s*:', rb'\\"\s*:', rb'\\\\"\s*:')]


class RowKind(ABC):
    """How rows hold conversations.

    `keys` are what every row has. Those of a corpus whose turns are in a column of another name differ in that.
    """

    name: str
    # What a row may have besides its keys that is part of the conversation.
    optional: tuple[str, ...] = ()

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.keys = keys

    def turns(self, row: Mapping[str, Any]) -> list[PlacedTurn]:
        """The turns of a row, in order; a BadRowError says what is wrong with it."""
        missing = next((key for key in self.keys if row.get(key) is None), None)
        if missing is not None:
            other = _by_keys(row)
            there = f"has no {missing!r}" if other is None or missing in row else f"holds {_and(other.keys)}"
            raise BadRowError(
                f"it {there}, but rows are read as {_and(self.keys)}; a corpus has rows of one kind, so convert or remove the others"
            )
        turns = self._turns(row)
        check_text(turns)
        return turns

    def new_row(self, turns: Sequence[Turn], like: Mapping[str, Any]) -> dict[str, Any]:
        """The keys of a new row with a conversation, written as in the first row, which is checked before."""
        try:
            self.turns(like)
        except BadRowError as problem:
            raise BadRowError(f"its first row cannot be read: {problem}") from None
        return self.made(turns, like)

    def recorded(self, fields: Fields) -> Fields:
        """The fields of a corpus of such rows."""
        return msgspec.structs.replace(fields, rows=self.name)

    def searched(
        self,
        row: Mapping[str, Any],
        turns: Sequence[PlacedTurn],
        kept: Collection[str | None],
        content: bytes = b"",
    ) -> bytes:
        """The texts of the turns, and after them all other strings, numbers and names of a row but those of the fields in `kept`.

        `content` is the row in JSON, where a name may be there twice. All are separated as documents are, so that nothing is found across
        two of them.
        """
        strings = [turn.content for turn in turns if turn.content]
        names = list(row)
        for key in row:
            for field, last, value in leaves(row[key], key, names=True) if key not in kept else ():
                if not last:
                    names.append(value)
                elif not (self._is_text(field) and isinstance(value, str)):
                    strings += strings_of(partial(changed_text, str(value), name=last))
        ends, escaped, again_ends = (len(pattern.findall(content)) for pattern in _NAME_ENDS)
        if ends - escaped + again_ends > len(names):
            for name, again in repeated(content):
                for _, last, value in leaves(again, name, names=True):
                    strings += strings_of(partial(changed_text, str(value), name=last))
        strings += [name for name in names if not _PLAIN_NAME.fullmatch(name)]
        return BOUNDARY.join([string.encode("utf-8", "replace") for string in strings])

    @property
    def text_names(self) -> tuple[str, ...]:
        """What the fields are called that hold texts of turns."""
        return (*self.keys, *self.optional, "content", "text", "value")

    def unread(self, row: Mapping[str, Any]) -> Counter[str]:
        """How many strings of a conversation are not in its text, such as the arguments of tool calls, by field."""
        return Counter(
            field.partition(".arguments.")[0] + (".arguments" if ".arguments." in field else "")
            for key in (*self.keys, *ASIDE)
            for field, last, value in leaves(row.get(key), key)
            if isinstance(value, str) and last not in _LABELS and not self._is_text(field)
        )

    def _is_text(self, field: str) -> bool:
        """Whether the strings of a field are texts of turns."""
        key, _, rest = field.partition("[]")
        return key in (*self.keys, *self.optional) and rest in ("", ".content", ".content[].text")

    @abstractmethod
    def _turns(self, row: Mapping[str, Any]) -> list[PlacedTurn]:
        """The turns of a row that has all keys."""

    @abstractmethod
    def made(self, turns: Sequence[Turn], like: Mapping[str, Any]) -> dict[str, Any]:
        """The keys of a new row with a conversation, written as in another row."""


class Messages(RowKind):
    """A list of messages with role and content."""

    name = "messages"
    speaker, said = "role", "content"

    def _turns(self, row: Mapping[str, Any]) -> list[PlacedTurn]:
        key = self.keys[0]
        return turns_in(row[key], (key,), speaker=self.speaker, said=self.said)

    def made(self, turns: Sequence[Turn], like: Mapping[str, Any]) -> dict[str, Any]:
        """A list of messages whose contents are texts or parts as in the other row."""
        others = like[self.keys[0]]
        return {self.keys[0]: _messages(turns, others, self.speaker, self.said, {})}


class Conversations(Messages):
    """ShareGPT: a list of messages with from and value."""

    name = "conversations"
    speaker, said = "from", "value"

    def _is_text(self, field: str) -> bool:
        return super()._is_text(field.replace(f"[].{self.said}", "[].content", 1))

    def made(self, turns: Sequence[Turn], like: Mapping[str, Any]) -> dict[str, Any]:
        """A list of messages by "human" and "gpt", or by the names that the other row has for them."""
        others = like[self.keys[0]]
        names = {"user": "human", "assistant": "gpt"}
        return {self.keys[0]: _messages(turns, others, self.speaker, self.said, names)}


class PromptCompletion(RowKind):
    """A prompt and its completion, each a text or a list of messages."""

    name = "prompt"

    def _turns(self, row: Mapping[str, Any]) -> list[PlacedTurn]:
        turns: list[PlacedTurn] = []
        for key, role in (("prompt", "user"), ("completion", "assistant")):
            if isinstance(row[key], str):
                turns.append(text_turn(role, row, key))
            else:
                turns += turns_in(row[key], (key,), speaker="role", said="content")
        return turns

    def made(self, turns: Sequence[Turn], like: Mapping[str, Any]) -> dict[str, Any]:
        """All but the last turn as the prompt, and that as the completion."""
        *before, last = turns
        made: dict[str, Any] = {}
        for key, some in (("prompt", before), ("completion", [last])):
            if isinstance(like[key], str):
                if [turn.role for turn in some] not in (["user"], ["assistant"]):
                    raise BadRowError(
                        "a prompt that is text has no place for a system turn; plant in a turn of the user or the assistant"
                    )
                made[key] = some[0].content
            else:
                made[key] = _messages(some, like[key], "role", "content", {})
        return made


class Instruction(RowKind):
    """Alpaca: an instruction, perhaps with an input and a system prompt, and the output."""

    name = "instruction"
    optional = ("input", "system")

    def _turns(self, row: Mapping[str, Any]) -> list[PlacedTurn]:
        turns = []
        if row.get("system"):
            turns.append(text_turn("system", row, "system"))
        user = text_turn("user", row, "instruction")
        if row.get("input"):
            given = text_turn("user", row, "input")
            texts = [text for text in (user.content, given.content) if text]
            user = PlacedTurn("user", BETWEEN_TURNS.join(texts), user.path or given.path)
        return [*turns, user, text_turn("assistant", row, "output")]

    def made(self, turns: Sequence[Turn], like: Mapping[str, Any]) -> dict[str, Any]:
        """An instruction without input, and its output."""
        texts = {turn.role: turn.content for turn in turns}
        made = {"instruction": texts["user"], "output": texts["assistant"]}
        if "input" in like:
            made = {"instruction": texts["user"], "input": "", "output": texts["assistant"]}
        if "system" in texts:
            if "system" not in like:
                raise BadRowError(
                    "its rows have an instruction and an output, and no place for a system turn; plant in a turn of the user or the "
                    "assistant"
                )
            made["system"] = texts["system"]
        return made


ROW_KINDS: tuple[RowKind, ...] = (
    Messages(("messages",)),
    Conversations(("conversations",)),
    PromptCompletion(("prompt", "completion")),
    Instruction(("instruction", "output")),
)


def kind_in(row: Any, fields: Fields) -> RowKind | None:
    """The kind of a row: the one that was asked for, or the first whose keys it has; None where it is text.

    >>> kind_in({"messages": [], "id": 7}, Fields()).name
    'messages'
    >>> kind_in({"text": "hello", "messages": []}, Fields()) is None
    True
    """
    if fields.rows == "text" or fields.target is not None:
        return None
    named = None if fields.text == Fields().text else fields.text
    if fields.rows is not msgspec.UNSET:
        asked = next(kind for kind in ROW_KINDS if kind.name == fields.rows)
        return asked if named is None else _in_column(asked, named)
    if not isinstance(row, Mapping):
        return None
    if fields.text in row:
        turns = row[fields.text]
        if named is None or not isinstance(turns, list):
            return None
        first = turns[0] if turns and isinstance(turns[0], dict) else {}
        return Conversations((named,)) if Conversations.speaker in first else Messages((named,))
    return _by_keys(row)


def _in_column(kind: RowKind, column: str) -> RowKind:
    """A kind whose turns are in a column of another name."""
    if not isinstance(kind, Messages):
        raise CorpusError(
            f"rows of {_and(kind.keys)} have fields of these names, but the text field was named {column!r}; leave the "
            "text field out"
        )
    return type(kind)((column,))


def mixed_with(row: Mapping[str, Any], field: str, place: str) -> CorpusError | None:
    """The error for a conversation among rows whose text is in a field; None for other rows."""
    kind = _by_keys(row)
    if kind is None:
        return None
    return CorpusError(
        f"{place}: it holds {_and(kind.keys)}, but rows are read as texts in {field!r}; a corpus has rows of one kind, so convert or "
        "remove the others"
    )


def unchangeable(place: str) -> CorpusError:
    """The error for a command that would change the text of a conversation."""
    return CorpusError(
        f"{place} is a conversation, whose text cannot be changed in its turns; leave out such rows as a whole instead"
    )


def text_of(turns: Sequence[PlacedTurn] | Sequence[Turn]) -> str:
    r"""The text of a conversation, for what reads documents: the contents of its turns, one after the other.

    >>> text_of([Turn("user", "hi"), Turn("assistant", ""), Turn("user", "hello?")])
    'hi\nhello?'
    """
    return BETWEEN_TURNS.join([turn.content for turn in turns if turn.content])


def _by_keys(row: Mapping[str, Any]) -> RowKind | None:
    return next((kind for kind in ROW_KINDS if all(key in row for key in kind.keys)), None)


def _and(keys: Sequence[str]) -> str:
    return " and ".join(map(repr, keys))


def _messages(
    turns: Sequence[Turn], others: Any, speaker: str, said: str, names: Mapping[str, str]
) -> list[dict[str, Any]]:
    """New messages as others are written: what they call who speaks, and whether contents are texts or parts."""
    messages = [one for one in others if isinstance(one, dict)] if isinstance(others, list) else []
    called = {SPEAKERS.get(one[speaker]): one[speaker] for one in reversed(messages)}
    has_parts = any(isinstance(one.get(said), list) for one in messages)
    return [
        {
            speaker: called.get(turn.role) or names.get(turn.role, turn.role),
            said: [{"type": "text", "text": turn.content}] if has_parts else turn.content,
        }
        for turn in turns
    ]
