"""Models at a chat endpoint, as audits see them: one class for each thing that a server was seen to do.

Outside a frame, a prompt is what a user says, and its continuation is the assistant's answer. In a frame, a prompt is the beginning of a
turn of the frame's role. A server that continues a turn that it is given is asked to do that. One that does not is asked for the whole
turn, and has continued a prompt if it wrote the prompt first.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import msgspec

from coalmine.errors import InputError, NotMeasurableError
from coalmine.models.endpoints.adapters import EndpointGenerator, EndpointRanker
from coalmine.models.endpoints.answers import (
    Conversation,
    EndpointAnswer,
    EndpointQuestion,
    UnusableAnswerError,
)
from coalmine.models.endpoints.echo import wrote
from coalmine.models.endpoints.listing import longest_list
from coalmine.models.endpoints.probing_chat import prove_continues
from coalmine.models.endpoints.probing_scores import LackingError
from coalmine.models.protocols import check_listed
from coalmine.models.transformers.conversations import WrittenConversations
from coalmine.records.chat import Frame, Turn


class _InChat(EndpointGenerator):
    """What all models at chat endpoints share."""

    frame: Frame | None = None
    # Where prompts are conversations as a chat template writes them, up to the content of an assistant's turn.
    written: WrittenConversations | None = None

    def as_written(self) -> Self:
        """The same model, whose prompts are conversations as the chat template of its local tokenizer writes them, header included."""
        if self._local is None:
            raise NotMeasurableError(
                f"the endpoint of {self.name!r} does not show its chat template; give a directory with the tokenizer of the model that is "
                "served and its template (tokenizer)"
            )
        found = copy.copy(self)
        found.written = self._local.conversations
        return found

    @property
    def template_sha256(self) -> str:
        """The hash of the chat template that conversations are written with; empty where prompts are not conversations."""
        return "" if self.written is None else self.written.sha256

    def turns_in(self, text: str) -> tuple[Turn, ...] | None:
        """The turns of a whole conversation that the template wrote as this text; None where it is not one."""
        return None if self.written is None else self.written.turns(text)

    def before_last(self, turns: Sequence[Turn]) -> str:
        """A conversation as the template writes it, up to the content of its last turn."""
        return "" if self.written is None else self.written.before(turns)

    def in_frame(self, frame: Frame) -> Self:
        """The same model, whose texts are turns of the frame's role; a NotMeasurableError if the server cannot continue such a turn."""
        if frame.role != "assistant":
            self._prove_open_turn(frame)
        elif not frame.before:
            raise NotMeasurableError(
                "a chat endpoint writes an assistant's turn only after another one, and these canaries have none before them; plant them "
                "after a turn of the user"
            )
        found = copy.copy(self)
        found.frame = frame
        return found

    def describe(self) -> dict[str, Any]:
        """For the record of a run."""
        own = {
            **super().describe(),
            "capability": self.capability.name,
            "api": "chat",
            "prefill": self.capability.prefill,
        }
        return own if self.frame is None else {**own, "frame": msgspec.to_builtins(self.frame)}

    def complete(self, prompts: Sequence[str], *, length: int) -> list[str]:
        """The greedy continuation of each prompt by up to `length` tokens; nothing where the assistant did not write the prompt itself."""
        if length < 1:
            raise InputError(f"length must be at least 1 token, got {length}")
        if self.written is not None:
            asked = [self._answering(self.written, prompt, length) for prompt in prompts]
            return [answer.text for answer in self._client.ask_all(asked, self._check_continuation)]
        if self._continues:
            return super().complete(prompts, length=length)
        # A token of a prompt has at least one byte.
        questions = [self._asked("", length + len(prompt.encode()), None) for prompt in prompts]
        answers = self._client.ask_all(questions, self._check_continuation)
        return [
            answer.text[len(prompt) :] if answer.text.startswith(prompt) else ""
            for prompt, answer in zip(prompts, answers, strict=True)
        ]

    @property
    def continues_turns(self) -> bool:
        """Whether the server continues a turn that it is given the beginning of; it answers a prompt outside a frame in any case."""
        return self._continues

    @property
    def _continues(self) -> bool:
        """Whether prompts are continued where they end: by an answer, or in an open turn."""
        return self.frame is None or self.capability.prefill is not None

    @property
    def _place(self) -> Conversation:
        if self.frame is None:
            return Conversation()
        # Only the fields of a request can ask to continue a turn of another role than the assistant's.
        style = "fields" if self.frame.role != "assistant" else self.capability.prefill or "trailing"
        return Conversation(before=self.frame.before, role=self.frame.role, style=style)

    def _asked(self, prompt: str, most_tokens: int, top: int | None) -> EndpointQuestion:
        return EndpointQuestion(prompt=prompt, most_tokens=most_tokens, top=top, chat=self._place)

    def _continuing(self, prompt: str, length: int) -> EndpointQuestion:
        return self._asked(super()._continuing(prompt, length).prompt, length, None)

    def _answering(self, written: WrittenConversations, prompt: str, length: int) -> EndpointQuestion:
        """The question for the turn that a written conversation ends before."""
        turns = written.turns(prompt, is_open=True)
        if turns is None or turns[-1] != Turn("assistant", "") or len(turns) == 1:
            raise NotMeasurableError(
                "a prompt is not a conversation that the chat template wrote up to a turn of the assistant, so the server cannot be asked"
            )
        place = Conversation(before=turns[:-1], role="assistant", style="trailing")
        return EndpointQuestion(prompt="", most_tokens=length, chat=place)

    def _given_text(self, tokens: Sequence[int]) -> str:
        return super()._given_text(tokens) if self.written is None else self._decoded(tokens[1:])

    def _decoded(self, tokens: Sequence[int]) -> str:
        if self.written is None or self._local is None:
            return super()._decoded(tokens)
        return self._local.with_markers(tokens)

    def _prove_open_turn(self, frame: Frame) -> None:
        place = Conversation(before=frame.before, role=frame.role, style="fields")
        words = self.capability.text.split(" ")
        beginning = " ".join(words[: max(1, len(words) // 2)])
        try:
            prove_continues(self._client, place, beginning, listed=self.capability.level == "ranker")
        except LackingError as problem:
            raise NotMeasurableError(
                f"these canaries are {frame.role} turns, and the endpoint of {self.name!r} does not continue an open turn of that role "
                f"({problem}); audit the model itself, or plant canaries of the assistant"
            ) from None

    def _context_in_words(self) -> str:
        if self.frame is None:
            return "the turn of the assistant, after a turn of the user that is the prompt"
        return f"a turn of the role {self.frame.role}, after {len(self.frame.before)} others, as the server writes them"


class ChatEndpointGenerator(_InChat):
    """A server of conversations that gives text."""


class ChatEndpointRanker(_InChat, EndpointRanker):
    """A server of conversations that gives the likeliest next tokens."""

    @cached_property
    def most_listed(self) -> int:
        """The most next tokens that the server lists, up to 1,000; it is asked when this is first needed."""
        text, place = self.capability.text, Conversation()
        return longest_list(
            self._client,
            lambda k: EndpointQuestion(prompt=text, most_tokens=1, top=k, chat=place),
            lambda question, answer: self._by_likelihood(self._next_tokens(question, answer)),
            self._check_top,
        )

    def next_texts(self, prompts: Sequence[str], *, k: int) -> list[list[str]]:
        """For each prompt the texts of the k likeliest next tokens as the server writes them; none where it ends the text."""
        check_listed(k, self.most_listed)
        if not self._continues and any(prompts):
            raise NotMeasurableError(
                f"the endpoint of {self.name!r} does not continue a given turn, so what follows a beginning of it is not known"
            )
        return super().next_texts(prompts, k=k)

    def generate(self, prompts: Sequence[Sequence[int]], *, length: int) -> list[list[int]]:
        """The greedy continuation of each prompt by `length` tokens; fewer if the server ends the text earlier."""
        if self._continues:
            return super().generate(prompts, length=length)
        return EndpointGenerator.generate(self, prompts, length=length)

    def _generated(self, question: EndpointQuestion, answer: EndpointAnswer) -> Sequence[str]:
        """The tokens of the text, without the one that ends the turn, which some servers list after them."""
        tokens = super()._generated(question, answer)
        return tokens[:-1] if tokens and "".join(tokens[:-1]) == answer.text else tokens

    def _check_top(self, question: EndpointQuestion, answer: EndpointAnswer) -> None:
        super()._check_top(question, answer)
        tokens = answer.tokens or ()
        # Some servers remove the space before the first word.
        if answer.text and not (
            tokens and (wrote(tokens, answer.text) or wrote((tokens[0].lstrip(), *tokens[1:]), answer.text))
        ):
            raise UnusableAnswerError("the tokens of the answer do not join to its text")

    def _asking_for(self, prompt: str, *, most_tokens: int, top: int) -> EndpointQuestion:
        return self._asked(prompt, most_tokens, top)
