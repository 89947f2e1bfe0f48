"""The options of `audit`: how long it may take, and which parts are of interest."""

from __future__ import annotations

from typing import Annotated

from coalmine.errors import InputError
from coalmine.records.options import SEED, Option, Options


class ReviewOptions(Options, frozen=True, kw_only=True):
    """How long an audit may take.

    Attributes:
        minutes: the time for everything. Each step is cut down to fit into it, or left out with the reason.
        seed: the root of all randomness.

    >>> ReviewOptions(minutes=5).seed
    0
    """

    minutes: Annotated[
        float, Option("The time for everything; what does not fit is cut down, or left out with the reason.")
    ] = 30.0
    seed: Annotated[int, SEED] = 0

    def check(self) -> None:
        """Reject a time that is none."""
        if not 0 < self.minutes < float("inf"):
            raise InputError(f"minutes must be more than 0, got {self.minutes:g}; 30 is usual")
