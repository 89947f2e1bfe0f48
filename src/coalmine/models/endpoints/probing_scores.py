"""Whether the log-probabilities that a server gives for a prompt are those of their own tokens."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from coalmine.errors import ModelOutputError
from coalmine.models.endpoints.answers import (
    Conversation,
    EndpointAnswer,
    EndpointQuestion,
    UnusableAnswerError,
)
from coalmine.models.endpoints.client import Client
from coalmine.models.endpoints.echo import Echo, EchoStyle, aligned, has_no_text, read_echo
from coalmine.models.endpoints.http import EndpointRefusedError, NoAnswerError

T = TypeVar("T")

TOP = 5
# A negative finding counts if it was made this often: an answer can also be damaged on its way.
TRIES = 4
TOLERANCE_BITS = 0.05
MOST_NOISE_BITS = 0.5
LEAST_RESOLUTION_BITS = 1e-4


class LackingError(ModelOutputError):
    """The server lacks a capability; the message is the reason."""


def probe_scorer(client: Client, text: str, context: str) -> tuple[EchoStyle, float, list[str], list[str]]:
    """How the server writes prompts, its resolution in bits, the pieces it made, and remarks; or a LackingError."""
    style = confirmed(client, echoing(text), lambda q, answer: _style(q, answer, len(context)))
    reading = reading_as(style)
    other_text = context + in_another_order(text[len(context) :])
    questions = [echoing(text), echoing(other_text), msgspec.structs.replace(echoing(text), again=1)]
    answers = client.ask_all(questions, reading)
    first, other, again = map(reading, questions, answers)
    values = [_values(first), _values(other)]
    if any(len(set(found)) < 2 for found in values) or values[0] == values[1]:
        raise LackingError(
            "prompt log-probabilities are the same for all tokens or all texts, so they are not the model's"
        )
    noise = noise_bits(first, again)
    if noise > MOST_NOISE_BITS:
        raise LackingError("prompt log-probabilities change from one time to the next")
    _check_places(client, [text, other_text], style, max(TOLERANCE_BITS, 4 * noise))
    remarks = []
    if noise > LEAST_RESOLUTION_BITS:
        remarks.append(
            f"the same question was answered with log-probabilities that differ by up to {noise:.2g} bits"
        )
    if style.hidden:
        remarks.append("the server shows no token for the beginning of the context")
    if style.leading:
        remarks.append("the server puts a token of its own before each text")
    if not style.scores_first:
        remarks.append("the first token that is sent has no log-probability")
    pieces = [piece.text for echo in (first, other) for piece in echo.prompt]
    return style, max(rounding_bits(answers[0]), 2 * noise), pieces, remarks


def _check_places(client: Client, texts: Sequence[str], style: EchoStyle, tolerance: float) -> None:
    """Check that the value at a token is its own: the one that the server gives this token as a possible continuation.

    The least likely of the listed continuations are tested, because a neighbor's value can look right only if all are close to 0.
    """
    compared = 0
    for text in texts:
        echo = read_echo(echoing(text), client.ask(echoing(text), reading_as(style)), style)
        # Asked without echo: if echoed values are at the wrong position, so are those after them.
        try:
            listed = confirmed(client, listing(text), _likeliest)
        except LackingError:
            continue  # the server ends this text
        for token, nats in sorted(listed.items(), key=lambda item: item[1])[: TOP - 1]:
            if has_no_text(token):
                continue
            longer = echoing(text + token)
            try:
                found = read_echo(longer, client.ask(longer, reading_as(style)), style).prompt
            except (NoAnswerError, EndpointRefusedError):
                continue
            if [piece.text for piece in found] != [*(piece.text for piece in echo.prompt), token]:
                continue  # the server cuts the longer text elsewhere
            value = found[-1].nats[-1]
            if value is None or abs(value - nats) / math.log(2) > tolerance:
                raise LackingError(
                    "prompt log-probabilities are not those of their own tokens (off by one, or of something else): "
                    f"a token that the server gives {_bits(nats)} bits as a continuation has {_bits(value)} bits as a part of "
                    "the prompt"
                )
            compared += 1
            if compared == 3:
                return
    if not compared:
        raise LackingError(
            "prompt log-probabilities could not be compared with those of continuations, so they are not trusted"
        )


def confirmed(
    client: Client, question: EndpointQuestion, examine: Callable[[EndpointQuestion, EndpointAnswer], T]
) -> T:
    """The result of examining an answer, or a LackingError if that fails each time that the question is asked.

    Only answers that pass are stored: what a server could not do yesterday is tested again.
    """
    problem: Exception = LackingError("nothing was asked")
    for _ in range(TRIES):
        answer = client.cached(question) or client.ask_now(question, anything)
        try:
            examined = examine(question, answer)
        except (UnusableAnswerError, LackingError) as found:
            problem = found
        else:
            client.keep(question, answer)
            return examined
    raise LackingError(str(problem))


def is_greedy(question: EndpointQuestion, answer: EndpointAnswer) -> bool:
    """Whether every generated token is the likeliest one; a LackingError if the likeliest tokens are missing."""
    if answer.tokens is None or answer.nats is None:
        raise LackingError("log-probabilities were asked for, and none came")
    if len(answer.tokens) > question.most_tokens:
        raise UnusableAnswerError("more tokens came than were asked for")
    if not answer.top or not all(answer.top):
        raise LackingError("the likeliest tokens were asked for, and none came")
    tops = [top or {} for top in answer.top]
    if all(len(set(top.values())) < 2 for top in tops):
        raise LackingError(
            "the likeliest tokens are in no order: there is one, or all have the same log-probability"
        )
    pairs = zip(answer.nats, tops, strict=True)
    return all(value is not None and value >= max(top.values()) - 1e-3 for value, top in pairs)


def _likeliest(question: EndpointQuestion, answer: EndpointAnswer) -> dict[str, float]:
    is_greedy(question, answer)
    return (answer.top[0] if answer.top else None) or {}


def _style(question: EndpointQuestion, answer: EndpointAnswer, context: int) -> EchoStyle:
    """How the server writes the tokens of a prompt that begins with a context of this many characters; or a LackingError."""
    if not answer.text.startswith(question.prompt):
        raise LackingError("echo was asked for, and the prompt did not come back")
    if answer.tokens is None or answer.nats is None or answer.top is None:
        raise LackingError("log-probabilities of the prompt were asked for, and none came")
    hidden = range(context + 1)
    for leading, marks, cut, generated in itertools.product((0, 1), (False, True), hidden, (1, 0)):
        part = answer.tokens[leading : len(answer.tokens) - generated]
        if aligned(part, question.prompt[cut:], marks_first_word=marks, join_at_start=False) is not None:
            style = EchoStyle(
                leading=leading,
                hidden=cut,
                marks_first_word=marks,
                scores_first=answer.nats[leading] is not None,
            )
            read_echo(question, answer, style)
            return style
    raise LackingError("the tokens that came back do not join to the prompt")


def reading_as(style: EchoStyle) -> Callable[[EndpointQuestion, EndpointAnswer], Echo]:
    """`read_echo` for one server, which is also a check of its answers."""
    return lambda question, answer: read_echo(question, answer, style)


def anything(question: EndpointQuestion, answer: EndpointAnswer) -> None:
    """Accept every well-formed answer."""


def listing(text: str, chat: Conversation | None = None) -> EndpointQuestion:
    """A question for the likeliest tokens after a text."""
    return EndpointQuestion(prompt=text, most_tokens=8, top=TOP, chat=chat)


def echoing(text: str) -> EndpointQuestion:
    """A question for the numbers of a text itself."""
    return EndpointQuestion(prompt=text, top=TOP, echo=True)


def _values(echo: Echo) -> list[float]:
    return [value for piece in echo.prompt for value in piece.nats if value is not None]


def in_another_order(text: str) -> str:
    """Another text with the same words or characters, so that a model that can read one can read the other."""
    words = text.split(" ")
    return " ".join(reversed(words)) if len(words) > 2 else text[::-1]


def noise_bits(first: Echo, second: Echo) -> float:
    """The largest difference between two answers to one question in bits, over the tokens of the prompt."""
    if [piece.text for piece in first.prompt] != [piece.text for piece in second.prompt]:
        return math.inf
    differences = (abs(a - b) for a, b in zip(_values(first), _values(second), strict=True))
    return max(differences, default=0.0) / math.log(2)


def rounding_bits(answer: EndpointAnswer) -> float:
    """The precision of the server's values in bits, from their digits; the least if it gives no values."""
    values = [value for value in answer.nats or () if value is not None]
    if not values:
        return LEAST_RESOLUTION_BITS
    digits = next((d for d in range(12) if all(round(value, d) == value for value in values)), 12)
    return max(LEAST_RESOLUTION_BITS, 10.0**-digits / math.log(2))


def _bits(nats: float | None) -> str:
    return "no" if nats is None else f"{-nats / math.log(2):.2f}"
