"""The estimators of exposure by name: each takes the canaries of one format and gives an estimate for each, in their order."""

from __future__ import annotations

from collections.abc import Callable

from coalmine.audits.exposure.question import Measured, Question
from coalmine.audits.exposure.ranked import exact
from coalmine.audits.exposure.scored import extrapolated, references, sampled
from coalmine.audits.exposure.searched import bounded, guided
from coalmine.audits.exposure.splitting import splitting

__all__ = ["MEASURES", "Measured", "Question"]

MEASURES: dict[str, Callable[[Question], Measured]] = {
    "exact": exact,
    "bounded": bounded,
    "guided": guided,
    "splitting": splitting,
    "sampled": sampled,
    "extrapolated": extrapolated,
    "references": references,
}
