"""What the first screen of a report says about extraction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coalmine.audits.exposure.verdict import hits_of
from coalmine.evidence.findings import Finding, FindingStatus, beyond_chance, first
from coalmine.evidence.replies import EXTRACTED, MEMORIZED, Reply, Tone

NOT_TESTED_CLAUSE = "and whether they can be extracted was not tested"
# The first of these findings that a report has is the reply, if none came out beyond chance.
_OTHERWISE: tuple[tuple[str, FindingStatus, str, Tone, str], ...] = (
    ("CM203", "not_measured", "Not found, not proven", "open", ""),
    ("CM201", "found", "As chance explains", "open", ""),
    ("CM202", "not_measured", "None came out", "open", ""),
    (
        "CM202",
        "clear",
        "No, by this search",
        "good",
        "and none of them can be extracted by a search that is proven",
    ),
    ("CM902", "not_tested", "Not tested", "open", NOT_TESTED_CLAUSE),
)


def extraction_replies(findings: Sequence[Finding]) -> Iterator[Reply]:
    """Whether the canaries can be extracted; and those that can be were memorized."""
    out = beyond_chance(findings, "CM201")
    if out is None:
        yield _not_out(findings)
        return
    count = f"{hits_of(out.estimates[0]):,} of {out.estimates[0].n:,}"
    yield Reply(EXTRACTED, f"Yes: {count}", out.evidence, "bad", f"and {count} can be extracted")
    yield Reply(
        MEMORIZED,
        f"Yes: {count}",
        f"They came out of it. {out.evidence}",
        "bad",
        f"The model memorized {count} canaries",
    )


def _not_out(findings: Sequence[Finding]) -> Reply:
    for code, status, answer, tone, clause in _OTHERWISE:
        one = first(findings, code, status)
        if one is not None:
            return Reply(EXTRACTED, answer, one.evidence, tone, clause)
    why = "Formats were searched, but no canaries were looked for."
    return Reply(EXTRACTED, "Not tested", why, "open", NOT_TESTED_CLAUSE)
