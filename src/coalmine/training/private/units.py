"""Units of privacy: documents or users, each with all its windows, and the forward passes that units drawn for a step are read in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from coalmine.errors import CorpusError
from coalmine.models.protocols import IntArray
from coalmine.models.reference.networks import Network, State
from coalmine.models.reference.pair_networks import EncoderDecoder
from coalmine.training.data import IGNORED, TrainingData
from coalmine.training.lessons import PairBatches
from coalmine.training.options import TrainingOptions

MOST_LOGITS = 1 << 25


class Rows(NamedTuple):
    """Windows that are read side by side, and the units that they belong to."""

    # What the network reads: (rows, time) tokens and the state before them, or a batch of pairs.
    read: tuple[Tensor, ...]
    carried: State | None
    expected: Tensor  # (rows, time), IGNORED where no loss is computed
    # (rows,) the unit of each row, from 0 and ascending, and how many units there are.
    units: Tensor
    number: int
    # (rows,) one over the number of tokens of the row's unit.
    weights: Tensor
    tokens: int
    # (rows,) how many places come before the padding, where all layers read the same places.
    lengths: Tensor | None = None


def rows_that_fit(window: int, vocabulary: int) -> int:
    """How many windows of this length are read together where nobody said: as many as have about 30 million logits.

    >>> rows_that_fit(64, 100), rows_that_fit(32, 10_000)
    (512, 104)
    """
    return max(8, min(512, MOST_LOGITS // (window * vocabulary)))


def units_of(documents: int, users: Sequence[str] | None, unit: str) -> list[IntArray]:
    """The places of the documents of each unit, of so many documents, given whose each is if that is known."""
    if unit == "document":
        return [np.array([place]) for place in range(documents)]
    if users is None:
        raise CorpusError(
            "the unit of privacy is the user, and the corpus does not say whose each document is; name its user field with "
            "--field user=NAME, or take the document as the unit"
        )
    places: dict[str, list[int]] = {}
    for place, user in enumerate(users):
        places.setdefault(user, []).append(place)
    return [np.array(some) for some in places.values()]


class UnitPasses:
    """Cuts the units of a step into forward passes of a bounded number of rows."""

    def __init__(self, tokens: IntArray, rows: IntArray, longest: IntArray) -> None:
        """For each unit: how many of its tokens have a loss, how many rows it has, and the length of its longest one."""
        self._tokens, self._rows, self._longest = tokens, rows, longest

    def tokens(self, drawn: IntArray) -> int:
        """How many tokens of the drawn units have a loss."""
        return int(self._tokens[drawn].sum())

    def passes(self, drawn: IntArray, most_rows: int, most_units: int | None) -> Iterator[Rows]:
        """The drawn units in passes of at most so many rows; a unit with more has a pass of its own, of which `part` gives parts.

        Units of about the same shape are read together, so that there is little padding.
        """
        some: list[int] = []
        rows = 0
        drawn = drawn[self._rows[drawn] > 0]  # a document without tokens to predict has no gradient
        for unit in drawn[np.lexsort((self._longest[drawn], self._rows[drawn]))].tolist():
            if some and (rows + self._rows[unit] > most_rows or len(some) == most_units):
                yield self._read_together(some)
                some, rows = [], 0
            some.append(unit)
            rows += int(self._rows[unit])
        if some:
            yield self._read_together(some)

    def part(self, rows: Rows, begin: int, end: int) -> Rows:
        """Some of the rows of one unit."""
        chosen = slice(begin, end)
        return rows._replace(
            read=tuple(one[chosen] for one in rows.read),
            expected=rows.expected[chosen],
            units=rows.units[chosen],
            weights=rows.weights[chosen],
            lengths=None if rows.lengths is None else rows.lengths[chosen],
        )

    def _read_together(self, units: Sequence[int]) -> Rows:
        raise NotImplementedError


class UnitReader(UnitPasses):
    """Reads units with a reference network, and computes the losses of their rows."""

    def __init__(
        self,
        network: Network | EncoderDecoder,
        data: TrainingData,
        units: Sequence[IntArray],
        options: TrainingOptions,
    ) -> None:
        self._network, self._data, self._units = network, data, units
        self._window, self._separator = options.window, data.tokenizer.separator
        lengths = np.array([len(document) + 1 for document in data.training])
        windows = np.ones_like(lengths) if data.sources is not None else -(-lengths // self._window)
        super().__init__(
            np.array([lengths[places].sum() for places in units]),
            np.array([windows[places].sum() for places in units]),
            np.array([lengths[places].max() for places in units]),
        )

    def part(self, rows: Rows, begin: int, end: int) -> Rows:
        """Some of the rows of one unit, with the states before them."""
        part = super().part(rows, begin, end)
        if rows.carried is None:
            return part
        network = cast("Network", self._network)
        return part._replace(carried=network.select(rows.carried, torch.arange(len(rows.units))[begin:end]))

    def losses(self, rows: Rows) -> Tensor:
        """(rows,) the loss of each row in nats, divided by the number of tokens of its unit, so that a unit's is its mean."""
        if rows.carried is None:
            logits = self._network(*rows.read)
        else:
            logits, _ = self._network(*rows.read, rows.carried)
        # (rows, time, vocabulary): padding is left out after the layers, which have to see which row each place belongs to.
        each = F.cross_entropy(logits.transpose(1, 2), rows.expected, reduction="none", ignore_index=IGNORED)
        return each.sum(1) * rows.weights

    def _read_together(self, units: Sequence[int]) -> Rows:
        documents = [
            (number, place) for number, unit in enumerate(units) for place in self._units[unit].tolist()
        ]
        tokens = self._tokens[list(units)]  # (units,)
        if self._data.sources is not None:
            owners = np.array([number for number, _ in documents])
            read, expected = self._pairs([place for _, place in documents])
            carried = None
        else:
            owners, read, expected, carried = self._texts(documents)
        weights = torch.from_numpy(1.0 / tokens[owners]).to(next(self._network.parameters()).dtype)
        lengths = None if carried is None else (expected != IGNORED).sum(1)
        return Rows(
            read, carried, expected, torch.from_numpy(owners), len(units), weights, int(tokens.sum()), lengths
        )

    def _pairs(self, places: Sequence[int]) -> tuple[tuple[Tensor, ...], Tensor]:
        sources = () if self._data.sources is None else self._data.sources.training
        [batch] = PairBatches(sources, self._data.training, [np.array(places)], self._separator)
        return batch.read, batch.expected

    def _texts(
        self, documents: Sequence[tuple[int, int]]
    ) -> tuple[IntArray, tuple[Tensor, ...], Tensor, State]:
        """The unit of each row, the tokens to read, those to expect, and the state before each row."""
        owners: list[int] = []
        firsts: list[int] = []
        windows: list[IntArray] = []
        for owner, place in documents:
            stream = np.append(self._data.training[place], self._separator).astype(np.int64)
            stream = np.insert(stream, 0, self._separator)
            cuts = range(0, len(stream) - 1, self._window)
            firsts.append(len(windows))
            owners += [owner] * len(cuts)
            windows += [stream[cut : cut + self._window + 1] for cut in cuts]
        time = max(map(len, windows)) - 1
        read = np.full((len(windows), time), self._separator)
        expected = np.full((len(windows), time), IGNORED)
        for row, window in enumerate(windows):
            read[row, : len(window) - 1] = window[:-1]
            expected[row, : len(window) - 1] = window[1:]
        tokens = torch.from_numpy(read)
        counts = np.diff([*firsts, len(windows)])
        return (
            np.array(owners),
            (tokens,),
            torch.from_numpy(expected),
            self._states(tokens, np.array(firsts), counts),
        )

    @torch.no_grad()
    def _states(self, tokens: Tensor, firsts: IntArray, counts: IntArray) -> State:
        """The state before each row: that after the window before it in the same document, and else the initial one.

        As in other training, gradients reach back to the beginning of a window and no further.
        """
        network = cast("Network", self._network)  # texts have no other
        states = network.initial_state(len(tokens))
        if not network.carries_state:
            return states
        for window in range(1, int(counts.max())):
            rows = torch.from_numpy(firsts[counts > window] + window)
            _, after = network.read_hidden(tokens[rows - 1], network.select(states, rows - 1), 1)
            for part, new in zip(states, after, strict=True):
                part.index_copy_(network.state_batch_dim, rows, new)
        return states
