"""Scores of many texts at once: their common prefix is read once, and only positions that are scored are projected onto the vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from coalmine.errors import InputError, NotMeasurableError
from coalmine.models.inference.blocks import LastLayer
from coalmine.models.inference.memory import Room, read_prefix
from coalmine.models.inference.projection import Projection
from coalmine.models.inference.token_scores import TokenScores, Wanted
from coalmine.models.protocols import IntArray, TokenSequence
from coalmine.models.reference.networks import Network, State


class _Questions(NamedTuple):
    """Positions that were read, and which token each question asks about at which of them."""

    hidden: Tensor | None  # (positions, width)
    places: IntArray
    tokens: IntArray


NOTHING = _Questions(None, np.empty(0, np.int64), np.empty(0, np.int64))


class Scoring:
    """Scores texts with one network that carries a state. Neither padding nor context is projected."""

    def __init__(
        self,
        network: Network,
        projection: Projection,
        *,
        rows_at_a_time: Callable[[int, int], int],
        room: Room,
        device: torch.device,
    ) -> None:
        """`rows_at_a_time(length, read)` gives how many rows of `length` tokens should fit into memory, if each reads its last `read`.

        `room` halves that where they do not.
        """
        self._network = network
        self._projection = projection
        self._rows_at_a_time = rows_at_a_time
        self._room = room
        self._device = device

    def scores(self, sequences: Sequence[TokenSequence], asked: Wanted) -> list[TokenScores]:
        """The scores of the target of each sequence, in their order; no context may be empty."""
        # The first position of each row that is scored.
        firsts = [len(sequence.context) for sequence in sequences]
        # Rows are put together one at a time: a long prefix that many of them share would take more memory than the network does.
        shared = shared_length(sequence.context + sequence.target for sequence in sequences)
        prefix_tokens = (sequences[0].context + sequences[0].target)[:shared]
        rests = [_from(sequence, shared) for sequence in sequences]
        inside = max(0, shared - min(firsts))
        following = [i for i, first in enumerate(firsts) if first <= shared] if shared else []
        # The prefix is judged together with the first batch: a pass over the vocabulary takes long, however few positions there are.
        waiting, state = self._read_prefix(prefix_tokens, [rests[i][0] for i in following], inside)
        results: list[TokenScores | None] = [None] * len(rests)
        prefix, after = TokenScores.of_none(asked), dict[int, TokenScores]()
        # Neighbors in length share a batch, so that little of it is padding.
        order = sorted(range(len(rests)), key=lambda i: len(rests[i]))

        def score(group: Sequence[int], start: int, stop: int) -> None:
            nonlocal waiting, prefix, after
            batch = group[start:stop]
            begins = np.array([max(1, firsts[i] - shared) for i in batch])
            read, ends = self._read_rests([rests[i] for i in batch], begins, state)
            first, scores = self._judge([waiting, read], asked)
            if waiting.tokens.size:
                prefix = first.part(slice(0, inside))
                after = {i: first.part(slice(at, at + 1)) for at, i in enumerate(following, start=inside)}
                waiting = NOTHING
            for i, begin, end in zip(batch, [0, *ends[:-1]], ends, strict=True):
                own, rest = prefix.part(slice(firsts[i] - min(firsts), None)), scores.part(slice(begin, end))
                results[i] = own.followed_by(after[i], rest) if i in after else own.followed_by(rest)

        while order:
            own = len(rests[order[-1]])
            most = self._rows_at_a_time(shared + own, own)
            batch, order = order[-most:], order[:-most]
            self._room.in_parts(len(batch), own, partial(score, batch))
        return [result for result in results if result is not None]

    def _read_prefix(
        self, prefix: tuple[int, ...], following: Sequence[int], inside: int
    ) -> tuple[_Questions, State]:
        """Questions about the last `inside` tokens of the shared prefix and about what follows it in some rows, and the state after it."""
        if not prefix:
            return NOTHING, self._network.initial_state(1)
        read = self._tensor(np.array([prefix], dtype=np.int64))
        hidden, state = read_prefix(self._network, read, inside + 1, self._room)
        if not following:
            return NOTHING, state
        tokens = [*prefix[len(prefix) - inside :], *following]
        # A token is predicted at the one before it. All that follow the prefix are judged at its last token.
        places = np.minimum(np.arange(len(tokens)), inside)
        return _Questions(hidden[0], places, np.array(tokens, dtype=np.int64)), state

    def _read_rests(
        self, rests: list[tuple[int, ...]], begins: IntArray, state: State
    ) -> tuple[_Questions, list[int]]:
        """Questions about `rests`, which follow a shared prefix, each from one of its tokens on, and where those of each end."""
        lengths = np.array([len(rest) for rest in rests])
        width = int(lengths.max())
        padded = np.zeros((len(rests), width), dtype=np.int64)
        for row, rest in enumerate(rests):
            padded[row, : len(rest)] = rest
        # Padding comes after the text and is read after it, so it cannot change a number that is used. The last token of each text
        # is only predicted, never read.
        places = np.arange(int(begins.min()), width)
        counts = (places < lengths[:, None]) & (places >= begins[:, None])
        ends = np.cumsum(counts.sum(axis=1)).tolist()
        if not counts.any():
            return NOTHING, ends
        read = self._tensor(padded[:, :-1].copy())
        hidden, _ = self._network.read_hidden(read, self._repeated(state, len(rests)), len(places))
        hidden = hidden.flatten(0, 1)
        if not counts.all():
            hidden = hidden[self._tensor(np.flatnonzero(counts)).to(hidden.device)]
        tokens = padded[:, places][counts]
        return _Questions(hidden, np.arange(len(tokens)), tokens), ends

    def _judge(self, parts: Sequence[_Questions], asked: Wanted) -> list[TokenScores]:
        """The scores of the questions of each part, from one pass over the vocabulary."""
        there = [part for part in parts if part.hidden is not None]
        hidden = [part.hidden for part in there if part.hidden is not None]
        if not there:
            return [TokenScores.of_none(asked) for _ in parts]
        begins = np.cumsum([0, *(len(one) for one in hidden)])
        places = np.concatenate([part.places + begin for part, begin in zip(there, begins, strict=False)])
        tokens = np.concatenate([part.tokens for part in there])
        together = hidden[0] if len(hidden) == 1 else torch.cat(hidden)
        scores = judge_tokens(self._projection, together, places, tokens, asked)
        ends = np.cumsum([len(part.tokens) for part in parts]).tolist()
        return [scores.part(slice(begin, end)) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]

    def _repeated(self, state: State, times: int) -> State:
        """One row's state, for many rows."""
        return self._network.select(state, self._tensor(np.zeros(times, dtype=np.int64)))

    def _tensor(self, array: IntArray) -> Tensor:
        return torch.from_numpy(array).to(self._device)


def judge_tokens(
    projection: Projection, hidden: Tensor, rows: IntArray, tokens: IntArray, asked: Wanted
) -> TokenScores:
    """The scores of tokens, each at one of the rows of hidden numbers."""
    judged = projection.judge(hidden, rows, tokens, ranks=asked.ranks, moments=asked.moments)
    predicted = None
    if asked.kept is not None:
        found = [projection.argmax(hidden * kept).cpu().numpy()[rows] == tokens for kept in asked.kept]
        predicted = np.stack(found, axis=1) if found else np.empty((len(tokens), 0), bool)
    return TokenScores(
        judged.log2[:, 0],
        judged.is_argmax,
        judged.ranks,
        judged.mean_bits,
        judged.deviation_bits,
        predicted,
    )


def masks_without(layer: LastLayer, units: Sequence[Sequence[int]]) -> Tensor:
    """A row for each set of hidden units, with zeros for these, in the precision and on the device of the last layer."""
    head = layer.head()
    if head is None:
        raise NotMeasurableError(
            "the network cannot be read without its last layer, so its hidden units cannot be set to zero"
        )
    like, width = head.weight, head.weight.shape[1]
    kept = torch.ones((len(units), width), dtype=like.dtype, device=like.device)
    for row, some in zip(kept, units, strict=True):
        if len(some) and not 0 <= min(some) <= max(some) < width:
            raise InputError(
                f"hidden units are numbered from 0 to {width - 1}, got {min(some)} to {max(some)}"
            )
        row[torch.tensor(some, dtype=torch.long, device=like.device)] = 0
    return kept


def hidden_width(layer: LastLayer) -> int:
    """How many numbers of a position the last layer reads; 0 for a network that cannot be read without it."""
    head = layer.head()
    return 0 if head is None else int(head.weight.shape[1])


def shared_length(rows: Iterable[tuple[int, ...]]) -> int:
    """The length of the common prefix of all rows, which leaves at least one token of each row to be predicted.

    >>> shared_length([(1, 2, 3, 4), (1, 2, 4), (1, 2, 3)])
    2
    """
    common: tuple[int, ...] | None = None
    for row in rows:
        most = row[:-1] if common is None else common[: len(row) - 1]
        if common is None or row[: len(most)] == most:
            common = most
        else:
            differs = (
                place for place, (one, other) in enumerate(zip(most, row, strict=False)) if one != other
            )
            common = most[: next(differs)]
    return len(common or ())


def _from(sequence: TokenSequence, begin: int) -> tuple[int, ...]:
    """The tokens of a row from one of them on."""
    before = len(sequence.context)
    return (
        sequence.target[begin - before :] if begin >= before else sequence.context[begin:] + sequence.target
    )
