"""What adapters of networks in this process have in common: a name, a tokenizer, and the precision and place of the weights."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import torch
from torch import nn

from coalmine.errors import ModelError
from coalmine.models.protocols import Tokenizer

# Rounding noise in the log-perplexity of a text, in bits, with room to spare.
RESOLUTION_BITS = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 0.05, torch.float16: 0.01}

_Tokenizer = TypeVar("_Tokenizer", bound=Tokenizer)


class LocalModel(Generic[_Tokenizer]):
    """A network, ready to be measured."""

    def __init__(
        self, network: nn.Module, tokenizer: _Tokenizer, *, name: str, origin: dict[str, Any] | None
    ) -> None:
        """`origin` goes into the record of a run."""
        self._weights = network.eval()
        self._tokenizer = tokenizer
        self._name = name
        self._origin = dict(origin or {})
        parameter = next(network.parameters())
        self._device, self._dtype = parameter.device, parameter.dtype
        if self._dtype not in RESOLUTION_BITS:
            raise ModelError(f"a model is scored in float64, float32, bfloat16 or float16, got {self._dtype}")

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
        """Rounding noise in the log-perplexity of a text, with room to spare."""
        return RESOLUTION_BITS[self._dtype]

    def _check_at_rest(self) -> None:
        """Refuse a live model that went back to training: dropout would make numbers of it that look like any others."""
        if any(module.training for module in self._weights.modules()):
            raise ModelError(
                f"{self._name!r} is in training mode, in which dropout changes its numbers; call .eval() on it first"
            )

    def _facts(self) -> dict[str, Any]:
        """What is said of all of them in the record of a run; what their origin says comes last."""
        return {
            "device": str(self._device),
            "precision": str(self._dtype).removeprefix("torch."),
            **self._origin,
        }
