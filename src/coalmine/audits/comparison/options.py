"""The options of `compare`."""

from __future__ import annotations

import math
from typing import Annotated

from coalmine.audits.options import CONFIDENCE, SEED, Option, Options
from coalmine.errors import InputError


class ComparisonOptions(Options, frozen=True, kw_only=True):
    """How trainings are compared.

    Attributes:
        utility_name: what the utility is called.
        higher_is_better: whether a higher utility is better, as for an accuracy; losses are lower.
        equal_within: utilities that differ by no more than this, in their own unit, count as equal.
        repetitions: compare only canaries that were planted exactly this many times; None compares all.
        confidence: the level of the intervals, between 0 and 1.
        seed: the root of all randomness.

    >>> ComparisonOptions(repetitions=4).utility_name
    'validation loss'
    """

    utility_name: Annotated[str, Option("What the utility is called.")] = "validation loss"
    higher_is_better: Annotated[bool, Option("For utilities such as accuracy; losses are lower.")] = False
    equal_within: Annotated[float, Option("Utilities that differ by no more than this count as equal.")] = (
        0.02
    )
    repetitions: Annotated[
        int | None, Option("Compare only canaries that were planted exactly this many times.", least=1)
    ] = None
    confidence: Annotated[float, CONFIDENCE] = 0.95
    seed: Annotated[int, SEED] = 0

    def check(self) -> None:
        """Reject values that nothing can be compared with."""
        if not math.isfinite(self.equal_within) or self.equal_within < 0:
            raise InputError(f"equal_within must be a number of at least 0, got {self.equal_within}")
