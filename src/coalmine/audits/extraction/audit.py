"""The extraction audit, as reports see it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from coalmine.audits.extraction import report
from coalmine.audits.extraction.figures import extraction_figure
from coalmine.audits.extraction.results import EXTRACTIONS, VERIFIED, masked
from coalmine.audits.extraction.table import member_table
from coalmine.audits.framing import asked_as
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.errors import FormatError
from coalmine.evidence.audit import Audit
from coalmine.evidence.details import Detail
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


EXTRACTION = Audit(
    name="extraction",
    command="coalmine extract",
    documents=(EXTRACTIONS, VERIFIED),
    measures=report.measures,
    rules=report.RULES,
    figures=lambda run: [extraction_figure(run)],
    details=extraction_details,
)
