"""Whether a server recites sequences, judged by the text that it writes after their beginnings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coalmine.errors import NotMeasurableError
from coalmine.models.protocols import TokenSequence

Complete = Callable[[Sequence[str], int], list[str]]
Decode = Callable[[Sequence[int]], str]


def first_misses(
    sequences: Sequence[TokenSequence], given: Sequence[str], complete: Complete, decode: Decode
) -> list[int | None]:
    """For each sequence the first token of its target that the server does not write; None if it writes all of the text.

    `given` are the texts of the contexts. `complete(prompts, length)` continues prompts by up to so many tokens, and `decode` gives the
    text of tokens that begin a text.

    >>> sequence = TokenSequence((9, 1), (2, 3))
    >>> first_misses([sequence], ["b"], lambda prompts, length: ["cx"], lambda tokens: "".join("abcd"[token] for token in tokens))
    [1]
    """
    targets = [_target(sequence, text, decode) for sequence, text in zip(sequences, given, strict=True)]
    written = complete(given, max(len(sequence.target) for sequence in sequences))
    # The server may cut the text into more tokens; none of them is shorter than a byte.
    open_ones = [
        place
        for place, (target, text) in enumerate(zip(targets, written, strict=True))
        if len(text) < len(target) and target.startswith(text)
    ]
    if open_ones:
        longest = max(len(targets[place].encode()) for place in open_ones)
        more = complete([given[place] for place in open_ones], longest)
        for place, text in zip(open_ones, more, strict=True):
            written[place] = text
    return [
        None if text.startswith(target) else _first_miss(sequence, text, decode)
        for sequence, target, text in zip(sequences, targets, written, strict=True)
    ]


def _target(sequence: TokenSequence, given: str, decode: Decode) -> str:
    whole = decode([*sequence.context[1:], *sequence.target])
    if not whole.startswith(given):
        raise NotMeasurableError(
            "a sequence is cut in the middle of a character, so its beginning has no text that an endpoint could be given"
        )
    # The last token may end in the middle of a character.
    return whole[len(given) :].rstrip("\ufffd")


def _first_miss(sequence: TokenSequence, written: str, decode: Decode) -> int:
    begins = len(decode(sequence.context[1:]))
    for place in range(len(sequence.target) - 1):
        if not written.startswith(decode([*sequence.context[1:], *sequence.target[: place + 1]])[begins:]):
            return place
    return len(sequence.target) - 1
