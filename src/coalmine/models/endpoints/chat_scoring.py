"""The probability of a turn at a chat endpoint, by forced continuation: what follows each beginning of a text, asked one token at a time.

A server lists the likeliest tokens after a beginning, 20 or so. A token that is not listed is at most as likely as the last one that is,
and no likelier than what the list leaves. So a text with such a token has no probability, but a proven least number of bits. Beginnings
that texts share are asked about once, and no beginning is asked about that is not reached by listed tokens.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from functools import cached_property
from itertools import takewhile
from typing import Any, NamedTuple, Self

import numpy as np

from coalmine.errors import NotMeasurableError
from coalmine.models.endpoints.answers import EndpointAnswer, EndpointQuestion
from coalmine.models.endpoints.chat import ChatEndpointRanker
from coalmine.models.endpoints.echo import has_no_text
from coalmine.models.endpoints.token_texts import TokenTexts, piece_of
from coalmine.models.endpoints.tokens import LocalTokenizer
from coalmine.models.protocols import FloatArray, SequenceScore, TokenSequence
from coalmine.records.chat import Frame

MOST_KNOWN = 50_000
_TO_SCORE = "to score turns, give a directory with the tokenizer.json of the model that is served (tokenizer)"


class _Path(NamedTuple):
    """A text in tokens, while it is followed."""

    tokens: list[int]
    bits: list[float]  # log2 probabilities of the tokens so far
    is_argmax: list[bool]
    # Tokens at the beginning that are given, and have no probability.
    given: int

    @property
    def place(self) -> int:
        """The number of tokens so far."""
        return self.given + len(self.bits)


class _Next(NamedTuple):
    """What is known about the token after a beginning: log2 probabilities by the bytes of tokens, and how likely another one can be."""

    listed: dict[bytes, float]
    most_unlisted: float
    tokens_read: int | None


class ChatEndpointScorer(ChatEndpointRanker):
    """A server of conversations that continues a given turn and lists the likeliest next tokens, and so gives probabilities of turns."""

    # The beginning that all texts of a format share, whose tokens are given.
    _beginning: tuple[int, ...] = ()

    def in_frame(self, frame: Frame) -> Self:
        """The same model, whose texts are turns of the frame's role; a NotMeasurableError if the server cannot continue such a turn."""
        _ = self.most_listed  # asked before the two part
        return super().in_frame(frame)

    def after(self, beginning: str, examples: Sequence[str]) -> Self:
        """The same model, for texts that have this beginning; its tokens count 0 bits, as far as all examples share them."""
        self._check_can_score()
        shared = self.tokenizer.encode(beginning)
        for text in examples:
            pairs = zip(shared, self.tokenizer.encode(text), strict=False)
            shared = [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
        found = copy.copy(self)
        found._beginning = tuple(shared)  # noqa: SLF001 - of the same class
        return found

    def score(self, sequences: Sequence[TokenSequence], *, ranks: bool = False) -> list[SequenceScore]:
        """Scores in the order of `sequences`, which follow the model's context; NaN from the first token on that is not listed."""
        del ranks
        self._check_can_score()
        tokens = [[*sequence.context[1:], *sequence.target] for sequence in sequences]
        paths, _ = self._followed(tokens)
        return [
            self._score(path, len(sequence.context) - 1)
            for sequence, path in zip(sequences, paths, strict=True)
        ]

    def score_text(self, texts: Sequence[str]) -> list[SequenceScore]:
        """Scores of turns in the order of `texts`; NaN from the first token on that is not among those that the server lists."""
        self._check_can_score()
        paths, _ = self._followed([self.tokenizer.encode(text) for text in texts])
        return [self._score(path, 0) for path in paths]

    def least_bits(self, texts: Sequence[str]) -> FloatArray:
        """What each text costs at least in bits; what it costs, if it has a score."""
        self._check_can_score()
        _, least = self._followed([self.tokenizer.encode(text) for text in texts])
        return np.array(least)

    def unscored(self, texts: Sequence[str]) -> list[int]:
        """The number of characters at the beginning of each text that are given."""
        given = len(self.tokenizer.decode(self._beginning))
        return [given] * len(texts)

    def describe(self) -> dict[str, Any]:
        """For the record of a run."""
        return {**super().describe(), "most_listed": self.most_listed}

    def _check_can_score(self) -> None:
        if self.frame is None:
            raise NotMeasurableError(
                f"the chat endpoint of {self.name!r} gives probabilities of turns only, and these are plain texts; plant canaries in chat "
                "data, or audit the model itself"
            )
        if not isinstance(self.tokenizer, LocalTokenizer):
            raise NotMeasurableError(
                f"the endpoint of {self.name!r} does not show how it cuts a turn into tokens; {_TO_SCORE}"
            )

    def _score(self, path: _Path, first: int) -> SequenceScore:
        missing = len(path.tokens) - path.place
        bits = np.array([*[0.0] * path.given, *path.bits, *[math.nan] * missing])
        best = [*[False] * path.given, *path.is_argmax, *[False] * missing]
        return SequenceScore(bits[first:], np.array(best[first:], dtype=bool), ranks=None)

    def _followed(self, texts: Sequence[Sequence[int]]) -> tuple[list[_Path], list[float]]:
        """Texts, each followed as far as its tokens are listed, and what each costs at least."""
        given = len(self._beginning)
        paths = [
            _Path([*tokens], [], [], given if tuple(tokens[:given]) == self._beginning else 0)
            for tokens in texts
        ]
        least = [0.0] * len(paths)
        reads = dict[int, int]()
        open_paths = [number for number, path in enumerate(paths) if path.place < len(path.tokens)]
        while open_paths:
            found = self._next_of([paths[number] for number in open_paths])
            still = []
            for number, after in zip(open_paths, found, strict=True):
                path = paths[number]
                cost = -math.fsum(path.bits)
                least[number] = cost
                before = reads.get(number)
                if not self._cut_alike(path, before, after):
                    continue
                if after.tokens_read is not None:
                    reads[number] = after.tokens_read
                values = self._values(path, after)
                if len(values) != 1:
                    least[number] = cost - max(values, default=after.most_unlisted)
                    continue
                [value] = values
                path.bits.append(value)
                path.is_argmax.append(value >= max(after.listed.values()) - 1e-9)
                least[number] = cost - value
                if path.place < len(path.tokens):
                    still.append(number)
            open_paths = still
        # The server is recognized before any number is returned.
        self._client.ask_all([], self._check_top)
        return paths, least

    def _next_of(self, paths: Sequence[_Path]) -> list[_Next]:
        """What follows the beginning of each path; equal beginnings are asked about once."""
        prompts = [self.tokenizer.decode(path.tokens[: path.place]) for path in paths]
        questions = [self._asked(prompt, 1, self.most_listed) for prompt in prompts]
        if len(self._known) > MOST_KNOWN:
            self._known.clear()
        fresh = [question for question in dict.fromkeys(questions) if question not in self._known]
        answers = self._client.ask_all(fresh, self._check_top, provisional=True)
        self._known.update(zip(fresh, map(self._read, answers), strict=True))
        return [self._known[question] for question in questions]

    @cached_property
    def _known(self) -> dict[EndpointQuestion, _Next]:
        """What was read from the latest answers, which the cache has too, but has to look up."""
        return {}

    def _cut_alike(self, path: _Path, before: int | None, after: _Next) -> bool:
        """Whether the server cut the beginning of a text where the local tokenizer does, as far as that can be seen."""
        prefix = path.tokens[: path.place]
        alike = self.tokenizer.encode(self.tokenizer.decode(prefix)) == prefix if prefix else True
        if before is None or after.tokens_read is None or path.place < 2:
            return alike
        return alike and after.tokens_read == before + 1

    def _values(self, path: _Path, after: _Next) -> list[float]:
        """The log2 probability of the next token: none if it is not listed, and two if it is unclear which of two it is."""
        token, texts = path.tokens[path.place], self._texts
        pieces = {texts.piece(token, first=False)}
        if path.place == 0:  # servers may write the first word with the space that marks it, or without
            pieces.add(texts.piece(token, first=True))
        return [after.listed[piece] for piece in pieces if piece in after.listed]

    def _read(self, answer: EndpointAnswer) -> _Next:
        top = (answer.top[0] if answer.top else None) or {}
        bits = {text: min(0.0, nats / math.log(2)) for text, nats in top.items()}
        # An entry that is written as nothing, or as a part of a character without its bytes, may be any token.
        nameless = [value for text, value in bits.items() if not text or "\ufffd" in text]
        listed = {
            self._piece(text): value
            for text, value in bits.items()
            if not (has_no_text(text) and text[:6] != "bytes:")
        }
        left = 1.0 - math.fsum(2.0**value for value in bits.values())
        # The last listed, and what the list leaves, with room for rounding.
        most = min(min(bits.values(), default=0.0), math.log2(max(left, 0.0) + 1e-3))
        read = None
        if answer.tokens_used is not None and answer.tokens_generated is not None:
            read = answer.tokens_used - answer.tokens_generated
        return _Next(listed, max([most, *nameless]), read)

    def _piece(self, written: str) -> bytes:
        """The bytes of a token that the server wrote; a ModelOutputError if the local tokenizer does not have it.

        Some servers write tokens as their vocabulary does.
        """
        token = self.tokenizer.id_of(written)
        return self._texts.piece(token, first=False) or piece_of(written)

    @cached_property
    def _texts(self) -> TokenTexts:
        return TokenTexts(self.tokenizer)
