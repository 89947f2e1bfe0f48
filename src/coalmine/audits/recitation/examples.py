"""Examples of sequences that were recited, masked unless the user asks to see them."""

from __future__ import annotations

from collections.abc import Sequence
from unicodedata import category

import numpy as np

from coalmine.audits.recitation.answers import Answers
from coalmine.audits.recitation.groups import Asked
from coalmine.audits.recitation.questions import Questions
from coalmine.audits.recitation.results import Example
from coalmine.corpus.index.queries import CorpusIndex, Occurrence
from coalmine.models.protocols import IntArray

EXAMPLES = 10
# A suffix that occurs in this many different surroundings is boilerplate: it says nothing about any one document.
TEMPLATE_SURROUNDINGS = 5
# At most this many copies of a sequence are looked at.
_COPIES = 50
ONLY_TEMPLATES = (
    f"all that was recited occurs in {TEMPLATE_SURROUNDINGS} or more different surroundings, as boilerplate does, so there are no "
    "examples"
)


def examples_of(
    found: Sequence[Asked], questions: Questions, index: CorpusIndex, *, reveal: bool
) -> tuple[Example, ...]:
    """The recited sequences that occur least often, each at the longest context with which it is recited.

    No two are from one document or overlap in any copy, and none is template-only: a suffix that occurs in five or more different
    surroundings, of as many tokens before and after it as it has, is left out. Copies of a whole document have one surrounding.
    """
    by_any = np.logical_or.reduce([one.answers.recited for one in found])
    copies = np.array([sample.count for sample in questions.samples])[questions.which]
    order = np.lexsort((-questions.contexts, copies))
    clusters: set[int] = set()
    taken: list[tuple[Occurrence, int]] = []
    chosen: list[int] = []
    for question in order[by_any[order]].tolist():
        if len(chosen) == EXAMPLES:
            break
        cluster = int(questions.clusters[questions.which[question]])
        if cluster in clusters:
            continue
        target = questions.target(question)
        if index.surroundings(target, around=len(target), limit=_COPIES) >= TEMPLATE_SURROUNDINGS:
            continue
        whole = np.concatenate([questions.prompt(question), target])
        places = [(place, len(whole)) for place in index.locate(whole, limit=_COPIES)]
        if not any(_overlap(one, other) for one in places for other in taken):
            clusters.add(cluster)
            taken += places
            chosen.append(question)
    return tuple(_example(question, found, questions, index, reveal=reveal) for question in chosen)


def _overlap(one: tuple[Occurrence, int], other: tuple[Occurrence, int]) -> bool:
    """Whether two copies, each a place and a number of tokens, share a token of the corpus."""
    (place, length), (elsewhere, size) = one, other
    begins = place.offset < elsewhere.offset + size
    return place.document == elsewhere.document and begins and elsewhere.offset < place.offset + length


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
    """A text with every letter, vowel sign, accent and digit hidden; its shape remains visible.

    >>> masked_text("My PIN is 1234.")
    '•• ••• •• ••••.'
    """
    return "".join(
        "•" if character.isalnum() or category(character).startswith("M") else character for character in text
    )
