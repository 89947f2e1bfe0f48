"""Gradient ascent on documents: each step raises the loss of those that are still remembered, and may hold that of other text."""

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
from coalmine.training.run import BITS
from coalmine.training.unlearning.options import UnlearnOptions

# Longer documents are read in parts of so many tokens, each after the separator.
_LONGEST = 256
# Tokens that are read together where only losses are asked for.
_TOGETHER = 1 << 14
_CLIP = 1.0


class Forgotten(NamedTuple):
    """How an ascent ended."""

    steps: int
    # The loss of each document in bits per token.
    losses: FloatArray


def losses_bits(network: Network, documents: Sequence[IntArray], separator: int) -> FloatArray:
    """(documents,) mean loss per token in bits, of each document after the separator."""
    network.eval()
    rows = max(1, _TOGETHER // _LONGEST)
    begins = range(0, len(documents), rows)
    with torch.no_grad():
        found = [_losses(network, documents[begin : begin + rows], separator) * BITS for begin in begins]
    return np.concatenate([np.zeros(0), *(part.double().numpy() for part in found)])


def ascend(
    network: Network,
    forget: Sequence[IntArray],
    keep: Sequence[IntArray],
    separator: int,
    limits: FloatArray,
    options: UnlearnOptions,
    report: Callable[[int, int], None],
) -> Forgotten:
    """Take steps until each document has reached its limit in bits per token; `report` gets the step and how many have not."""
    optimizer = torch.optim.Adam(network.parameters(), lr=options.learning_rate)
    losses = losses_bits(network, forget, separator)
    steps = 0
    while (left := np.flatnonzero(losses < limits)).size and steps < options.steps:
        report(steps, len(left))
        chance = arrays(options.seed, "unlearn", steps)
        chosen = chance.choice(left, min(options.batch_size, len(left)), replace=False)
        network.train()
        optimizer.zero_grad(set_to_none=True)
        loss = -_losses(network, [forget[place] for place in chosen], separator).mean()
        if keep and options.keep_weight:
            others = chance.choice(len(keep), min(options.batch_size, len(keep)), replace=False)
            kept = _losses(network, [keep[place] for place in others], separator).mean()
            loss = loss + options.keep_weight * kept
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves this one without types
        torch.nn.utils.clip_grad_norm_(network.parameters(), _CLIP)
        optimizer.step()
        steps += 1
        losses = losses_bits(network, forget, separator)
        if not np.isfinite(losses).all():
            raise ModelOutputError(
                f"unlearning diverged at step {steps}: a loss is not finite; use a smaller learning rate than {options.learning_rate}"
            )
    return Forgotten(steps, losses)


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
