"""The base of adapters for networks in this process: a name, a tokenizer, and the precision and device of the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from coalmine.errors import ModelError, NotMeasurableError
from coalmine.models.protocols import IntArray, Tokenizer, TokenSequence
from coalmine.models.resolution import PRECISION_BITS
from coalmine.models.transformers.quantization import (
    ImportedFirst,
    parameters_in,
    quantization_of_live,
    quantized_part,
)

_SCORED_IN = (torch.float64, torch.float32, torch.bfloat16, torch.float16)

_Tokenizer = TypeVar("_Tokenizer", bound=Tokenizer)


class LocalModel(Generic[_Tokenizer]):
    """A network in evaluation mode, with its tokenizer and its record."""

    def __init__(
        self, network: nn.Module, tokenizer: _Tokenizer, *, name: str, origin: dict[str, Any] | None
    ) -> None:
        """`origin` goes into the record of a run."""
        part = quantized_part(network)
        if part is not None or any(hasattr(one, "peft_config") for one in network.modules()):
            self._imported = ImportedFirst()  # before all that needs it
        self._weights = network.eval()
        self._tokenizer = tokenizer
        self._name = name
        self._origin = dict(origin or {})
        # Loads the same weights on any machine that has their directory; None for those of a live model.
        self.load_again: Callable[[], Any] | None = None
        # Quantized weights are whole numbers or too coarse; what is computed from them has the precision of the other ones.
        scored = (one for one in network.parameters() if one.dtype in _SCORED_IN)
        parameter = next(scored, next(network.parameters()))
        self._device, self._dtype = getattr(network, "input_device", parameter.device), parameter.dtype
        if self._dtype not in _SCORED_IN:
            raise ModelError(f"a model is scored in float64, float32, bfloat16 or float16, got {self._dtype}")
        self._quantization = None if part is None else quantization_of_live(part)

    @property
    def name(self) -> str:
        """What to call it in a table."""
        return self._name

    @property
    def tokenizer(self) -> _Tokenizer:
        """The tokens of what is scored, and their text."""
        return self._tokenizer

    @property
    def resolution_bits(self) -> float:
        """What the precision of the weights allows, or that of the network's own arithmetic if it is coarser; in bits."""
        return max(PRECISION_BITS[self._precision], PRECISION_BITS[self._computed_in])

    @property
    def _computed_in(self) -> str:
        products = None if self._quantization is None else self._quantization.computed_in
        said = (getattr(self._weights, "computed_in", None), products)
        found = [name for name in said if name in PRECISION_BITS]
        return max(found, key=PRECISION_BITS.__getitem__, default=self._precision)

    @property
    def _precision(self) -> str:
        return str(self._dtype).removeprefix("torch.")

    def _check_at_rest(self) -> None:
        """Refuse a live model that is back in training mode: with dropout, its numbers would be wrong and look plausible."""
        if any(module.training for module in self._weights.modules()):
            raise ModelError(
                f"{self._name!r} is in training mode, in which dropout changes its numbers; call .eval() on it first"
            )

    def _check_sequences(self, sequences: Iterable[TokenSequence], what: str = "token ids") -> None:
        """Reject what would be scored after nothing, and ids that the tokenizer does not have."""
        checked: tuple[int, ...] | None = None  # many sequences have the same long context
        for sequence in sequences:
            if not sequence.context:
                said = "a text cannot be scored after nothing: give the model's context before it"
                raise NotMeasurableError(said)
            if sequence.context is not checked:
                check_ids(sequence.context, self._tokenizer.size, what)
                checked = sequence.context
            check_ids(sequence.target, self._tokenizer.size, what)

    def _tensor(self, array: IntArray) -> Tensor:
        return torch.from_numpy(np.asarray(array, dtype=np.int64)).to(self._device)

    @cached_property
    def _stored(self) -> dict[str, Any]:
        """What quantized weights are, and how many: a tensor of them has fewer numbers than it stands for."""
        if self._quantization is None:
            return {}
        return {
            "parameters": parameters_in(self._weights),
            "quantization": self._quantization.described(),
        }

    def _facts(self) -> dict[str, Any]:
        """What the record of a run has of every such model; the facts of its origin come last."""
        coarser = PRECISION_BITS[self._computed_in] > PRECISION_BITS[self._precision]
        return {
            "device": str(self._device),
            "precision": self._precision,
            **({"computed_in": self._computed_in} if coarser else {}),
            **self._stored,
            **self._origin,
        }


def check_ids(tokens: Sequence[int], size: int, what: str = "token ids") -> None:
    """Reject ids that a tokenizer of this size does not have; messages call them `what`."""
    if tokens and not (min(tokens) >= 0 and max(tokens) < size):
        raise ModelError(f"{what} must be in [0, {size}), got {min(tokens)} to {max(tokens)}")
