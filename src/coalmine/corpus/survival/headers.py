"""The header that a chat template writes before the turns of a role, by which canaries of chat data are found where they are scored."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from coalmine.errors import ModelError
from coalmine.models.transformers.chat import ChatTemplate, template_of
from coalmine.models.transformers.subwords import SubwordTokenizer
from coalmine.records.chat import Frame, Turn

# The contents of turns that differ from row to row; what the template writes after both is the header.
_OTHER = "Another text that a conversation may have."
_ANOTHER_DAY = dt.date(1999, 12, 31)


class TurnHeader(NamedTuple):
    """The tokens before the content of a turn, and the tokenizer of contents that follow them.

    `reader` is None where the template does not write turns of this role at all.
    """

    tokens: tuple[int, ...]
    reader: SubwordTokenizer | None

    def ends(self, before: Sequence[int]) -> bool:
        """Whether these are the last tokens before a place.

        >>> TurnHeader((7, 8), None).ends([1, 7, 8])
        True
        """
        return not self.tokens or tuple(before[-len(self.tokens) :]) == self.tokens


def turn_header(frame: Frame | None, tokenizer: Any, tokens: SubwordTokenizer) -> TurnHeader | None:
    """What the tokenizer's chat template writes before the turns of a frame; None for plain texts.

    A tokenizer without a template is a ModelError. A template that drops or refuses the turns gives a header without a tokenizer.
    """
    if frame is None:
        return None
    template_of(tokenizer)
    template = ChatTemplate(tokenizer)
    try:
        own = template.context(frame, tokens)
    except ModelError:
        return TurnHeader((), None)
    written = [own.tokens]
    for other in _others(frame):
        try:
            written.append(template.context(other, tokens).tokens)
        except ModelError:
            continue  # the template refuses these turns, and rows that have them
    # Training may have been on another day, whose date is then no part of the header.
    written.append(ChatTemplate(tokenizer, day=_ANOTHER_DAY).context(frame, tokens).tokens)
    before = "" if own.written is None else own.written.before
    return TurnHeader(_common_end(written), tokens.after(before))


def _others(frame: Frame) -> Iterator[Frame]:
    """The frame in other conversations."""
    before = tuple(Turn(turn.role, _OTHER) for turn in frame.before)
    if before:
        yield msgspec.structs.replace(frame, before=before)
    if frame.place == "inside" and frame.role != "system":
        earlier = (Turn("user", _OTHER), Turn("assistant", _OTHER))
        yield msgspec.structs.replace(frame, before=(*earlier, *before))


def _common_end(written: Sequence[Sequence[int]]) -> tuple[int, ...]:
    columns = zip(*(reversed(tokens) for tokens in written), strict=False)
    same = itertools.takewhile(lambda column: len(set(column)) == 1, columns)
    return tuple(column[0] for column in same)[::-1]
