r"""The echo of a prompt: which of the tokens that a server sends back belong to which part of the text, and their scores.

Servers differ in what they send. Some put a token before the text and send it back; some mark the first word with a space; some
write tokens that are parts of a character as nothing, as U+FFFD, or as "bytes:\xe2". Tokens without their own text are joined with
their neighbors into one piece of text, whose log-probability is the sum of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from coalmine.models.endpoints.answers import EndpointAnswer, EndpointQuestion, UnusableAnswerError

# Servers that have to write a probability of 0 as a number write one such as -9999.
FLOOR_NATS = -2000.0


class EchoStyle(NamedTuple):
    """How a server writes the tokens of a prompt."""

    leading: int = 0  # the number of tokens that it sends back before those of the text
    hidden: int = 0  # the number of characters at the start for which it shows no token
    marks_first_word: bool = False  # whether a space before the first word is not in the text
    scores_first: bool = True  # whether the first token of a text has a log-probability


class Piece(NamedTuple):
    """A part of a text with its token, or with several tokens that have no text of their own."""

    text: str
    tokens: int
    nats: tuple[float | None, ...]  # one for each token
    is_argmax: tuple[bool, ...]  # also False if it is not known
    ranks: tuple[int | None, ...]


class Echo(NamedTuple):
    """An answer to a question with echo: the prompt in pieces, without what is hidden, and what was generated after it."""

    prompt: tuple[Piece, ...]
    generated: tuple[str, ...]
    generated_text: str
    # The likeliest tokens at the first generated position, in nats.
    next_tokens: dict[str, float]


def read_echo(question: EndpointQuestion, answer: EndpointAnswer, style: EchoStyle) -> Echo:
    """The answer matched with the question, or an UnusableAnswerError that says where they do not fit."""
    if answer.tokens is None or answer.nats is None or answer.top is None:
        raise UnusableAnswerError("the answer has no log-probabilities")
    if not answer.text.startswith(question.prompt):
        raise UnusableAnswerError("the answer does not begin with the text that was asked about")
    written = answer.text[len(question.prompt) :]
    begin, groups = _split(question, answer, style, written)
    pieces = []
    place = style.leading
    for number, (tokens, text) in enumerate(groups):
        places = range(place, place + tokens)
        place += tokens
        values = tuple(_value(answer, at) for at in places)
        if None in values[1:] or (values[0] is None) != (number == 0 and not style.scores_first):
            raise UnusableAnswerError("a token of the text has no log-probability")
        pieces.append(
            Piece(
                text,
                tokens,
                values,
                tuple(_is_argmax(answer, at) for at in places),
                tuple(_rank(answer, at, question.top or 0) for at in places),
            )
        )
    following = answer.top[begin] if begin < len(answer.tokens) else None
    return Echo(tuple(pieces), answer.tokens[begin:], written, following or {})


def _split(
    question: EndpointQuestion, answer: EndpointAnswer, style: EchoStyle, written: str
) -> tuple[int, list[tuple[int, str]]]:
    """Where the generated tokens begin, and the tokens of the prompt in groups of (number of tokens, text)."""
    tokens = answer.tokens or ()
    fits = {}
    for generated in range(min(question.most_tokens, len(tokens) - style.leading) + 1):
        begin = len(tokens) - generated
        groups = aligned(
            tokens[style.leading : begin],
            question.prompt[style.hidden :],
            marks_first_word=style.marks_first_word,
        )
        if groups is not None and wrote(tokens[begin:], written):
            fits[begin] = groups
    if not fits:
        raise UnusableAnswerError("the tokens of the answer do not join to the text that was asked about")
    if len(fits) > 1:
        # Only tokens without their own text can be on either side; then the server's own count decides.
        begin = len(tokens) - (answer.tokens_generated if answer.tokens_generated is not None else -1)
        if begin not in fits:
            raise UnusableAnswerError("it is unclear where the text that was asked about ends in the answer")
        return begin, fits[begin]
    return next(iter(fits.items()))


def aligned(
    tokens: Sequence[str], text: str, *, marks_first_word: bool = False, join_at_start: bool = True
) -> list[tuple[int, str]] | None:
    """The tokens of a text, in groups of (number of tokens, text); None if they do not join to it.

    A group is one token, unless tokens have no text of their own: these are joined with what follows until the text fits.
    Without `join_at_start`, tokens without text are not joined to a first token that fits by itself: they come before the text.

    >>> aligned(["My", " pin"], "My pin")
    [(1, 'My'), (1, ' pin')]
    >>> aligned(["a", "", "", "b"], "a☕b")
    [(1, 'a'), (2, '☕'), (1, 'b')]
    >>> aligned(["My", " pin"], "My pen") is None
    True
    """
    groups: list[tuple[int, str]] = []
    place = waiting = 0
    for number, given in enumerate(tokens):
        token = given
        if number == 0 and marks_first_word and given.startswith(" ") and not text.startswith(" "):
            token = given[1:]
        if token and text.startswith(token, place):
            if waiting and not place and not join_at_start:
                return None
            groups.append((waiting + 1, token))
            place += len(token)
            waiting = 0
        elif waiting and token and (found := text.find(token, place + 1)) > 0:
            groups += [(waiting, text[place:found]), (1, token)]
            place = found + len(token)
            waiting = 0
        elif has_no_text(token):
            waiting += 1
        else:
            return None
    if waiting and place == len(text):
        return None
    if waiting:
        groups.append((waiting, text[place:]))
        place = len(text)
    return groups if place == len(text) else None


def has_no_text(token: str) -> bool:
    """Whether a server wrote a token that is a part of a character, or has no text."""
    return not token or "\ufffd" in token or token.startswith(("bytes:", "token_id:"))


def wrote(tokens: Sequence[str], written: str) -> bool:
    """Whether generated tokens fit the generated text; there may be none, and the last may end a text and not be written."""
    if not tokens:
        return True
    if any(has_no_text(token) for token in tokens):
        return True
    return written in {"".join(tokens), "".join(tokens[:-1])}


def _value(answer: EndpointAnswer, place: int) -> float | None:
    value = (answer.nats or ())[place]
    if value is not None and value <= FLOOR_NATS:
        raise UnusableAnswerError(
            f"{value} came as a log-probability, which is how the server writes a probability of 0"
        )
    return value


def _is_argmax(answer: EndpointAnswer, place: int) -> bool:
    value, top = (answer.nats or ())[place], (answer.top or ())[place]
    if value is None:
        return False
    if not top:
        raise UnusableAnswerError("a token of the text came without the likeliest tokens at its position")
    if _shares_its_text((answer.tokens or ())[place]):
        return value > math.log(0.5)
    return value >= max(top.values()) - 1e-9


def _shares_its_text(token: str) -> bool:
    """Whether many tokens are written like this one, so that a list of the likeliest, by text, cannot distinguish them."""
    return not token or "\ufffd" in token


def _rank(answer: EndpointAnswer, place: int, listed: int) -> int | None:
    """The rank of a token if it is among the likeliest that were asked for; servers list it even if it is not."""
    value, top = (answer.nats or ())[place], (answer.top or ())[place]
    if value is None or not top:
        return None
    if _shares_its_text((answer.tokens or ())[place]):
        return 1 if value > math.log(0.5) else None
    above = sum(other > value for other in top.values())
    whole = math.fsum(map(math.exp, top.values())) > 1 - 1e-6  # the list is the vocabulary
    return above + 1 if above == 0 or (above < listed <= len(top)) or whole else None
