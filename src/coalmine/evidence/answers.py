"""`Answer`: what an audit says to the questions of the first screen of a report."""

from __future__ import annotations

from typing import Literal, NamedTuple

Tone = Literal["bad", "warn", "good", "open"]
# The worst first.
TONES: tuple[Tone, ...] = ("bad", "warn", "open", "good")


class Question(NamedTuple):
    """A question of the first screen, and what the verdict says if it has no answer."""

    text: str
    open_clause: str


MEMORIZED = Question(
    "Did it memorize the canaries?", "It cannot be said whether the model memorized the canaries"
)
EXTRACTED = Question("Can they be extracted?", "and it is not proven that none can be extracted")


class Answer(NamedTuple):
    """An answer to one of the questions.

    Attributes:
        question: the question.
        answer: the answer in a few words.
        detail: the answer in a sentence.
        tone: "bad" or "warn" if it accuses the model, "good" if it clears it, otherwise "open".
        clause: what the verdict says, such as "The model memorized 2 of 12 canaries"; by default, that there is no answer.
    """

    question: Question
    answer: str
    detail: str
    tone: Tone
    clause: str = ""
