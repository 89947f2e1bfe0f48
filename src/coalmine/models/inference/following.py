"""Whether a network would write a text, and how likely sampling would, in one pass over the true text.

Greedy decoding writes a target exactly if each of its tokens is the argmax after the true tokens before it: up to the first miss, what
greedy decoding has written is the target itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from coalmine.errors import InputError
from coalmine.models.inference.reading import BoolArray, Places, Reader
from coalmine.models.inference.token_scores import check_numbers
from coalmine.models.protocols import FloatArray, Followed, IntArray, Sampling, TokenSequence
from coalmine.models.reference.networks import State

# Logits divided by less may overflow a float.
LOWEST_TEMPERATURE = 1e-6
# The tokens of a target that are read at a time.
PIECE = 64
# Computing this many logits of all rows together takes no longer than computing one. Where rows leave at their first miss, each of
# many rows is judged by one token first, because most end there.
FEW = 32


def check_samplings(samplings: Sequence[Sampling], *, stop_at_miss: bool = False) -> None:
    """Reject invalid sampling settings."""
    if samplings and stop_at_miss:
        raise InputError(
            "the probability of a target needs all of it: leave out samplings, or do not stop at a miss"
        )
    for temperature, top_k in samplings:
        if not (math.isfinite(temperature) and temperature >= LOWEST_TEMPERATURE):
            raise InputError(
                f"a temperature must be at least {LOWEST_TEMPERATURE:g}, got {temperature}; greedy decoding is measured anyway"
            )
        if top_k is not None and top_k < 1:
            raise InputError(f"top-k must be at least 1 token, got {top_k}; leave it out to use all tokens")


def follow_all(
    reader: Reader, sequences: Sequence[TokenSequence], *, samplings: Sequence[Sampling], stop_at_miss: bool
) -> list[Followed]:
    """Follow each target after its context, in batches of contexts of one length."""
    check_samplings(samplings, stop_at_miss=stop_at_miss)
    results: list[Followed | None] = [None] * len(sequences)

    def follow(batch: Sequence[int], begin: int, end: int) -> None:
        some = batch[begin:end]
        found = _follow_batch(
            reader, [sequences[i] for i in some], samplings=samplings, stop_at_miss=stop_at_miss
        )
        for i, one in zip(some, found, strict=True):
            results[i] = one

    for batch in reader.batches(sequences, keep=PIECE):
        longest = max(len(sequences[i].context) + len(sequences[i].target) for i in batch)
        reader.room.in_parts(len(batch), longest, partial(follow, batch))
    return [one for one in results if one is not None]


def _follow_batch(
    reader: Reader, sequences: Sequence[TokenSequence], *, samplings: Sequence[Sampling], stop_at_miss: bool
) -> list[Followed]:
    """Follow targets after contexts of one length, side by side, one piece of each at a time."""
    lengths = np.array([len(sequence.target) for sequence in sequences])
    width = int(lengths.max())
    targets = np.zeros((len(sequences), width), dtype=np.int64)
    for row, sequence in enumerate(sequences):
        targets[row, : len(sequence.target)] = sequence.target
    first_miss = np.full(len(sequences), -1, dtype=np.int64)
    log2 = np.zeros((len(sequences), len(samplings)))
    rows = np.flatnonzero(lengths > 0)
    contexts = np.array([sequences[row].context for row in rows.tolist()], dtype=np.int64)
    states: list[State] = []
    size, end = 0, 0
    while len(rows):
        size = max(1, 2 * size, FEW // len(rows)) if stop_at_miss else PIECE
        begin, end = end, min(width, end + size)
        own = targets[rows, begin:end]
        read = targets[rows, max(0, begin - 1) : end - 1]
        if begin == 0:
            read = np.concatenate([contexts, read], axis=1)
        hidden, states = reader.read(read, states, end - begin)
        # Padding comes after a target and is read after it, so it cannot change a number that counts.
        counts = np.arange(begin, end) < lengths[rows, None]
        hits, log2s = _judge(reader, hidden, own, counts, samplings)
        missed = ~hits & counts
        at = np.where(missed.any(axis=1), begin + missed.argmax(axis=1), -1)
        first_miss[rows] = np.where(first_miss[rows] < 0, at, first_miss[rows])
        log2[rows] += log2s.sum(axis=1)
        going = lengths[rows] > end
        if stop_at_miss:
            going &= first_miss[rows] < 0
        states = reader.keep(states, going)
        rows = rows[going]
    return [
        Followed(None if miss < 0 else int(miss), log2[row]) for row, miss in enumerate(first_miss.tolist())
    ]


def _judge(
    reader: Reader, hidden: Tensor, tokens: IntArray, counts: BoolArray, samplings: Sequence[Sampling]
) -> tuple[BoolArray, FloatArray]:
    """For each token that counts, whether it is the argmax, and its log2 probability under each way of sampling; False and 0 for others."""
    hits = np.zeros(tokens.shape, dtype=np.bool_)
    log2s = np.zeros((*tokens.shape, len(samplings)))
    if all(top_k is None or top_k >= reader.vocabulary for _, top_k in samplings):
        rows, columns = np.nonzero(counts)
        some: Places = rows, columns
        asked, temperatures = tokens[some], [temperature for temperature, _ in samplings]
        judged = reader.projection.judge(
            reader.at(hidden, some), np.arange(len(asked)), asked, temperatures=temperatures
        )
        check_numbers(bool(np.isfinite(judged.highest).all()))
        hits[some], log2s[some] = judged.is_argmax, judged.log2
        return hits, log2s
    # The likeliest tokens are not known before all logits are.
    for places, logits in reader.logits(hidden, counts):
        own = torch.from_numpy(tokens[places]).to(logits.device)
        hits[places], log2s[places] = _judge_logits(logits, own, samplings)
    return hits, log2s


def _judge_logits(
    logits: Tensor, tokens: Tensor, samplings: Sequence[Sampling]
) -> tuple[BoolArray, FloatArray]:
    """From (n, vocabulary) raw logits, which are overwritten: the argmax flag of each token, and its log2 probability under each sampling.

    Raw, because a softmax can round two different ones to equal ones. The first of equals is the argmax.
    """
    logits = logits if logits.dtype in {torch.float32, torch.float64} else logits.float()
    own = logits.gather(1, tokens[:, None])
    logits.scatter_(1, tokens[:, None], -torch.inf)
    others = logits.amax(dim=1, keepdim=True)
    highest = torch.maximum(own, others)
    check_numbers(bool(torch.isfinite(highest).all()))
    hits = (own > others)[:, 0]
    tied = (own == others)[:, 0]
    hits[tied] = tokens[tied] < logits[tied].argmax(dim=1)
    log2s = np.zeros((len(tokens), len(samplings)))
    if samplings:
        # The highest is 0 from here on, so that no temperature overflows a float.
        own = own - highest
        logits.sub_(highest).scatter_(1, tokens[:, None], own)
    for place, sampling in enumerate(samplings):
        log2s[:, place] = _log_under(logits, own, sampling).double().cpu().numpy() / math.log(2)
    return np.asarray(hits.cpu().numpy()), log2s


def _log_under(logits: Tensor, own: Tensor, sampling: Sampling) -> Tensor:
    """Natural log probability of a token with the logit `own` under one way of sampling."""
    if sampling.temperature != 1:
        logits, own = logits / sampling.temperature, own / sampling.temperature
    if sampling.top_k is not None and sampling.top_k < logits.shape[1]:
        lowest = torch.topk(logits, sampling.top_k, dim=1).values[:, -1:]
        logits = logits.masked_fill(logits < lowest, -torch.inf)
        own = own.masked_fill(own < lowest, -torch.inf)
    return own[:, 0] - logits.exp().sum(dim=1).log()
