"""Which layers ghost clipping knows, and the rule for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import nn

from coalmine.training.private.clipping.layers.convolution import convolution, convolution_refusal
from coalmine.training.private.clipping.layers.embedding import embedding, embedding_refusal
from coalmine.training.private.clipping.layers.linear import linear, transposed_linear
from coalmine.training.private.clipping.layers.norm import (
    is_own_rms_norm,
    layer_norm,
    layer_norm_refusal,
    own_rms_norm,
    rms_norm,
    rms_norm_refusal,
)
from coalmine.training.private.clipping.layers.recurrent import gru, lstm, recurrent_refusal


def _never(layer: Any) -> str:
    del layer
    return ""


class LayerRule(NamedTuple):
    """How a kind of layer is read so that the factors of its gradients get onto a tape."""

    # From the layer, the tape and the arguments of the layer's own `forward` to what that returns.
    forward: Callable[..., Any]
    # Why a layer of this kind is not known, or nothing.
    refusal: Callable[[Any], str] = _never


RULES: dict[type[nn.Module], LayerRule] = {
    nn.Linear: LayerRule(linear),
    nn.Embedding: LayerRule(embedding, embedding_refusal),
    nn.LayerNorm: LayerRule(layer_norm, layer_norm_refusal),
    nn.RMSNorm: LayerRule(rms_norm, rms_norm_refusal),
    nn.Conv1d: LayerRule(convolution, convolution_refusal),
    nn.LSTM: LayerRule(lstm, recurrent_refusal),
    nn.GRU: LayerRule(gru, recurrent_refusal),
}


def rule_of(layer: nn.Module) -> LayerRule | str:
    """The rule of a layer that has weights of its own, or why there is none."""
    kind = type(layer)
    name = kind.__name__
    if "forward" in vars(layer):
        return f"{name} has a forward function of its own"
    for known, rule in RULES.items():
        # A subclass that reads in another way is another layer.
        if isinstance(layer, known) and kind.forward is known.forward:
            refusal = rule.refusal(layer)
            return f"{name} is not known where {refusal}" if refusal else rule
    if kind.__module__ == "transformers.pytorch_utils" and name == "Conv1D":
        return LayerRule(transposed_linear)
    return LayerRule(own_rms_norm) if is_own_rms_norm(layer) else f"{name} is not a known layer"
