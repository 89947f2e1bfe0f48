"""The estimators of exposure, one record each, which says all that other modules need to know about it; and the options of `expose`.

To add an estimator, write the function that measures, add its record to `ESTIMATORS`, and say in `ExposureOptions` what it does. Files,
findings, the gate and the report go by the fields of the record, never by its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Literal

from coalmine.audits.options import CONFIDENCE, MEMORY, SEARCH_MEMORY, SEED, Option, Options
from coalmine.errors import InputError

if TYPE_CHECKING:
    from coalmine.audits.exposure.ranked import FormatQuestion, Measured
    from coalmine.engines.courses import Course

# What the rows of scores.parquet are: all members of the space, draws of some kind, references, or the canaries themselves.
CandidateKind = Literal["member", "guided", "sample", "reference", "canary"]
# What models that cannot be walked are measured with, as a message lists it.
BY_SCORES = "splitting, sampled or references"


@dataclass(frozen=True, kw_only=True)
class Estimator:
    """One way to measure exposure, and how far its numbers can be relied on.

    Attributes:
        name: what users call it, and what results have as their `method`.
        home: the function that measures the canaries of one format, as "module:function"; it is imported when it is first used.
        among: what the rank that it states is a rank among.
        is_evidence: whether findings and the gate may go by its limits, which need no curve to fit beyond the sample.
        keeps: the kind of scores that it leaves in scores.parquet; None where it keeps none.
        samples: how many members it draws, or begins with, where the caller does not say.
        degrees_of_freedom: of the error of its intervals; infinite for normal errors.
    """

    name: str
    home: str
    among: Literal["space", "samples", "references"] = "space"
    is_evidence: bool = True
    keeps: CandidateKind | None = None
    samples: int = 10_000
    degrees_of_freedom: float = math.inf

    @property
    def among_others(self) -> bool:
        """Whether canaries are counted among drawn members or references that all of them share."""
        return self.among != "space"

    @property
    def measure(self) -> Callable[[FormatQuestion], Course[Measured]]:
        """The function that measures the canaries of one format, step by step."""
        found: Callable[[FormatQuestion], Course[Measured]] = resolve_name(
            f"coalmine.audits.exposure.{self.home}"
        )
        return found


EXACT = Estimator(name="exact", home="ranked:exact", keeps="member")
BOUNDED = Estimator(name="bounded", home="ranked:bounded")
# Guided draws share most of their prefixes, so they are cheaper, and past the first proofs they narrow an interval more than
# further proofs do: see docs/explanation/methods.md.
GUIDED = Estimator(name="guided", home="ranked:guided", keeps="guided", samples=50_000)
# It begins with so many members in all of its eight runs together.
SPLITTING = Estimator(
    name="splitting", home="splitting:splitting", keeps="sample", samples=1_600, degrees_of_freedom=7
)
SAMPLED = Estimator(name="sampled", home="ranked:sampled", among="samples", keeps="sample")
REFERENCES = Estimator(name="references", home="ranked:references", among="references", keeps="reference")
EXTRAPOLATED = Estimator(name="extrapolated", home="ranked:extrapolated", is_evidence=False, keeps="sample")

# The best first: of two measurements that leave equally many canaries unmeasured, results go by the one that comes first here.
ESTIMATORS = (EXACT, BOUNDED, GUIDED, SPLITTING, SAMPLED, REFERENCES, EXTRAPOLATED)
AUTO = "auto"
METHODS = (AUTO, *(one.name for one in ESTIMATORS))
_BY_NAME = {one.name: one for one in ESTIMATORS}


def estimator_of(method: str) -> Estimator:
    """The estimator of this name; for any other name one that claims nothing but an interval in the whole space.

    >>> estimator_of("references").among, estimator_of("extrapolated").is_evidence
    ('references', False)
    """
    return _BY_NAME.get(method, Estimator(name="", home=""))


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
