"""Normalization under ghost clipping: LayerNorm, and the RMSNorm that each architecture of transformers writes for itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

from coalmine.training.private.clipping.tape import Tape


def layer_norm_refusal(layer: nn.LayerNorm) -> str:
    """Why this layer is not known, or nothing."""
    return "" if len(layer.normalized_shape) == 1 else "it normalizes more than one dimension"


def layer_norm(layer: nn.LayerNorm, tape: Tape, read: Tensor) -> Tensor:
    """What `nn.LayerNorm` gives."""
    tape.by_row(read, layer)
    given: Tensor = _LayerNorm.apply(read, layer.weight, layer.bias, layer, tape)  # type: ignore[no-untyped-call]
    return given


class _LayerNorm(Function):
    @staticmethod
    def forward(
        ctx: Any,
        read: Tensor,
        weight: nn.Parameter,
        bias: nn.Parameter | None,
        layer: nn.LayerNorm,
        tape: Tape,
    ) -> Tensor:
        given, mean, scale = torch.native_layer_norm(read, layer.normalized_shape, weight, bias, layer.eps)
        ctx.save_for_backward(read, mean, scale, weight)
        ctx.bias, ctx.layer, ctx.tape = bias, layer, tape
        return given

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        read, mean, scale, weight = ctx.saved_tensors
        left = ctx.tape.by_row(gradient, ctx.layer)
        if ctx.needs_input_grad[1]:
            normalized = ctx.tape.by_row((read - mean) * scale, ctx.layer)
            ctx.tape.add_whole(ctx.layer.weight, (left * normalized).sum(1))
        if ctx.needs_input_grad[2]:
            ctx.tape.add_whole(ctx.bias, left.sum(1))
        of_read = None
        if ctx.needs_input_grad[0]:
            of_read, _, _ = torch.ops.aten.native_layer_norm_backward(
                gradient.contiguous(),
                read,
                ctx.layer.normalized_shape,
                mean,
                scale,
                weight,
                ctx.bias,
                [True, False, False],
            )
        return of_read, None, None, None, None


def rms_norm_refusal(layer: nn.RMSNorm) -> str:
    """Why this layer is not known, or nothing."""
    return "" if len(layer.normalized_shape) == 1 else "it normalizes more than one dimension"


def rms_norm(layer: nn.RMSNorm, tape: Tape, read: Tensor) -> Tensor:
    """What `nn.RMSNorm` gives."""
    return F.rms_norm(read, layer.normalized_shape, None, layer.eps) * _copies(layer, tape, read)


def is_own_rms_norm(layer: nn.Module) -> bool:
    """Whether a layer looks like a root mean square norm: by its name, with one weight of one dimension and nothing below it."""
    own = dict(layer.named_parameters())
    named = "RMSNorm" in type(layer).__name__ and type(layer) is not nn.RMSNorm
    return named and list(own) == ["weight"] and own["weight"].dim() == 1 and not list(layer.children())


def own_rms_norm(layer: nn.Module, tape: Tape, read: Tensor, *others: Any) -> Tensor:
    """What the layer's own code gives with a copy of its weight for each row, so that autograd keeps the rows apart.

    This holds for code that multiplies by the weight and does nothing else with it; the check of the first pass notices other code.
    """
    # A plain attribute comes before a parameter of the same name.
    layer.__dict__["weight"] = _copies(layer, tape, read)
    try:
        given: Tensor = type(layer).forward(layer, read, *others)
    finally:
        del layer.__dict__["weight"]
    return given


def _copies(layer: nn.Module, tape: Tape, read: Tensor) -> Tensor:
    """The weight once per row, in a shape that multiplies what was read."""
    tape.by_row(read, layer)
    copies: Tensor = _Copies.apply(layer.weight, read.dim(), tape)  # type: ignore[no-untyped-call]
    return copies


class _Copies(Function):
    """(width,) to (rows, 1, ..., width)."""

    @staticmethod
    def forward(ctx: Any, weight: nn.Parameter, dimensions: int, tape: Tape) -> Tensor:
        ctx.weight, ctx.tape = weight, tape
        return weight.expand(tape.rows, *[1] * (dimensions - 2), -1).clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, ...]:
        ctx.tape.add_whole(ctx.weight, gradient.flatten(1))
        return None, None, None
