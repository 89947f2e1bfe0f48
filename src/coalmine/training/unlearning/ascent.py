"""Gradient ascent on documents that are still remembered, while the loss of other text is held by descending on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from coalmine.errors import ModelOutputError
from coalmine.models.protocols import FloatArray, IntArray
from coalmine.models.reference.networks import Network
from coalmine.randomness import arrays
from coalmine.training.data import IGNORED
from coalmine.training.epochs import BITS
from coalmine.training.unlearning.options import UnlearnOptions

# Longer documents are read in parts of so many tokens, each after the separator.
_LONGEST = 256
# Tokens that are read together where only losses are asked for.
_TOGETHER = 1 << 14
_CLIP = 1.0


class ForgetGroup(NamedTuple):
    """Documents of one kind, and texts of that kind that the model was not trained on."""

    # Which of all documents they are.
    places: IntArray
    # A document is remembered as long as it costs less than the median of these.
    compared: Sequence[IntArray]
    # Texts whose loss is held. They are others than those above, because a text that was trained on is no measure.
    held: Sequence[IntArray] = ()


class MeasuredLosses(NamedTuple):
    """The loss of each document, and that at which it counts as forgotten; in bits per token."""

    losses: FloatArray
    limits: FloatArray

    @property
    def remembered(self) -> IntArray:
        """The documents below their limit."""
        return np.flatnonzero(self.losses < self.limits)


class Forgotten(NamedTuple):
    """How an ascent ended."""

    steps: int
    before: MeasuredLosses
    after: MeasuredLosses


class Ascent:
    """A network, the documents that it is to forget in groups, and text whose loss should stay as it is."""

    def __init__(
        self,
        network: Network,
        separator: int,
        documents: Sequence[IntArray],
        groups: Sequence[ForgetGroup],
        keep: Sequence[IntArray],
        options: UnlearnOptions,
    ) -> None:
        self._network, self._separator, self._options = network, separator, options
        self._documents, self._groups, self._keep = documents, groups, keep
        self._optimizer = torch.optim.Adam(network.parameters(), lr=options.learning_rate)

    def run(self, report: Callable[[int, int], None]) -> Forgotten:
        """Take rounds until nothing is remembered or no steps are left; `report` gets the steps of each and how many documents are left.

        A round takes every document that is remembered once. The ascent raises the loss of similar texts too, so limits are measured again
        after each.
        """
        before = now = self._measured()
        steps = rounds = 0
        report(0, len(now.remembered))
        while now.remembered.size and steps < self._options.steps:
            taken = self._round(now.remembered, rounds, self._options.steps - steps)
            steps, rounds = steps + taken, rounds + 1
            now = self._measured()
            if not np.isfinite(now.losses).all():
                raise ModelOutputError(
                    f"unlearning diverged at step {steps}: a loss is not finite; use a smaller learning rate than "
                    f"{self._options.learning_rate}"
                )
            report(taken, len(now.remembered))
        return Forgotten(steps, before, now)

    def _measured(self) -> MeasuredLosses:
        limits = np.empty(len(self._documents))
        for group in self._groups:
            limit = self._options.until
            if limit is None:
                limit = float(np.median(losses_bits(self._network, group.compared, self._separator)))
            limits[group.places] = limit
        return MeasuredLosses(losses_bits(self._network, self._documents, self._separator), limits)

    def _round(self, remembered: IntArray, number: int, most: int) -> int:
        """Up to `most` steps over the documents that are remembered; returns how many."""
        options = self._options
        chance = arrays(options.seed, "unlearn", number)
        order = chance.permutation(remembered)
        begins = range(0, len(order), options.batch_size)[:most]
        for begin in begins:
            self._step(order[begin : begin + options.batch_size], chance)
        return len(begins)

    def _step(self, chosen: IntArray, chance: np.random.Generator) -> None:
        options = self._options
        self._network.train()
        self._optimizer.zero_grad(set_to_none=True)
        loss = -self._mean_loss([self._documents[place] for place in chosen])
        if self._keep and options.keep_weight:
            number = min(options.batch_size, len(self._keep))
            places = chance.choice(len(self._keep), number, replace=False)
            loss = loss + options.keep_weight * self._mean_loss([self._keep[place] for place in places])
        held = [
            group.held[int(chance.integers(len(group.held)))]
            for group in self._groups
            if group.held
            for _ in range(np.isin(chosen, group.places).sum())
        ]
        if held and options.format_weight:
            loss = loss + options.format_weight * self._mean_loss(held)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves this one without types
        torch.nn.utils.clip_grad_norm_(self._network.parameters(), _CLIP)
        self._optimizer.step()

    def _mean_loss(self, documents: Sequence[IntArray]) -> Tensor:
        return _losses(self._network, documents, self._separator).mean()


def losses_bits(network: Network, documents: Sequence[IntArray], separator: int) -> FloatArray:
    """(documents,) mean loss per token in bits, of each document after the separator."""
    network.eval()
    rows = max(1, _TOGETHER // _LONGEST)
    begins = range(0, len(documents), rows)
    with torch.no_grad():
        found = [_losses(network, documents[begin : begin + rows], separator) * BITS for begin in begins]
    return np.concatenate([np.zeros(0), *(part.double().numpy() for part in found)])


def _losses(network: Network, documents: Sequence[IntArray], separator: int) -> Tensor:
    """(documents,) mean loss per token in nats."""
    parts = [
        (place, document[begin : begin + _LONGEST])
        for place, document in enumerate(documents)
        for begin in range(0, len(document), _LONGEST)
    ]
    time = max(len(part) for _, part in parts)
    read = np.full((len(parts), time), separator, dtype=np.int64)
    expected = np.full((len(parts), time), IGNORED, dtype=np.int64)
    for row, (_, part) in enumerate(parts):
        read[row, 1 : len(part)] = part[:-1]
        expected[row, : len(part)] = part
    logits, _ = network(torch.from_numpy(read), network.initial_state(len(parts)))
    targets = torch.from_numpy(expected)
    each = F.cross_entropy(logits.transpose(1, 2), targets, ignore_index=IGNORED, reduction="none").sum(1)
    places = torch.tensor([place for place, _ in parts])
    lengths = torch.tensor([len(document) for document in documents], dtype=each.dtype)
    return torch.zeros(len(documents), dtype=each.dtype).index_add(0, places, each) / lengths
