"""How many canaries of a format came out of a search, and the probability of so many without memorization."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from coalmine.audits.extraction.results import EXTRACTIONS, VERIFIED, Verified
from coalmine.evidence.budget import Suspicion
from coalmine.evidence.run import Located, Run

CAME_OUT = "came out"


class CameOut(NamedTuple):
    """The canaries of one format that were trained on, and those of them that one search found."""

    format_id: str
    template: str
    extracted: int
    trained: int
    # How many would come out without memorization, on average.
    expected: float
    p_value: float


def extraction_suspicions(run: Run) -> Iterator[Suspicion]:
    """One test per format of each verified.json."""
    for located in run.all(VERIFIED):
        for one in came_out(run, located):
            yield Suspicion("group", (CAME_OUT, one.format_id), one.p_value)


def came_out(run: Run, located: Located[Verified]) -> list[CameOut]:
    """What came out, by format, for the formats whose search is beside the verified.json.

    Canaries are members of their format, drawn at random. So without memorization each is among the k members that a search found with
    probability k / |R|, whatever the model predicts for the format. Their number is binomial, or, because canaries differ, a little less
    spread than that, so the binomial p-value errs on the safe side.
    """
    from scipy.stats import binom

    searches = {
        one.path.stem.removeprefix("extraction-"): one.document
        for one in run.all(EXTRACTIONS)
        if one.path.parent == located.path.parent
    }
    found = []
    for format_id, search in searches.items():
        these = [
            one for one in located.document.canaries if one.format_id == format_id and one.repetitions > 0
        ]
        extracted, size = sum(one.extracted for one in these), int(search.size)
        if these and len(search.found) <= size:
            share = len(search.found) / size
            found.append(
                CameOut(
                    format_id,
                    search.format_template,
                    extracted,
                    len(these),
                    len(these) * share,
                    float(binom.sf(extracted - 1, len(these), share)),
                )
            )
    return found
