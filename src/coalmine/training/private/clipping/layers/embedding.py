"""Lookups under ghost clipping: torch's embedding, also of positions that are the same for all rows."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

from coalmine.training.private.clipping.tape import Tape, UnfitError


def embedding_refusal(layer: nn.Embedding) -> str:
    """Why this embedding is not known, or nothing."""
    if layer.max_norm is not None:
        return "it changes its weights when it is read (max_norm)"
    if layer.scale_grad_by_freq:
        return "its gradients depend on other rows (scale_grad_by_freq)"
    return "its gradients are sparse" if layer.sparse else ""


def embedding(layer: nn.Embedding, tape: Tape, ids: Tensor) -> Tensor:
    """What `nn.Embedding` gives. Ids of one row that all rows share, as of positions, are looked up for each row by itself."""
    if ids.dim() == 2 and ids.shape[0] == 1:
        ids = ids.expand(tape.rows, -1)
    if ids.dim() < 2 or ids.shape[0] != tape.rows:
        raise UnfitError(f"an embedding gets ids of shape {tuple(ids.shape)}, and not one row for each loss")
    given: Tensor = _Embedding.apply(ids, layer.weight, layer, tape)  # type: ignore[no-untyped-call]
    return given


class _Embedding(Function):
    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight: nn.Parameter, layer: nn.Embedding, tape: Tape) -> Tensor:
        ctx.ids, ctx.layer, ctx.tape = ids, layer, tape
        return F.embedding(ids, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, ...]:
        gradients = ctx.tape.by_row(gradient, ctx.layer)
        ids = ctx.ids.reshape(ctx.tape.rows, -1)
        if ctx.layer.padding_idx is not None:
            gradients = gradients * (ids != ctx.layer.padding_idx).unsqueeze(-1)
        ctx.tape.add_lookup(ctx.layer.weight, ids, gradients)
        return None, None, None, None
