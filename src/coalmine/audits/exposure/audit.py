"""The exposure audit, as reports see it."""

from __future__ import annotations

from collections.abc import Iterator

from coalmine.audits.exposure import policy
from coalmine.audits.exposure.catalog import CATALOG
from coalmine.audits.exposure.control_findings import control_findings, control_suspicions
from coalmine.audits.exposure.coverage import left_unmeasured
from coalmine.audits.exposure.data_findings import data_findings
from coalmine.audits.exposure.details import exposure_details
from coalmine.audits.exposure.figures import exposure_figure
from coalmine.audits.exposure.findings import exposure_findings, exposure_suspicions, no_control
from coalmine.audits.exposure.histogram_figure import histogram_figure
from coalmine.audits.exposure.results import EXPOSURES
from coalmine.audits.exposure.verdict import exposure_reply
from coalmine.evidence.audit import Audit, NotTested
from coalmine.evidence.budget import Decisions, Suspicion
from coalmine.evidence.figures import Figure
from coalmine.evidence.findings import Finding
from coalmine.evidence.run import Run
from coalmine.evidence.words import format_names


def _suspicions(run: Run) -> Iterator[Suspicion]:
    yield from exposure_suspicions(run)
    yield from control_suspicions(run)


def _findings(run: Run, decided: Decisions) -> Iterator[Finding]:
    yield from exposure_findings(run, decided)
    yield from control_findings(run, decided)


def _remarks(run: Run) -> Iterator[Finding]:
    yield from data_findings(run)
    yield from no_control(run)


def _figures(run: Run) -> Iterator[Figure]:
    for figure in (exposure_figure(run), histogram_figure(run)):
        if figure is not None:
            yield figure


def _glossary(run: Run) -> dict[str, str]:
    """The format of each canary, by its template."""
    document = run.first(EXPOSURES)
    if document is None:
        return {}
    names = format_names(document.formats)
    return {
        one.canary_id: f"{one.format_id} is `{names[one.format_id]}`"
        for one in document.results
        if one.format_id in names
    }


EXPOSURE = Audit(
    name="exposure",
    command="coalmine expose",
    catalog=CATALOG,
    not_tested=NotTested(
        "CM901", "There is no exposure.json, so it is not known whether any canary was memorized."
    ),
    documents=(EXPOSURES,),
    suspicions=_suspicions,
    # There are many single canaries, and one that is memorized must not be missed.
    weights={"canary": 4.0},
    findings=_findings,
    remarks=_remarks,
    glossary=_glossary,
    replies=lambda findings: [exposure_reply(findings)],
    figures=_figures,
    details=exposure_details,
    policy=policy.SECTION,
    incomplete=left_unmeasured,
    incomplete_settle=policy.incomplete_settle,
)
