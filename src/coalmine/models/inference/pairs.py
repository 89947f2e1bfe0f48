"""Models of targets given sources: the adapter for sequence-to-sequence networks, and what such a network must offer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coalmine.errors import NotMeasurableError
from coalmine.models.inference.incremental import StatefulModel
from coalmine.models.inference.local import LocalModel, check_ids
from coalmine.models.inference.memory import LOGITS_AT_A_TIME, Room
from coalmine.models.inference.projection import Projection
from coalmine.models.inference.scoring import hidden_width, judge_tokens, masks_without
from coalmine.models.inference.token_scores import TokenScores, Wanted
from coalmine.models.protocols import (
    DistributionScore,
    SequenceScore,
    Tokenizer,
    TokenSequence,
)
from coalmine.models.reference.networks import Head, Network
from coalmine.models.reference.tokens import ReferenceTokenizer
from coalmine.models.transformers.subwords import SubwordTokenizer

# The memory that a source token takes besides the logits of its target, in numbers; attention takes more for longer sources.
NUMBERS_A_SOURCE_TOKEN = 1024


class PairNetwork(nn.Module):
    """A network that reads a source and predicts a target from it, token by token."""

    @property
    def architecture(self) -> str:
        """Its name in a record."""
        raise NotImplementedError

    @property
    def vocabulary(self) -> int:
        """The number of logits: the size of the target side."""
        raise NotImplementedError

    def conditioned(self, source: Sequence[int]) -> Network:
        """The decoder as a Network that carries a state, with this source read once and held fixed. It shares the weights.

        It must have this network, or the parts of it that it uses, as a submodule, so that it has these parameters.
        """
        raise NotImplementedError

    def forward(self, sources: Tensor, lengths: Tensor, targets: Tensor) -> Tensor:
        """Logits for each position of each target, with teacher forcing: position i predicts token i + 1.

        Args:
            sources: (batch, S) source ids, padded at the end with any id.
            lengths: (batch,) how many of them are the source; the padding must not change a number.
            targets: (batch, T) target ids, the decoder's start token first; padding may follow.

        Returns:
            (batch, T, vocabulary) logits.
        """
        raise NotImplementedError

    def read_hidden(self, sources: Tensor, lengths: Tensor, targets: Tensor) -> Tensor:
        """As `forward`, with the (batch, T, width) hidden numbers that `project` turns into logits.

        A network that cannot be read without its last layer gives the logits themselves.
        """
        logits: Tensor = self(sources, lengths, targets)
        return logits

    def project(self, hidden: Tensor) -> Tensor:
        """The logits of some positions of what `read_hidden` gave."""
        return hidden

    def head(self) -> Head | None:
        """What `project` does, where it can be done in parts."""
        return None

    def numbers_read(self, length: int) -> int:
        """The most numbers that `read_hidden` makes of a target of `length` tokens, besides those of its source."""
        return self.vocabulary * length


class FixedSource(StatefulModel):
    """A model of pairs with its source held fixed: a DistributionScorer, a Stepper, a Generator, a Reciter and a Lister of targets."""

    def __init__(self, pairs: PairNetworkModel, source: tuple[int, ...]) -> None:
        """Read the source once, with the weights as they are now."""
        super().__init__(
            pairs.network.conditioned(source),
            pairs.tokenizer,
            name=pairs.name,
            reference=None if pairs.reference is None else pairs.reference.given_tokens(source),
        )
        self._pairs = pairs
        self._source = source
        self._room = pairs.room
        self.load_again = pairs.load_again

    @property
    def context(self) -> tuple[int, ...]:
        """What the decoder has read before the first token of a target."""
        return self._pairs.context

    def describe(self) -> dict[str, Any]:
        """For the record of a run. The source may be a secret, so only its hash is there, which differs between sources."""
        digest = hashlib.sha256(",".join(map(str, self._source)).encode()).hexdigest()
        return {**self._pairs.describe(), "source_sha256": digest}


class PairNetworkModel(LocalModel[ReferenceTokenizer | SubwordTokenizer]):
    """A pair network as an audit sees it: a DistributionScorer of targets given sources, and a causal model once a source is fixed.

    The log-perplexity is that of the target's tokens in bits, with teacher forcing: each token is predicted from the source and the true
    tokens before it. Neither the source nor an end of sequence is scored.
    """

    def __init__(
        self,
        network: PairNetwork,
        tokenizer: ReferenceTokenizer | SubwordTokenizer,
        source_tokenizer: Tokenizer,
        *,
        name: str = "model",
        origin: dict[str, Any] | None = None,
        reference: PairNetworkModel | None = None,
        context: tuple[int, ...] | None = None,
    ) -> None:
        """`context` is what the decoder reads before a target; by default, it is the separator of `tokenizer`."""
        super().__init__(network, tokenizer, name=name, origin=origin)
        self.network = network
        self.reference = reference
        self._source_tokenizer = source_tokenizer
        self._context = (tokenizer.separator,) if context is None else context
        self.room = Room()

    @property
    def memory_note(self) -> str | None:
        """What was done because memory ran out, for the record of a run; None if it never did."""
        return self.room.note or (None if self.reference is None else self.reference.memory_note)

    @property
    def source_tokenizer(self) -> Tokenizer:
        """The tokens of the source side, as the encoder reads them."""
        return self._source_tokenizer

    @property
    def context(self) -> tuple[int, ...]:
        """What the decoder has read before the first token of a target."""
        return self._context

    def describe(self) -> dict[str, Any]:
        """For the record of a run."""
        return {
            "adapter": "pairs",
            "architecture": self.network.architecture,
            "context": "the source, and the decoder's start",
            "context_tokens": list(self._context),
            **self._facts(),
        }

    def given(self, source: str) -> FixedSource:
        """The model with this source held fixed; the source is read once, now, with the weights as they are now."""
        return self.given_tokens(tuple(self._source_tokenizer.encode(source)))

    @torch.inference_mode()
    def given_tokens(self, source: tuple[int, ...]) -> FixedSource:
        """As `given`, for a source in tokens."""
        self._check_source(source)
        return FixedSource(self, source)

    def score(self, sequences: Sequence[TokenSequence], *, ranks: bool = False) -> list[SequenceScore]:
        """Scores in the order of `sequences`, each of which needs its source; what all of them share is read once."""
        fixed = self._with_their_source(sequences)
        if fixed is not None:
            return fixed.score([sequence._replace(source=()) for sequence in sequences], ranks=ranks)
        return [one.sequence() for one in self._scores(sequences, Wanted(ranks=ranks))]

    def score_distribution(self, sequences: Sequence[TokenSequence]) -> list[DistributionScore]:
        """Scores in the order of `sequences`, with ranks and the moments of each distribution in bits, from the same pass."""
        fixed = self._with_their_source(sequences)
        if fixed is not None:
            return fixed.score_distribution([sequence._replace(source=()) for sequence in sequences])
        return [one.distribution() for one in self._scores(sequences, Wanted(ranks=True, moments=True))]

    @property
    def hidden_units(self) -> int:
        """The units of the decoder's last hidden layer; 0 for a network that cannot be read without its last layer."""
        return hidden_width(self.network)

    def predicts_without(
        self, sequences: Sequence[TokenSequence], units: Sequence[Sequence[int]]
    ) -> list[NDArray[np.bool_]]:
        """(sets, tokens) for each sequence: whether each token is the argmax with each set of units at zero; texts are read once."""
        fixed = self._with_their_source(sequences)
        if fixed is not None:
            return fixed.predicts_without([sequence._replace(source=()) for sequence in sequences], units)
        kept = masks_without(self.network, units)
        return [one.ablated() for one in self._scores(sequences, Wanted(kept=kept))]

    def _with_their_source(self, sequences: Sequence[TokenSequence]) -> FixedSource | None:
        """The model with the source of all sequences, if they have one in common; all of them are checked."""
        self._check_at_rest()
        for sequence in sequences:
            self._check_source(sequence.source)
        self._check_sequences(sequences, "ids of target tokens")
        sources = {sequence.source for sequence in sequences}
        return self.given_tokens(sources.pop()) if len(sources) == 1 else None

    @torch.inference_mode()
    def _scores(self, sequences: Sequence[TokenSequence], asked: Wanted) -> list[TokenScores]:
        results: list[TokenScores | None] = [None] * len(sequences)
        # Neighbors in length share a batch, so that little of it is padding.
        order = sorted(range(len(sequences)), key=lambda i: _lengths(sequences[i]))

        def score(batch: Sequence[int], begin: int, end: int) -> None:
            some = batch[begin:end]
            scores = self._score_batch([sequences[i] for i in some], asked)
            for i, one in zip(some, scores, strict=True):
                results[i] = one

        while order:
            batch = self._batch(order, sequences)
            order = order[: -len(batch)]
            longest = max(sum(_lengths(sequences[i])) for i in batch)
            self.room.in_parts(len(batch), longest, partial(score, batch))
        return [result for result in results if result is not None]

    def _batch(self, order: list[int], sequences: Sequence[TokenSequence]) -> list[int]:
        """As many of the last of `order` as fit into memory together, and at least one."""
        longest_source, size = 0, 0
        longest_target = _lengths(sequences[order[-1]])[0]
        for i in reversed(order):
            source = max(longest_source, len(sequences[i].source))
            numbers = self.network.numbers_read(longest_target) + source * max(NUMBERS_A_SOURCE_TOKEN, source)
            if size and numbers * (size + 1) > LOGITS_AT_A_TIME:
                break
            longest_source, size = source, size + 1
        return order[-size:]

    def _score_batch(self, sequences: Sequence[TokenSequence], asked: Wanted) -> Iterator[TokenScores]:
        targets = self._padded([sequence.context + sequence.target for sequence in sequences])
        begins, sizes = np.array([(len(context) - 1, len(target)) for context, target, _ in sequences]).T
        places = np.arange(targets.shape[1] - 1)
        counts = (places >= begins[:, None]) & (places < (begins + sizes)[:, None])
        scores = TokenScores.of_none(asked)
        if counts.any():
            sources = self._padded([sequence.source for sequence in sequences])
            lengths = self._tensor(np.array([len(sequence.source) for sequence in sequences]))
            # Padding of a target is read after it, so it cannot change a number that is used. The last token of each target is
            # only predicted, never read.
            hidden = self.network.read_hidden(sources, lengths, targets[:, :-1]).flatten(0, 1)
            # Neither padding nor context is projected onto the vocabulary.
            hidden = hidden[self._tensor(np.flatnonzero(counts))]
            tokens = np.array([token for sequence in sequences for token in sequence.target])
            projection = Projection(self.network, whole_at_a_time=LOGITS_AT_A_TIME)
            scores = judge_tokens(projection, hidden, np.arange(len(tokens)), tokens, asked)
        ends = np.cumsum(sizes).tolist()
        return (scores.part(slice(end - size, end)) for end, size in zip(ends, sizes.tolist(), strict=True))

    def _padded(self, rows: Sequence[tuple[int, ...]]) -> Tensor:
        padded = np.zeros((len(rows), max(len(row) for row in rows)), dtype=np.int64)
        for place, row in enumerate(rows):
            padded[place, : len(row)] = row
        return self._tensor(padded)

    def _check_source(self, source: tuple[int, ...]) -> None:
        if not source:
            raise NotMeasurableError(
                f"{self._name!r} is a model of pairs, and a target cannot be scored without its source; give the source, or hold "
                "one fixed with given(source)"
            )
        check_ids(source, self._source_tokenizer.size, "ids of source tokens")


def _lengths(sequence: TokenSequence) -> tuple[int, int]:
    return len(sequence.context) + len(sequence.target), len(sequence.source)
