"""Questions to a server, and its answers: parsed, and checked in full before they are used or stored."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from coalmine.errors import ModelOutputError
from coalmine.models.endpoints.token_texts import written_bytes
from coalmine.records.chat import Turn

# Rounding can lift a log-probability a little above 0; more than this many nats is not a log-probability.
ABOVE_ZERO = 1e-5
# The probabilities of the listed tokens may sum to this much: servers round, some of them to 16 bits.
SUM_OF_PROBABILITIES = 1.02
LONGEST_NAME = 1000


class UnusableAnswerError(ModelOutputError):
    """An answer that cannot be used; another try may succeed.

    `kind` is "network" (no whole answer came), "status" (the server said that it failed) or "content".
    """

    def __init__(
        self,
        problem: str,
        kind: Literal["network", "status", "content"] = "content",
        *,
        wait_seconds: float = 0.0,
    ) -> None:
        super().__init__(problem)
        self.kind = kind
        self.wait_seconds = wait_seconds


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """Where a prompt stands in a chat: it is the content of a turn of this role, after other turns.

    The server answers the turn ("answered"), or continues it: because it is the last one ("trailing"), or because the request has fields
    that ask for it ("fields").
    """

    before: tuple[Turn, ...] = ()
    role: str = "user"
    style: Literal["answered", "trailing", "fields"] = "answered"

    def body(self, prompt: str) -> dict[str, Any]:
        """The fields of a request. An assistant that has written nothing yet is asked without a turn of its own."""
        turns = [*self.before, Turn(self.role, prompt)]
        begins = not prompt and self.role == "assistant"
        turns = turns[:-1] if begins else turns
        continued = {"continue_final_message": True, "add_generation_prompt": False}
        return {
            "messages": [{"role": turn.role, "content": turn.content} for turn in turns],
            **(continued if self.style == "fields" and not begins else {}),
        }


class EndpointQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """One request for a completion, always greedy. `again` distinguishes questions that are asked twice on purpose."""

    prompt: str
    most_tokens: int = 1
    top: int | None = None
    echo: bool = False
    again: int = 0
    chat: Conversation | None = None

    @property
    def path(self) -> str:
        """Where the server takes it."""
        return "/completions" if self.chat is None else "/chat/completions"

    @property
    def most_read(self) -> int:
        """The most tokens that it can have: one for each byte, and some that servers put before texts and around turns."""
        turns = () if self.chat is None else self.chat.before
        return len(self.prompt.encode()) + 2 + sum(len(turn.content.encode()) + 32 for turn in turns)

    @property
    def asked(self) -> dict[str, Any]:
        """What it is about, as the server reads it: the same for two ways to say the same."""
        return {"prompt": self.prompt} if self.chat is None else self.chat.body(self.prompt)

    def body(self, model: str, more: Mapping[str, Any]) -> dict[str, Any]:
        """The request as the server reads it, with `more` fields besides those of the API."""
        body: dict[str, Any] = {
            **more,
            "model": model,
            **self.asked,
            "max_tokens": self.most_tokens,
            "temperature": 0,
        }
        if self.top is not None and self.chat is not None:
            body |= {"logprobs": True, "top_logprobs": self.top}
        elif self.top is not None:
            body["logprobs"] = self.top
        if self.echo:
            body["echo"] = True
        return body


class EndpointAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a question; log-probabilities are natural logarithms (nats), as the server wrote them.

    `tokens`, `nats` and `top` are None if the server gave none. `nats[i]` is None if it wrote null.
    """

    text: str
    tokens: tuple[str, ...] | None = None
    nats: tuple[float | None, ...] | None = None
    top: tuple[dict[str, float] | None, ...] | None = None
    tokens_generated: int | None = None
    tokens_used: int | None = None
    answer_id: str | None = None
    # Why the text ends: "length" if as much was written as was asked for.
    finish_reason: str | None = None
    # The model and the version of it that the server names; None if it does not.
    model: str | None = None
    fingerprint: str | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    # What a model thinks before it answers, which some servers keep apart.
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    message: _Message | None = None
    finish_reason: str | None = None
    logprobs: dict[str, Any] | None = None


# More than any request takes; Python cannot compute with numbers of hundreds of digits.
_Count = Annotated[int, msgspec.Meta(le=10**12)]


class _Usage(msgspec.Struct):
    total_tokens: _Count | None = None
    completion_tokens: _Count | None = None


class _Response(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None
    id: str | None = None
    # Nothing is computed from these, so a server may write anything there.
    model: Any = None
    system_fingerprint: Any = None


class _LogprobColumns(msgspec.Struct):
    """Log-probabilities in the shape of the completions API."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None = None


class _Listed(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[Annotated[int, msgspec.Meta(ge=0, le=255)]] | None = None


class _Place(msgspec.Struct):
    token: str
    logprob: float | None = None
    bytes: list[Annotated[int, msgspec.Meta(ge=0, le=255)]] | None = None
    top_logprobs: list[_Listed] | None = None


class _Rows(msgspec.Struct):
    """Log-probabilities in the shape of the chat API, which some servers use for completions too."""

    content: list[_Place]


def read_answer(content: bytes, *, chat: bool = False) -> EndpointAnswer:
    """One completion from the body of a response, or an UnusableAnswerError that says what is wrong with it."""
    try:
        response = msgspec.json.decode(content, type=_Response)
    except msgspec.ValidationError as problem:
        raise UnusableAnswerError(f"the answer is JSON of another shape ({problem})") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise UnusableAnswerError("the answer is not JSON") from None
    except RecursionError:
        raise UnusableAnswerError("the answer is nested too deeply to be read") from None
    if len(response.choices) != 1:
        raise UnusableAnswerError(f"one completion was asked for, and {len(response.choices)} came")
    usage = response.usage or _Usage()
    columns = _columns(response.choices[0].logprobs)
    answer = EndpointAnswer(
        text=_text(response.choices[0], chat=chat),
        tokens=None if columns is None else tuple(columns.tokens),
        nats=None if columns is None else tuple(_at_most_zero(value) for value in columns.token_logprobs),
        top=None if columns is None or columns.top_logprobs is None else tuple(columns.top_logprobs),
        tokens_generated=usage.completion_tokens,
        tokens_used=usage.total_tokens,
        answer_id=response.id,
        finish_reason=response.choices[0].finish_reason,
        model=_name(response.model),
        fingerprint=_name(response.system_fingerprint),
    )
    _check(answer)
    return answer


def _text(choice: _Choice, *, chat: bool) -> str:
    """What was written."""
    if not chat:
        if choice.text is None:
            raise UnusableAnswerError("the answer is JSON of another shape (it has no text)")
        return choice.text
    if choice.message is None:
        raise UnusableAnswerError("the answer is JSON of another shape (it has no message)")
    if choice.message.reasoning_content or choice.message.reasoning:
        raise UnusableAnswerError(
            "the model thinks before it answers, and its thoughts come apart from the answer; turn that off at the server or with "
            "request_fields, such as { chat_template_kwargs = { enable_thinking = false } }"
        )
    return choice.message.content or ""


def check_length(question: EndpointQuestion, answer: EndpointAnswer, generated: int | None) -> None:
    """Refuse a text that stopped because of its length, but before the length that was asked for: it answers a shorter question."""
    if answer.finish_reason == "length" and generated is not None and generated < question.most_tokens:
        raise UnusableAnswerError(
            f"the answer stops for its length after {generated} tokens, and {question.most_tokens} were asked for"
        )


def _name(value: object) -> str | None:
    return value[:LONGEST_NAME] if isinstance(value, str) and value else None


def _columns(logprobs: dict[str, Any] | None) -> _LogprobColumns | None:
    if not logprobs or ("content" in logprobs and logprobs["content"] is None):
        return None
    try:
        if "content" not in logprobs:
            return msgspec.convert(logprobs, _LogprobColumns)
        places = msgspec.convert(logprobs, _Rows).content
    except msgspec.ValidationError as problem:
        raise UnusableAnswerError(f"the log-probabilities have another shape ({problem})") from None
    return _LogprobColumns(
        tokens=[_spelled(place) for place in places],
        token_logprobs=[place.logprob for place in places],
        # Of two tokens that are written alike, the likelier one comes first, and is the one that counts.
        top_logprobs=[
            {_spelled(item): item.logprob for item in reversed(place.top_logprobs or [])} or None
            for place in places
        ],
    )


def _spelled(place: _Place | _Listed) -> str:
    """A token as one string; where it is a part of a character, with its bytes."""
    if place.bytes is not None:
        try:
            bytes(place.bytes).decode()
        except UnicodeDecodeError:
            return written_bytes(bytes(place.bytes))
    return place.token


def _at_most_zero(value: float | None) -> float | None:
    return 0.0 if value is not None and 0 < value <= ABOVE_ZERO else value


def _check(answer: EndpointAnswer) -> None:
    """The checks that hold for every answer, whatever was asked."""
    if answer.tokens is None or answer.nats is None:
        return
    tops = answer.top if answer.top is not None else (None,) * len(answer.tokens)
    if not len(answer.tokens) == len(answer.nats) == len(tops):
        raise UnusableAnswerError(
            f"{len(answer.tokens)} tokens came with {len(answer.nats)} log-probabilities and {len(tops)} lists"
        )
    for value, top in zip(answer.nats, tops, strict=True):
        listed = [] if top is None else list(top.values())
        for number in listed if value is None else [value, *listed]:
            if not number <= ABOVE_ZERO:
                raise UnusableAnswerError(f"{number} came as a log-probability, which is never above 0")
        if math.fsum(map(math.exp, listed)) > SUM_OF_PROBABILITIES:
            raise UnusableAnswerError("the probabilities of the likeliest tokens sum to more than 1")
        if value is not None and listed and value > max(listed) + 1e-3:
            raise UnusableAnswerError("a token has a higher probability than the likeliest one")
