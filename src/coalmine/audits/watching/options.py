"""The options of measuring exposure during training."""

from __future__ import annotations

from typing import Annotated

from coalmine.audits.exposure.estimators import METHODS
from coalmine.audits.options import SEED, Option, Options
from coalmine.errors import InputError


class WatchOptions(Options, frozen=True, kw_only=True):
    """How often exposure is measured during a training, and how.

    Attributes:
        every: batches between two measurements; there is one after each epoch too.
        method: the name of an estimator, or "auto"; see `expose`.
        samples: how many members are drawn, where the estimator draws.
        seed: the root of all randomness.

    >>> WatchOptions(every=50).method
    'references'
    """

    every: Annotated[int, Option("Batches between two measurements; there is one after each epoch too.")] = (
        100
    )
    method: Annotated[str, Option("How to measure; see `coalmine expose --help`.")] = "references"
    samples: int = 2_000
    seed: Annotated[int, SEED] = 0

    def check(self) -> None:
        """Reject values that cannot be measured with."""
        if self.every < 1:
            raise InputError(f"every must be at least 1 batch, got {self.every}")
        if self.method not in METHODS:
            raise InputError(f"unknown method {self.method!r}: known are {', '.join(METHODS)}")
