"""LSTM and GRU layers under ghost clipping, with a backward pass that stops at the gates.

Torch's own backward pass sums the gradients of the weights over rows. This one gives the gradients of what goes into the gates, at
each step of each row: with what was read there, they are the factors of the gradients of all weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

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


def _steps(*values: Tensor, backwards: bool = False) -> Iterator[tuple[Tensor, ...]]:
    """Each step's part of values of shape (time, ...). Torch makes all parts at once, which is faster than one at a time."""
    parts = [value.unbind(0) for value in values]
    return zip(*([part[::-1] for part in parts] if backwards else parts), strict=True)


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
        time, rows, width = read.shape
        size = first.shape[1]
        # Steps are short, so each operation counts. With tanh(x) = 2 sigmoid(2x) - 1, sigmoids are all there is to compute: what goes into
        # the candidate, and the cells, are doubled, and hidden states have the opposite sign, until the last step is done.
        doubled = torch.ones_like(bias_read)
        doubled[2 * size : 3 * size] = 2
        gates = torch.addmm(
            (bias_read + bias_hidden) * doubled,
            read.reshape(time * rows, width),
            (of_read * doubled[:, None]).t(),
        ).view(time, rows, 4 * size)
        transposed = (of_hidden * -doubled[:, None]).t().contiguous()
        hidden, cells = (read.new_empty(time + 1, rows, size) for _ in range(2))
        hidden[0], cells[0] = -first, 2 * first_cell
        bent = read.new_empty(time, rows, size)  # tanh of the cells
        parts = gates.view(time, rows, 4, size)
        before = gates, *parts.unbind(2), hidden[:time], cells[:time]
        for gate, start, forget, candidate, end, then, cell, now, cell_now, curved in _steps(
            *before, hidden[1:], cells[1:], bent
        ):
            gate.addmm_(then, transposed).sigmoid_()
            torch.mul(forget, cell, out=cell_now).addcmul_(start, candidate, value=4).sub_(start, alpha=2)
            torch.sigmoid(cell_now, out=curved)
            torch.addcmul(end, end, curved, value=-2, out=now)
        hidden.neg_()
        cells.mul_(0.5)
        for halved in (bent, parts[:, :, 2]):
            halved.mul_(2).sub_(1)
        ctx.save_for_backward(read, hidden, gates, cells, bent, of_read, of_hidden)
        ctx.tape, ctx.parameters = tape, parameters
        ctx.set_materialize_grads(False)
        return hidden[1:].clone(), hidden[time].clone(), cells[time].clone()

    @staticmethod
    def backward(
        ctx: Any, of_given: Tensor | None, of_last: Tensor | None, of_last_cell: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        read, hidden, gates, cells, bent, of_read, of_hidden = ctx.saved_tensors
        time, rows, size = bent.shape
        of_given = torch.zeros_like(bent) if of_given is None else of_given
        of_cell = torch.zeros_like(bent[0]) if of_last_cell is None else of_last_cell.clone()
        # The slopes become the gradients of what goes into the gates, from the last step to the first.
        left, of_bent = _lstm_slopes(gates, cells, bent)
        parts = left.view(time, rows, 4, size)
        forget = gates[:, :, size : 2 * size]
        later: Tensor | None = None
        for given, bend, of_cells, end, now, forgotten in _steps(
            of_given, of_bent, parts[:, :, :3], parts[:, :, 3], left, forget, backwards=True
        ):
            if later is not None:
                of_state = torch.addmm(given, later, of_hidden)
            else:
                of_state = given if of_last is None else given + of_last
            of_cell.addcmul_(of_state, bend)
            of_cells.mul_(of_cell.unsqueeze(1))
            end.mul_(of_state)
            of_cell.mul_(forgotten)
            later = now
        weight_read, weight_hidden, *biases = ctx.parameters
        _record(ctx.tape, (weight_read, weight_hidden), left, torch.cat([read, hidden[:time]], dim=2), biases)
        return (
            None,
            None,
            _of_values(ctx, left, of_read),
            left[0] @ of_hidden,
            of_cell,
            None,
            None,
            None,
            None,
        )


def _lstm_slopes(gates: Tensor, cells: Tensor, bent: Tensor) -> tuple[Tensor, Tensor]:
    """The slopes of the cell by what goes into the gates (of the hidden state for the output gate), and of hidden by cell."""
    time, rows, size = bent.shape
    of_input, _, candidate, of_output = gates.view(time, rows, 4, size).unbind(2)
    slopes = torch.addcmul(gates, gates, gates, value=-1).view(time, rows, 4, size)
    slopes[:, :, 0].mul_(candidate)
    slopes[:, :, 1].mul_(cells[:-1])
    torch.addcmul(of_input, of_input * candidate, candidate, value=-1, out=slopes[:, :, 2])
    slopes[:, :, 3].mul_(bent)
    return slopes.view_as(gates), torch.addcmul(of_output, of_output * bent, bent, value=-1)


class _Gru(Function):
    @staticmethod
    def forward(
        ctx: Any, tape: Tape, parameters: Weights, read: Tensor, first: Tensor, *weights: Tensor
    ) -> tuple[Tensor, ...]:
        of_read, of_hidden, bias_read, bias_hidden = weights
        time, rows, width = read.shape
        size = first.shape[1]
        flat = read.reshape(time * rows, width)
        gates = torch.addmm(bias_read, flat, of_read.t()).view(time, rows, 3 * size)
        gates[:, :, : 2 * size] += bias_hidden[: 2 * size]
        hidden = read.new_empty(time + 1, rows, size)
        hidden[0] = first
        # What the hidden state adds to the candidate, before the reset gate.
        recalled = read.new_empty(time, rows, size)
        transposed = of_hidden.t()
        for step in range(time):
            gate = gates[step]
            sigmoids = gate[:, : 2 * size].addmm_(hidden[step], transposed[:, : 2 * size]).sigmoid_()
            torch.addmm(bias_hidden[2 * size :], hidden[step], transposed[:, 2 * size :], out=recalled[step])
            candidate = gate[:, 2 * size :].addcmul_(sigmoids[:, :size], recalled[step])
            candidate.mul_(2).sigmoid_().mul_(2).sub_(1)
            torch.lerp(candidate, hidden[step], sigmoids[:, size:], out=hidden[step + 1])
        ctx.save_for_backward(gates, read, hidden, recalled, of_read, of_hidden)
        ctx.tape, ctx.parameters = tape, parameters
        ctx.set_materialize_grads(False)
        return hidden[1:].clone(), hidden[time].clone()

    @staticmethod
    def backward(ctx: Any, of_given: Tensor | None, of_last: Tensor | None) -> tuple[Tensor | None, ...]:
        gates, read, hidden, recalled, of_read, of_hidden = ctx.saved_tensors
        time, rows, size = recalled.shape
        of_given = torch.zeros_like(recalled) if of_given is None else of_given
        of_before = torch.zeros_like(recalled[0]) if of_last is None else of_last
        reset, update, candidate = gates.view(time, rows, 3, size).unbind(2)
        # By what goes into the update gate and into the candidate, of the hidden state; into the reset gate, of the candidate.
        into_update = update * (1 - update) * (hidden[:-1] - candidate)
        into_candidate = (1 - update) * (1 - candidate * candidate)
        into_reset = reset * (1 - reset) * recalled
        left = torch.empty_like(gates)
        # The candidate's recurrent weight is behind the reset gate.
        left_hidden = torch.empty_like(gates)
        for step in range(time - 1, -1, -1):
            of_state = of_given[step] + of_before
            now, recurrent = left[step], left_hidden[step]
            torch.mul(of_state, into_candidate[step], out=now[:, 2 * size :])
            torch.mul(of_state, into_update[step], out=now[:, size : 2 * size])
            torch.mul(now[:, 2 * size :], into_reset[step], out=now[:, :size])
            recurrent[:, : 2 * size] = now[:, : 2 * size]
            torch.mul(now[:, 2 * size :], reset[step], out=recurrent[:, 2 * size :])
            of_before = torch.addmm(of_state.mul_(update[step]), recurrent, of_hidden)
        weight_read, weight_hidden, bias_read, bias_hidden = ctx.parameters
        _record(ctx.tape, (weight_read,), left, read, (bias_read,))
        _record(ctx.tape, (weight_hidden,), left_hidden, hidden[:-1], (bias_hidden,))
        return None, None, _of_values(ctx, left, of_read), of_before, None, None, None, None


def _of_values(ctx: Any, left: Tensor, of_read: Tensor) -> Tensor | None:
    """The gradient of what the layer reads, (time, rows, width), if it is needed."""
    return (left.flatten(0, 1) @ of_read).view(*left.shape[:2], -1) if ctx.needs_input_grad[2] else None


def _record(
    tape: Tape,
    weights: tuple[nn.Parameter, ...],
    left: Tensor,
    right: Tensor,
    biases: Sequence[nn.Parameter],
) -> None:
    """Record factors of shape (time, rows, width), and biases that are added to what goes into the gates."""
    tape.add_product(weights, left.transpose(0, 1), right.transpose(0, 1))
    summed = left.sum(0)
    for bias in biases:
        tape.add_whole(bias, summed)
