"""Convolutions over time under ghost clipping."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

from coalmine.training.private.clipping.tape import Tape, UnfitError


def convolution_refusal(layer: nn.Conv1d) -> str:
    """Why this convolution is not known, or nothing."""
    if layer.groups != 1:
        return "it has groups"
    return "" if layer.padding_mode == "zeros" and layer.padding == (0,) else "it pads what it reads"


def convolution(layer: nn.Conv1d, tape: Tape, read: Tensor) -> Tensor:
    """What `nn.Conv1d` gives."""
    if read.dim() != 3 or read.shape[0] != tape.rows:
        raise UnfitError(
            f"a convolution gets values of shape {tuple(read.shape)}, and not one row for each loss"
        )
    given: Tensor = _Convolution.apply(read, layer.weight, layer.bias, layer, tape)  # type: ignore[no-untyped-call]
    return given


class _Convolution(Function):
    @staticmethod
    def forward(
        ctx: Any,
        read: Tensor,
        weight: nn.Parameter,
        bias: nn.Parameter | None,
        layer: nn.Conv1d,
        tape: Tape,
    ) -> Tensor:
        ctx.save_for_backward(read, weight)
        ctx.bias, ctx.layer, ctx.tape = bias, layer, tape
        return F.conv1d(read, weight, bias, layer.stride, 0, layer.dilation)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        read, weight = ctx.saved_tensors
        layer: nn.Conv1d = ctx.layer
        left = gradient.transpose(1, 2)  # (rows, places, outputs)
        if ctx.needs_input_grad[1]:
            [kernel], [dilation], [stride] = layer.kernel_size, layer.dilation, layer.stride
            # (rows, inputs, places, kernel): what the kernel sees at each place
            seen = read.unfold(2, dilation * (kernel - 1) + 1, stride)[..., ::dilation]
            ctx.tape.add_product((layer.weight,), left, seen.transpose(1, 2).flatten(2))
        if ctx.needs_input_grad[2]:
            ctx.tape.add_whole(ctx.bias, gradient.sum(2))
        of_read = None
        if ctx.needs_input_grad[0]:
            of_read, _, _ = torch.ops.aten.convolution_backward(
                gradient,
                read,
                weight,
                None,
                layer.stride,
                (0,),
                layer.dilation,
                False,
                (0,),
                1,
                [True, False, False],
            )
        return of_read, None, None, None, None
