"""The turns of a row: whose each is, its text, and where in the row that text begins."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from coalmine.corpus.files.json_places import json_type
from coalmine.errors import CorpusError

# How rows name who speaks; "tool" is what a tool was asked, or answers.
SPEAKERS: Mapping[str, str] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
    "ipython": "tool",
    "function_call": "tool",
    "observation": "tool",
}
_SHOWN = re.compile(r"[A-Za-z][A-Za-z_-]{0,19}")

Path = tuple[str | int, ...]


class PlacedTurn(NamedTuple):
    """One turn of a row."""

    # "system", "user", "assistant" or "tool", whatever the row calls it.
    role: str
    content: str
    # The keys and places that lead to the string which the content begins with; None where there is no text.
    path: Path | None


class BadRowError(CorpusError):
    """What is wrong with a row, which is named by who reads it."""


def turns_in(found: Any, at: Path, *, speaker: str, said: str) -> list[PlacedTurn]:
    """The turns of a list of messages.

    >>> turns_in([{"role": "user", "content": "hi"}], ("messages",), speaker="role", said="content")
    [PlacedTurn(role='user', content='hi', path=('messages', 0, 'content'))]
    """
    if not isinstance(found, list) or not found:
        what = "an empty list" if found == [] else json_type(found)
        raise BadRowError(f"{at[-1]!r} should be a list of turns, but is {what}; drop the row, or fix it")
    return [
        _turn(message, (*at, number), f"turn {number + 1}", speaker, said)
        for number, message in enumerate(found)
    ]


def text_turn(role: str, row: Mapping[str, Any], key: str) -> PlacedTurn:
    """The turn that a field with a string is."""
    content = row[key]
    if not isinstance(content, str):
        raise BadRowError(f"{key!r} should be a string, but is {json_type(content)}; fix the row")
    return PlacedTurn(role, content, (key,) if content else None)


def check_text(turns: Sequence[PlacedTurn]) -> None:
    """Refuse a row in which nobody says anything, and text that is none."""
    if not any(turn.content for turn in turns):
        raise BadRowError("the content of every turn is empty; drop the row, or give it text")
    for turn in turns:
        if not turn.content.isascii():
            try:
                turn.content.encode("utf-8")
            except UnicodeEncodeError:
                raise BadRowError(
                    f"a turn of the {turn.role} holds half a surrogate pair, which is not text; fix the row"
                ) from None


def _turn(message: Any, at: Path, place: str, speaker: str, said: str) -> PlacedTurn:
    if not isinstance(message, dict) or speaker not in message:
        what = f"has no {speaker!r}" if isinstance(message, dict) else f"is {json_type(message)}"
        raise BadRowError(f"{place} should have {speaker!r} and {said!r}, but {what}; fix the row")
    name = message[speaker]
    role = SPEAKERS.get(name) if isinstance(name, str) else None
    if role is None:
        shown = repr(name) if isinstance(name, str) and _SHOWN.fullmatch(name) else json_type(name)
        raise BadRowError(
            f"the {speaker!r} of {place} is {shown}, which is not a known role; write system, user, assistant or tool"
        )
    content = message.get(said)
    if isinstance(content, str):
        return PlacedTurn(role, content, (*at, said) if content else None)
    if isinstance(content, list):
        parts = list(_text_parts(content, place, said))
        text = "".join(part for _, part in parts)
        begins = next((number for number, part in parts if part), None)
        return PlacedTurn(role, text, None if begins is None else (*at, said, begins, "text"))
    if content is None and (role == "tool" or message.get("tool_calls")):
        return PlacedTurn(role, "", None)
    raise BadRowError(
        f"the {said!r} of {place} should be text or a list of parts, but is {json_type(content)}; fix the row"
    )


def _text_parts(parts: list[Any], place: str, said: str) -> Iterator[tuple[int, str]]:
    """The number and text of each part that has one; images and the like are passed over."""
    for number, part in enumerate(parts):
        if not isinstance(part, dict):
            raise BadRowError(
                f'part {number + 1} of the {said!r} of {place} should be an object such as {{"type": "text", "text": ...}}, but is '
                f"{json_type(part)}; fix the row"
            )
        text = part.get("text")
        if isinstance(text, str):
            yield number, text
        elif text is not None or part.get("type") == "text":
            raise BadRowError(
                f"the 'text' of part {number + 1} of {place} should be a string, but is {json_type(text)}; fix the row"
            )
