"""The options of `expose`."""

from __future__ import annotations

from typing import Annotated

from coalmine.audits.exposure.estimators import METHODS
from coalmine.audits.options import CONFIDENCE, MEMORY, SEARCH_MEMORY, SEED, Option, Options
from coalmine.errors import InputError


class ExposureOptions(Options, frozen=True, kw_only=True):
    """How exposure is measured. The methods are

    - "exact": the rank among all of R; where the model supports incremental decoding, shared prefixes are read once;
    - "bounded": the same rank, without the members that cost more than the canary; after `budget` expansions it gives the
      bounds that are proven by then;
    - "guided": an unbiased estimate from `samples` members (50,000) drawn where the model expects them, for every rank;
    - "splitting": an unbiased estimate from scores alone, for every rank: eight runs, which begin with `samples` members (1,600) of R
      drawn uniformly, go down to the canary level by level;
    - "sampled": `samples` members (10,000) of R drawn uniformly; exposure beyond what they can show is given as a lower bound;
    - "extrapolated": a skew-normal curve through such a sample, with a test of the fit on samples it has not seen;
    - "references": the rank among the manifest's references;
    - "auto": exact where that takes no more than `minutes` at the speed of this model, which is measured, or no more than an
      estimate would (bounded, where text follows the holes and few members can rank before a canary); else bounded, and guided
      for what that leaves open. For a model that does not support incremental decoding
      (a masked model, an endpoint, pairs with a source each): exact under the same condition, else splitting.

    Attributes:
        method: the name of an estimator, or "auto".
        samples: how many members are drawn; None takes the estimator's own number.
        budget: expansions of the tree that "bounded" and "guided" may spend on proving ranks.
        minutes: what "auto" may spend on exact ranks of all formats together, by the measured speed of this model, before it
            estimates. It limits no other method, nor one that is named.
        memory: bytes of model states that a search may hold.
        confidence: the level of the intervals, between 0 and 1.
        seed: the root of all randomness.
        batch: how many texts, or states, the model is given at once.
        comparisons: whether the manifest's references are scored beside the canaries, whatever the method, so that `membership` has
            what it compares them with.

    >>> ExposureOptions(method="exact", memory=2_000_000_000).method
    'exact'
    """

    method: Annotated[
        str, Option(f"One of {', '.join(METHODS)}: see docs/explanation/methods.md.", decides=True)
    ] = "auto"
    samples: Annotated[
        int | None,
        Option(
            "Members drawn; 50,000 by `guided`, 10,000 by `sampled`, and `splitting` begins with 1,600.",
            decides=True,
        ),
    ] = None
    budget: Annotated[
        int, Option("Expansions that `bounded` and `guided` may spend on proving ranks.", decides=True)
    ] = 50_000
    # Guided draws come within a tenth of a bit in less, so it is seldom worth waiting longer for exact ranks.
    minutes: Annotated[
        float,
        Option("What `auto` may spend on exact ranks, by the speed of this model, before it estimates."),
    ] = 2.0
    memory: Annotated[int, SEARCH_MEMORY] = MEMORY
    confidence: Annotated[float, CONFIDENCE] = 0.95
    seed: Annotated[int, SEED] = 0
    batch: int = 2048
    comparisons: bool = True

    def check(self) -> None:
        """Reject values that cannot be measured with."""
        if self.method not in METHODS:
            raise InputError(f"unknown method {self.method!r}: known are {', '.join(METHODS)}")
        for name in ("samples", "budget", "memory", "batch"):
            count = getattr(self, name)
            if (count is not None or name != "samples") and (not isinstance(count, int) or count < 1):
                raise InputError(f"{name} must be a whole number of at least 1, got {count}")
        if not self.minutes > 0:
            raise InputError(f"minutes must be more than 0, got {self.minutes}; give for example 2")
        if not 0 < self.confidence < 1:
            raise InputError(f"confidence must be between 0 and 1, such as 0.95, got {self.confidence}")
