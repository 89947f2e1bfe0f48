"""`Estimate`: a number with its interval, method and assumptions."""

from __future__ import annotations

import itertools
import math
from typing import Annotated, Literal, Self

import msgspec

from coalmine.errors import ContradictionError

Status = Literal["measured", "lower_bound", "not_measured"]

# Numbers of results, by what they can be up to rounding; msgspec refuses others when it reads a file.
Share = Annotated[float, msgspec.Meta(ge=-1e-9, le=1 + 1e-9)]
Level = Annotated[float, msgspec.Meta(gt=0, lt=1)]
Amount = Annotated[float, msgspec.Meta(ge=0)]
# Log-perplexities are sums that a server may round.
Bits = Annotated[float, msgspec.Meta(ge=-1e-3)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
# A place among the members of a format, which may be more than 64 bits hold.
Place = Annotated[int, msgspec.Meta(ge=1)]
# A whole number of at least 1 that may be more than Python converts at once.
Digits = Annotated[str, msgspec.Meta(pattern="^[1-9][0-9]{0,4299}$")]
# Limits and values are computed by different sums and logarithms.
_ROUNDING = 1e-9


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A number with all that is needed to defend it.

    `status` is "measured" (value, low and high are numbers), "lower_bound" (value is None: all that is known is that the
    quantity is at least `low`) or "not_measured" (no number at all; `statement` says why). A quantity that could not be
    measured never has a value, so that it cannot be read as zero. Numbers that contradict each other are refused.

    >>> from coalmine.statistics import exact_exposure
    >>> found = exact_exposure(1, 1024)  # in bits
    >>> found.value, found.interval, found.status
    (10.0, (10.0, 10.0), 'measured')
    >>> Estimate.not_measured("exact", "the model could not score the canary").value is None
    True
    """

    method: str
    status: Status
    value: float | None = None
    low: float | None = None
    high: float | None = None
    # None where the number is exact and the interval is the number itself.
    confidence: Level | None = None
    # How many scores the estimate rests on, and how many equally weighted ones they are worth where weights differ.
    n: Annotated[int, msgspec.Meta(ge=0)]
    effective_n: Amount | None = None
    # The estimate in a sentence.
    statement: str
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        there = [number for number in (self.low, self.value, self.high) if number is not None]
        fits = {
            "measured": self.value is not None,
            "lower_bound": self.value is None and self.low is not None,
            "not_measured": not there,
        }
        in_order = all(
            low - high <= _ROUNDING * max(1.0, abs(high)) for low, high in itertools.pairwise(there)
        )
        if not (fits[self.status] and in_order and all(map(math.isfinite, there))):
            raise ContradictionError(
                f"an estimate that is {self.status.replace('_', ' ')} has the value {self.value} and the limits {self.low} and "
                f"{self.high}, which contradict each other"
            )

    @classmethod
    def not_measured(cls, method: str, reason: str, n: int = 0) -> Self:
        """The estimate of what could not be measured."""
        return cls(method=method, status="not_measured", n=n, statement=reason)

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """The interval at `confidence`, as (low, high)."""
        return (self.low, self.high)

    def text(self, unit: str = "") -> str:
        """The number with its interval, as tables and findings write it; limits are rounded outwards.

        With the unit "%" it is a share, as a percentage with one decimal; otherwise it has two decimals, and the unit follows.

        >>> from coalmine.statistics import exact_exposure
        >>> exact_exposure(3, 1024).text("bits")
        '8.42 bits'
        >>> Estimate.not_measured("exact", "the model could not score the canary").text()
        'not measured'
        """
        if self.status == "not_measured":
            return "not measured"
        places, scale, after = (1, 100.0, "%") if unit == "%" else (2, 1.0, f" {unit}" if unit else "")
        low = None if self.low is None else rounded_down(scale * self.low, places)
        high = None if self.high is None else rounded_up(scale * self.high, places)
        if self.value is None:
            return f"at least {low}{after}" if high is None else f"at least {low}, at most {high}{after}"
        value = f"{scale * self.value:.{places}f}{after}"
        if self.low == self.high:
            return f"about {value}" if self.low is None else value
        return f"{value} ({'?' if low is None else low} to {'?' if high is None else high})"


def rounded_down(bound: float, places: int = 2) -> str:
    """A lower limit with two decimals, rounded so that it claims no more than was shown.

    >>> rounded_down(1.999)
    '1.99'
    """
    return f"{math.floor(bound * 10**places) / 10**places:.{places}f}"


def rounded_up(bound: float, places: int = 2) -> str:
    """An upper limit with two decimals, rounded in the same way.

    >>> rounded_up(1.991)
    '2.00'
    """
    return f"{math.ceil(bound * 10**places) / 10**places:.{places}f}"


def chance_text(p_value: float) -> str:
    """A probability of chance, as tables and sentences write it.

    >>> chance_text(0.0123), chance_text(1e-20)
    ('0.012', 'below 1e-12')
    """
    return "below 1e-12" if p_value <= 1e-12 else f"{p_value:.2g}"
