"""What can be chosen about quantization: `QuantizeOptions`, filled by `quantize` and by `coalmine lab alter`."""

from __future__ import annotations

from typing import Annotated

from coalmine.errors import InputError
from coalmine.records.options import Option, Options

# What the Secret Sharer has: each weight can be stored in 8 bits.
USUAL_VALUES = 256
_MOST_VALUES = 65_536


class QuantizeOptions(Options, frozen=True, kw_only=True):
    """How the weights of a model are rounded; one of two ways.

    Attributes:
        values: each tensor of weights keeps at most this many different values, evenly spaced from its least weight to its
            greatest; 256 where neither is given, as in the Secret Sharer.
        int8: symmetric int8 with one scale per row instead: each row is at most 255 multiples of its largest absolute weight / 127.

    >>> QuantizeOptions().number, QuantizeOptions(int8=True).number
    (256, None)
    """

    values: Annotated[
        int | None,
        Option("Keep at most this many different values per weight tensor; 256 by default.", least=2),
    ] = None
    int8: Annotated[bool, Option("Round each row of a weight matrix to int8 with its own scale instead.")] = (
        False
    )

    def __post_init__(self) -> None:
        if self.int8 and self.values is not None:
            raise InputError("int8 is a way of its own to choose values; give either --values or --int8")
        if self.values is not None and not 2 <= self.values <= _MOST_VALUES:
            raise InputError(
                f"values should be a whole number from 2 to {_MOST_VALUES:,}, but is {self.values:,}; give another, such as 256"
            )

    @property
    def number(self) -> int | None:
        """The most different values of a tensor; None for int8."""
        return None if self.int8 else self.values or USUAL_VALUES
