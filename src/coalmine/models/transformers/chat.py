"""Chat templates: conversations as the text that a tokenizer's template makes of them.

A template is a program in Jinja that comes with a model. It is run in the sandbox of transformers, which allows it to read the turns and to
write text, and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from coalmine.errors import CoalmineError, InputError, ModelError, NoTokenError
from coalmine.models.contexts import Context, Written
from coalmine.models.transformers.libraries import as_model_error
from coalmine.models.transformers.subwords import SubwordTokenizer
from coalmine.records.chat import Frame, Turn

# What stands for a content while a template is looked at. Templates that change case, or cut at punctuation, change it.
MARKER = "Coalmine7Content3Marker"
# What follows a canary inside a turn that was there already: the line break after it, and any text.
_REST_OF_TURN = "\nA"
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


class ChatTemplate:
    """The chat template of a model's tokenizer, and the contexts that it gives to the contents of turns."""

    def __init__(self, tokenizer: Any, *, context_chosen: bool = False) -> None:
        """`context_chosen` says that the user chose what texts are scored after, which a template decides by itself."""
        self._tokenizer = tokenizer
        self.context_chosen = context_chosen

    @property
    def is_there(self) -> bool:
        """Whether the tokenizer has a template."""
        return bool(getattr(self._tokenizer, "chat_template", None))

    def context(self, frame: Frame, tokens: SubwordTokenizer) -> Context:
        """What the content of a frame's turn comes after in training; `tokens` is the model's own tokenizer."""
        if self.context_chosen:
            raise InputError(
                "these canaries are turns of conversations, and the chat template says what comes before them; leave out --context and "
                "--context-text"
            )
        marker = marker_beside(frame.conversation(""))
        text = rendered_chat(self._tokenizer, frame.conversation(marker))
        check_occurs(text, marker, frame.role)
        before, _, after = text.partition(marker)
        return self._context(frame, before, after, tokens, "the chat template up to the content of a turn of")

    def prompted(self, frame: Frame, tokens: SubwordTokenizer) -> Context | None:
        """What an assistant is asked to go on with, where it is not what training wrote before the content; else None."""
        if frame.role != "assistant" or not frame.before:
            return None
        prompt = rendered_chat(self._tokenizer, frame.before, generation_prompt=True)
        own = self.context(frame, tokens)
        without = rendered_chat(self._tokenizer, frame.before)
        if prompt == without or own.written is None:
            return None  # the template has no generation prompt, or its header is empty
        said = "the generation prompt of the chat template, which is not what training wrote, for a turn of"
        found = self._context(frame, prompt, own.written.after, tokens, said)
        return None if found.tokens == own.tokens else found

    def check_contents(self, written: Written, texts: Sequence[str], tokens: SubwordTokenizer) -> int:
        """Check that the template writes texts as they are; how many of them share their last token with what follows them."""
        changed = shared = 0
        for text in texts:
            rendered = rendered_chat(self._tokenizer, written.frame.conversation(text))
            if rendered != written.before + text + written.after:
                changed += 1
                continue
            with contextlib.suppress(NoTokenError):  # the text has no score, and its own reason
                cut = [*tokens.given, *tokens.encode(text)]
                followed = _REST_OF_TURN if written.frame.place == "inside" else written.after
                shared += tokens.whole(written.before + text + followed)[: len(cut)] != cut
        if changed:
            raise ModelError(
                f"the chat template changes {changed} of {len(texts)} texts, such as by removing spaces at their beginning or end, so that "
                "training never saw them; use a format without these"
            )
        return shared

    def _context(self, frame: Frame, before: str, after: str, tokens: SubwordTokenizer, said: str) -> Context:
        given = tokens.after(before).given
        if not given:
            raise ModelError(
                f"the chat template writes nothing before the content of {frame.role} turns that has a token of its own, so that the first "
                "token of a content cannot be scored; use a template with headers, or plant plain texts"
            )
        written = Written(before, after, frame, template_sha256(self._tokenizer))
        return Context("chat", given, f"{said} {frame.role}: {before!r}", written=written)


def tokenizer_in(tokenizer: Any, context: Context) -> Any:
    """A model's tokenizer for texts that are scored in a context."""
    if not isinstance(tokenizer, SubwordTokenizer):
        return tokenizer
    if context.written is not None:
        return tokenizer.after(context.written.before)
    return tokenizer.after("") if tokenizer.given else tokenizer


def written_facts(context: Context) -> dict[str, Any]:
    """What the record of a run says of a turn that a chat template writes; nothing for other contexts."""
    if context.written is None:
        return {}
    return {
        "chat_template_sha256": context.written.template_sha256,
        "frame": msgspec.to_builtins(context.written.frame),
    }
