"""The context of a secret: the text before it in its document, without anything that the secret could be copied from."""

from __future__ import annotations

import re

# A piece of a secret of this many characters in its context helps to guess it.
COPIED = 3


def context_of(before: str, drawn: str, most: int) -> str:
    """The end of the text before a secret, at most so many characters, beginning with a word.

    What comes up to a piece of the drawn part is left out: a model that never saw the secret could copy it from there, as the name
    of a person in front of their e-mail address, or a number that is given twice.

    >>> context_of("Please call me at home: 713-853-", "1234", 20)
    'me at home: 713-853-'
    >>> context_of("Ann Lee (Boston) <", "ann.lee", 64)
    ' (Boston) <'
    """
    context = before[len(before) - most :] if 0 <= most < len(before) else before
    if len(context) < len(before) and not before[len(before) - most - 1].isspace():
        word = re.match(r"\S*\s+", context)
        context = context[word.end() :] if word is not None and word.end() < len(context) else context
    return context[_end_of_copies(context, drawn) :]


def shares_a_piece(text: str, drawn: str) -> bool:
    """Whether some piece of the drawn part of a secret occurs in a text.

    >>> shares_a_piece("Ann Lee", "lee27"), shares_a_piece("Ann Lee", "bob27")
    (True, False)
    """
    return _end_of_copies(text, drawn) > 0


def _end_of_copies(text: str, drawn: str) -> int:
    """Where the last piece of the drawn part ends in a text; 0 where none occurs."""
    # Of the same length as the text, which casefold() is not always.
    lowered = "".join(low if len(low := one.lower()) == 1 else one for one in text)
    ends = [0]
    for piece in _pieces(drawn.lower()):
        place = lowered.rfind(piece)
        if place >= 0:
            ends.append(place + len(piece))
    return max(ends)


def _pieces(drawn: str) -> set[str]:
    """All `COPIED` letters and digits in a row; the whole where no word or number is so long."""
    runs = [run for run in re.findall(r"[^\W_]+", drawn) if len(run) >= COPIED]
    pieces = runs or [drawn]
    return {one[place : place + COPIED] for one in pieces for place in range(max(1, len(one) - COPIED + 1))}
