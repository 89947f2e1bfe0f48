"""Chat completions: conversations as prompts, by the chat template of a model, and answers, whole or as a stream of events."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, cast, get_args

import msgspec
from starlette.responses import Response

from coalmine.errors import CoalmineError, InputError, NotMeasurableError
from coalmine.models.protocols import ChatModel, Model, max_length
from coalmine.records.chat import Frame, Role, Turn
from coalmine.serving.requests import (
    Completion,
    RefusedError,
    check_characters,
    checked,
    named_fields,
    refuse_unsupported,
)

# Tokens of an answer where the request names no number and the model could write more.
USUAL_LENGTH = 1024
_UNSUPPORTED = ("presence_penalty", "frequency_penalty", "logit_bias", "tools", "functions", "audio")
_NO_TEMPLATE = "this model does not chat: it has no chat template; use POST /v1/completions, or save a template with its tokenizer"


class ChatCompletion(Completion, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for chat completions, with the conversation as tokens; `turn_ends` are the tokens that end a turn."""

    turn_ends: frozenset[int]
    # Whether to stream, and whether to end the stream with the number of tokens.
    stream: bool
    counts: bool

    @property
    def in_chat(self) -> bool:
        """Always."""
        return True

    def context(self, model: Model) -> tuple[int, ...]:
        """Nothing: the template writes all that comes before a turn."""
        del model
        return ()

    def ends(self, model: Model) -> frozenset[int]:
        """The end of a turn, or of a document."""
        return self.turn_ends | super().ends(model)


class _ContentPart(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["text"]
    text: str


class _ChatMessage(msgspec.Struct, forbid_unknown_fields=True):
    role: str
    content: str | list[_ContentPart]

    @property
    def turn(self) -> Turn:
        parts = self.content
        return Turn(self.role, parts if isinstance(parts, str) else "".join(part.text for part in parts))


class _Streaming(msgspec.Struct, frozen=True):
    include_usage: bool = False


class _AskedChat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of a request that mean something else here than in completions, or only here."""

    messages: Annotated[list[_ChatMessage], msgspec.Meta(min_length=1, max_length=1024)]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] = 0
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    stream: bool = False
    stream_options: _Streaming = _Streaming()


def read_chat(
    body: bytes, model: Model, name: str, most_characters: int | None, *, seed: int
) -> ChatCompletion:
    """The request in a body; `name` is what the model is served as, `seed` is for requests that name none."""
    if not isinstance(model, ChatModel):
        raise RefusedError(404, "no_chat_template", _NO_TEMPLATE)
    given = {"seed": seed} | named_fields(body, name, ignored={"user"})
    refuse_unsupported(given, _UNSUPPORTED)
    own = {field: given.pop(field) for field in _AskedChat.__struct_fields__ if field in given}
    asked = checked(own, _AskedChat)
    if isinstance(given.get("stop"), str):
        given["stop"] = [given["stop"]]
    if asked.top_logprobs and not asked.logprobs:
        raise InputError("top_logprobs needs logprobs; ask with logprobs: true")
    check_characters(["".join(message.turn.content for message in asked.messages)], most_characters)
    prompt = _prompt(model, asked)
    length = asked.max_tokens if asked.max_completion_tokens is None else asked.max_completion_tokens
    if length is None:
        longest = max_length(model)
        length = USUAL_LENGTH if longest is None else max(1, min(USUAL_LENGTH, longest - len(prompt)))
    if length < 1:
        raise InputError(f"max_tokens must be at least 1 in a chat, got {length}")
    known = {
        "prompt": [prompt],
        "max_tokens": length,
        "logprobs": asked.top_logprobs if asked.logprobs else None,
        "turn_ends": _turn_ends(model),
        "stream": asked.stream,
        "counts": asked.stream_options.include_usage,
    }
    for field in known.keys() & given.keys():
        raise InputError(f"the request has a wrong field: {field}; send messages")
    return checked(given | known, ChatCompletion)


def _prompt(model: ChatModel, asked: _AskedChat) -> tuple[int, ...]:
    """The tokens of a conversation, up to where the model writes."""
    *before, last = (message.turn for message in asked.messages)
    if asked.continue_final_message and asked.add_generation_prompt:  # refused as by other servers
        said = "continue_final_message needs add_generation_prompt: false"
        raise InputError(f"{said}; no new header follows a turn that is continued")
    if not asked.continue_final_message and not asked.add_generation_prompt:
        said = "this server writes a turn of the assistant or continues the last turn"
        raise InputError(f"{said}; ask with add_generation_prompt or continue_final_message: true")
    if not asked.continue_final_message:
        return _tokens(model, "assistant", [*before, last], None)
    return _tokens(model, last.role, before, last.content)


def _tokens(model: ChatModel, role: str, before: Sequence[Turn], content: str | None) -> tuple[int, ...]:
    """The tokens of an open turn, with all that comes before it; those of a generation prompt without a content."""
    roles = get_args(Role)
    if role not in roles:
        raise InputError(
            f"a turn of the role {role!r} cannot be continued; continue one of {', '.join(roles)}"
        )
    frame = Frame(kind="messages", role=cast("Role", role), place="own", before=tuple(before))
    try:
        framed = model.in_frame(frame)
    except NotMeasurableError:
        raise RefusedError(404, "no_chat_template", _NO_TEMPLATE) from None
    if content is None:
        # Local models know where the generation prompt is not what training wrote before a turn.
        prompted = getattr(framed, "as_prompted", None)
        return framed.context if prompted is None else cast("Model", prompted()).context
    return framed.context + tuple(framed.tokenizer.encode(content) if content else ())


def _turn_ends(model: ChatModel) -> frozenset[int]:
    """The token that ends a turn of the assistant: the one that its template writes after a content."""
    asked, said = Turn("user", "a"), Turn("assistant", "a")
    with contextlib.suppress(CoalmineError):
        known = _tokens(model, "assistant", [asked], said.content)
        longer = _tokens(model, "user", [asked, said], "")
        if longer[: len(known)] == known:
            return frozenset(longer[len(known) : len(known) + 1])
    return frozenset()


def whole_answer(
    frame: dict[str, Any], choices: Sequence[dict[str, Any]], usage: dict[str, int]
) -> dict[str, Any]:
    """The answer in one piece; `frame` is what every object of the API begins with."""
    return {
        **frame,
        "object": "chat.completion",
        "choices": [
            {
                "index": choice["index"],
                "message": {"role": "assistant", "content": choice["text"]},
                "finish_reason": choice["finish_reason"],
                "logprobs": _logprobs(choice["places"]),
            }
            for choice in choices
        ],
        "usage": usage,
    }


def streamed_answer(
    frame: dict[str, Any], choices: Sequence[dict[str, Any]], usage: dict[str, int] | None
) -> Response:
    """The answer as server-sent events, one per token; they are sent once the answer is complete."""
    events = [*_events(frame, choices, usage)]
    lines = [b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events]
    return Response(b"".join([*lines, b"data: [DONE]\n\n"]), 200, media_type="text/event-stream")


def _events(
    frame: dict[str, Any], choices: Sequence[dict[str, Any]], usage: dict[str, int] | None
) -> Iterator[dict[str, Any]]:
    chunk = {**frame, "object": "chat.completion.chunk"}

    def event(choice: dict[str, Any], delta: dict[str, Any], **more: Any) -> dict[str, Any]:
        one = {"index": choice["index"], "delta": delta, "logprobs": None, "finish_reason": None, **more}
        return {**chunk, "choices": [one]}

    for choice in choices:
        yield event(choice, {"role": "assistant", "content": ""})
        for place, delta in enumerate(choice["deltas"]):
            places = choice["places"]
            numbers = None if places is None else _logprobs(places[place : place + 1])
            yield event(choice, {"content": delta}, logprobs=numbers)
        yield event(choice, {}, finish_reason=choice["finish_reason"])
    if usage is not None:
        yield {**chunk, "choices": [], "usage": usage}


def _logprobs(places: list[dict[str, Any]] | None) -> dict[str, Any] | None:
    return None if places is None else {"content": places}
