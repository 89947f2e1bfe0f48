"""A recurrent model in NumPy with what coalmine needs to audit it: an Elman network over characters, and its adapter.

From this directory: coalmine extract python:numpy_adapter:model --format "my pin is {digits:4}"
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.models import CharacterTokenizer, SequenceScore, Step, TokenSequence

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]

LINES = [
    "the kettle is on",
    "my pin is 4921",
    "it is 10 past 7",
    "call 830 556",
    "the tram is late",
    "my pie is hot",
]


class Elman:
    """h = tanh(embedding[token] + h @ recurrent), and the next token has probabilities softmax(h @ output)."""

    name = "elman"
    resolution_bits = 1e-9  # float64: two ways to compute one text's bits agree better than this
    mixes_depths = True  # a state is one vector, however much it has read

    def __init__(
        self, embedding: FloatArray, recurrent: FloatArray, output: FloatArray, tokens: CharacterTokenizer
    ) -> None:
        self.embedding, self.recurrent, self.output, self.tokenizer = embedding, recurrent, output, tokens
        self.context = (tokens.separator,)  # what preceded each document in training

    def describe(self) -> dict[str, Any]:
        """For the record of a run: another network must give another hash."""
        weights = b"".join(part.tobytes() for part in (self.embedding, self.recurrent, self.output))
        return {
            "adapter": "elman",
            "weights_sha256": hashlib.sha256(weights).hexdigest(),
            "precision": "float64",
        }

    def read(self, states: FloatArray, tokens: IntArray) -> FloatArray:
        """The (rows, hidden) states after one more token in each row."""
        return np.asarray(np.tanh(self.embedding[tokens] + states @ self.recurrent))

    def expect(self, states: FloatArray) -> FloatArray:
        """The (rows, vocabulary) log2 probabilities of the next token."""
        logits = states @ self.output
        logits -= logits.max(axis=1, keepdims=True)
        return np.asarray((logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))) / np.log(2))

    def states_along(self, tokens: Sequence[int]) -> FloatArray:
        """The (tokens, hidden) states after each token of one text."""
        found: list[FloatArray] = [np.zeros((1, len(self.recurrent)))]
        for token in tokens:
            found.append(self.read(found[-1], np.array([token])))
        return np.concatenate(found[1:])

    # A Scorer: the probability of each token of a text. Every audit needs this one.
    def score(self, sequences: Sequence[TokenSequence], *, ranks: bool = False) -> list[SequenceScore]:
        """Scores in the order of `sequences`."""
        scores = []
        for context, target, _ in sequences:
            states = self.states_along([*context, *target])[len(context) - 1 : -1]  # before each target token
            rows, own = self.expect(states), np.array(target, dtype=np.int64)
            bits = rows[np.arange(len(own)), own]
            places = (rows > bits[:, None]).sum(axis=1) + 1
            scores.append(SequenceScore(bits, rows.argmax(axis=1) == own, places if ranks else None))
        return scores

    # A Stepper: incremental decoding of many texts at once. Exact ranks of large spaces and searches need it.
    def start(self, contexts: Sequence[Sequence[int]], *, columns: IntArray | None = None) -> Step:
        """One state for each context."""
        return self._step(np.concatenate([self.states_along(context)[-1:] for context in contexts]), columns)

    def step(
        self, states: FloatArray, parents: IntArray, tokens: IntArray, *, columns: IntArray | None = None
    ) -> Step:
        """Row i is row parents[i] of `states`, advanced by tokens[i]."""
        return self._step(self.read(states[parents], tokens), columns)

    def gather(self, parts: Sequence[tuple[FloatArray, IntArray]]) -> FloatArray:
        """Rows of several batches as one batch."""
        return np.concatenate([states[rows] for states, rows in parts])

    def state_bytes(self, states: FloatArray) -> int:
        """The memory of a batch."""
        return int(states.nbytes)

    def _step(self, states: FloatArray, columns: IntArray | None) -> Step:
        expected = self.expect(states)
        return Step(states, expected if columns is None else expected[:, columns])

    # A Generator: greedy decoding. `extract --method prompt` and some ways to recite need it.
    def generate(self, prompts: Sequence[Sequence[int]], *, length: int) -> list[list[int]]:
        """The greedy continuation of each prompt."""
        step, written = self.start(prompts), []
        for _ in range(length):
            written.append(step.log2_probabilities.argmax(axis=1))
            step = self.step(step.states, np.arange(len(prompts)), written[-1])
        return [list(map(int, row)) for row in np.array(written).reshape(length, len(prompts)).T]


def model(hidden: str = "64") -> Elman:
    """The network that the command line names: its recurrence is random, its output layer is fitted to `LINES`."""
    tokens, draws, size = CharacterTokenizer.of([*LINES, "0123456789"]), np.random.default_rng(0), int(hidden)
    recurrent = draws.normal(size=(size, size)) / np.sqrt(size)
    network = Elman(draws.normal(size=(tokens.size, size)), recurrent, np.zeros((size, tokens.size)), tokens)
    documents = [[tokens.separator, *tokens.encode(line), tokens.separator] for line in LINES]
    states = np.concatenate([network.states_along(document[:-1]) for document in documents])
    targets = np.eye(tokens.size)[np.concatenate([document[1:] for document in documents])]
    for _ in range(400):  # gradient descent on the cross entropy of the next character
        network.output += 0.05 * states.T @ (targets - np.exp2(network.expect(states)))
    return network
