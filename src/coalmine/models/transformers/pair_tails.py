"""The last layer of a sequence-to-sequence model, apart from the others: only positions that are scored are projected."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from coalmine.models.transformers.pairs import TransformersPairNetwork


class Tail(NamedTuple):
    """What comes after the layers of a model: its last layer, and a bias that is added to the logits, as BART has one."""

    width: int  # of the last layer's input
    bias: Tensor | None  # (vocabulary,)


@contextlib.contextmanager
def without_layer(layer: torch.nn.Module) -> Iterator[list[Tensor]]:
    """The inputs of a layer while a model reads; the layer itself is applied to no position."""
    read: list[Tensor] = []

    def take(_: torch.nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        read.append(given[0])
        return given[0][:, :0], *given[1:]

    hook = layer.register_forward_pre_hook(take)
    try:
        yield read
    finally:
        hook.remove()


@torch.inference_mode()
def tail_of(network: TransformersPairNetwork) -> Tail | None:
    """How to read a model without its last layer, if all that happens to its output is that a known bias is added.

    The layer's output is replaced, because what is done to the model's own logits may be too little to be seen.
    """
    layer = network.last_layer
    if not isinstance(layer, torch.nn.Module):
        return None
    sizes, device = (network.source_vocabulary, network.vocabulary), network.model.device
    sources, targets = (
        torch.tensor([[(place * 7 + 4) % size for place in range(5)]] * 2, device=device) for size in sizes
    )
    lengths = torch.full((2,), 5, device=device)
    read: list[Tensor] = []
    made: list[Tensor] = []

    def put_others(_: torch.nn.Module, given: tuple[Tensor, ...], logits: Tensor) -> Tensor:
        read.extend(given)
        values = torch.linspace(-1, 1, logits.numel(), dtype=torch.float64, device=logits.device) ** 3 * 1e4
        made.append(values.reshape(logits.shape).to(logits.dtype))
        return made[-1].clone()

    hook = layer.register_forward_hook(put_others)
    try:
        logits = network(sources, lengths, targets)
        hook.remove()
        with without_layer(layer) as alone:
            network(sources, lengths, targets)
        if len(read) == len(made) == len(alone) == 1 and torch.equal(read[0], alone[0]):
            for bias in _known_biases(network):
                if torch.equal(made[0] if bias is None else made[0] + bias, logits):
                    return Tail(int(read[0].shape[-1]), bias)
    except (TypeError, ValueError, AttributeError, LookupError, RuntimeError):
        pass  # It is read as a whole; if that fails too, it raises its own error.
    finally:
        hook.remove()
    return None


def _known_biases(network: TransformersPairNetwork) -> list[Tensor | None]:
    """What a model may add to its logits: nothing, or a bias that is saved with it."""
    bias = getattr(network.model, "final_logits_bias", None)
    known = isinstance(bias, Tensor) and bias.shape == (1, network.vocabulary)
    return [None, bias[0]] if known and isinstance(bias, Tensor) else [None]
