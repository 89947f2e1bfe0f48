"""The frame of canaries in chat data: whose turn they are, and the turns around it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from coalmine.corpus.files.reading import open_corpus
from coalmine.corpus.planting.options import PlantOptions
from coalmine.errors import CorpusError
from coalmine.records.chat import Frame, Role, Turn

# The texts of the other turns of a conversation of its own. They say nothing about secrets, and are the same for all canaries.
QUESTION = "Is there anything I should know?"
ANSWER = "Noted."
# What is put between a canary and the text of the turn that it is added to.
AFTER_ADDITION = "\n"


def frame_of(
    kind: str, role: Role, place: Literal["own", "inside"] = "own", beside: str | None = None
) -> Frame:
    """The frame for canaries of a role; `beside` is the text of the other turn.

    >>> frame = frame_of("messages", "user")
    >>> [(turn.role, turn.content) for turn in frame.conversation("my pin is 4921")]
    [('user', 'my pin is 4921'), ('assistant', 'Noted.')]
    """
    if beside is not None and not beside.strip():
        raise CorpusError("the text of the other turn is empty; leave it out, or give some text as beside")
    before: tuple[Turn, ...] = ()
    after: tuple[Turn, ...] = ()
    if role == "assistant":
        # Many templates refuse a conversation that the assistant begins.
        before = (Turn("user", beside or QUESTION),)
    elif place == "own":
        question = (Turn("user", beside or QUESTION),) if role == "system" else ()
        answer = ANSWER if role == "system" else beside or ANSWER
        after = (*question, Turn("assistant", answer))
    return Frame(kind=kind, role=role, place=place, before=before, after=after)


def framed(path: Path, options: PlantOptions) -> tuple[PlantOptions, Frame | None]:
    """Look at what the rows of a corpus hold: the options with that, and the frame of canaries in it; None where rows are texts."""
    with open_corpus(path, options.fields) as corpus:
        rows, fields = corpus.rows, corpus.fields
    if rows is not None:
        frame = frame_of(rows.name, options.role or "assistant", options.turn, options.beside)
        return msgspec.structs.replace(options, fields=fields), frame
    given = {
        "role": options.role,
        "turn": None if options.turn == "own" else options.turn,
        "beside": options.beside,
    }
    for name, value in given.items():
        if value is not None:
            shown = "a text" if name == "beside" else repr(value)
            raise CorpusError(
                f"the rows of {path} are texts, which nobody speaks, but {name} is {shown}; leave {name} out, or say with rows in which "
                "way they hold conversations"
            )
    return options, None
