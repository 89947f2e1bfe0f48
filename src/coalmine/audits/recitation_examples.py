"""What does it look like? A few sequences that were recited, masked unless the user asks to see them."""

from __future__ import annotations

from collections.abc import Sequence
from unicodedata import category

import numpy as np

from coalmine.audits.recitation_answers import Answers
from coalmine.audits.recitation_groups import Asked
from coalmine.audits.recitation_questions import Questions
from coalmine.audits.recitation_results import Example
from coalmine.corpus.index.queries import CorpusIndex
from coalmine.models.protocols import IntArray

EXAMPLES = 10


def examples_of(
    found: Sequence[Asked], questions: Questions, index: CorpusIndex, *, reveal: bool
) -> tuple[Example, ...]:
    """Sequences that a model recites although they stand there least often, at the longest context that it does with."""
    by_any = np.logical_or.reduce([one.answers.recited for one in found])
    copies = np.array([sample.count for sample in questions.samples])[questions.which]
    order = np.lexsort((-questions.contexts, copies))
    seen: set[int] = set()
    chosen: list[int] = []
    for question in order[by_any[order]].tolist():
        # Sequences of one document overlap, and show the same text again and again.
        document = questions.sample(question).document
        if document not in seen and len(chosen) < EXAMPLES:
            seen.add(document)
            chosen.append(question)
    return tuple(_example(question, found, questions, index, reveal=reveal) for question in chosen)


def _example(
    question: int,
    found: Sequence[Asked],
    questions: Questions,
    index: CorpusIndex,
    *,
    reveal: bool,
) -> Example:
    def text(tokens: IntArray) -> str:
        written = index.decode(tokens.tolist())
        return written if reveal else masked_text(written)

    sample, context = questions.sample(question), int(questions.contexts[question])
    others = {
        one.name: text(one.answers.written[question])
        for one in found
        if not one.answers.recited[question] and _was_written(one.answers, question)
    }
    return Example(
        document=sample.document,
        offset=sample.offset,
        copies=sample.count,
        context=context or None,
        prompt=text(questions.prompt(question)),
        suffix=text(questions.target(question)),
        recited_by=tuple(one.name for one in found if one.answers.recited[question]),
        others_wrote=others,
    )


def _was_written(answers: Answers, question: int) -> bool:
    return bool(answers.written.shape[1]) and int(answers.written[question, 0]) >= 0


def masked_text(text: str) -> str:
    """A text with every letter, vowel sign, accent and digit hidden; its shape is left.

    >>> masked_text("My PIN is 1234.")
    '•• ••• •• ••••.'
    """
    return "".join(
        "•" if character.isalnum() or category(character).startswith("M") else character for character in text
    )
