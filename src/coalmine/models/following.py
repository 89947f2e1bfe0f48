"""Would a network write a text by itself? Told by one pass over the true text, without keeping what it expects at each place.

Greedy decoding writes a target exactly if each token of it is the argmax after the true tokens before it: up to the first
miss, what greedy decoding has written is the target itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coalmine.errors import InputError, ModelOutputError
from coalmine.models.networks import Network, State
from coalmine.models.protocols import FloatArray, Followed, IntArray, Sampling, TokenSequence

BoolArray = NDArray[np.bool_]

# Logits divided by less may be more than a float can hold.
LOWEST_TEMPERATURE = 1e-6
# Tokens of a target that are read at a time.
PIECE = 64
# So many logits of all rows together are made in no more time than one; where rows leave at their first miss, each of many is judged
# by one token first, because most go no further.
FEW = 32
# Tokens that all rows of a batch read at a time, and logits that are made at a time: what a processor's cache holds is less than what
# an accelerator needs to be busy.
TOKENS_AT_A_TIME = {"cpu": 1 << 11}
TOKENS_ELSEWHERE = 1 << 15
LOGITS_IN_CACHE = {"cpu": 6 << 20}


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
    rows_at_a_time: Callable[[int], int],
    logits_at_a_time: int,
    device: torch.device,
) -> list[Followed]:
    """Follow each target behind its context, in batches of contexts of one length.

    `rows_at_a_time(length)` says of how many rows of `length` tokens memory has room for the states, and `logits_at_a_time` how many
    logits it has room for.
    """
    check_samplings(samplings, stop_at_miss=stop_at_miss)
    results: list[Followed | None] = [None] * len(sequences)
    waiting = sorted(
        range(len(sequences)), key=lambda i: (len(sequences[i].context), len(sequences[i].target))
    )
    while waiting:
        context, width = (len(part) for part in sequences[waiting[-1]][:2])
        made = network.numbers_read(context + width, min(width, PIECE))
        most = max(1, min(rows_at_a_time(context + width), logits_at_a_time // made))
        batch = [i for i in waiting[-most:] if len(sequences[i].context) == context]
        del waiting[-len(batch) :]
        found = _follow_batch(
            _Reader(network, logits_at_a_time, device),
            [sequences[i] for i in batch],
            samplings=samplings,
            stop_at_miss=stop_at_miss,
        )
        for i, one in zip(batch, found, strict=True):
            results[i] = one
    return [one for one in results if one is not None]


def _follow_batch(
    reader: _Reader, sequences: Sequence[TokenSequence], *, samplings: Sequence[Sampling], stop_at_miss: bool
) -> list[Followed]:
    """Follow targets behind contexts of one length, side by side, a piece of each at a time."""
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
        # Padding stands behind a target and is read after it, so it reaches no number that counts.
        counts = np.arange(begin, end) < lengths[rows, None]
        hits, log2s = reader.judge(hidden, own, counts, samplings)
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


class _Reader:
    """Reads rows in groups that a cache holds, and makes of them no more logits at a time than there is room for."""

    def __init__(self, network: Network, logits_at_a_time: int, device: torch.device) -> None:
        self._network = network
        self._device = device
        self._tokens = TOKENS_AT_A_TIME.get(device.type, TOKENS_ELSEWHERE)
        self._logits = min(logits_at_a_time, LOGITS_IN_CACHE.get(device.type, logits_at_a_time))
        self._numbers = logits_at_a_time

    def read(self, tokens: IntArray, states: list[State], keep: int) -> tuple[Tensor, list[State]]:
        """What stands before the logits of the last `keep` tokens of each row, and the states of groups of rows; no state: from the start.

        `states` is emptied: memory has room for the states as they were and as they become, and not for those of the groups too.
        """
        length = tokens.shape[1]
        most = max(1, min(self._tokens // length, self._numbers // self._network.numbers_read(length, keep)))
        found, after = [], []
        state = self._joined(states) if states else None
        states.clear()
        for first in range(0, len(tokens), most):
            group = torch.from_numpy(tokens[first : first + most]).to(self._device)
            before = (
                self._network.initial_state(len(group))
                if state is None
                else self._some(state, first, len(group))
            )
            hidden, now = self._network.read_hidden(group, before, keep)
            found.append(hidden)
            after.append(now)
        return torch.cat(found), after

    def keep(self, states: Sequence[State], going: BoolArray) -> list[State]:
        """The states of the rows that go on."""
        kept, first = [], 0
        for state in states:
            rows = state[0].shape[self._network.state_batch_dim]
            own = np.flatnonzero(going[first : first + rows])
            first += rows
            if len(own) == rows:
                kept.append(state)
            elif len(own):
                kept.append(self._network.select(state, torch.from_numpy(own).to(self._device)))
        return kept

    def judge(
        self, hidden: Tensor, tokens: IntArray, counts: BoolArray, samplings: Sequence[Sampling]
    ) -> tuple[BoolArray, FloatArray]:
        """Of each token that counts: is it the argmax, and how likely is it under each way of sampling? Others are no, and 0."""
        hits = np.zeros(tokens.shape, dtype=np.bool_)
        log2s = np.zeros((*tokens.shape, len(samplings)))
        rows, places = np.nonzero(counts)
        most = max(1, self._logits // self._network.vocabulary)
        for first in range(0, len(rows), most):
            own = rows[first : first + most], places[first : first + most]
            picked = hidden[
                torch.from_numpy(own[0]).to(self._device), torch.from_numpy(own[1]).to(self._device)
            ]
            logits = self._network.project(picked)
            hits[own], log2s[own] = _judge_logits(
                logits, torch.from_numpy(tokens[own]).to(self._device), samplings
            )
        return hits, log2s

    def _some(self, state: State, first: int, many: int) -> State:
        dim = self._network.state_batch_dim
        if state[0].shape[dim] == many:
            return state
        return tuple(part.narrow(dim, first, many) for part in state)

    def _joined(self, states: Sequence[State]) -> State:
        if len(states) == 1:
            return states[0]
        return tuple(torch.cat(same, dim=self._network.state_batch_dim) for same in zip(*states, strict=True))


def _judge_logits(
    logits: Tensor, tokens: Tensor, samplings: Sequence[Sampling]
) -> tuple[BoolArray, FloatArray]:
    """Of (n, vocabulary) raw logits, which are overwritten: is each token the argmax, and its log2 probability under each way of sampling.

    Raw, because a softmax can round two that differ to equal ones. The first of equals is the argmax.
    """
    logits = logits if logits.dtype in {torch.float32, torch.float64} else logits.float()
    own = logits.gather(1, tokens[:, None])
    logits.scatter_(1, tokens[:, None], -torch.inf)
    others = logits.amax(dim=1, keepdim=True)
    highest = torch.maximum(own, others)
    if not bool(torch.isfinite(highest).all()):
        raise ModelOutputError(
            "the model gave values that are not numbers; nothing can be concluded from it: check the weights, or use float32"
        )
    hits = (own > others)[:, 0]
    tied = (own == others)[:, 0]
    hits[tied] = tokens[tied] < logits[tied].argmax(dim=1)
    log2s = np.zeros((len(tokens), len(samplings)))
    if samplings:
        # The highest is 0 from here on, so that no temperature makes one too large for a float.
        own = own - highest
        logits.sub_(highest).scatter_(1, tokens[:, None], own)
    for place, sampling in enumerate(samplings):
        log2s[:, place] = _log_under(logits, own, sampling).double().cpu().numpy() / math.log(2)
    return np.asarray(hits.cpu().numpy()), log2s


def _log_under(logits: Tensor, own: Tensor, sampling: Sampling) -> Tensor:
    """Log probability of a token with the logit `own` where tokens are drawn in this way."""
    if sampling.temperature != 1:
        logits, own = logits / sampling.temperature, own / sampling.temperature
    if sampling.top_k is not None and sampling.top_k < logits.shape[1]:
        lowest = torch.topk(logits, sampling.top_k, dim=1).values[:, -1:]
        logits = logits.masked_fill(logits < lowest, -torch.inf)
        own = own.masked_fill(own < lowest, -torch.inf)
    return own[:, 0] - logits.exp().sum(dim=1).log()
