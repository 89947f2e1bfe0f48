"""The extraction audit, as reports see it."""

from __future__ import annotations

from coalmine.audits.extraction import policy
from coalmine.audits.extraction.catalog import CATALOG
from coalmine.audits.extraction.details import extraction_details
from coalmine.audits.extraction.extracted_together import extraction_suspicions
from coalmine.audits.extraction.figures import extraction_figure
from coalmine.audits.extraction.findings import extraction_findings
from coalmine.audits.extraction.results import EXTRACTIONS, VERIFIED
from coalmine.audits.extraction.verdict import extraction_replies
from coalmine.evidence.audit import Audit, NotTested
from coalmine.evidence.figures import Figure
from coalmine.evidence.run import Run


def _figures(run: Run) -> list[Figure]:
    figure = extraction_figure(run)
    return [] if figure is None else [figure]


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
    figures=_figures,
    details=extraction_details,
    policy=policy.SECTION,
    incomplete=policy.incomplete,
)
