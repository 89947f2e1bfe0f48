"""`Estimate`: a number with its interval, method and assumptions."""

from __future__ import annotations

import math
from typing import Literal, Self

import msgspec

Status = Literal["measured", "lower_bound", "not_measured"]


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A number with all that is needed to defend it.

    `status` is "measured" (value, low and high are numbers), "lower_bound" (value is None: all that is known is that the
    quantity is at least `low`) or "not_measured" (no number at all; `statement` says why). A quantity that could not be
    measured never has a value, so that it cannot be read as zero.

    >>> from coalmine.statistics import exact_exposure
    >>> found = exact_exposure(1, 1024)  # in bits
    >>> found.value, found.interval, found.status
    (10.0, (10.0, 10.0), 'measured')
    >>> Estimate.not_measured("exact", "the model could not score the canary").value is None
    True
    """

    method: str
    status: Status
    value: float | None
    low: float | None
    high: float | None
    # None where the number is exact and the interval is the number itself.
    confidence: float | None
    # How many scores the estimate rests on, and how many equally weighted ones they are worth where weights differ.
    n: int
    effective_n: float | None = None
    # The estimate in a sentence.
    statement: str
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def not_measured(cls, method: str, reason: str, n: int = 0) -> Self:
        """The estimate of what could not be measured."""
        return cls(
            method=method,
            status="not_measured",
            value=None,
            low=None,
            high=None,
            confidence=None,
            n=n,
            statement=reason,
        )

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """The interval at `confidence`, as (low, high)."""
        return (self.low, self.high)


def rounded_down(bound: float) -> str:
    """A lower limit with two decimals, rounded so that it claims no more than was shown.

    >>> rounded_down(1.999)
    '1.99'
    """
    return f"{math.floor(bound * 100) / 100:.2f}"


def rounded_up(bound: float) -> str:
    """An upper limit with two decimals, rounded in the same way.

    >>> rounded_up(1.991)
    '2.00'
    """
    return f"{math.ceil(bound * 100) / 100:.2f}"
