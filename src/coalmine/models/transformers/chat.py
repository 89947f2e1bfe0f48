"""Chat templates: conversations as the text that a tokenizer's template makes of them.

A template is a program in Jinja that comes with a model. It is run in the sandbox of transformers, which allows it to read the turns and to
write text, and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from coalmine.errors import CoalmineError, InputError, ModelError
from coalmine.models.transformers.libraries import as_model_error
from coalmine.records.chat import Turn

# What stands for a content while a template is looked at. Templates that change case, or cut at punctuation, change it.
MARKER = "Coalmine7Content3Marker"
# A content of fewer characters is not looked for in what a template says: it may be a word of the sentence.
_QUOTED = 4


def rendered_chat(
    tokenizer: Any, turns: Sequence[Turn], *, generation_prompt: bool = False, continue_final: bool = False
) -> str:
    r"""A conversation as the chat template of a transformers tokenizer writes it, with its special tokens as text.

    With `generation_prompt`, the header of an assistant turn comes last; with `continue_final`, the text ends with the content of the
    last turn, which is left open. A ModelError says that there is no template, or what a template refuses.

    >>> rendered_chat(tokenizer, [Turn("user", "hi")], generation_prompt=True)  # doctest: +SKIP
    '<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n'
    """
    template_of(tokenizer)
    if not turns:
        raise InputError("a conversation without turns has no text; give at least one turn")
    if generation_prompt and continue_final:
        raise InputError(
            "a conversation ends either with a turn that is continued or with the header of a new one; choose one of the two"
        )
    if not continue_final:
        return _rendered(tokenizer, turns, generation_prompt=generation_prompt)
    *earlier, last = turns
    marker = marker_beside(turns)
    text = _rendered(tokenizer, [*earlier, Turn(last.role, last.content + marker)])
    check_occurs(text, marker, last.role)
    return text[: text.index(marker)]


def marker_beside(turns: Sequence[Turn]) -> str:
    """A text to put in place of a content, which none of these turns has."""
    marker = MARKER
    while any(marker in turn.content for turn in turns):
        marker += "3"
    return marker


def template_of(tokenizer: Any) -> str:
    """The chat template of a transformers tokenizer; where there are several, the one that conversations without tools get."""
    found = getattr(tokenizer, "chat_template", None)
    if not found:
        raise ModelError(
            "the model's tokenizer has no chat template, so it is not known how training wrote turns; save the tokenizer with its "
            "template (chat_template.jinja), or plant plain texts"
        )
    with as_model_error("the chat template of the tokenizer cannot be read", "save the tokenizer again"):
        return str(tokenizer.get_chat_template())


def template_sha256(tokenizer: Any) -> str:
    """The SHA-256 of a tokenizer's chat template, by which results that were made with different templates are told apart."""
    return hashlib.sha256(template_of(tokenizer).encode("utf-8", "surrogatepass")).hexdigest()


def _rendered(tokenizer: Any, turns: Sequence[Turn], *, generation_prompt: bool = False) -> str:
    conversation = [{"role": turn.role, "content": turn.content} for turn in turns]
    roles = ", ".join(dict.fromkeys(turn.role for turn in turns))
    try:
        with as_model_error(
            f"the chat template refuses a conversation with turns of {roles}",
            "choose another role, or other turns around it",
        ):
            return str(
                tokenizer.apply_chat_template(
                    conversation, tokenize=False, add_generation_prompt=generation_prompt
                )
            )
    except CoalmineError as problem:
        if any(len(turn.content) >= _QUOTED and turn.content in str(problem) for turn in turns):
            raise ModelError(
                f"the chat template refuses a conversation with turns of {roles}, and its reason is left out because it quotes a turn; "
                "choose another role, or other turns around it"
            ) from None
        raise


def check_occurs(text: str, marker: str, role: str) -> None:
    """Refuse a template that drops the turns of a role, changes their content or writes it more than once."""
    times = text.count(marker)
    if times == 1:
        return
    if times > 1:
        raise ModelError(
            f"the chat template writes the content of a {role} turn {times} times, so it is not known which of them to score; choose "
            "another role"
        )
    if marker.casefold() in text.casefold():
        raise ModelError(
            f"the chat template changes the content of {role} turns (their case), so a model never saw the texts that were planted; "
            "choose another role"
        )
    raise ModelError(
        f"the chat template drops {role} turns: their content is not in the text that it writes; choose another role"
    )
