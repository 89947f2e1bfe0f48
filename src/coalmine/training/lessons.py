"""Lessons of a training run: the network, the batches of an epoch, and the network's predictions for a batch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, overload

import numpy as np
import torch
from torch import Tensor

from coalmine.errors import InputError
from coalmine.models.protocols import IntArray
from coalmine.models.reference.networks import Network, NetworkConfig, State, build_network
from coalmine.models.reference.pair_networks import EncoderDecoder, PairNetworkConfig, build_pair_network
from coalmine.randomness import arrays
from coalmine.training.data import IGNORED, Sources, TrainingData, epoch_order, rows_of
from coalmine.training.options import TrainingOptions

# Pairs are sorted by length within this many batches: little padding, and batches that are still random.
BATCHES_SORTED_TOGETHER = 50


class LessonBatch(NamedTuple):
    """The data of one training step."""

    read: tuple[Tensor, ...]
    expected: Tensor  # (rows, time), IGNORED where no loss is computed
    # At how many places a loss is computed.
    tokens: int
    # (tokens,), those places, counted row by row; None where a loss is computed at all places.
    places: Tensor | None = None

    def with_loss(self, of_places: Tensor) -> Tensor:
        """(rows, time, ...) to (tokens, ...): what is at the places where a loss is computed. Padding costs nothing afterwards."""
        flat = of_places.flatten(0, 1)
        return flat if self.places is None else flat.index_select(0, self.places)

    def on(self, device: str) -> LessonBatch:
        """The same on a device."""
        if device == "cpu":
            return self
        read = tuple(part.to(device) for part in self.read)
        places = None if self.places is None else self.places.to(device)
        return self._replace(read=read, expected=self.expected.to(device), places=places)


class Lessons(Protocol):
    """What differs between texts and pairs; all else of a run is the same."""

    @property
    def network(self) -> Network | EncoderDecoder:
        """The network that learns."""

    def training(self, epoch: int) -> Sequence[LessonBatch]:
        """The batches of an epoch."""

    def validation(self) -> Sequence[LessonBatch]:
        """The batches of the validation loss; none where nothing was held out."""

    def predict(self, batch: LessonBatch, carried: State) -> tuple[Tensor, State]:
        """(tokens, vocabulary) logits at the places with a loss, and the state that the next batch continues from.

        `carried` is empty before the first. The other places are padding, and are never projected onto the vocabulary.
        """


def lessons_of(data: TrainingData, options: TrainingOptions) -> Lessons:
    """Lessons with a fresh network, whose weights are drawn from torch's global generator."""
    config = NetworkConfig if data.sources is None else PairNetworkConfig
    shape = {name: getattr(options, name) for name in config.__struct_fields__ if name != "vocabulary"}
    with enough_memory(options):
        if data.sources is None:
            network = build_network(NetworkConfig(vocabulary=data.tokenizer.size, **shape)).to(options.device)
            return TextLessons(network, data, options)
        pairs = build_pair_network(PairNetworkConfig(vocabulary=data.tokenizer.size, **shape)).to(
            options.device
        )
        return PairLessons(pairs, data, data.sources, options)


@contextlib.contextmanager
def enough_memory(options: TrainingOptions) -> Iterator[None]:
    """A network that does not fit into memory is an InputError that says which options to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as problem:
        # The library has no error of its own for the memory of the machine.
        if isinstance(problem, RuntimeError) and "allocate memory" not in str(problem):
            raise
        raise InputError(
            f"there is not enough memory for a network with {options.layers:,} layers of {options.hidden:,} and embeddings of "
            f"{options.embedding:,}; lower hidden, embedding or layers"
        ) from None


class TextLessons:
    """Documents one after the other in rows, read window by window; the state is carried from one window to the next."""

    def __init__(self, network: Network, data: TrainingData, options: TrainingOptions) -> None:
        self.network = network
        self._data, self._options = data, options

    def training(self, epoch: int) -> Sequence[LessonBatch]:
        """The windows over all documents, in the order of this epoch."""
        order = epoch_order(len(self._data.training), self._options, epoch)
        return self._windows([self._data.training[place] for place in order])

    def validation(self) -> Sequence[LessonBatch]:
        """The windows over the documents that were held out."""
        return self._windows(self._data.validation) if self._data.validation else []

    def predict(self, batch: LessonBatch, carried: State) -> tuple[Tensor, State]:
        """Logits, and the state after the window."""
        (tokens,) = batch.read
        if not carried or not self.network.carries_state:
            carried = self.network.initial_state(tokens.shape[0])
        hidden, state = self.network.read_hidden(tokens, carried, tokens.shape[1])
        return self.network.project(batch.with_loss(hidden)), state

    def _windows(self, documents: Sequence[IntArray]) -> list[LessonBatch]:
        inputs, targets = rows_of(documents, self._data.tokenizer.separator, self._options.batch_size)
        read, expected = torch.from_numpy(inputs), torch.from_numpy(targets)
        length = self._options.window
        windows = [slice(start, start + length) for start in range(0, inputs.shape[1], length)]
        # What each window adds to the epoch is known beforehand, so that nothing is counted while it runs.
        return [
            LessonBatch((read[:, window],), expected[:, window], *_places_with_loss(targets[:, window]))
            for window in windows
        ]


class PairLessons:
    """Pairs of about equal length side by side, each read whole; nothing is carried from one batch to the next."""

    def __init__(
        self, network: EncoderDecoder, data: TrainingData, sources: Sources, options: TrainingOptions
    ) -> None:
        self.network = network
        self._data, self._sources, self._options = data, sources, options

    def training(self, epoch: int) -> Sequence[LessonBatch]:
        """All pairs, in the order of this epoch except that pairs of similar length are batched together."""
        data, options = self._data, self._options
        order = epoch_order(len(data.training), options, epoch)
        size = options.batch_size
        if not options.shuffle:  # this order was chosen, whatever padding it costs
            return PairBatches(
                self._sources.training, data.training, cut(order, size), data.tokenizer.separator
            )
        chunks = cut(order, size * BATCHES_SORTED_TOGETHER)
        batches = [
            batch
            for chunk in chunks
            for batch in cut(_by_length(chunk, self._sources.training, data.training), size)
        ]
        # Or each chunk would begin with its shortest pairs.
        shuffled = arrays(options.seed, "train", "batches", epoch).permutation(len(batches))
        return PairBatches(
            self._sources.training,
            data.training,
            [batches[place] for place in shuffled],
            data.tokenizer.separator,
        )

    def validation(self) -> Sequence[LessonBatch]:
        """The pairs that were held out, by length."""
        sources, targets = self._sources.validation, self._data.validation
        order = _by_length(np.arange(len(targets)), sources, targets)
        batches = cut(order, self._options.batch_size)
        return PairBatches(sources, targets, batches, self._data.tokenizer.separator)

    def predict(self, batch: LessonBatch, carried: State) -> tuple[Tensor, State]:
        """Logits of each target given its source."""
        return self.network.project(batch.with_loss(self.network.read_hidden(*batch.read))), carried


class PairBatches(Sequence[LessonBatch]):
    """Batches of pairs, padded when they are used: an epoch of them would take far more memory than the corpus."""

    def __init__(
        self,
        sources: Sequence[IntArray],
        targets: Sequence[IntArray],
        batches: Sequence[IntArray],
        separator: int,
    ) -> None:
        self._sources, self._targets, self._batches, self._separator = sources, targets, batches, separator

    def __len__(self) -> int:
        return len(self._batches)

    @overload
    def __getitem__(self, place: int) -> LessonBatch: ...
    @overload
    def __getitem__(self, place: slice) -> list[LessonBatch]: ...
    def __getitem__(self, place: int | slice) -> LessonBatch | list[LessonBatch]:
        if isinstance(place, slice):
            return [self[each] for each in range(len(self))[place]]
        members = self._batches[place]
        sources = [self._sources[member] for member in members]
        targets = [self._targets[member] for member in members]
        # The separator starts each target and ends it, so that the model learns where to stop.
        begun = [np.append(self._separator, target) for target in targets]
        ended = [np.append(target, self._separator) for target in targets]
        lengths = np.array([len(source) for source in sources], dtype=np.int64)
        read = (padded(sources, self._separator), torch.from_numpy(lengths), padded(begun, self._separator))
        expected = padded(ended, IGNORED)
        return LessonBatch(read, expected, *_places_with_loss(expected.numpy()))


def _places_with_loss(expected: IntArray) -> tuple[int, Tensor | None]:
    """How many there are, and which they are if they are not all."""
    places = np.flatnonzero(expected != IGNORED)
    return len(places), None if len(places) == expected.size else torch.from_numpy(places)


def padded(rows: Sequence[IntArray], filling: int) -> Tensor:
    """(rows, time): rows of different lengths, filled up on the right."""
    padded = np.full((len(rows), max(len(row) for row in rows)), filling, dtype=np.int64)
    for place, row in enumerate(rows):
        padded[place, : len(row)] = row
    return torch.from_numpy(padded)


def _by_length(members: IntArray, sources: Sequence[IntArray], targets: Sequence[IntArray]) -> IntArray:
    """Some pairs sorted by the length of the source, which is read in a piece for each length, and then of the target."""
    keys = [[len(side[member]) for member in members] for side in (targets, sources)]
    return members[np.lexsort(keys)]


def cut(members: IntArray, size: int) -> list[IntArray]:
    """Pieces of a size, the last of which may be smaller."""
    return [members[start : start + size] for start in range(0, len(members), size)]
