"""Answers of a chat that come as a stream of server-sent events, joined to the answer that would have come in one piece."""

from __future__ import annotations

from typing import Any

import msgspec

from coalmine.models.endpoints.answers import UnusableAnswerError

_PREFIX, _END = b"data:", b"[DONE]"


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _StreamedChoice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)
    logprobs: dict[str, Any] | None = None
    finish_reason: str | None = None
    index: int = 0


class _Event(msgspec.Struct):
    choices: list[_StreamedChoice]
    usage: dict[str, Any] | None = None
    id: str | None = None
    model: Any = None
    system_fingerprint: Any = None


def is_stream(content: bytes) -> bool:
    """Whether an answer is a stream of events.

    >>> is_stream(b'data: {"choices": []}'), is_stream(b'{"choices": []}')
    (True, False)
    """
    return content.lstrip().startswith(_PREFIX)


def joined_stream(content: bytes) -> bytes:
    """The same answer in one piece, as JSON; an UnusableAnswerError if the stream is not whole."""
    lines = [line[len(_PREFIX) :].strip() for line in content.splitlines() if line.startswith(_PREFIX)]
    if not lines or lines[-1] != _END:
        raise UnusableAnswerError("the stream of the answer ended before it was complete")
    try:
        events = [msgspec.json.decode(line, type=_Event) for line in lines[:-1]]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UnusableAnswerError("an event of the stream is not JSON, or has another shape") from None
    choices = [choice for event in events for choice in event.choices]
    if not choices or any(choice.index for choice in choices):
        raise UnusableAnswerError("one completion was asked for, and the stream has none, or several")
    deltas = [choice.delta for choice in choices]
    message = {
        name: "".join(getattr(delta, name) or "" for delta in deltas) for name in _Delta.__struct_fields__
    }
    places = [told["content"] for choice in choices if (told := choice.logprobs) and told.get("content")]
    if not all(isinstance(part, list) for part in places):
        raise UnusableAnswerError("the log-probabilities of the stream have another shape")
    whole: dict[str, Any] = {
        "choices": [
            {
                "message": message,
                "finish_reason": next((one.finish_reason for one in choices if one.finish_reason), None),
                "logprobs": {"content": [place for part in places for place in part]} if places else None,
            }
        ],
        "usage": next((event.usage for event in reversed(events) if event.usage), None),
        **{
            name: next((getattr(event, name) for event in events if getattr(event, name) is not None), None)
            for name in ("id", "model", "system_fingerprint")
        },
    }
    return msgspec.json.encode(whole)
