"""`Reply`: what an audit says to a question of the first screen of a report."""

from __future__ import annotations

from typing import Literal, NamedTuple

Tone = Literal["bad", "warn", "open", "good"]
# The worst first.
TONES: tuple[Tone, ...] = ("bad", "warn", "open", "good")


class Topic(NamedTuple):
    """A question of the first screen, and the clause of the verdict if nobody knows the answer."""

    question: str
    open_clause: str


MEMORIZED = Topic(
    "Did it memorize the canaries?", "It cannot be said whether the model memorized the canaries"
)
EXTRACTED = Topic("Can they be extracted?", "and it is not proven that none can be extracted")
# On the first screen only where an audit replies to them; their part of the verdict is a sentence of its own.
TRAINED_ON = Topic("Whose data was it trained on?", "")
RECOGNIZED = Topic("Can its training data be recognized?", "")
RECITED = Topic("Does it recite its training data?", "")
NOT_TESTED = Topic("What was not tested?", "")


class Reply(NamedTuple):
    """A reply to one of these questions.

    Attributes:
        topic: the question.
        answer: the answer in a few words.
        detail: the answer in a sentence.
        tone: "bad" or "warn" if it accuses the model, "good" if it clears it, otherwise "open".
        clause: its part of the verdict, such as "The model memorized 2 of 12 canaries"; empty for the topic's open clause.
        tested: whether anything was measured that could answer; an answer that was not is left out where others were.

    >>> Reply(MEMORIZED, "In part", "The scores of members are higher.", "warn", "The model remembers its canaries in part").accuses
    True
    """

    topic: Topic
    answer: str
    detail: str
    tone: Tone
    clause: str = ""
    tested: bool = True

    @property
    def accuses(self) -> bool:
        """Whether it says something against the model."""
        return self.tone in {"bad", "warn"}
