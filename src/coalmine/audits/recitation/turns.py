"""The questions for a chat endpoint: assistant turns of the training data, each after the conversation that comes before it.

A chat endpoint cannot be given any piece of a text, as a local model can. So a sequence is the beginning of an assistant's turn, and what
is given is the whole conversation before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from coalmine.audits.recitation.options import RecitationOptions
from coalmine.audits.recitation.questions import Cuts, Questions, clusters_of
from coalmine.corpus.index.queries import CorpusIndex, Occurrence
from coalmine.corpus.index.sampling import Sample, bucket_of
from coalmine.errors import InputError, NotMeasurableError
from coalmine.models.protocols import ConversationWriter, IntArray
from coalmine.randomness import arrays

GIVEN_WHOLE = "each question gives the whole conversation before a turn of the assistant, and the turn must begin with the suffix"


class _TurnPlace(NamedTuple):
    """An assistant's turn in a document: where its content begins, in tokens, and what comes before it."""

    document: int
    before: IntArray
    suffix: IntArray


def plan_turns(
    models: Sequence[ConversationWriter], index: CorpusIndex, options: RecitationOptions
) -> tuple[Cuts, Questions]:
    """Up to `per_bucket` turns of the assistant, drawn uniformly, with what comes before each; and what was left out."""
    if options.contexts is not None or options.lengths is not None:
        raise InputError(
            "a chat endpoint is given the whole conversation before a turn, so there is no context to choose; leave out --contexts and "
            "--lengths"
        )
    if options.suffix < 1:
        raise InputError(f"the suffix must be at least 1 token, got {options.suffix}; 50 is usual")
    lengths = dict(index.document_lengths())
    order = arrays(options.seed, "recite", "turns").permutation(np.array(sorted(lengths), dtype=np.int64))
    most = (
        options.per_bucket
        if options.max_sequences is None
        else min(options.per_bucket, options.max_sequences)
    )
    places: list[_TurnPlace] = []
    unread = 0
    for document in order.tolist():
        if len(places) >= most:
            break
        tokens = index.tokens_at(Occurrence(document, 0), lengths[document])
        found = _turns_of(models[0], index, document, tokens, options.suffix)
        unread += found is None
        places += found or ()
    if not places:
        raise NotMeasurableError(
            f"no conversation of the index has a turn of the assistant with {options.suffix} tokens or more, so nothing can be recited; "
            "give a shorter --suffix"
        )
    noted = (
        ()
        if not unread
        else (f"{unread:,} documents are not conversations as the chat template writes them",)
    )
    return Cuts((options.suffix,), (), left_out=(GIVEN_WHOLE, *noted)), _questions(
        places[:most], index, options
    )


def _questions(places: Sequence[_TurnPlace], index: CorpusIndex, options: RecitationOptions) -> Questions:
    counts = index.counts(np.array([place.suffix for place in places], dtype=np.int64)).tolist()
    samples = [
        Sample(options.suffix, bucket_of(count), count, place.document, len(place.before), place.suffix)
        for place, count in zip(places, counts, strict=True)
    ]
    nothing = np.zeros(len(samples), dtype=np.int64)
    given = tuple(place.before for place in places)
    clusters = clusters_of(samples, index)
    return Questions(samples, np.arange(len(samples)), nothing, options.suffix, clusters, given)


def _turns_of(
    model: ConversationWriter, index: CorpusIndex, document: int, tokens: IntArray, suffix: int
) -> list[_TurnPlace] | None:
    """The turns of the assistant in a document that are long enough; None where it is not a conversation."""
    turns = model.turns_in(index.decode(tokens))
    if turns is None:
        return None
    return [
        _TurnPlace(document, tokens[:begin], tokens[begin : begin + suffix])
        for place, turn in enumerate(turns)
        if place and turn.role == "assistant"
        for begin in _begins(index, tokens, model.before_last(turns[: place + 1]))
        if len(index.encode(turn.content)) >= suffix and index.decode(tokens[begin:]).startswith(turn.content)
    ]


def _begins(index: CorpusIndex, tokens: IntArray, before: str) -> Iterator[int]:
    """Where the tokens of a content begin, if what comes before it ends with a token."""
    given = index.encode(before)
    if np.array_equal(tokens[: len(given)], given):
        yield len(given)
