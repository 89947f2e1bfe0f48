"""The estimators of exposure: one record each, which says all that other modules need to know about it.

To add an estimator, write the function that measures, add its record to `ESTIMATORS`, and say in `ExposureOptions` what it does. Files,
findings, the gate and the report go by the fields of the record, never by its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Literal

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
