"""The comparison of exposures, as reports see it."""

from __future__ import annotations

from collections.abc import Sequence

from coalmine.audits.comparison.results import COMPARISONS
from coalmine.evidence.audit import RunComparison
from coalmine.evidence.details import AcrossRuns
from coalmine.evidence.run import Run

# The most pairs of runs that a report describes.
MOST_PAIRS = 20


def _across(runs: Sequence[Run]) -> AcrossRuns | None:
    # Comparing reads runs, which needs the registry that this module is imported by.
    from coalmine.audits.comparison.figures import utility_figure
    from coalmine.audits.comparison.sources import compare_exposed

    comparison = compare_exposed(runs)
    if comparison is None:
        return None
    figure = utility_figure(comparison)
    more = len(comparison.pairs) - MOST_PAIRS
    return AcrossRuns(
        figures=() if figure is None else (figure,),
        statements=tuple(f"{pair.statement}." for pair in comparison.pairs[:MOST_PAIRS]),
        notes=(
            *((f"And {more:,} more pairs: `coalmine compare` lists them.",) if more > 0 else ()),
            "This is what `coalmine compare` reports, whose options the notes mention.",
            *(f"{text[:1].upper()}{text[1:]}." for text in comparison.warnings),
        ),
    )


COMPARISON = RunComparison(document=COMPARISONS, across=_across)
