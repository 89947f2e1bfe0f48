"""Batched reading of many texts with one network: in groups that fit a cache, with no more logits at a time than memory holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coalmine.models.inference.memory import Room, read_prefix
from coalmine.models.inference.projection import Projection
from coalmine.models.inference.scoring import shared_length
from coalmine.models.protocols import IntArray, TokenSequence
from coalmine.models.reference.networks import LEAST_SHARED, Network, State

BoolArray = NDArray[np.bool_]
Places = tuple[IntArray, IntArray]  # rows, and columns in them

# The tokens that all rows of a group read at a time, and the logits that are computed at a time. A processor's cache holds less than
# an accelerator needs to be busy.
TOKENS_AT_A_TIME = {"cpu": 1 << 11}
TOKENS_ELSEWHERE = 1 << 15
LOGITS_IN_CACHE = {"cpu": 6 << 20}


class Reader:
    """Reads rows side by side, and computes logits."""

    def __init__(
        self,
        network: Network,
        *,
        rows_at_a_time: Callable[[int, int], int],
        logits_at_a_time: int,
        room: Room,
        device: torch.device,
    ) -> None:
        """`rows_at_a_time(length, read)` gives for how many rows of `length` tokens memory should hold the states.

        Each of them reads its last `read` tokens; all begin with the others. `logits_at_a_time` is how many logits, or hidden numbers
        that they are computed from, it should hold. `room` halves batches where they are too many.
        """
        self._network = network
        self._device = device
        self.room = room
        # What all sequences begin with, and the state after it, once it was read.
        self._prefix: tuple[int, ...] = ()
        self._after: State | None = None
        self._rows_at_a_time = rows_at_a_time
        self._numbers = logits_at_a_time
        self._logits = min(logits_at_a_time, LOGITS_IN_CACHE.get(device.type, logits_at_a_time))
        self._tokens = TOKENS_AT_A_TIME.get(device.type, TOKENS_ELSEWHERE)
        self.projection = Projection(network, whole_at_a_time=self._logits)

    @property
    def vocabulary(self) -> int:
        """The number of logits of a position."""
        return self._network.vocabulary

    def batches(self, sequences: Sequence[TokenSequence], *, keep: int) -> Iterator[list[int]]:
        """The indices of sequences whose contexts have one length, as many as memory holds; neighbors in length share a batch.

        At most `keep` tokens of each target are read at a time.
        """
        waiting = sorted(
            range(len(sequences)), key=lambda i: (len(sequences[i].context), len(sequences[i].target))
        )
        shared = shared_length(sequence.context for sequence in sequences)
        if shared < LEAST_SHARED or len(waiting) == 1 or not self._network.keeps_prefix_once:
            shared = 0
        self._prefix, self._after = sequences[0].context[:shared] if shared else (), None
        while waiting:
            context, width = (len(part) for part in sequences[waiting[-1]][:2])
            own = context + width - shared
            made = self._network.numbers_read(own, min(width, keep))
            most = max(1, min(self._rows_at_a_time(context + width, own), self._numbers // made))
            batch = [i for i in waiting[-most:] if len(sequences[i].context) == context]
            del waiting[-len(batch) :]
            yield batch

    def read(self, tokens: IntArray, states: list[State], keep: int) -> tuple[Tensor, list[State]]:
        """The hidden numbers of the last `keep` tokens of each row, and the states of groups of rows; without `states`, from the start.

        `states` is emptied: memory can hold the states before and after, but not those of the groups as well.
        """
        state = self._network.join(states) if states else None
        states.clear()
        if state is None:
            tokens, state = self._begin(tokens)
        length = tokens.shape[1]
        most = max(1, min(self._tokens // length, self._numbers // self._network.numbers_read(length, keep)))
        found, after = [], []
        for first in range(0, len(tokens), most):
            group = torch.from_numpy(tokens[first : first + most]).to(self._device)
            before = (
                self._network.initial_state(len(group))
                if state is None
                else self._network.some(state, first, len(group))
            )
            hidden, now = self._network.read_hidden(group, before, keep)
            found.append(hidden)
            after.append(now)
        return torch.cat(found), after

    def keep(self, states: Sequence[State], going: BoolArray) -> list[State]:
        """The states of the rows that remain."""
        kept, first = [], 0
        for state in states:
            rows = self._network.rows(state)
            own = np.flatnonzero(going[first : first + rows])
            first += rows
            if len(own) == rows:
                kept.append(state)
            elif len(own):
                kept.append(self._network.select(state, torch.from_numpy(own).to(self._device)))
        return kept

    def logits(self, hidden: Tensor, counts: BoolArray) -> Iterator[tuple[Places, Tensor]]:
        """The positions that count, some at a time, and their (n, vocabulary) logits, which the caller may overwrite."""
        rows, columns = np.nonzero(counts)
        most = max(1, self._logits // self._network.vocabulary)
        for first in range(0, len(rows), most):
            places = rows[first : first + most], columns[first : first + most]
            yield places, self._network.project(self.at(hidden, places))

    def at(self, hidden: Tensor, places: Places) -> Tensor:
        """The hidden numbers at some positions."""
        return hidden[tuple(torch.from_numpy(part).to(hidden.device) for part in places)]

    def _begin(self, tokens: IntArray) -> tuple[IntArray, State | None]:
        """The tokens that rows still have to read, and the state after those that all sequences begin with, which are read once."""
        if not self._prefix:
            return tokens, None
        if self._after is None:
            read = torch.tensor([self._prefix], dtype=torch.long, device=self._device)
            self._after = read_prefix(self._network, read, 1, self.room)[1]
        every = torch.zeros(len(tokens), dtype=torch.long, device=self._device)
        return tokens[:, len(self._prefix) :], self._network.select(self._after, every)
