"""The tokens that a text is scored after: the choices, and how a choice is recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, get_args

from coalmine.errors import InputError, ModelError
from coalmine.records.chat import Frame

Choice = Literal["auto", "none", "bos", "eot"]
CHOICES: tuple[Choice, ...] = get_args(Choice)
NOTHING = "nothing: the first token of a text is given and not scored"
# What the record of a run says under "chat_template" where a model with one was asked about plain text.
TEMPLATE_NOT_USED = "not used"
_NAMES = {"bos": "BOS", "eot": "end-of-text"}


class Written(NamedTuple):
    """A turn of a conversation as a chat template writes it: the text before and after its content, and what it was written from.

    `day` is what a template that asks for the date was told; None where it does not ask.
    """

    before: str
    after: str
    frame: Frame
    template_sha256: str
    day: str | None = None


class Context(NamedTuple):
    """The tokens that a text is scored after.

    `choice` is how to ask for it ("none", "bos" or "eot"), and `described` is for the record of a run. `text` is a text that comes last
    in it; its tokens are part of `tokens`. Where a text is the content of a turn, `choice` is "chat", and `written` is the turn.

    >>> Context("bos", (1,), "BOS token '<s>'").tokens
    (1,)
    """

    choice: str
    tokens: tuple[int, ...]
    described: str
    text: str = ""
    written: Written | None = None


class Contexts(NamedTuple):
    """The contexts of a tokenizer: the one that was chosen, and others that training may have used.

    >>> Contexts(Context("bos", (1,), "BOS token '<s>'"), others=(Context("none", (), NOTHING),)).chosen.choice
    'bos'
    """

    chosen: Context
    others: tuple[Context, ...]


def contexts_of(
    tokenizer: Any, encode: Callable[[str], Sequence[int]], choice: str = "auto", text: str | None = None
) -> Contexts:
    """The contexts of a fast transformers tokenizer; `text` comes after the tokens of `choice`.

    "auto" takes the BOS token, and the end-of-text token (EOS) where there is no BOS.
    """
    check_choice(choice, text)
    ids = {"bos": tokenizer.bos_token_id, "eot": tokenizer.eos_token_id}
    known = {
        name: Context(name, (int(token),), f"{_NAMES[name]} token {_written(tokenizer, int(token))}")
        for name, token in ids.items()
        if token is not None
    }
    known["none"] = Context("none", (), NOTHING)
    wanted = next(iter(known)) if choice == "auto" else choice
    if choice == "auto" and wanted == "none":
        raise ModelError(
            "the tokenizer has neither a BOS nor an EOS token, so the context of a document is not known; set one, or choose "
            "what texts are scored after (context=none, or context=none with context_text)"
        )
    if wanted not in known:
        raise ModelError(
            f"the tokenizer has no {_NAMES[wanted]} token to score texts after; choose one of auto, {', '.join(known)}"
        )
    chosen = with_text(known[wanted], text, encode)
    # Two names of one token are one context.
    others = {one.tokens: one for one in (known[wanted], *known.values()) if one.tokens != chosen.tokens}
    return Contexts(chosen, tuple(others.values()))


def with_text(context: Context, text: str | None, encode: Callable[[str], Sequence[int]]) -> Context:
    """A context with a text after it."""
    if not text:
        return context
    before = f"{context.described}, then " if context.tokens else ""
    return Context(context.choice, (*context.tokens, *encode(text)), f"{before}the text {text!r}", text)


def check_choice(choice: str, text: str | None) -> None:
    """Reject an invalid choice."""
    if choice not in CHOICES:
        raise InputError(f"the context must be one of {', '.join(CHOICES)}, got {choice!r}")
    if text is not None and not text:
        raise InputError("the text of the context is empty; leave out context_text, or choose context=none")


def _written(tokenizer: Any, token: int) -> str:
    return repr(tokenizer.convert_ids_to_tokens(token))
