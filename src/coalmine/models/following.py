"""Would a network write a text by itself? Told by one pass over the true text, without keeping what it expects at each place.

Greedy decoding writes a target exactly if each token of it is the argmax after the true tokens before it: up to the first
miss, what greedy decoding has written is the target itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from coalmine.errors import InputError, ModelOutputError
from coalmine.models.networks import Network, State
from coalmine.models.protocols import Followed, Sampling, TokenSequence

# Logits divided by less may be more than a float can hold.
LOWEST_TEMPERATURE = 1e-6
# Tokens of a target that are judged at a time; where rows that missed leave the batch, fewer at first, so that the batch can be
# larger, and then as many more as the rows that left make room for.
PIECE, FIRST_PIECE = 64, 2
# Tokens that all rows of a batch read at a time. More are no faster, and what layers make of them takes memory: a processor's cache
# holds less than an accelerator needs to be busy.
TOKENS_AT_A_TIME = {"cpu": 1 << 12}
TOKENS_ELSEWHERE = 1 << 15


def check_samplings(samplings: Sequence[Sampling], *, stop_at_miss: bool = False) -> None:
    """Refuse ways of sampling that there are not."""
    if samplings and stop_at_miss:
        raise InputError(
            "the probability of a target needs all of it: leave samplings out, or do not stop at a miss"
        )
    for temperature, top_k in samplings:
        if not (math.isfinite(temperature) and temperature >= LOWEST_TEMPERATURE):
            raise InputError(
                f"a temperature must be at least {LOWEST_TEMPERATURE:g}, got {temperature}; greedy decoding is measured anyway"
            )
        if top_k is not None and top_k < 1:
            raise InputError(f"top-k must be at least 1 token, got {top_k}; leave it out for all")


def follow_all(
    network: Network,
    sequences: Sequence[TokenSequence],
    *,
    samplings: Sequence[Sampling],
    stop_at_miss: bool,
    rows_at_a_time: Callable[[int, int], int],
    device: torch.device,
) -> list[Followed]:
    """Follow each target behind its context, in batches of contexts of one length.

    `rows_at_a_time(length, logits)` says how many rows of `length` tokens memory has room for, with the logits of so many tokens each.
    """
    check_samplings(samplings, stop_at_miss=stop_at_miss)
    at_a_time = TOKENS_AT_A_TIME.get(device.type, TOKENS_ELSEWHERE)
    results: list[Followed | None] = [None] * len(sequences)
    waiting = sorted(
        range(len(sequences)), key=lambda i: (len(sequences[i].context), len(sequences[i].target))
    )
    while waiting:
        context, width = (len(part) for part in sequences[waiting[-1]][:2])
        piece = max(1, min(width, FIRST_PIECE if stop_at_miss else PIECE))
        judged = piece if hasattr(network, "read_last") else max(piece, min(context, PIECE))
        most = min(rows_at_a_time(context + width, judged), max(1, at_a_time // (context + piece)))
        batch = [i for i in waiting[-most:] if len(sequences[i].context) == context]
        del waiting[-len(batch) :]
        found = _follow_batch(
            network,
            [sequences[i] for i in batch],
            samplings=samplings,
            stop_at_miss=stop_at_miss,
            piece=piece,
            device=device,
        )
        for i, one in zip(batch, found, strict=True):
            results[i] = one
    return [one for one in results if one is not None]


def _follow_batch(
    network: Network,
    sequences: Sequence[TokenSequence],
    *,
    samplings: Sequence[Sampling],
    stop_at_miss: bool,
    piece: int,
    device: torch.device,
) -> list[Followed]:
    """Follow targets behind contexts of one length, side by side, `piece` tokens of each at a time; more where rows have left."""
    lengths = np.array([len(sequence.target) for sequence in sequences])
    width = int(lengths.max())
    padded = np.zeros((len(sequences), width), dtype=np.int64)
    for row, sequence in enumerate(sequences):
        padded[row, : len(sequence.target)] = sequence.target
    targets = torch.from_numpy(padded).to(device)
    first_miss = np.full(len(sequences), -1, dtype=np.int64)
    log2 = np.zeros((len(sequences), len(samplings)))
    rows = np.flatnonzero(lengths > 0)
    tokens = torch.tensor([sequences[row].context for row in rows.tolist()], dtype=torch.int64, device=device)
    state = network.initial_state(len(rows))
    room, size, end = max(PIECE, piece * len(rows)), piece, 0
    while len(rows) and end < width:
        begin, end = end, min(width, end + size)
        own = targets[torch.from_numpy(rows).to(device)]
        read = torch.cat([tokens, own[:, max(0, begin - 1) : end - 1]], dim=1)
        logits, state = _read_last(network, read, state, end - begin)
        # Padding stands behind a target and is read after it, so it reaches no number that counts.
        counts = np.arange(begin, end) < lengths[rows, None]
        hits = _is_argmax(logits, own[:, begin:end])
        missed = ~hits & counts
        at = np.where(missed.any(axis=1), begin + missed.argmax(axis=1), -1)
        first_miss[rows] = np.where(first_miss[rows] < 0, at, first_miss[rows])
        for place, sampling in enumerate(samplings):
            log2[rows, place] += np.where(counts, _log2_under(logits, own[:, begin:end], sampling), 0.0).sum(
                axis=1
            )
        tokens = own[:, :0]
        if stop_at_miss:
            going = np.flatnonzero((first_miss[rows] < 0) & (lengths[rows] > end))
            if len(going) < len(rows):
                rows = rows[going]
                state = network.select(state, torch.from_numpy(going).to(device))
                tokens = targets[: len(rows), :0]
            size = max(piece, room // max(1, len(rows)))
    return [
        Followed(None if miss < 0 else int(miss), log2[row]) for row, miss in enumerate(first_miss.tolist())
    ]


def _read_last(network: Network, tokens: Tensor, state: State, keep: int) -> tuple[Tensor, State]:
    """Read some tokens; the logits behind the last `keep` of them, and the state."""
    read_last = getattr(network, "read_last", None)
    if read_last is not None:
        logits, state = read_last(tokens, state, keep)
        return logits, state
    # What the context expects of its own tokens is not asked for: it is read a piece at a time, and forgotten.
    ahead = tokens.shape[1] - keep
    for begin in range(0, ahead, PIECE):
        _, state = network(tokens[:, begin : min(ahead, begin + PIECE)], state)
    logits, state = network(tokens[:, ahead:], state)
    return logits, state


def _is_argmax(logits: Tensor, tokens: Tensor) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Of raw logits: a softmax can round two that differ to equal ones. The first of equals is the argmax."""
    highest, likeliest = logits.max(dim=-1)
    if bool(torch.isnan(highest).any()):
        raise ModelOutputError(
            "the model gave values that are not numbers; nothing can be concluded from it: check the weights, or use float32"
        )
    return np.asarray((likeliest == tokens).cpu().numpy())


def _log2_under(
    logits: Tensor, tokens: Tensor, sampling: Sampling
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Log2 probability of each token where tokens are drawn in this way."""
    precise = logits if logits.dtype in {torch.float32, torch.float64} else logits.float()
    scaled = precise if sampling.temperature == 1 else precise / sampling.temperature
    own = scaled.gather(2, tokens[:, :, None])[:, :, 0]
    if sampling.top_k is None or sampling.top_k >= scaled.shape[-1]:
        log = own - torch.logsumexp(scaled, dim=-1)
    else:
        last = torch.topk(scaled, sampling.top_k, dim=-1).values[:, :, -1]
        kept = scaled.masked_fill(scaled < last[:, :, None], -torch.inf)
        log = torch.where(own < last, -torch.inf, own - torch.logsumexp(kept, dim=-1))
    return np.asarray(log.double().cpu().numpy()) / math.log(2)
