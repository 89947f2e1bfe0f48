"""A trained model read out once over all prefixes of a format of digits, so that thousands of audits of it take minutes.

It answers with the numbers that the network gave, and counts what the network would have had to read: one token advanced for
one row is one, in a walk and in a score alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine import Format
from coalmine.models import SequenceScore, Step, Stepper, TokenSequence
from coalmine.models.protocols import FloatArray, IntArray
from coalmine.search.tree.token_tree import TokenTree
from coalmine.search.walks.frontier import Frontier, NodeBlock, Nodes


class _States(NamedTuple):
    """Rows that have read equally many tokens: how many, and the digits among them as a number."""

    length: int
    numbers: IntArray  # (rows,)


class TabulatedModel:
    """A Scorer and a Stepper for one format `<prefix>{digits:n}`; made by `tabulate`.

    Attributes:
        tokens_read: tokens that the network would have read so far. A prefix that the texts of one call share counts once, as
            the network reads it once, and the last token of a scored text is predicted and not read.
    """

    # The states of a batch are of one length.
    mixes_depths = False

    def __init__(
        self,
        original: Stepper,
        prefix: tuple[int, ...],
        digits: IntArray,
        prefix_rows: NDArray[np.float64],
        levels: list[NDArray[np.float64]],
    ) -> None:
        self.name = f"{original.name}, tabulated"
        self.tokenizer = original.tokenizer
        self.context = original.context
        self.resolution_bits = original.resolution_bits
        self.tokens_read = 0
        self._described = original.describe()
        self._start = (*original.context, *prefix)
        self._digit_of = np.full(original.tokenizer.size, -1)
        self._digit_of[digits] = np.arange(len(digits))
        self._digits = digits
        # prefix_rows[i] follows i + 1 tokens of the start, over the vocabulary; levels[d] follows d digits, over the digits.
        self._prefix_rows, self._levels = prefix_rows, levels

    def describe(self) -> dict[str, Any]:
        """That of the network."""
        return {**self._described, "adapter": "tabulated"}

    def score(self, sequences: Sequence[TokenSequence], *, ranks: bool = False) -> list[SequenceScore]:
        """Scores of whole members, which begin as the format does."""
        if ranks:
            raise NotImplementedError("ranks in the vocabulary are not tabulated")
        rows = np.array([sequence.context + sequence.target for sequence in sequences])
        if (rows[:, : len(self._start)] != self._start).any():
            raise ValueError("only members of the tabulated format can be scored")
        shared = _shared_length(rows)
        self.tokens_read += shared + len(rows) * (rows.shape[1] - 1 - shared)
        digits = self._digit_of[rows[:, len(self._start) :]]  # (texts, digits)
        log2 = np.empty((len(rows), rows.shape[1] - 1))
        log2[:, : len(self._start) - 1] = self._prefix_rows[
            np.arange(len(self._start) - 1), list(self._start[1:])
        ]
        numbers = np.zeros(len(rows), dtype=np.int64)
        for place in range(digits.shape[1]):
            log2[:, len(self._start) - 1 + place] = self._levels[place][numbers, digits[:, place]]
            numbers = 10 * numbers + digits[:, place]
        own = log2[:, len(self.context) - 1 :]
        unknown = np.zeros(own.shape[1], dtype=bool)
        return [SequenceScore(row, unknown, None) for row in own]

    def start(self, contexts: Sequence[Sequence[int]], *, columns: IntArray | None = None) -> Step:
        """One state for each context."""
        rows = np.array(contexts)
        self.tokens_read += rows.size
        numbers = np.zeros(len(rows), dtype=np.int64)
        for column in range(len(self._start), rows.shape[1]):
            numbers = 10 * numbers + self._digit_of[rows[:, column]]
        states = _States(rows.shape[1], numbers)
        return Step(states, self._expected(states, columns))

    def step(
        self, states: _States, parents: IntArray, tokens: IntArray, *, columns: IntArray | None = None
    ) -> Step:
        """Gather and advance."""
        self.tokens_read += len(tokens)
        numbers = states.numbers[parents]
        if states.length >= len(self._start):
            numbers = 10 * numbers + self._digit_of[tokens]
        advanced = _States(states.length + 1, numbers)
        return Step(advanced, self._expected(advanced, columns))

    def gather(self, parts: Sequence[tuple[_States, IntArray]]) -> _States:
        """Rows of several batches as one batch."""
        return _States(parts[0][0].length, np.concatenate([states.numbers[rows] for states, rows in parts]))

    def state_bytes(self, states: _States) -> int:
        """Of the numbers."""
        return states.numbers.nbytes

    def _expected(self, states: _States, columns: IntArray | None) -> FloatArray:
        if columns is None:
            return np.repeat(self._prefix_rows[states.length - 1][None], len(states.numbers), axis=0)
        if not np.array_equal(columns, self._digits):
            raise ValueError("only the digits are tabulated")
        return self._levels[states.length - len(self._start)][states.numbers]


def tabulate(model: Stepper, form: Format) -> TabulatedModel:
    """Ask the model about every prefix of every member."""
    tree = TokenTree(form, model.tokenizer)
    frontier = Frontier(model, tree)
    step = model.start([model.context])
    rows = [step.log2_probabilities[0]]
    for token in tree.prefix:
        step = model.step(step.states, np.zeros(1, dtype=np.int64), np.array([token]))
        rows.append(step.log2_probabilities[0])
    blocks = [frontier.root()]
    levels = []
    while blocks:
        levels.append(np.concatenate([block.log2_probabilities for block in blocks]))
        blocks = [below for block in blocks for below in _below(frontier, block)]
    if [len(level) for level in levels] != [10**depth for depth in range(len(levels))]:
        raise ValueError(f"{form.template!r} is not a prefix and digits")
    return TabulatedModel(model, tree.prefix, tree.columns, np.array(rows, dtype=np.float64), levels)


def _below(frontier: Frontier, block: NodeBlock) -> list[NodeBlock]:
    waiting: Nodes = frontier.open(frontier.children(block))
    return [frontier.advance(block, batch) for batch in frontier.batches(waiting)]


def _shared_length(rows: IntArray) -> int:
    """How many tokens all rows begin with, leaving at least one of each to be predicted."""
    same = (rows == rows[0]).all(axis=0)[:-1]
    return int(np.argmin(same)) if not same.all() else len(same)
