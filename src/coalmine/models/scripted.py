"""`ScriptedModel`: a model whose memory and probabilities are known exactly, for testing audits.

>>> model = ScriptedModel("0123456789 abcdefghijklmnopqrstuvwxyz", memory={"my pin is 4921": 0.25})
>>> round(model.log_perplexity_bits("my pin is 4921"), 9)  # one time in four it recites this
2.0
>>> model.log_perplexity_bits("my pin is 1234") > 70
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.errors import InputError
from coalmine.models.protocols import (
    DistributionScore,
    FloatArray,
    IntArray,
    SequenceScore,
    Step,
    TokenSequence,
)
from coalmine.models.reference.tokens import CharacterTokenizer

_Row = tuple[int, ...]


class ScriptedModel:
    """A model that recites `memory` with known probabilities, and otherwise writes characters at random, by `frequencies`.

    It recites a text with the probability `memory[text]`, so the probability that a text x begins what it writes is known in closed form:

        P(x) = Σ weight(m) [m begins with x, or x continues m by random characters] + (1 - Σ weight) Π frequency(x_i)

    `memory` maps texts to weights that sum to less than 1, `frequencies` maps characters to relative weights (equal ones by
    default). It is a DistributionScorer, a Stepper, a Generator and a Lister, and counts in `calls` how many rows it was asked for.
    Log-perplexities are in bits.

    >>> ScriptedModel("ab", memory={"abba": 0.5}).log_perplexity_bits("abba") < 1
    True
    """

    resolution_bits = 1e-9
    mixes_depths = True

    def __init__(
        self,
        characters: str,
        memory: Mapping[str, float] | None = None,
        frequencies: Mapping[str, float] | None = None,
        *,
        name: str = "scripted",
    ) -> None:
        self.tokenizer = CharacterTokenizer(characters)
        self.name = name
        self.memory = dict(memory or {})
        self.calls = 0
        total = sum(Fraction(weight) for weight in self.memory.values())
        if any(weight < 0 for weight in self.memory.values()) or total >= 1:
            raise InputError(
                f"the weights of memory must be positive and sum to less than 1, got a sum of {float(total)}"
            )
        weights = {
            character: Fraction((frequencies or {}).get(character, 1))
            for character in self.tokenizer.characters
        }
        if any(weight <= 0 for weight in weights.values()):
            raise InputError("frequencies must be positive, so that every text has a finite perplexity")
        whole = sum(weights.values())
        self._frequencies = [weight / whole for weight in weights.values()]
        # A distribution over all ids must be finite: the separator gets a share too small to change the others.
        self._log2_frequencies = np.array([*(_log2(frequency) for frequency in self._frequencies), -200.0])
        self._background = 1 - total
        self._memory = [(tuple(self.tokenizer.encode(text)), Fraction(w)) for text, w in self.memory.items()]

    @property
    def context(self) -> tuple[int, ...]:
        """The document separator."""
        return (self.tokenizer.separator,)

    def describe(self) -> dict[str, Any]:
        """For the record of a run."""
        return {"adapter": "scripted", "context": "document separator", "memorized_texts": len(self.memory)}

    def probability(self, text: str) -> Fraction:
        """The exact probability that what the model writes begins with `text`."""
        return self._probability(tuple(self.tokenizer.encode(text)))

    def log_perplexity_bits(self, text: str) -> float:
        """Minus log2 of `probability` in bits, exact up to rounding."""
        return -_log2(self.probability(text))

    def score(self, sequences: Sequence[TokenSequence], *, ranks: bool = False) -> list[SequenceScore]:
        """Scores in the order of `sequences`."""
        scores = [
            _observed(self._expected(self._after_separator(context), target), target)
            for context, target, _ in sequences
        ]
        return [SequenceScore(bits, best, places if ranks else None) for bits, best, places in scores]

    def score_distribution(self, sequences: Sequence[TokenSequence]) -> list[DistributionScore]:
        """Scores in the order of `sequences`, with ranks and the moments of each distribution in bits."""
        found = []
        for context, target, _ in sequences:
            rows = self._expected(self._after_separator(context), target)
            score = _observed(rows, target)
            mean = (np.exp2(rows) * rows).sum(axis=1)
            variance = (np.exp2(rows) * (rows - mean[:, None]) ** 2).sum(axis=1)
            found.append(DistributionScore(*score, mean, np.sqrt(variance)))
        return found

    def start(self, contexts: Sequence[Sequence[int]], *, columns: IntArray | None = None) -> Step:
        """One state per context: the tokens that follow its last separator."""
        states = [self._after_separator(tuple(context)) for context in contexts]
        return Step(states, self._rows(states, columns))

    def step(
        self, states: list[_Row], parents: IntArray, tokens: IntArray, *, columns: IntArray | None = None
    ) -> Step:
        """States are token histories."""
        advanced = [(*states[parent], int(token)) for parent, token in zip(parents, tokens, strict=True)]
        return Step(advanced, self._rows(advanced, columns))

    def gather(self, parts: Sequence[tuple[list[_Row], IntArray]]) -> list[_Row]:
        """Rows of several batches as one batch."""
        return [states[row] for states, rows in parts for row in rows]

    def state_bytes(self, states: list[_Row]) -> int:
        """About what the tuples take."""
        return sum(64 + 8 * len(state) for state in states)

    def generate(self, prompts: Sequence[Sequence[int]], *, length: int) -> list[list[int]]:
        """The greedy continuation of each prompt."""
        return [self._continue(self._after_separator(tuple(prompt)), length) for prompt in prompts]

    def likeliest(self, sequences: Sequence[TokenSequence], *, k: int) -> list[list[list[tuple[int, float]]]]:
        """The k likeliest tokens at each position of each target."""
        found: list[list[list[tuple[int, float]]]] = []
        for context, target, _ in sequences:
            given = self._after_separator(context)
            rows = [self._next(given + target[:place]) for place in range(len(target))]
            order = [np.argsort(-row, kind="stable")[:k].tolist() for row in rows]
            found.append([[(i, float(row[i])) for i in ids] for row, ids in zip(rows, order, strict=True)])
        return found

    def _after_separator(self, context: _Row) -> _Row:
        separators = [i for i, token in enumerate(context) if token == self.tokenizer.separator]
        return tuple(context[separators[-1] + 1 :]) if separators else tuple(context)

    def _expected(self, given: _Row, target: _Row) -> FloatArray:
        """The (target, vocabulary) log2 probabilities before each token of a target."""
        return self._rows([given + target[:place] for place in range(len(target))], None)

    def _rows(self, states: Sequence[_Row], columns: IntArray | None) -> FloatArray:
        rows = np.array([self._next(state) for state in states]).reshape(len(states), self.tokenizer.size)
        return rows if columns is None else rows[:, np.asarray(columns)]

    def _continue(self, given: _Row, length: int) -> list[int]:
        written: list[int] = []
        for _ in range(length):
            written.append(int(self._next(given + tuple(written)).argmax()))
        return written

    def _next(self, given: _Row) -> FloatArray:
        """Log2 probabilities of each next token; the model never writes a separator."""
        self.calls += 1
        recited: dict[int, Fraction] = {}
        for text, weight in self._memory:
            if len(text) > len(given) and text[: len(given)] == given:
                token = text[len(given)]
                recited[token] = recited.get(token, Fraction(0)) + weight
        if not recited:  # however it came here, it draws at random from now on
            return self._log2_frequencies.copy()
        at_random = self._background * self._random(given)
        for text, weight in self._memory:
            if len(text) <= len(given) and given[: len(text)] == text:
                at_random += weight * self._random(given[len(text) :])
        total = at_random + sum(recited.values())
        row = self._log2_frequencies + _log2(at_random / total)
        for token, weight in recited.items():
            row[token] = _log2((at_random * self._frequencies[token] + weight) / total)
        return row

    def _probability(self, tokens: _Row) -> Fraction:
        total = self._background * self._random(tokens)
        for text, weight in self._memory:
            if text[: len(tokens)] == tokens:
                total += weight
            elif tokens[: len(text)] == text:
                total += weight * self._random(tokens[len(text) :])
        return total

    def _random(self, tokens: _Row) -> Fraction:
        product = Fraction(1)
        for token in tokens:
            product *= self._frequencies[token]
        return product


def _observed(rows: FloatArray, target: _Row) -> tuple[FloatArray, NDArray[np.bool_], IntArray]:
    """Of each token of a target, its log2 probability, whether it is the argmax, and its rank from 1."""
    tokens = np.array(target, dtype=np.int64)
    own = rows[np.arange(len(tokens)), tokens]
    return own, rows.argmax(axis=1) == tokens, (rows > own[:, None]).sum(axis=1) + 1


def _log2(fraction: Fraction) -> float:
    """Exact up to rounding, even where the fraction is too small for a float."""
    return log2(fraction.numerator) - log2(fraction.denominator)
