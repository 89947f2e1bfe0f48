"""Conversations as text: what the chat template of a tokenizer makes of turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coalmine.errors import InputError, ModelError
from coalmine.models.transformers.libraries import as_model_error
from coalmine.records.chat import Turn

# Put where the content of the last turn goes, to find its place in the text that a template writes.
_CONTENT = "COALMINE-CONTENT"


def rendered_chat(
    tokenizer: Any, turns: Sequence[Turn], *, generation_prompt: bool = False, continue_final: bool = False
) -> str:
    """A conversation as the chat template of a transformers tokenizer writes it.

    With `generation_prompt`, the header of the assistant's next turn follows. With `continue_final`, the text ends with the content of
    the last turn, whose end is left open.
    """
    if not turns:
        raise InputError("a conversation without turns has no text; give at least one turn")
    if generation_prompt and continue_final:
        raise InputError(
            "a conversation ends either with a turn that is continued or with the header of a new one; choose one of the two"
        )
    if not getattr(tokenizer, "chat_template", None):
        raise ModelError(
            "the model's tokenizer has no chat template, so it is not known how conversations are written; save it with the template that "
            "the model was trained with"
        )
    if not continue_final:
        return _written(tokenizer, turns, generation_prompt=generation_prompt)
    mark = _CONTENT
    while any(mark in turn.content for turn in turns):
        mark += "-"
    *before, last = turns
    opened = _written(tokenizer, [*before, Turn(last.role, mark)], generation_prompt=False)
    if (times := opened.count(mark)) != 1:
        raise ModelError(
            f"the chat template writes the content of a turn of the role {last.role!r} {times} times, so there is no one place where it "
            "can be continued; use a template that writes it once"
        )
    return opened.partition(mark)[0] + last.content


def _written(tokenizer: Any, turns: Sequence[Turn], *, generation_prompt: bool) -> str:
    with as_model_error(
        f"the chat template cannot write a conversation of {_roles(turns)}", "use turns that the template has"
    ):
        return str(
            tokenizer.apply_chat_template(
                [{"role": turn.role, "content": turn.content} for turn in turns],
                tokenize=False,
                add_generation_prompt=generation_prompt,
            )
        )


def _roles(turns: Sequence[Turn]) -> str:
    return ", ".join(turn.role for turn in turns[:8]) + (", ..." if len(turns) > 8 else "")
