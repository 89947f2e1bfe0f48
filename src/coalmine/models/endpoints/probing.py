"""What a server can really do, found out with questions whose answers can be checked."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Literal

import msgspec

from coalmine.errors import ModelError
from coalmine.models.endpoints.answers import Conversation, EndpointAnswer, EndpointQuestion
from coalmine.models.endpoints.client import Client
from coalmine.models.endpoints.echo import EchoStyle
from coalmine.models.endpoints.http import EndpointRefusedError, NoAnswerError
from coalmine.models.endpoints.probing_scores import (
    LEAST_RESOLUTION_BITS,
    TRIES,
    LackingError,
    anything,
    confirmed,
    in_another_order,
    is_greedy,
    listing,
    probe_scorer,
)

Level = Literal["scorer", "ranker", "generator"]

# The first text that the server accepts is used: a model may lack some characters or words.
PROBE_TEXTS = (
    "The quick brown fox jumps over the lazy dog, and it was not seen again.",
    "the cat sat on the mat and the dog ran to the man",
    "the time of the year",
    "0123456789",
)


class Capability(msgspec.Struct, frozen=True, kw_only=True):
    """What a server can do, and what was noticed along the way; `why` says what it lacks for the level above."""

    level: Level
    why: str
    text: str  # the one that it was tested with
    noticed: tuple[str, ...] = ()
    style: EchoStyle = EchoStyle()
    deterministic: bool = True
    greedy: bool = True
    resolution_bits: float = LEAST_RESOLUTION_BITS
    # Pieces of text that were seen along the way.
    seen: tuple[str, ...] = ()
    # The hash of the answer that the model is recognized by.
    identity_sha256: str = ""
    # Where the text was put, for a server of conversations; and how it is made to continue a turn of the assistant, if it can.
    chat: Conversation | None = None
    prefill: Literal["trailing", "fields"] | None = None

    @property
    def name(self) -> str:
        """The level in words: a server of conversations that continues a given turn by likeliest tokens can score it."""
        if self.chat is None:
            return self.level
        return f"chat {'scorer' if self.level == 'ranker' and self.prefill else self.level}"

    @property
    def recognizable(self) -> bool:
        """Whether its answers distinguish it from another model; text alone does only if it is always the same."""
        return self.level != "generator" or self.deterministic


def probe(
    client: Client,
    *,
    context: str = "",
    texts: Sequence[str] = PROBE_TEXTS,
    chat: Conversation | None = None,
) -> Capability:
    """Ask the server about a few texts, and conclude what it can do; with `chat`, they are what a user says.

    A scorer sends the prompt back, its tokens join to the prompt, each token has a log-probability, these differ from token to token and
    from text to text, and that of a token is the one that the server gave this token as a continuation.
    """
    text, first = _accepted(client, context, texts, chat)
    noticed = []
    if not _learn_ids(client, context + in_another_order(text[len(context) :]), first, chat):
        noticed.append(
            "answers have no id of their own, so an answer to another question can be recognized by its text only"
        )
    again = client.ask(plain(text, 1, chat), anything)
    deterministic, greedy = again.text == first.text, True
    if not deterministic:
        noticed.append("greedy decoding is not deterministic: the same prompt was continued in two ways")
    level: Level = "generator"
    seen: list[str] = []
    style, resolution = EchoStyle(), LEAST_RESOLUTION_BITS
    try:
        greedy = confirmed(client, listing(text, chat), is_greedy)
        level, why = "ranker", "a chat does not show the log-probabilities of what it is sent"
        if not greedy:
            noticed.append(
                "what is generated is not always the likeliest token: the server has a penalty, or draws at random"
            )
        if chat is None:
            style, resolution, seen, remarks = probe_scorer(client, text, context)
            level, why = "scorer", "prompt log-probabilities are those of their own tokens"
            noticed += remarks
    except LackingError as problem:
        why = str(problem)
    except (EndpointRefusedError, NoAnswerError) as problem:
        raise_unless_lacking(problem)
        why = f"when asked for log-probabilities, it gives no usable answer: {problem.reason}"
    return Capability(
        level=level,
        why=why,
        text=text,
        noticed=tuple(noticed),
        style=style,
        deterministic=deterministic,
        greedy=greedy,
        resolution_bits=resolution,
        seen=tuple(seen),
        chat=chat,
    )


def _accepted(
    client: Client, context: str, texts: Sequence[str], chat: Conversation | None
) -> tuple[str, EndpointAnswer]:
    """The first text that the server continues, and its continuation; a text that it ends only if there is no other."""
    refusals = []
    ended = []
    for text in texts:
        words = text.split(" ")
        # A model is less likely to end the text after its beginning.
        for part in dict.fromkeys([text, " ".join(words[: len(words) * 2 // 3]) or text]):
            try:
                answer = client.ask(plain(context + part, 0, chat), anything)
            except EndpointRefusedError as problem:
                if problem.status not in {400, 422}:
                    raise
                refusals.append(problem)
                break
            if answer.text:
                return context + part, answer
            ended.append((context + part, answer))
    # A model can read what it writes itself.
    if chat is None:
        with contextlib.suppress(EndpointRefusedError):
            written = client.ask(_opening(context), anything).text
            if len(written) > 1:
                return context + written, client.ask(plain(context + written, 0), anything)
    if ended:
        return ended[0]
    raise ModelError(
        f"{refusals[0] if refusals else 'no text to try was given'}; the server continued none of the texts that it is tested "
        "with: give texts that its model can read (probe_texts)"
    )


def _learn_ids(client: Client, other_text: str, first: EndpointAnswer, chat: Conversation | None) -> bool:
    """Find out whether each answer has its own id, by asking about another text."""
    question = EndpointQuestion(prompt=other_text, again=1, chat=chat)
    for _ in range(TRIES if first.answer_id else 0):
        answer = client.cached(question) or client.ask_now(question, anything)
        if answer.answer_id and answer.answer_id != first.answer_id:
            client.keep(question, answer)
            client.ids_are_unique = True
            return True
    return False


def raise_unless_lacking(problem: EndpointRefusedError | NoAnswerError) -> None:
    """Raise, unless the server refuses this kind of question or fails at it: one that cannot be reached may be able to answer it."""
    if isinstance(problem, EndpointRefusedError):
        lacking = problem.status in {400, 404, 405, 422, 501}
    else:
        lacking = problem.kind in {"status", "content"}
    if not lacking:
        raise problem


def plain(text: str, again: int, chat: Conversation | None = None) -> EndpointQuestion:
    """A question for a continuation, and nothing else."""
    return EndpointQuestion(prompt=text, most_tokens=8, again=again, chat=chat)


def _opening(context: str) -> EndpointQuestion:
    return EndpointQuestion(prompt=context, most_tokens=16)
