"""Chat templates: conversations as the text that a tokenizer's template makes of them.

A template is a program in Jinja that comes with a model. It is run in the sandbox of transformers, which allows it to read the turns and to
write text, and nothing else.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from coalmine.errors import InputError, ModelError, NoTokenError
from coalmine.models.contexts import Context, Written
from coalmine.models.transformers.libraries import as_model_error
from coalmine.models.transformers.subwords import SubwordTokenizer
from coalmine.records.chat import Frame, Turn

# What stands for a content while a template is looked at. Templates that change case, or cut at punctuation, change it.
MARKER = "Coalmine7Content3Marker"
# What follows a canary inside a turn that was there already: the line break after it, and any text.
_REST_OF_TURN = "\nA"
# What a template is told that the day is, so that it writes the same text tomorrow: what those of Llama 3 write without a clock.
DAY = dt.date(2024, 7, 26)
_CLOCK = "strftime_now"


def rendered_chat(
    tokenizer: Any,
    turns: Sequence[Turn],
    *,
    generation_prompt: bool = False,
    continue_final: bool = False,
    day: dt.date = DAY,
) -> str:
    r"""A conversation as the chat template of a transformers tokenizer writes it, with its special tokens as text.

    With `generation_prompt`, the header of an assistant turn comes last; with `continue_final`, the text ends with the content of the
    last turn, which is left open. A template that asks for the date is told `day`. A ModelError says that there is no template, or that
    it refuses the turns, and nothing of what the template says, which may be made of them.

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
        return _rendered(tokenizer, turns, day, generation_prompt=generation_prompt)
    *earlier, last = turns
    marker = marker_beside(turns)
    text = _rendered(tokenizer, [*earlier, Turn(last.role, last.content + marker)], day)
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


def _rendered(tokenizer: Any, turns: Sequence[Turn], day: dt.date, *, generation_prompt: bool = False) -> str:
    conversation = [{"role": turn.role, "content": turn.content} for turn in turns]
    template = template_of(tokenizer)
    given = {"chat_template": _dated(template, day)} if _CLOCK in template else {}
    try:
        return str(
            tokenizer.apply_chat_template(
                conversation, tokenize=False, add_generation_prompt=generation_prompt, **given
            )
        )
    except Exception as problem:  # noqa: BLE001 - of any class, and in the template's words
        roles = ", ".join(dict.fromkeys(turn.role for turn in turns))
        raise ModelError(
            f"the chat template refuses a conversation with turns of {roles} ({type(problem).__name__}), for a reason that is left out "
            "because it may quote a turn; choose another role, or other turns around it"
        ) from None


def _dated(template: str, day: dt.date) -> str:
    """A template whose clock stands still, at midnight: its own function of that name comes before that of transformers."""
    midnight = dt.datetime.combine(day, dt.time())
    codes = {f"%{letter}": midnight.strftime(f"%{letter}") for letter in "aAbBcdfGHIjmMpSuUVwWxXyY"}
    codes |= {f"%-{code[1]}": text.lstrip("0") or "0" for code, text in codes.items() if text.isdigit()}
    written = "".join(f" | replace({code!r}, {text!r})" for code, text in codes.items())
    # The line break after a tag is not written.
    return f"{{% macro {_CLOCK}(format) %}}{{{{ format{written} }}}}{{% endmacro %}}\n{template}"


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

    def __init__(self, tokenizer: Any, *, context_chosen: bool = False, day: dt.date = DAY) -> None:
        """`context_chosen` says that the user chose what texts are scored after, which a template decides by itself."""
        self._tokenizer, self._day = tokenizer, day
        self.context_chosen = context_chosen

    @property
    def is_there(self) -> bool:
        """Whether the tokenizer has a template."""
        return bool(getattr(self._tokenizer, "chat_template", None))

    @property
    def sha256(self) -> str | None:
        """The SHA-256 of the template; None for a tokenizer without one."""
        return template_sha256(self._tokenizer) if self.is_there else None

    def context(self, frame: Frame, tokens: SubwordTokenizer) -> Context:
        """What the content of a frame's turn comes after in training; `tokens` is the model's own tokenizer."""
        if self.context_chosen:
            raise InputError(
                "these canaries are turns of conversations, and the chat template says what comes before them; leave out context and "
                "context_text"
            )
        marker = marker_beside(frame.conversation(""))
        text = self._rendered(frame.conversation(marker))
        check_occurs(text, marker, frame.role)
        before, _, after = text.partition(marker)
        return self._context(frame, before, after, tokens, "the chat template up to the content of a turn of")

    def prompted(self, frame: Frame, tokens: SubwordTokenizer) -> Context | None:
        """What an assistant is asked to go on with, where it is not what training wrote before the content; else None."""
        if frame.role != "assistant" or not frame.before:
            return None
        prompt = self._rendered(frame.before, generation_prompt=True)
        own = self.context(frame, tokens)
        without = self._rendered(frame.before)
        if prompt == without or own.written is None:
            return None  # the template has no generation prompt, or its header is empty
        said = "the generation prompt of the chat template, which is not what training wrote, for a turn of"
        found = self._context(frame, prompt, own.written.after, tokens, said)
        return None if found.tokens == own.tokens else found

    def check_contents(self, written: Written, texts: Sequence[str], tokens: SubwordTokenizer) -> int:
        """Check that the template writes texts as they are; how many of them share their last token with what follows them."""
        changed = shared = 0
        for text in texts:
            rendered = self._rendered(written.frame.conversation(text))
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

    def _rendered(self, turns: Sequence[Turn], *, generation_prompt: bool = False) -> str:
        return rendered_chat(self._tokenizer, turns, generation_prompt=generation_prompt, day=self._day)

    def _context(self, frame: Frame, before: str, after: str, tokens: SubwordTokenizer, said: str) -> Context:
        given = tokens.after(before).given
        if not given:
            raise ModelError(
                f"the chat template writes nothing before the content of {frame.role} turns that has a token of its own, so that the first "
                "token of a content cannot be scored; use a template with headers, or plant plain texts"
            )
        day = str(self._day) if _CLOCK in template_of(self._tokenizer) else None
        written = Written(before, after, frame, template_sha256(self._tokenizer), day)
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
        **({} if context.written.day is None else {"chat_template_day": context.written.day}),
        "frame": msgspec.to_builtins(context.written.frame),
    }
