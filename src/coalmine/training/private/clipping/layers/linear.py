"""Matrix products under ghost clipping: torch's linear layer, and the transposed one of GPT-2 in transformers."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

from coalmine.training.private.clipping.tape import Tape


def linear(layer: nn.Module, tape: Tape, read: Tensor) -> Tensor:
    """What `nn.Linear` gives."""
    tape.by_row(read, layer)
    given: Tensor = _Linear.apply(read, layer.weight, layer.bias, False, layer, tape)  # type: ignore[no-untyped-call]
    return given


def transposed_linear(layer: nn.Module, tape: Tape, read: Tensor) -> Tensor:
    """What `transformers.pytorch_utils.Conv1D` gives, a product with a weight of shape (inputs, outputs)."""
    tape.by_row(read, layer)
    given: Tensor = _Linear.apply(read, layer.weight, layer.bias, True, layer, tape)  # type: ignore[no-untyped-call]
    return given


class _Linear(Function):
    @staticmethod
    def forward(
        ctx: Any,
        read: Tensor,
        weight: nn.Parameter,
        bias: nn.Parameter | None,
        transposed: bool,
        layer: nn.Module,
        tape: Tape,
    ) -> Tensor:
        ctx.save_for_backward(read, weight)
        ctx.bias, ctx.transposed, ctx.layer, ctx.tape = bias, transposed, layer, tape
        return F.linear(read, weight.t() if transposed else weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        read, weight = ctx.saved_tensors
        left, right = ctx.tape.by_row(gradient, ctx.layer), ctx.tape.by_row(read, ctx.layer)
        if ctx.needs_input_grad[1]:
            factors = (right, left) if ctx.transposed else (left, right)
            ctx.tape.add_product((ctx.layer.weight,), *factors)
        if ctx.needs_input_grad[2]:
            ctx.tape.add_whole(ctx.bias, left.sum(1))
        of_read = gradient @ (weight.t() if ctx.transposed else weight) if ctx.needs_input_grad[0] else None
        return of_read, None, None, None, None, None
