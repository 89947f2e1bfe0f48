"""`FramedModel`: the base of models that score texts in the context that was chosen, or as turns that a chat template writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from coalmine.errors import NotMeasurableError
from coalmine.models.contexts import TEMPLATE_NOT_USED, Context, Contexts
from coalmine.models.transformers.chat import ChatTemplate, written_facts
from coalmine.models.transformers.subwords import SubwordTokenizer
from coalmine.records.chat import Frame


class FramedModel:
    """What a model is asked after, and how it is asked as a part of a conversation; `in_context` is left to the model itself."""

    contexts: Contexts | None
    chat: ChatTemplate | None
    # A property of the model.
    name: Any

    @property
    def context(self) -> tuple[int, ...]:
        """What was chosen to come before each text, or the document separator; empty where the first token of a text is given."""
        return (self._tokens.separator,) if self.contexts is None else self.contexts.chosen.tokens

    @property
    def chats(self) -> bool:
        """Whether it is a model of conversations that is asked as one: it has a chat template, and no other context was chosen."""
        return self.chat is not None and self.chat.is_there and not self.chat.context_chosen

    def in_context(self, context: Context) -> Self:
        """The same weights with another context."""
        raise NotImplementedError

    def in_frame(self, frame: Frame) -> Self:
        """The same weights; texts are scored as turns of a frame's role, as the chat template of the tokenizer writes them."""
        chat, tokens = self._conversing()
        return self.in_context(chat.context(frame, tokens))

    def as_prompted(self) -> Self:
        """A model in a frame as it is where the assistant is asked: after the generation prompt, if training wrote something else."""
        written = None if self.contexts is None else self.contexts.chosen.written
        chat, tokens = self._conversing()
        other = None if written is None else chat.prompted(written.frame, tokens)
        return self if other is None else self.in_context(other)

    def check_contents(self, texts: Sequence[str]) -> int:
        """Check that a model in a frame was given texts as they are; how many share their last token with what follows them."""
        written = None if self.contexts is None else self.contexts.chosen.written
        if written is None:
            return 0
        chat, tokens = self._conversing()
        return chat.check_contents(written, texts, tokens)

    def unscored(self, texts: Sequence[str]) -> list[int]:
        """The number of characters at the beginning of each text that have no log-probability, because nothing comes before them."""
        if self.context:
            return [0] * len(texts)
        firsts = [self._tokens.encode(text)[:1] for text in texts]
        # If texts begin with different tokens, the unscored part differs from text to text.
        alike = len({tuple(first) for first in firsts}) <= 1
        return [
            len(self._tokens.decode(first)) if alike else len(text)
            for first, text in zip(firsts, texts, strict=True)
        ]

    def _contexts_in(self, context: Context) -> Contexts:
        """The contexts of the same model with another one chosen."""
        # A turn has one place in its template, so that no other context is an alternative to it.
        others = () if self.contexts is None or context.written is not None else self.contexts.others
        return Contexts(context, tuple(one for one in others if one.tokens != context.tokens))

    def _written_facts(self) -> dict[str, Any]:
        """What the record of a run says of a chat template, if there is one."""
        if self.contexts is not None and self.contexts.chosen.written is not None:
            return written_facts(self.contexts.chosen)
        return {} if self.chat is None or not self.chat.is_there else {"chat_template": TEMPLATE_NOT_USED}

    def _conversing(self) -> tuple[ChatTemplate, SubwordTokenizer]:
        tokens = self._tokens
        if self.chat is None or not isinstance(tokens, SubwordTokenizer):
            raise NotMeasurableError(
                f"{self.name!r} is not a model of conversations, because it has no chat template; plant plain texts, or audit a chat model "
                "of transformers"
            )
        return self.chat, tokens

    @property
    def _tokens(self) -> Any:
        """The tokenizer, which a model may declare to be of a narrower kind."""
        return self.tokenizer  # type: ignore[attr-defined]
