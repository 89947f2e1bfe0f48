"""The exposure audit, as reports see it."""

from __future__ import annotations

from collections.abc import Iterator

from coalmine.audits.exposure import policy
from coalmine.audits.exposure.control_findings import control_findings, control_suspicions
from coalmine.audits.exposure.coverage import left_unmeasured
from coalmine.audits.exposure.data_findings import data_findings
from coalmine.audits.exposure.figures import exposure_figure
from coalmine.audits.exposure.findings import exposure_findings, exposure_suspicions, no_control
from coalmine.audits.exposure.histogram_figure import histogram_figure
from coalmine.audits.exposure.results import EXPOSURES
from coalmine.evidence.audit import Audit, NotTested
from coalmine.evidence.budget import Decisions, Suspicion
from coalmine.evidence.figures import Figure
from coalmine.evidence.findings import Finding
from coalmine.evidence.run import Run


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


EXPOSURE = Audit(
    name="exposure",
    command="coalmine expose",
    not_tested=NotTested(
        "CM901", "There is no exposure.json, so it is not known whether any canary was memorized."
    ),
    documents=(EXPOSURES,),
    suspicions=_suspicions,
    findings=_findings,
    remarks=_remarks,
    figures=_figures,
    policy=policy.SECTION,
    incomplete=left_unmeasured,
    incomplete_settle=policy.incomplete_settle,
)
