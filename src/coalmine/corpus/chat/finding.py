"""Finding planted canaries again in conversations: as turns of their own, or at the beginning of a turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from coalmine.corpus.chat.framing import AFTER_ADDITION
from coalmine.corpus.chat.turns import PlacedTurn
from coalmine.records.chat import Frame


class FoundInTurn(NamedTuple):
    """A text that was added to a turn."""

    text: str
    turn: PlacedTurn

    @property
    def added(self) -> str:
        """All that was added."""
        return self.text + AFTER_ADDITION


class AddedTexts:
    r"""Texts that may have been put at the beginning of turns of a role.

    >>> added = AddedTexts(["my pin is 4921"], "user")
    >>> added.found([PlacedTurn("user", "my pin is 4921\nWhat now?", ("prompt",))]).text
    'my pin is 4921'
    """

    def __init__(self, texts: Iterable[str], role: str) -> None:
        self._texts = frozenset(texts)
        self._lengths = sorted({len(text) for text in self._texts}, reverse=True)
        self._role = role

    def found(self, turns: Sequence[PlacedTurn]) -> FoundInTurn | None:
        """The first of them in a conversation."""
        for turn in turns:
            if turn.role == self._role:
                for length in self._lengths:
                    text = turn.content[:length]
                    if text in self._texts and turn.content.startswith(AFTER_ADDITION, length):
                        return FoundInTurn(text, turn)
        return None


def is_framed(turns: Sequence[PlacedTurn], frame: Frame, text: str) -> bool:
    """Whether a conversation is a text in its frame, and nothing else."""
    wanted = [(turn.role, turn.content) for turn in frame.conversation(text)]
    return [(turn.role, turn.content) for turn in turns] == wanted
