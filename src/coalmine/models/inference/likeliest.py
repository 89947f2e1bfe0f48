"""The likeliest tokens at each position of a text, from one pass over it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from coalmine.models.inference.reading import Reader
from coalmine.models.inference.token_scores import check_numbers, log2_softmax
from coalmine.models.protocols import TokenSequence

Listed = list[tuple[int, float]]


def list_likeliest(reader: Reader, sequences: Sequence[TokenSequence], k: int) -> list[list[Listed]]:
    """For each position of each target, the k likeliest tokens and their log2 probabilities."""
    found: list[list[Listed]] = [[] for _ in sequences]
    longest = max((len(sequence.target) for sequence in sequences), default=0)

    def list_batch(group: Sequence[int], begin: int, end: int) -> None:
        batch = group[begin:end]
        lengths = np.array([len(sequences[i].target) for i in batch])
        width = int(lengths.max())
        if not width:
            return
        context = len(sequences[batch[0]].context)
        tokens = np.zeros((len(batch), context + width - 1), dtype=np.int64)
        for row, i in enumerate(batch):
            text = sequences[i].context + sequences[i].target[:-1]
            tokens[row, : len(text)] = text
            found[i] = []  # whatever an attempt that ran out of memory left
        hidden, _ = reader.read(tokens, [], width)
        # Padding comes after a text and is read after it, so it cannot change a position that counts.
        for (rows, _), logits in reader.logits(hidden, np.arange(width) < lengths[:, None]):
            for row, listed in zip(rows.tolist(), _likeliest(logits, k), strict=True):
                found[batch[row]].append(listed)

    for batch in reader.batches(sequences, keep=longest):
        tokens = max(len(sequences[i].context) + len(sequences[i].target) for i in batch)
        reader.room.in_parts(len(batch), tokens, partial(list_batch, batch))
    return found


def _likeliest(logits: Tensor, k: int) -> list[Listed]:
    """The k highest of each row of (n, vocabulary) logits, in order; of equals, the lower ids."""
    check_numbers(bool(torch.isfinite(logits.amax(dim=1)).all()))
    lowest = torch.topk(logits, min(k, logits.shape[1]), dim=1).values[:, -1:]
    # All that are as high as the last of them, so that chance does not decide which of equals are left out.
    rows, ids = torch.nonzero(logits >= lowest, as_tuple=True)
    raw = logits[rows, ids].double().cpu().numpy()
    log2 = log2_softmax(logits)[rows, ids].double().cpu().numpy()
    row, token = rows.cpu().numpy(), ids.cpu().numpy()
    order = np.lexsort((token, -raw, row))
    begins = np.searchsorted(row, np.arange(len(logits)))
    ends = np.append(begins[1:], len(row))
    listed = []
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        own = order[begin : min(end, begin + k)]
        listed.append(list(zip(token[own].tolist(), log2[own].tolist(), strict=True)))
    return listed
