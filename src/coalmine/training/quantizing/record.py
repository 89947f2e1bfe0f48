"""Records of quantization: how each tensor was rounded, and the files before and after (quantization.json)."""

from __future__ import annotations

import msgspec

from coalmine.models.reference.checkpoint import QUANTIZATION_FILE, QUANTIZATION_SCHEMA, ChangedModel
from coalmine.records.estimate import Amount, Positive
from coalmine.training.changed_models import document_of_change
from coalmine.training.quantizing.options import QuantizeOptions


class QuantizedTensor(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one tensor."""

    name: str
    numbers: Positive
    # How many different values it has now; with int8, the row with the most of them. None for one that was kept as it was.
    distinct: Positive | None
    # The largest absolute difference that rounding made to one of its numbers.
    largest_error: Amount
    # Why it was kept as it was.
    kept: str | msgspec.UnsetType = msgspec.UNSET


class Quantization(ChangedModel, frozen=True, kw_only=True):
    """What `quantize` made of a model; quantization.json beside the new weights.

    >>> Quantization(
    ...     options=QuantizeOptions(), rounding="", model="m", data_sha256=None, files={}, files_before={}, tensors=()
    ... ).rounded
    0
    """

    schema: str = QUANTIZATION_SCHEMA
    options: QuantizeOptions
    # How values are chosen, in one sentence.
    rounding: str
    # The name of the directory of the model that was quantized, and the SHA-256 of its files that were read.
    model: str
    files_before: dict[str, str]
    tensors: tuple[QuantizedTensor, ...]

    @property
    def rounded(self) -> int:
        """How many numbers are in tensors that were rounded."""
        return sum(one.numbers for one in self.tensors if one.distinct is not None)

    @property
    def kept(self) -> int:
        """How many numbers are in tensors that were kept as they were."""
        return sum(one.numbers for one in self.tensors if one.distinct is None)


QUANTIZATIONS = document_of_change(
    Quantization,
    QUANTIZATION_FILE,
    "quantization",
)
