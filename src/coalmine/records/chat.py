"""`Canary`: one member of a secret space; `Turn` and `Frame`: where the canaries of chat data are in a conversation."""

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


class Canary(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a secret space, drawn at random, and planted or withheld by a coin.

    `repetitions` is how often it is planted in the corpus if the coin says so, which `planted` records. A withheld canary was drawn
    in the same way and has the number of copies that it was meant to have; `times_trained_on` is 0 for it. Where the planted
    corpus was rewritten, as by deduplication, `counted` is how many copies are left in it; the coin and the plan stay what they were.

    A secret that was found in the data is a canary too: `natural` is True, `kind` says what it is, and `repetitions` is how often it
    was found. Its text is that of the document: some context, and the secret.

    >>> canary = Canary(canary_id="f0-x4-0", format_id="f0", text="my pin is 4921", repetitions=4, planted=False)
    >>> canary.times_trained_on
    0
    """

    canary_id: str
    format_id: str
    text: str
    repetitions: int
    planted: bool
    # The source side of a translation pair; it shares its filling with `text`, which is the target side.
    source: str | None = None
    counted: int | msgspec.UnsetType = msgspec.UNSET
    # Of a secret that was in the data all along, and that nobody planted: what it is, such as "phone", and whose text it is in.
    natural: bool | msgspec.UnsetType = msgspec.UNSET
    kind: str | msgspec.UnsetType = msgspec.UNSET
    user: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def times_trained_on(self) -> int:
        """How often this canary occurs in the training data."""
        if self.counted is not msgspec.UNSET:
            return self.counted
        return self.repetitions if self.planted else 0
