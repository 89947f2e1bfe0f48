"""LSTM and GRU layers under ghost clipping, with a backward pass that stops at the gates.

Torch's own backward pass sums the gradients of the weights over rows. This one gives the gradients of what goes into the gates, at
each step of each row: with what was read there, they are the factors of the gradients of all weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

from coalmine.training.private.clipping.layers.places import Places
from coalmine.training.private.clipping.tape import Tape, UnfitError

Weights = tuple[nn.Parameter, nn.Parameter, nn.Parameter, nn.Parameter]


def recurrent_refusal(layer: nn.LSTM | nn.GRU) -> str:
    """Why these layers are not known, or nothing."""
    if layer.bidirectional:
        return "it reads in both directions"
    if layer.proj_size:
        return "it projects its state"
    if not layer.bias:
        return "it has no biases"
    trainable = all(weight.requires_grad for weight in layer.parameters())
    return "" if trainable else "some of its weights are trained and others are not"


def lstm(layer: nn.LSTM, tape: Tape, read: Tensor, state: Sequence[Tensor] | None = None) -> Any:
    """What `nn.LSTM` gives: outputs, and the last hidden state and cell."""
    hidden, cell = (None, None) if state is None else state
    given, (lasts, cells) = _stacked(layer, tape, read, (hidden, cell), _Lstm)
    return given, (lasts, cells)


def gru(layer: nn.GRU, tape: Tape, read: Tensor, state: Tensor | None = None) -> Any:
    """What `nn.GRU` gives: outputs, and the last hidden state."""
    given, (lasts,) = _stacked(layer, tape, read, (state,), _Gru)
    return given, lasts


def _stacked(
    layers: nn.LSTM | nn.GRU, tape: Tape, read: Tensor, states: Sequence[Tensor | None], cell: type[Function]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The outputs of the last layer, and each part of the state after the last step, (layers, rows, size)."""
    if (
        not isinstance(read, Tensor)
        or read.dim() != 3
        or read.shape[0 if layers.batch_first else 1] != tape.rows
    ):
        raise UnfitError(f"a layer {type(layers).__name__} does not get one row for each loss")
    values = read.transpose(0, 1) if layers.batch_first else read  # (time, rows, width)
    begins = [
        values.new_zeros(layers.num_layers, tape.rows, layers.hidden_size) if state is None else state
        for state in states
    ]
    ends: list[tuple[Tensor, ...]] = []
    for place in range(layers.num_layers):
        weights = tuple(
            getattr(layers, f"{name}_l{place}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        values, *end = cell.apply(tape, weights, values, *(begin[place] for begin in begins), *weights)  # type: ignore[no-untyped-call]
        ends.append(tuple(end))
        if layers.dropout and layers.training and place < layers.num_layers - 1:
            values = F.dropout(values, layers.dropout)
    lasts = tuple(torch.stack(same) for same in zip(*ends, strict=True))
    return values.transpose(0, 1) if layers.batch_first else values, lasts


def _steps(places: Places, *values: Tensor) -> list[tuple[Tensor, ...]]:
    """Each step's part of values of shape (places, ...)."""
    return list(zip(*map(places.steps, values), strict=True))


class _Lstm(Function):
    @staticmethod
    def forward(
        ctx: Any,
        tape: Tape,
        parameters: Weights,
        read: Tensor,
        first: Tensor,
        first_cell: Tensor,
        *weights: Tensor,
    ) -> tuple[Tensor, ...]:
        of_read, of_hidden, bias_read, bias_hidden = weights
        size = first.shape[1]
        places = Places(read.shape, tape.lengths)
        # Steps are short, so each operation counts. With tanh(x) = 1 - 2 sigmoid(-2x), sigmoids are all there is to compute and to keep:
        # what goes into the candidate, and the cells, are multiplied by -2.
        factor = torch.ones_like(bias_read)
        factor[2 * size : 3 * size] = -2
        values = places.taken(read)
        gates = torch.addmm((bias_read + bias_hidden) * factor, values, (of_read * factor[:, None]).t())
        transposed = (of_hidden * factor[:, None]).t().contiguous()
        hidden, cells = (values.new_empty(len(values), size) for _ in range(2))
        bent = torch.empty_like(cells)  # sigmoids of the cells
        begin, begin_cell = places.by_length(first), -2 * places.by_length(first_cell)
        then, cell = begin, begin_cell
        for gate, start, forget, candidate, end, now, cell_now, curved in _steps(
            places, gates, *gates.view(-1, 4, size).unbind(1), hidden, cells, bent
        ):
            if len(now) < len(then):
                then, cell = then[: len(now)], cell[: len(now)]
            gate.addmm_(then, transposed).sigmoid_()
            torch.mul(forget, cell, out=cell_now).addcmul_(start, candidate, value=4).sub_(start, alpha=2)
            torch.sigmoid(cell_now, out=curved)
            torch.addcmul(end, end, curved, value=-2, out=now)
            then, cell = now, cell_now
        ctx.save_for_backward(values, begin, begin_cell, hidden, gates, cells, bent, of_read, of_hidden)
        ctx.tape, ctx.parameters, ctx.places = tape, parameters, places
        ctx.set_materialize_grads(False)
        given = places.given_back(hidden).clone() if places.rows is None else places.given_back(hidden)
        return given, places.lasts(hidden), -0.5 * places.lasts(cells)

    @staticmethod
    def backward(
        ctx: Any, of_given: Tensor | None, of_last: Tensor | None, of_last_cell: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        values, begin, begin_cell, hidden, gates, cells, bent, of_read, of_hidden = ctx.saved_tensors
        places = ctx.places
        _refuse_last(places, of_last, of_last_cell)
        of_states = torch.zeros_like(bent) if of_given is None else places.taken(of_given).clone()
        if of_last is not None:
            of_states[-len(of_last) :] += of_last
        of_cell = torch.zeros_like(begin_cell) if of_last_cell is None else of_last_cell.clone()
        left, summed = torch.empty_like(gates), gates.new_zeros(len(begin), gates.shape[1])
        _lstm_backwards(places, left, summed, of_states, of_cell, begin_cell, cells, bent, gates, of_hidden)
        weight_read, weight_hidden, *biases = ctx.parameters
        right = torch.cat([values, places.before(begin, hidden)], dim=1)
        _record(ctx.tape, places, (weight_read, weight_hidden), left, right, summed, biases)
        of_first = places.by_row(left[: len(begin)] @ of_hidden)
        of_values = places.given_back(left @ of_read) if ctx.needs_input_grad[2] else None
        return None, None, of_values, of_first, places.by_row(of_cell), None, None, None, None


def _lstm_backwards(
    places: Places,
    left: Tensor,
    summed: Tensor,
    of_states: Tensor,
    of_cell: Tensor,
    begin_cell: Tensor,
    cells: Tensor,
    bent: Tensor,
    gates: Tensor,
    of_hidden: Tensor,
) -> None:
    """Fill `left`, (places, 4 size), with the gradients of what goes into the gates, from the last step to the first.

    Args:
        places: the places.
        left: what is filled.
        summed: (rows, 4 size) zeros, which become the sums of these over the places of each row.
        of_states: (places, size) the gradients of what the layer gave; they become those of the hidden states.
        of_cell: (rows, size) those of the last cells; they become those of the first.
        begin_cell: (rows, size) the first cells; these and the next three as the forward pass keeps them.
        cells: (places, size)
        bent: (places, size)
        gates: (places, 4 size)
        of_hidden: (4 size, size) the recurrent weight.
    """
    size = bent.shape[1]
    slopes = torch.empty_like(of_cell)
    before = [begin_cell, *places.steps(cells)]
    of_gates = left.view(-1, 4, size).unbind(1)
    values = of_states, bent, left, *of_gates, gates, *gates.view(-1, 4, size).unbind(1)
    steps = _steps(places, *values)
    later: Tensor | None = None
    for place in range(len(steps) - 1, -1, -1):
        of_state, curve, now, of_start, of_forget, of_candidate, of_end, gate, *four = steps[place]
        start, forget, candidate, end = four
        rows = len(now)
        if later is not None:
            of_state[: len(later)].addmm_(later, of_hidden)
        carried, slope = of_cell[:rows], slopes[:rows]
        torch.addcmul(curve, curve, curve, value=-1, out=slope).mul_(end)
        carried.addcmul_(of_state, slope, value=4)
        # By what the gates are, and then by what goes into their sigmoids.
        torch.addcmul(carried, carried, candidate, value=-2, out=of_start)
        torch.mul(carried, before[place][:rows], out=of_forget).mul_(-0.5)
        torch.mul(carried, start, out=of_candidate).mul_(4)
        torch.addcmul(of_state, of_state, curve, value=-2, out=of_end)
        now.mul_(gate).addcmul_(now, gate, value=-1)
        summed[:rows] += now
        carried.mul_(forget)
        later = now


class _Gru(Function):
    @staticmethod
    def forward(
        ctx: Any, tape: Tape, parameters: Weights, read: Tensor, first: Tensor, *weights: Tensor
    ) -> tuple[Tensor, ...]:
        of_read, of_hidden, bias_read, bias_hidden = weights
        size = first.shape[1]
        places = Places(read.shape, tape.lengths)
        values = places.taken(read)
        gates = torch.addmm(bias_read, values, of_read.t())
        gates[:, : 2 * size] += bias_hidden[: 2 * size]
        # Hidden states, and what the ones before them add to the candidate, before the reset gate.
        hidden, recalled = (values.new_empty(len(values), size) for _ in range(2))
        transposed, bias = of_hidden.t(), bias_hidden[2 * size :]
        then = begin = places.by_length(first)
        for sigmoids, candidate, recall, now in _steps(
            places, gates[:, : 2 * size], gates[:, 2 * size :], recalled, hidden
        ):
            then = then[: len(now)]
            sigmoids.addmm_(then, transposed[:, : 2 * size]).sigmoid_()
            torch.addmm(bias, then, transposed[:, 2 * size :], out=recall)
            candidate.addcmul_(sigmoids[:, :size], recall).mul_(2).sigmoid_().mul_(2).sub_(1)
            torch.lerp(candidate, then, sigmoids[:, size:], out=now)
            then = now
        ctx.save_for_backward(values, gates, places.before(begin, hidden), recalled, of_read, of_hidden)
        ctx.tape, ctx.parameters, ctx.places = tape, parameters, places
        ctx.set_materialize_grads(False)
        given = places.given_back(hidden)
        return given, places.lasts(hidden)

    @staticmethod
    def backward(ctx: Any, of_given: Tensor | None, of_last: Tensor | None) -> tuple[Tensor | None, ...]:
        values, gates, before, recalled, of_read, of_hidden = ctx.saved_tensors
        places = ctx.places
        _refuse_last(places, of_last)
        size = recalled.shape[1]
        of_states = torch.zeros_like(recalled) if of_given is None else places.taken(of_given).clone()
        of_before = gates.new_zeros(places.counts[0], size) if of_last is None else of_last.clone()
        reset, update, candidate = gates.view(-1, 3, size).unbind(1)
        # By what goes into the update gate and into the candidate, of the hidden state; into the reset gate, of the candidate.
        into_update = update * (1 - update) * (before - candidate)
        into_candidate = (1 - update) * (1 - candidate * candidate)
        into_reset = reset * (1 - reset) * recalled
        left = torch.empty_like(gates)
        # The candidate's recurrent weight is behind the reset gate.
        left_hidden = torch.empty_like(gates)
        summed, summed_hidden = (gates.new_zeros(len(of_before), 3 * size) for _ in range(2))
        steps = _steps(
            places,
            of_states,
            into_update,
            into_candidate,
            into_reset,
            reset,
            update,
            left,
            left_hidden,
        )
        for of_state, by_update, by_candidate, by_reset, reset_now, update_now, now, recurrent in [*steps][
            ::-1
        ]:
            carried = of_before[: len(now)]
            of_state.add_(carried)
            torch.mul(of_state, by_candidate, out=now[:, 2 * size :])
            torch.mul(of_state, by_update, out=now[:, size : 2 * size])
            torch.mul(now[:, 2 * size :], by_reset, out=now[:, :size])
            recurrent[:, : 2 * size] = now[:, : 2 * size]
            torch.mul(now[:, 2 * size :], reset_now, out=recurrent[:, 2 * size :])
            summed[: len(now)] += now
            summed_hidden[: len(now)] += recurrent
            torch.addmm(of_state.mul_(update_now), recurrent, of_hidden, out=carried)
        weight_read, weight_hidden, bias_read, bias_hidden = ctx.parameters
        _record(ctx.tape, places, (weight_read,), left, values, summed, (bias_read,))
        _record(ctx.tape, places, (weight_hidden,), left_hidden, before, summed_hidden, (bias_hidden,))
        of_values = places.given_back(left @ of_read) if ctx.needs_input_grad[2] else None
        return None, None, of_values, places.by_row(of_before), None, None, None, None


def _refuse_last(places: Places, *of_last: Tensor | None) -> None:
    """Raise UnfitError for gradients of the last states of rows with padding, which depend on the padding in a plain pass."""
    if places.rows is not None and any(each is not None for each in of_last):
        raise UnfitError("a loss depends on the last state of a recurrent layer, and rows have padding")


def _record(
    tape: Tape,
    places: Places,
    weights: tuple[nn.Parameter, ...],
    left: Tensor,
    right: Tensor,
    summed: Tensor,
    biases: Sequence[nn.Parameter],
) -> None:
    """Record factors of shape (places, size), and biases whose gradients are the sums of left over the places of each row."""
    if places.rows is None:
        tape.add_product(weights, *(places.given_back(each).transpose(0, 1) for each in (left, right)))
    else:
        tape.add_product(weights, left[:, None], right[:, None], places.rows)
    for bias in biases:
        tape.add_whole(bias, places.by_row(summed))
