"""Continuations of prompts by any model that supports incremental decoding: many at a time, token by token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from coalmine.models.protocols import FloatArray, Step, Stepper

LOGITS_AT_A_TIME = 1 << 24  # that come back from a step: 64 MB in float32
LOGITS_WITHIN = 1 << 28  # within the model, which may have to read whole rows again for each step
STATE_BYTES = 1 << 29
MOST_ROWS = 512


def continue_prompts(
    model: Stepper,
    prompts: Sequence[tuple[int, ...]],
    choose: Callable[[int, FloatArray], int | None],
    *,
    length: int,
) -> None:
    """Continue all prompts; as many together as memory allows, of one length unless the model mixes depths.

    A prompt is all that the model reads before, its context included. `choose` gets the number of a prompt and the log2 probabilities of
    what follows (in bits), and returns the token to continue with, or None where the continuation ends. `length` is the most tokens that a
    prompt is continued by.
    """
    most = _rows_at_a_time(model, prompts[0][:1], max(map(len, prompts)) + length)
    in_order = sorted(range(len(prompts)), key=lambda row: len(prompts[row]))
    for _, alike in groupby(in_order, key=lambda row: 0 if model.mixes_depths else len(prompts[row])):
        group = list(alike)
        for begin in range(0, len(group), most):
            _continue(model, prompts, group[begin : begin + most], choose)


def _continue(
    model: Stepper,
    prompts: Sequence[tuple[int, ...]],
    rows: Sequence[int],
    choose: Callable[[int, FloatArray], int | None],
) -> None:
    """Continue some prompts side by side. One that is there several times is read once."""
    different = sorted({prompts[row] for row in rows}, key=len)
    read = [model.start(list(alike)) for _, alike in groupby(different, key=len)]
    states = model.gather([(one.states, np.arange(len(one.log2_probabilities))) for one in read])
    step = Step(states, np.concatenate([one.log2_probabilities for one in read]))
    places = {prompt: place for place, prompt in enumerate(different)}
    active = [(row, places[prompts[row]]) for row in rows]
    while going := [
        (row, parent, token)
        for row, parent in active
        if (token := choose(row, step.log2_probabilities[parent])) is not None
    ]:
        _, parents, tokens = np.array(going).T
        step = model.step(step.states, parents, tokens)
        active = [(row, place) for place, (row, _, _) in enumerate(going)]


def _rows_at_a_time(model: Stepper, first: tuple[int, ...], length: int) -> int:
    """How many texts of `length` tokens a batch can hold, so that neither states nor probabilities outgrow memory."""
    own = model.state_bytes(model.start([first]).states)
    states = STATE_BYTES // max(1, own if model.mixes_depths else own * (1 + length))
    size = model.tokenizer.size
    return max(1, min(MOST_ROWS, states, LOGITS_AT_A_TIME // size, LOGITS_WITHIN // (size * (1 + length))))


def draw(log2_probabilities: FloatArray, temperature: float, top_p: float, uniform: float) -> int:
    """A token: the most likely at temperature 0 (of equals, the lowest id), else where `uniform` in [0, 1) falls.

    With `top_p`, only the most likely tokens that together have this share, after the temperature, can be drawn.

    >>> draw(np.log2([0.25, 0.5, 0.25]), 1.0, 1.0, 0.49), draw(np.log2([0.25, 0.5, 0.25]), 1.0, 1.0, 0.51)
    (1, 0)
    >>> draw(np.log2([0.25, 0.5, 0.25]), 1.0, 0.5, 0.99)
    1
    """
    if temperature == 0:
        return int(log2_probabilities.argmax())
    exact: NDArray[np.float64] = log2_probabilities.astype(np.float64)
    with np.errstate(over="ignore"):  # to minus infinity, whose weight is 0, as it should be
        weights = np.exp2((exact - exact.max()) / temperature)
    order = np.argsort(-weights, kind="stable")
    sums = np.cumsum(weights[order])
    # The fewest that reach the share: those before the last of them do not.
    kept = min(int(np.searchsorted(sums, top_p * sums[-1], side="left")) + 1, len(sums))
    place = int(np.searchsorted(sums[:kept], uniform * sums[kept - 1], side="right"))
    return int(order[min(place, kept - 1)])
