"""Models at an endpoint, as audits see them: one class for each thing that a server was seen to do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from coalmine.errors import InputError, ModelError, NotMeasurableError
from coalmine.models.endpoints.answers import (
    EndpointAnswer,
    EndpointQuestion,
    UnusableAnswerError,
    check_length,
)
from coalmine.models.endpoints.client import Client
from coalmine.models.endpoints.echo import Echo, Piece, read_echo
from coalmine.models.endpoints.listing import longest_list
from coalmine.models.endpoints.probing import Capability
from coalmine.models.endpoints.probing_scores import TOP
from coalmine.models.endpoints.reciting import first_misses
from coalmine.models.endpoints.tokens import EndpointTokenizer, LocalTokenizer
from coalmine.models.protocols import IntArray, SequenceScore, TokenSequence, check_listed


class EndpointGenerator:
    """A server that gives text. Its tokens are single characters, because nothing more is known about them.

    Use it as a context manager, or call `close`, to end connections early.
    """

    def __init__(
        self, client: Client, capability: Capability, *, context: str, local: LocalTokenizer | None
    ) -> None:
        self.name = client.model
        self.capability = capability
        self._client = client
        self._before = context
        self._local = local
        self.tokenizer: EndpointTokenizer | LocalTokenizer = local or EndpointTokenizer(
            self._cut, seen=capability.seen
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and the cache."""
        self._client.close()

    @property
    def context(self) -> tuple[int, ...]:
        """What the server puts before a text, and the context that was asked for, as one token without text."""
        return (self.tokenizer.start,)

    @property
    def resolution_bits(self) -> float:
        """What the server rounds to, or how far apart two of its answers to one question were, in bits; at least 1e-4."""
        return self.capability.resolution_bits

    def describe(self) -> dict[str, Any]:
        """For the record of a run; the same whether answers came from the server or from the cache."""
        return {
            "adapter": "endpoint",
            "url": self._client.connection.url,
            "model": self._client.model,
            "capability": self.capability.level,
            "why": self.capability.why,
            "noticed": list(self.capability.noticed),
            "deterministic": self.capability.deterministic,
            "greedy": self.capability.greedy,
            "request_fields": self._client.request_fields,
            "context": self._context_in_words(),
            "tokens": self._tokens_in_words(),
            "resolution_bits": self.resolution_bits,
            "identity_sha256": self.capability.identity_sha256,
        }

    def spent(self) -> dict[str, float]:
        """What was used so far: requests with retries, answers from the cache, tokens as the server counts them, and their cost."""
        budget = self._client.connection.budget
        return {
            "requests": budget.requests,
            "answered_from_cache": self._client.answered_from_cache,
            "tokens": budget.tokens,
            "cost": budget.cost,
        }

    def checks(self) -> dict[str, Any]:
        """How often the server was tested for being the same model, and how likely a switch would have gone unnoticed.

        This includes the answers in the cache, and the tests of the runs that filled it.
        """
        noise = 0.0 if self._client.recognizer is None else self._client.recognizer.noise_bits
        seen = max(2 * self.resolution_bits, noise)
        return self._client.checks().to_record(tolerance_bits=seen if self.capability.recognizable else None)

    def complete(self, prompts: Sequence[str], *, length: int) -> list[str]:
        """The greedy continuation of each prompt by up to `length` of the server's tokens; shorter if the text ends earlier."""
        questions = [self._continuing(prompt, length) for prompt in prompts]
        answers = self._client.ask_all(questions, self._check_continuation)
        return [
            answer.text[len(question.prompt) :] if question.echo else answer.text
            for question, answer in zip(questions, answers, strict=True)
        ]

    @property
    def most_listed(self) -> int:
        """1: a server that gives text lists the token that it would write."""
        return 1

    def next_texts(self, prompts: Sequence[str], *, k: int) -> list[list[str]]:
        """For each prompt the text of the k likeliest next tokens as the server writes them; none where it ends the text."""
        check_listed(k, self.most_listed)
        return [[text] if text else [] for text in self.complete(prompts, length=1)]

    def generate(self, prompts: Sequence[Sequence[int]], *, length: int) -> list[list[int]]:
        """The greedy continuation of each prompt by `length` tokens; fewer if the server ends the text earlier."""
        texts = [self._text(prompt) for prompt in prompts]
        written = self.complete(texts, length=length)
        if self._local is None:
            return [[self.tokenizer.id_of(character) for character in text[:length]] for text in written]
        return [
            self._tokens_after(prompt, text, more)[:length]
            for prompt, text, more in zip(prompts, texts, written, strict=True)
        ]

    def follow_text(self, sequences: Sequence[TokenSequence]) -> list[int | None]:
        """For each sequence the first token of its target that greedy decoding does not write; None if it writes all of the text."""
        given = [self._given_text(sequence.context) for sequence in sequences]
        return first_misses(
            sequences, given, lambda prompts, length: self.complete(prompts, length=length), self._decoded
        )

    def _decoded(self, tokens: Sequence[int]) -> str:
        """The text of tokens of a corpus."""
        return self.tokenizer.decode(tokens)

    def _given_text(self, tokens: Sequence[int]) -> str:
        return self._text(tokens)

    def _continuing(self, prompt: str, length: int) -> EndpointQuestion:
        if length < 1:
            raise InputError(f"length must be at least 1 token, got {length}")
        return EndpointQuestion(prompt=self._before + prompt, most_tokens=length)

    def _check_continuation(self, question: EndpointQuestion, answer: EndpointAnswer) -> None:
        """Without echo, little in an answer shows which question it belongs to."""
        check_length(question, answer, answer.tokens_generated)

    def _cut(self, text: str) -> list[str]:
        return list(text)

    def _text(self, tokens: Sequence[int]) -> str:
        """The text of tokens that begin at the start of a text, without the context before it."""
        start = self.tokenizer.start
        if not tokens or tokens[0] != start or start in tokens[1:]:
            raise ModelError(
                "a text for an endpoint begins with the model's context and has it nowhere else; put model.context before the tokens"
            )
        return self.tokenizer.decode(tokens[1:])

    def _tokens_after(self, prompt: Sequence[int], text: str, more: str) -> list[int]:
        """The local tokens of a continuation, if those of the prompt stay the same."""
        whole = self.tokenizer.encode(text + more)
        if whole[: len(prompt) - 1] != list(prompt[1:]):
            raise NotMeasurableError(
                "the continuation changes how the end of the prompt is cut into tokens, so it has no tokens of its own; use complete()"
            )
        return whole[len(prompt) - 1 :]

    def _context_in_words(self) -> str:
        return "what the server puts before each text" + (f", and {self._before!r}" if self._before else "")

    def _tokens_in_words(self) -> str:
        if self._local is not None:
            return f"those of a local tokenizer.json, sha256 {self._local.sha256}"
        return "characters, because the server gives only text"


class EndpointRanker(EndpointGenerator):
    """A server that gives the likeliest next tokens. It generates its own tokens; prompts are cut into characters."""

    def top(self, prompts: Sequence[Sequence[int]], *, k: int) -> list[list[int]]:
        """For each prompt the k likeliest next tokens, the likeliest first."""
        if k < 1:
            raise InputError(f"k must be at least 1, got {k}")
        questions = [
            self._asking_for(self._before + self._text(prompt), most_tokens=1, top=k) for prompt in prompts
        ]
        answers = self._client.ask_all(questions, self._check_top)
        return [
            [self.tokenizer.id_of(token) for token in self._ranked(question, answer, k)]
            for question, answer in zip(questions, answers, strict=True)
        ]

    @cached_property
    def most_listed(self) -> int:
        """The most next tokens that the server lists, up to 1,000; it is asked when this is first needed."""
        return longest_list(
            self._client,
            lambda k: self._asking_for(self.capability.text, most_tokens=1, top=k),
            lambda question, answer: self._by_likelihood(self._next_tokens(question, answer)),
            self._check_top,
        )

    def next_texts(self, prompts: Sequence[str], *, k: int) -> list[list[str]]:
        """For each prompt the texts of the k likeliest next tokens as the server writes them; none where it ends the text."""
        check_listed(k, self.most_listed)
        questions = [self._asking_for(self._before + prompt, most_tokens=1, top=k) for prompt in prompts]
        answers = self._client.ask_all(questions, self._check_top)
        return [
            self._by_likelihood(self._next_tokens(question, answer))[:k]
            for question, answer in zip(questions, answers, strict=True)
        ]

    def generate(self, prompts: Sequence[Sequence[int]], *, length: int) -> list[list[int]]:
        """The greedy continuation of each prompt by `length` tokens; fewer if the server ends the text earlier."""
        if length < 1:
            raise InputError(f"length must be at least 1 token, got {length}")
        questions = [
            self._asking_for(self._before + self._text(prompt), most_tokens=length, top=1)
            for prompt in prompts
        ]
        answers = self._client.ask_all(questions, self._check_top)
        return [
            [self.tokenizer.id_of(token) for token in self._generated(question, answer)]
            for question, answer in zip(questions, answers, strict=True)
        ]

    def _asking_for(self, prompt: str, *, most_tokens: int, top: int) -> EndpointQuestion:
        return EndpointQuestion(prompt=prompt, most_tokens=most_tokens, top=top)

    def _check_top(self, question: EndpointQuestion, answer: EndpointAnswer) -> None:
        if answer.tokens is None or answer.top is None or len(answer.tokens) > question.most_tokens:
            raise UnusableAnswerError("the answer does not have the likeliest tokens that were asked for")

    def _generated(self, question: EndpointQuestion, answer: EndpointAnswer) -> Sequence[str]:
        del question
        return answer.tokens or ()

    def _next_tokens(self, question: EndpointQuestion, answer: EndpointAnswer) -> dict[str, float]:
        del question
        return answer.top[0] or {} if answer.top else {}

    def _ranked(self, question: EndpointQuestion, answer: EndpointAnswer, k: int) -> list[str]:
        listed = self._next_tokens(question, answer)
        if not listed:
            raise NotMeasurableError(
                "the server ends the text after this prompt, and does not list the likeliest tokens; shorten the prompt"
            )
        whole_vocabulary = math.fsum(map(math.exp, listed.values())) > 1 - 1e-6
        if len(listed) < k and not whole_vocabulary:
            raise NotMeasurableError(
                f"the {k} likeliest tokens were asked for, and the server gives {len(listed)}; ask for no more than that"
            )
        return self._by_likelihood(listed)[:k]

    def _by_likelihood(self, listed: dict[str, float]) -> list[str]:
        return sorted(listed, key=lambda token: -listed[token])

    def _tokens_in_words(self) -> str:
        own = super()._tokens_in_words()
        return own if self._local is not None else "the server's own; prompts are cut into characters"


class EndpointScorer(EndpointRanker):
    """A server that gives the log-probability of each token of a prompt, in the tokens that it cuts texts into."""

    def score(self, sequences: Sequence[TokenSequence], *, ranks: bool = False) -> list[SequenceScore]:
        """Scores in the order of `sequences`; a ModelOutputError if the server cuts their text into other tokens.

        Ranks are given if all tokens of a target are among the 5 likeliest.
        """
        top = TOP if ranks else 1
        questions = [
            self._scoring(self._text([*sequence.context, *sequence.target]), top) for sequence in sequences
        ]
        scores = []
        for sequence, pieces in zip(sequences, self._pieces(questions), strict=True):
            given = len(sequence.context) - 1
            self.tokenizer.check_cut([*sequence.context[1:], *sequence.target], pieces)
            scores.append(self._score(pieces, given, ranks=ranks))
        return scores

    def score_text(self, texts: Sequence[str]) -> list[SequenceScore]:
        """Scores of texts, in the tokens that the server cuts them into, in the order of `texts`."""
        questions = [self._scoring(text) for text in texts]
        return [self._score(pieces, 0, ranks=False) for pieces in self._pieces(questions)]

    def rank_text(self, texts: Sequence[str], *, k: int) -> list[IntArray]:
        """The rank of each token that `score_text` scores, from 1 to k, from one request per text; 0 if it is not among the k likeliest."""
        check_listed(k, self.most_listed)
        self._tops.add(k)
        found = self._pieces([self._scoring(text, k) for text in texts])
        places = [self._ranks(pieces) for pieces in found]
        return [
            np.array([rank if rank and rank <= k else 0 for rank in own], dtype=np.int64) for own in places
        ]

    def unscored(self, texts: Sequence[str]) -> list[int]:
        """The number of characters at the beginning of each text without a log-probability; texts that were scored before cost nothing."""
        if self._scores_all:
            return [0] * len(texts)
        found = self._pieces([self._scoring(text) for text in texts])
        return [len(pieces[0].text) if pieces else 0 for pieces in found]

    @property
    def _scores_all(self) -> bool:
        return self.capability.style.scores_first or len(self._before) > self.capability.style.hidden

    @cached_property
    def _tops(self) -> set[int]:
        """How many of the likeliest tokens were asked for at each position of a text."""
        return {TOP}

    def _scoring(self, text: str, listed: int = 1) -> EndpointQuestion:
        """The question about a text; one that lists more tokens serves as well if it was asked before."""
        for more in sorted(number for number in self._tops if number > listed):
            longer = self._asking_for(self._before + text, most_tokens=1, top=more)
            if self._client.cached(longer) is not None:
                return longer
        return self._asking_for(self._before + text, most_tokens=1, top=listed)

    def _pieces(
        self, questions: Sequence[EndpointQuestion], *, provisional: bool = False
    ) -> list[Sequence[Piece]]:
        """The pieces of each text, without those of the context before it; empty texts need no request."""
        asked = [question for question in questions if len(question.prompt) > len(self._before)]
        said = self._client.ask_all(asked, self._echo, provisional=provisional)
        answers = dict(zip(asked, said, strict=True))
        return [
            self._after_context(self._echo(question, answers[question]).prompt) if question in answers else ()
            for question in questions
        ]

    def _after_context(self, pieces: Sequence[Piece]) -> Sequence[Piece]:
        place, number = self.capability.style.hidden, 0
        while place < len(self._before):
            place += len(pieces[number].text)
            number += 1
        if place > len(self._before):
            raise NotMeasurableError(
                f"the server reads the end of the context {self._before!r} and the beginning of a text as one token, so the text "
                "has no score of its own; choose a context that ends with a token, such as the model's separator"
            )
        return pieces[number:]

    def _score(self, pieces: Sequence[Piece], given: int, *, ranks: bool) -> SequenceScore:
        if self._local is not None:
            values = [value for piece in pieces for value in piece.nats]
            best = [flag for piece in pieces for flag in piece.is_argmax]
        else:
            values = [None if None in piece.nats else sum(n or 0.0 for n in piece.nats) for piece in pieces]
            best = [all(piece.is_argmax) for piece in pieces]
        # What the server does not score counts 0 bits; describe() says so under "context".
        bits = np.array([0.0 if value is None else value / math.log(2) for value in values[given:]])
        places = self._ranks(pieces)[given:]
        known = [place for place in places if place is not None]
        return SequenceScore(
            log2_probabilities=np.minimum(bits, 0.0),
            is_argmax=np.array(best[given:], dtype=bool),
            ranks=np.array(known, dtype=np.int64) if ranks and len(known) == len(places) else None,
        )

    def _ranks(self, pieces: Sequence[Piece]) -> list[int | None]:
        """The rank of each token as it is counted here, from 1; None if it is not among those listed."""
        if self._local is not None:
            return [rank for piece in pieces for rank in piece.ranks]
        return [piece.ranks[0] if piece.tokens == 1 else None for piece in pieces]

    def _asking_for(self, prompt: str, *, most_tokens: int, top: int) -> EndpointQuestion:
        return EndpointQuestion(prompt=prompt, most_tokens=most_tokens, top=top, echo=True)

    def _continuing(self, prompt: str, length: int) -> EndpointQuestion:
        super()._continuing(prompt, length)
        return self._asking_for(self._before + prompt, most_tokens=length, top=1)

    def _check_continuation(self, question: EndpointQuestion, answer: EndpointAnswer) -> None:
        check_length(question, answer, len(self._echo(question, answer).generated))

    def _check_top(self, question: EndpointQuestion, answer: EndpointAnswer) -> None:
        echo = self._echo(question, answer)
        if echo.generated_text and not echo.generated:
            raise UnusableAnswerError("the answer does not have the tokens of what was generated")

    def _echo(self, question: EndpointQuestion, answer: EndpointAnswer) -> Echo:
        return read_echo(question, answer, self.capability.style)

    def _generated(self, question: EndpointQuestion, answer: EndpointAnswer) -> Sequence[str]:
        return self._echo(question, answer).generated

    def _next_tokens(self, question: EndpointQuestion, answer: EndpointAnswer) -> dict[str, float]:
        return self._echo(question, answer).next_tokens

    def _cut(self, text: str) -> list[str]:
        # Texts are often cut one by one, but they are scored, and their answers confirmed, together.
        return [piece.text for piece in self._pieces([self._scoring(text)], provisional=True)[0]]

    def _context_in_words(self) -> str:
        words = super()._context_in_words()
        if self._scores_all:
            return words
        return f"{words}; the server gives no probability of the first token of a text, which counts 0 bits"

    def _tokens_in_words(self) -> str:
        return super()._tokens_in_words() if self._local is not None else "the server's own"
