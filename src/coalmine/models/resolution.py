"""How far rounding may move a log-probability, by the precision of the model and the size of the number."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

# A model's `resolution_bits` holds for numbers up to this many bits, and grows in proportion for larger ones.
UP_TO_BITS = 32.0
# The most that each precision allows, in bits: enough for large networks, and far less than any mistake in an adapter causes.
PRECISION_BITS = {"float64": 1e-9, "float32": 5e-3, "float16": 0.125, "bfloat16": 1.0, "int8": 1.0}
# For a model that does not report its precision, such as an endpoint.
UNKNOWN_PRECISION_BITS = PRECISION_BITS["bfloat16"]


def allowed_bits(resolution_bits: float, bits: ArrayLike) -> NDArray[np.float64]:
    """How far rounding may move numbers of this size at a declared resolution; all in bits.

    >>> allowed_bits(0.001, [-3.0, 32.0, 320.0]).tolist()
    [0.001, 0.001, 0.01]
    """
    sizes = np.abs(np.asarray(bits, dtype=np.float64))
    return np.asarray(resolution_bits * np.maximum(1.0, sizes / UP_TO_BITS))


def most_for_precision(described: dict[str, Any]) -> float:
    """The largest resolution in bits that a model may declare, by the precision in its description.

    `computed_in` is for a model that computes with less precision than its weights have.

    >>> most_for_precision({"precision": "float32"})
    0.005
    >>> most_for_precision({"precision": "float64", "computed_in": "float32"})
    0.005
    """
    computed_in = described.get("computed_in", described.get("precision"))
    return PRECISION_BITS.get(str(computed_in), UNKNOWN_PRECISION_BITS)
