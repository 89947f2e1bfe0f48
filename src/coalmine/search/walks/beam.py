"""Beam search over all tokens: it asks the model little, and proves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from coalmine.errors import InputError
from coalmine.grouped import grouped
from coalmine.models.protocols import FloatArray, IntArray, Stepper

# The most log-probabilities at a time, over all prompts and beams.
NUMBERS_AT_A_TIME = 1 << 23
# The most for one prompt, which cannot be cut into parts: 1 GB.
MOST_NUMBERS = 1 << 27


class Beams(NamedTuple):
    """The likeliest continuations of a prompt that beam search found, best first."""

    tokens: IntArray  # (beams, length)
    log2_probabilities: FloatArray  # (beams,)


def check_width(model: Stepper, width: int) -> None:
    """Reject a beam whose log-probabilities for a single prompt would not fit into memory."""
    size = model.tokenizer.size
    if width > max(1, MOST_NUMBERS // size):
        raise InputError(
            f"a beam of {width:,} over a vocabulary of {size:,} tokens takes more memory than is sensible; use a width of at most "
            f"{max(1, MOST_NUMBERS // size):,}"
        )


def free_beam(model: Stepper, prompts: Sequence[Sequence[int]], *, length: int, width: int) -> list[Beams]:
    """Continue each prompt by `length` tokens, keeping the `width` likeliest beginnings at each step.

    Nothing ends a beam early: an end-of-document token is a token like any other. Among ties, the beginning that was ahead comes
    first, and then the lower token id, so a width of 1 is greedy decoding. Probabilities are log2.
    """
    if width < 1 or length < 1:
        raise InputError(f"a beam needs a width and a length of at least 1, got {width} and {length}")
    check_width(model, width)
    results: list[Beams | None] = [None] * len(prompts)
    groups = grouped((len(prompt), place) for place, prompt in enumerate(prompts))
    most = max(1, NUMBERS_AT_A_TIME // (width * model.tokenizer.size))
    for group in groups.values():
        for begin in range(0, len(group), most):
            batch = group[begin : begin + most]
            for place, beams in zip(
                batch, _search(model, [prompts[i] for i in batch], length, width), strict=True
            ):
                results[place] = beams
    return [beams for beams in results if beams is not None]


def _search(model: Stepper, prompts: Sequence[Sequence[int]], length: int, width: int) -> list[Beams]:
    step = model.start(prompts)
    many = len(prompts)
    scores = np.zeros((many, 1))
    written = np.empty((many, 1, 0), dtype=np.int64)
    for place in range(length):
        beams, vocabulary = scores.shape[1], step.log2_probabilities.shape[1]
        totals = scores[:, :, None] + step.log2_probabilities.reshape(many, beams, vocabulary)
        chosen = _largest(totals.reshape(many, -1), width)  # (prompts, kept)
        parents, tokens = np.divmod(chosen, vocabulary)
        scores = np.take_along_axis(totals.reshape(many, -1), chosen, axis=1)
        before = np.take_along_axis(written, parents[:, :, None], axis=1)
        written = np.concatenate([before, tokens[:, :, None]], axis=2)
        if place + 1 < length:
            rows = parents + beams * np.arange(many)[:, None]
            step = model.step(step.states, rows.reshape(-1), tokens.reshape(-1))
    return [Beams(written[row], scores[row]) for row in range(many)]


def _largest(values: FloatArray, many: int) -> IntArray:
    """The positions of the largest values of each row, largest first; among ties, the first position first."""
    many = min(many, values.shape[1])
    chosen = np.empty((len(values), many), dtype=np.int64)
    for row, own in enumerate(values):
        least = np.partition(own, len(own) - many)[len(own) - many]
        above = np.flatnonzero(own > least)
        equal = np.flatnonzero(own == least)[: many - len(above)]
        places = np.concatenate([above, equal])
        chosen[row] = places[np.lexsort((places, -own[places]))]
    return chosen
