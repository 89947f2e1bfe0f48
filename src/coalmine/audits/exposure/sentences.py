"""The sentences that exposures are stated in, by the method of the estimate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from coalmine.audits.exposure.estimators import estimator_of
from coalmine.records.contradictions import hits_of, same
from coalmine.records.statements import statement_problems

if TYPE_CHECKING:
    from coalmine.audits.exposure.results import ExposureResult

_VALUE = "exposure is {value} bits ({percent}% interval {low} to {high})"
_BETWEEN = "exposure is between {low} and {high} bits ({percent}% interval)"
_AT_LEAST = "exposure is at least {low} bits ({percent}% confidence)"
_RESOLVED = (
    ", or {least} to {most} within the resolution of the model: exposure is {value} bits ({low} to {high})"
)
_FREE = "{} uniform draws alone show at least {} bits, for any model"
_PROVEN = "{} [member is|members are] proven no more surprising"

# Ranks of more bits are not floats.
_MOST_BITS = 1_000.0


def _among(what: str) -> tuple[str, ...]:
    return (
        f"less surprising than all {{n}} {what}s: {_AT_LEAST}",
        f"less surprising than the only {what}: {_AT_LEAST}",
        f"{_VALUE}: {{hits}} of {{n}} [{what}|{what}s] [is|are] no more surprising",
    )


SENTENCES = {
    "exact": (
        "rank {rank} of {size}: exposure is exactly {value} bits",
        "rank {rank} of {size}" + _RESOLVED,
    ),
    "bounded": (
        "rank is proven to be {rank} of {size}: exposure is exactly {value} bits",
        "rank is proven to be {rank} of {size}" + _RESOLVED,
        "rank is proven to be between {least} and {most} of {size}: exposure is between {low} and {high} bits",
    ),
    "guided": (
        f"{_VALUE}: {_PROVEN}, and so [is|are] {{}} of {{n}} [draw|draws]",
        f"{_BETWEEN}: {_PROVEN}, and none of {{n}} [draw|draws] is",
    ),
    "splitting": (
        f"{_VALUE}: {{}} of {{}} runs of splitting reached it, with {{n}} members scored; {_FREE}",
        f"{_VALUE}: {{}} of {{}} uniform draws are no more surprising",
        f"{_AT_LEAST}: at most about {{}} members are no more surprising, by the lowest level that enough runs reached; {_FREE}",
        f"{_AT_LEAST}: less surprising than all but a few of {{}} uniform draws; {_FREE}",
    ),
    "sampled": (
        *_among("sample"),
        f"{_BETWEEN}: {{}} of {{n}} [sample|samples] [is|are] no more surprising, and {{}} [has|have] no score",
    ),
    "references": _among("reference"),
    "extrapolated": (
        "exposure is about {value} bits ({percent}% interval {low} to {high}), extrapolated by a skew-normal fit to {} samples",
    ),
}
"""What each method says; a method with another sentence adds it here."""


def sentence_problems(name: str, result: ExposureResult, size: int) -> Iterator[str]:
    """What the sentence of one result says, and its numbers contradict."""
    estimate = result.estimate
    known: dict[str, float | None] = {"rank": result.rank, "size": size}
    for rank, limit in (("least", estimate.high), ("most", estimate.low)):
        if limit is not None and math.log2(size) - limit < _MOST_BITS:
            known[rank] = 2.0 ** (math.log2(size) - limit)
    if estimator_of(result.method).among == "references" and result.rank is not None:
        known["hits"] = result.rank - 1
    elif estimate.value is not None and not same(estimate.value, math.log2(size)):
        # A value that a small space limits says nothing about the count.
        known["hits"] = hits_of(2.0 ** -max(0.0, estimate.value), estimate.n)
    yield from statement_problems(name, estimate, SENTENCES.get(result.method, ()), known)
