"""`framed`: the model that an audit asks about canaries, which for canaries of chat data scores texts as turns of conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from coalmine.corpus.chat.framing import frame_of
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.errors import CoalmineError, InputError, NotMeasurableError
from coalmine.models.contexts import TEMPLATE_NOT_USED
from coalmine.models.protocols import ChatModel, Model
from coalmine.records.chat import Frame, Turn


def framed(model: Model, canaries: CanarySet, *, writes: bool = False) -> Model:
    """The model in the frame of these canaries; the model itself where they are plain texts.

    Where it `writes` by itself, an assistant is asked as users ask it: after the generation prompt, if that is not what training wrote
    before its turns. A NotMeasurableError says that the model has no conversations, and an InputError what its template cannot write.

    >>> from coalmine import CanarySet, ScriptedModel
    >>> model = ScriptedModel("pin 0123456789")
    >>> framed(model, CanarySet.of("pin {digits:2}", ["pin 49"])) is model
    True
    """
    frame = canaries.frame
    if frame is None:
        return model
    found = _in_frame(model, frame, [text for _, _, text in canaries.named_texts()])
    return _prompted(found) if writes else found


def converses(model: Model) -> bool:
    """Whether a model has conversations."""
    return isinstance(model, ChatModel) and bool(getattr(model, "chats", True))


def in_conversation(model: Model, texts: Sequence[str]) -> Model:
    """The model for a format that nobody planted: an assistant where it has a chat template, and otherwise as it is.

    It is asked as users ask it, and its template is checked against the texts. A model that is in a frame already stays in it.
    """
    if "frame" in model.describe() or not converses(model):
        return model
    return _prompted(_in_frame(model, frame_of("messages", "assistant"), texts))


def asked_as(description: Mapping[str, Any]) -> str | None:
    """What a model that has conversations was asked about, by its description in a result; None for other models.

    >>> asked_as({"frame": {"kind": "messages", "role": "user", "place": "own"}}), asked_as({"adapter": "scripted"})
    ('a turn of the user', None)
    """
    if "frame" in description:
        return f"a turn of the {description['frame']['role']}"
    return "plain text" if description.get("chat_template") == TEMPLATE_NOT_USED else None


def framed_again(model: Model, description: Mapping[str, Any]) -> Model:
    """The model in the frame of a result, by the description of the model in it; the model itself where it had none."""
    if "frame" not in description:
        return model
    try:
        frame = msgspec.convert(description["frame"], Frame)
    except msgspec.ValidationError as problem:
        raise InputError(f"the frame of this result cannot be read ({problem}); make it again") from None
    found = _in_frame(model, frame)
    return found if found.describe().get("context") == description.get("context") else _prompted(found)


def asked_by(model: Model, said: str) -> Model | None:
    """The model in its frame, after a user who says this; None where it has no frame."""
    description = model.describe()
    if "frame" not in description:
        return None
    frame = msgspec.convert(description["frame"], Frame)
    if frame.role != "assistant":
        raise InputError(
            f"prompts are what users say before a turn of the assistant, and these canaries are {frame.role} turns; leave out the prompts"
        )
    found = _in_frame(model, msgspec.structs.replace(frame, before=(Turn("user", said),)))
    return _prompted(found)


def frame_obstacle(model: Model, canaries: CanarySet) -> str | None:
    """Why the model cannot be asked about these canaries as the turns that they are, or None where it can."""
    try:
        framed(model, canaries)
    except CoalmineError as problem:
        return str(problem)
    return None


def _in_frame(model: Model, frame: Frame, texts: Sequence[str] = ()) -> Model:
    if not isinstance(model, ChatModel):
        raise NotMeasurableError(
            f"these canaries are {frame.role} turns of conversations, and {model.name!r} cannot be asked about conversations; audit a chat "
            "model of transformers or a chat endpoint, or plant plain texts"
        )
    found: Model = model.in_frame(frame)
    # Local models have their template at hand, and check it against the texts.
    check = getattr(found, "check_contents", None)
    if check is not None and texts:
        check(texts)
    return found


def _prompted(model: Model) -> Model:
    prompted = getattr(model, "as_prompted", None)
    return model if prompted is None else prompted()
