"""The extraction audit, as reports see it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from coalmine.audits.exposure.verdict import hits_of
from coalmine.audits.extraction import policy, report
from coalmine.audits.extraction.extracted_together import extraction_suspicions
from coalmine.audits.extraction.figures import extraction_figure
from coalmine.audits.extraction.findings import CATALOG, extraction_findings
from coalmine.audits.extraction.results import EXTRACTIONS, VERIFIED, masked
from coalmine.audits.extraction.table import member_table
from coalmine.audits.framing import asked_as
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.errors import FormatError
from coalmine.evidence.audit import Audit, NotTested
from coalmine.evidence.details import Detail
from coalmine.evidence.findings import Finding, FindingStatus, beyond_chance, first
from coalmine.evidence.replies import EXTRACTED, MEMORIZED, Reply, Tone
from coalmine.evidence.run import Run
from coalmine.evidence.words import hidden
from coalmine.formats.format import Format


def extraction_details(run: Run, reveal: bool) -> Iterator[Detail]:
    """What came out of each format, masked unless the report reveals texts."""
    for located in run.all(EXTRACTIONS):
        result = located.document
        where = run.shown(located.path)
        proof = "proven" if result.proven else "not proven"
        asked = asked_as(result.model)
        members = "members" if asked is None else f"members, asked about {asked}"
        table = member_table(
            "queries",
            str if reveal else partial(hidden_member, template=result.format_template, canaries=run.canaries),
        )
        yield table.detail(
            result.found,
            section="Texts",
            title="What came out of",
            code=result.format_template,
            note=f"{where}: {result.method} over {int(result.size):,} {members}, {proof} to be the least surprising, "
            f"after {result.certificate.expansions:,} queries.",
            caption=f"Members found in {where}",
        )


def hidden_member(text: str, template: str, canaries: CanarySet | None) -> str:
    """A member of a format that shows only what every member shares; nothing at all if the format is unknown, or only a list."""
    same = (
        [] if canaries is None else [one for one in canaries.formats.items() if one[1].template == template]
    )
    if canaries is not None and any(format_id in canaries.listed for format_id, _ in same):
        return hidden(text)
    try:
        form = same[0][1] if same else Format(template)
    except FormatError:
        return hidden(text)
    return masked(text, form) if text.startswith(form.prefix) else hidden(text)


NOT_TESTED_CLAUSE = "and whether they can be extracted was not tested"
# The first of these findings that a report has is the reply, if none came out beyond chance.
_OTHERWISE: tuple[tuple[str, FindingStatus, str, Tone, str], ...] = (
    ("CM203", "not_measured", "Not found, not proven", "open", ""),
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
    out = beyond_chance(findings, "CM201") or first(findings, "CM201", "found")
    if out is None:
        yield _not_out(findings)
        return
    count = f"{hits_of(out.estimates[0]):,} of {out.estimates[0].n:,}"
    if out.severity == "info":
        clause = f"and {count} can be extracted, as chance may explain"
        yield Reply(EXTRACTED, "As chance explains", out.evidence, "open", clause)
        return
    yield Reply(EXTRACTED, f"Yes: {count}", out.evidence, "bad", f"and {count} can be extracted")
    # Some of what came out may be chance, and then it is not known how many are memorized.
    every = all(one.severity == "critical" for one in findings if one.code == "CM201")
    yield Reply(
        MEMORIZED,
        f"Yes: {count}" if every else "Yes",
        f"They came out of it. {out.evidence}",
        "bad",
        f"The model memorized {count} canaries" if every else "The model memorized canaries",
    )


def _not_out(findings: Sequence[Finding]) -> Reply:
    for code, status, answer, tone, clause in _OTHERWISE:
        one = first(findings, code, status)
        if one is not None:
            return Reply(EXTRACTED, answer, one.evidence, tone, clause, tested=status != "not_tested")
    why = "Formats were searched, but no canaries were looked for."
    return Reply(EXTRACTED, "Not tested", why, "open", NOT_TESTED_CLAUSE)


EXTRACTION = Audit(
    name="extraction",
    command="coalmine extract --verify",
    catalog=CATALOG,
    not_tested=NotTested(
        "CM902", "There is no verified.json or extraction.json, so it is not known whether secrets come out."
    ),
    documents=(EXTRACTIONS, VERIFIED),
    suspicions=extraction_suspicions,
    findings=extraction_findings,
    replies=extraction_replies,
    figures=lambda run: [extraction_figure(run)],
    details=extraction_details,
    policy=policy.SECTION,
    measures=report.measures,
    rules=report.RULES,
    incomplete=policy.incomplete,
)
