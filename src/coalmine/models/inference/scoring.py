"""Scores of many texts at once: their common prefix is read once, and only positions that are scored are projected onto the vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from coalmine.models.inference.projection import Projection
from coalmine.models.inference.token_scores import Asked, TokenScores
from coalmine.models.protocols import IntArray, TokenSequence
from coalmine.models.reference.networks import Network, State


class Scoring:
    """Scores texts with one network that carries a state. Neither padding nor context is projected."""

    def __init__(
        self,
        network: Network,
        projection: Projection,
        *,
        rows_at_a_time: Callable[[int, int], int],
        device: torch.device,
    ) -> None:
        """`rows_at_a_time(length, read)` gives how many rows of `length` tokens fit into memory, if each reads its last `read` tokens."""
        self._network = network
        self._projection = projection
        self._rows_at_a_time = rows_at_a_time
        self._device = device

    def scores(self, sequences: Sequence[TokenSequence], asked: Asked) -> list[TokenScores]:
        """The scores of the target of each sequence, in their order; no context may be empty."""
        rows = [sequence.context + sequence.target for sequence in sequences]
        # The first position of each row that is scored.
        firsts = [len(sequence.context) for sequence in sequences]
        shared, begin = shared_length(rows), min(firsts, default=0)
        prefix, after, state = self._score_prefix(rows, firsts, shared, asked)
        results: list[TokenScores | None] = [None] * len(rows)
        # Neighbors in length share a batch, so that little of it is padding.
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        while order:
            most = self._rows_at_a_time(len(rows[order[-1]]), len(rows[order[-1]]) - shared)
            batch, order = order[-most:], order[:-most]
            begins = np.array([max(1, firsts[i] - shared) for i in batch])
            rests = self._score_rests([rows[i][shared:] for i in batch], begins, state, asked)
            for i, rest in zip(batch, rests, strict=True):
                own = prefix.part(slice(firsts[i] - begin, None))
                results[i] = own.followed_by(after[i], rest) if i in after else own.followed_by(rest)
        return [result for result in results if result is not None]

    def _score_prefix(
        self, rows: Sequence[tuple[int, ...]], firsts: Sequence[int], shared: int, asked: Asked
    ) -> tuple[TokenScores, dict[int, TokenScores], State]:
        """The scores of the shared prefix, from the first position that is scored, those of what comes right after it, and its state."""
        state = self._network.initial_state(1)
        nothing = TokenScores.of_none(asked)
        if not shared:
            return nothing, {}, state
        inside = max(0, shared - min(firsts))
        tokens = self._tensor(np.array([rows[0][:shared]], dtype=np.int64))
        hidden, state = self._network.read_hidden(tokens, state, inside + 1)
        following = [i for i, first in enumerate(firsts) if first <= shared]
        if not following:
            return nothing, {}, state
        # A token is predicted at the one before it. All that follow the prefix are judged at its last token.
        places = np.minimum(np.arange(inside + len(following)), inside)
        own = np.array(
            [*rows[0][shared - inside : shared], *(rows[i][shared] for i in following)], dtype=np.int64
        )
        judged = judge_tokens(self._projection, hidden[0], places, own, asked)
        after = {i: judged.part(slice(at, at + 1)) for at, i in enumerate(following, start=inside)}
        return judged.part(slice(0, inside)), after, state

    def _score_rests(
        self, rests: list[tuple[int, ...]], begins: IntArray, state: State, asked: Asked
    ) -> Iterator[TokenScores]:
        """The scores of each of `rests`, which follow a shared prefix, from one of its tokens on, in one padded pass."""
        lengths = np.array([len(rest) for rest in rests])
        width = int(lengths.max())
        padded = np.zeros((len(rests), width), dtype=np.int64)
        for row, rest in enumerate(rests):
            padded[row, : len(rest)] = rest
        # Padding comes after the text and is read after it, so it cannot change a number that is used. The last token of each text
        # is only predicted, never read.
        places = np.arange(int(begins.min()), width)
        counts = (places < lengths[:, None]) & (places >= begins[:, None])
        scores = TokenScores.of_none(asked)
        if counts.any():
            read = self._tensor(padded[:, :-1].copy())
            hidden, _ = self._network.read_hidden(read, self._repeated(state, len(rests)), len(places))
            hidden = hidden.flatten(0, 1)
            if not counts.all():
                hidden = hidden[self._tensor(np.flatnonzero(counts))]
            tokens = padded[:, places][counts]
            scores = judge_tokens(self._projection, hidden, np.arange(len(tokens)), tokens, asked)
        ends = np.cumsum(counts.sum(axis=1)).tolist()
        return (scores.part(slice(begin, end)) for begin, end in zip([0, *ends[:-1]], ends, strict=True))

    def _repeated(self, state: State, times: int) -> State:
        """One row's state, for many rows."""
        return self._network.select(state, self._tensor(np.zeros(times, dtype=np.int64)))

    def _tensor(self, array: IntArray) -> Tensor:
        return torch.from_numpy(array).to(self._device)


def judge_tokens(
    projection: Projection, hidden: Tensor, rows: IntArray, tokens: IntArray, asked: Asked
) -> TokenScores:
    """The scores of tokens, each at one of the rows of hidden numbers."""
    judged = projection.judge(hidden, rows, tokens, ranks=asked.ranks, moments=asked.moments)
    return TokenScores(
        judged.log2[:, 0], judged.is_argmax, judged.ranks, judged.mean_bits, judged.deviation_bits
    )


def shared_length(rows: Sequence[tuple[int, ...]]) -> int:
    """The length of the common prefix of all rows, which leaves at least one token of each row to be predicted."""
    lowest, highest = min(rows), max(rows)  # in sorted order, so that what these two share, all share
    shared = 0
    while shared < min(len(row) for row in rows) - 1 and lowest[shared] == highest[shared]:
        shared += 1
    return shared
