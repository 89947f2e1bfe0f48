"""`WrittenConversations`: turns read back from the text that a chat template made of them, and proven by writing them again."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import cached_property
from itertools import cycle
from typing import Any, NamedTuple

from coalmine.errors import ModelError
from coalmine.models.transformers.chat import MARKER, rendered_chat, template_sha256
from coalmine.records.chat import Turn


class _Between(NamedTuple):
    """What a template writes around contents: before the first one, between those of user and assistant, and after the last one.

    `opened` is what comes before the content of a system turn and between it and that of the user; None where there are no such turns.
    """

    begin: str
    to_assistant: str
    to_user: str
    ends: tuple[str, ...]
    opened: tuple[str, str] | None


class WrittenConversations:
    """The conversations that the chat template of a transformers tokenizer writes."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.sha256 = template_sha256(tokenizer)

    def turns(self, text: str, *, is_open: bool = False) -> tuple[Turn, ...] | None:
        """The turns whose conversation the template writes as this text; None where none is found.

        With `is_open`, the text ends within the content of its last turn, and otherwise with what the template writes after it.
        """
        for turns in self._guesses(text, is_open=is_open):
            with contextlib.suppress(ModelError):
                if rendered_chat(self._tokenizer, turns, continue_final=is_open) == text:
                    return tuple(turns)
        return None

    def before(self, turns: Sequence[Turn]) -> str:
        """The text of a conversation up to the content of its last turn."""
        *earlier, last = turns
        return rendered_chat(self._tokenizer, [*earlier, Turn(last.role, "")], continue_final=True)

    def _guesses(self, text: str, *, is_open: bool) -> list[list[Turn]]:
        """What the turns may be, by where the texts between contents occur."""
        marks, found = self._between, []
        for end in ("",) if is_open else marks.ends:
            if not text.endswith(end):
                continue
            body = text.removesuffix(end)
            if marks.opened is not None and body.startswith(marks.opened[0]):
                system, between, rest = body[len(marks.opened[0]) :].partition(marks.opened[1])
                if between:
                    found.append([Turn("system", system), *self._split(rest)])
            if body.startswith(marks.begin):
                found.append(self._split(body[len(marks.begin) :]))
        return found

    def _split(self, body: str) -> list[Turn]:
        turns = []
        for role, mark in cycle((("user", self._between.to_assistant), ("assistant", self._between.to_user))):
            content, between, body = body.partition(mark)
            turns.append(Turn(role, content))
            if not between:
                break
        return turns

    @cached_property
    def _between(self) -> _Between:
        names = [f"{MARKER}{letter}" for letter in "ABCDE"]
        said = [Turn(role, name) for role, name in zip(("user", "assistant") * 2, names, strict=False)]
        begin, to_assistant, to_user, again, end = self._parts(said)
        if to_assistant != again or not (to_assistant and to_user):
            raise ModelError(
                "the chat template writes the turns of a conversation in different ways, so that they cannot be told apart in its text; "
                "audit the model itself"
            )
        opened = None
        with contextlib.suppress(ModelError):
            first, second, _ = self._parts([Turn("system", names[4]), said[0]])
            opened = (first, second) if second else None
        return _Between(
            begin, to_assistant, to_user, tuple(dict.fromkeys([end, self._parts(said[:1])[1]])), opened
        )

    def _parts(self, turns: Sequence[Turn]) -> list[str]:
        """What the template writes around the contents of these turns."""
        rest, parts = rendered_chat(self._tokenizer, turns), []
        for turn in turns:
            part, content, rest = rest.partition(turn.content)
            if not content:
                raise ModelError(
                    f"the chat template drops or changes {turn.role} turns, so they cannot be read back; audit the model itself"
                )
            parts.append(part)
        return [*parts, rest]
