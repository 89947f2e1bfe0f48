"""`Turn` and `Frame`: where the canaries of chat data stand in a conversation."""

from __future__ import annotations

from typing import Literal

import msgspec

Role = Literal["system", "user", "assistant"]


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One turn of a conversation.

    >>> Turn("user", "What is my PIN?").role
    'user'
    """

    role: str
    content: str


class Frame(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where canaries stand in a conversation: whose turn they are, and the turns around it.

    A canary of chat data is the content of a turn, or a part of it. It is scored as the beginning of a turn of its role, after the turns
    in `before`, as the chat template of a model writes them. Where canaries are inside turns that were there already, what came before
    them differs from row to row, and `before` is what all of them and the references are scored after.

    >>> frame = Frame(kind="messages", role="assistant", place="own", before=(Turn("user", "Is there a note?"),))
    >>> [turn.content for turn in frame.conversation("my pin is 4921")]
    ['Is there a note?', 'my pin is 4921']
    """

    # How rows hold conversations, such as "messages".
    kind: str
    role: Role
    # Whether each canary is a turn of a conversation of its own, or inside a turn that was there already.
    place: Literal["own", "inside"]
    before: tuple[Turn, ...] = ()
    after: tuple[Turn, ...] = ()

    def conversation(self, text: str) -> tuple[Turn, ...]:
        """The whole conversation, with a text as the content of the canary's turn."""
        return (*self.before, Turn(self.role, text), *self.after)
