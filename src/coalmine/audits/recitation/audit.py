"""The recitation audit, as reports see it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coalmine.audits.recitation import policy
from coalmine.audits.recitation.figures import recitation_figures
from coalmine.audits.recitation.findings import (
    CATALOG,
    no_baseline,
    recitation_findings,
    recitation_suspicions,
)
from coalmine.audits.recitation.results import RECITATIONS
from coalmine.evidence.audit import Audit, NotTested
from coalmine.evidence.details import Detail
from coalmine.evidence.findings import Finding, first
from coalmine.evidence.run import Run
from coalmine.evidence.words import hidden


def _sentences(findings: Sequence[Finding]) -> Iterator[str]:
    recited = first(findings, "CM401", "found")
    if recited is not None and recited.severity in {"critical", "high", "medium"}:
        yield "It recites training data."


def _details(run: Run, reveal: bool) -> Iterator[Detail]:
    """Examples of recited text, masked unless both this report and `coalmine recite` were asked to reveal it."""
    document = run.first(RECITATIONS)
    if document is None or not document.examples:
        return

    def text(given: str) -> str:
        return given if reveal and document.revealed else hidden(given)[:60]

    yield Detail(
        section="Texts",
        title="Examples of what is recited",
        columns=("copies", "context", "prompt", "recited", "by"),
        rows=[
            (one.copies, one.context, text(one.prompt), text(one.suffix), ", ".join(one.recited_by))
            for one in document.examples
        ],
        caption="Examples of recited text",
    )


RECITATION = Audit(
    name="recitation",
    command="coalmine recite",
    catalog=CATALOG,
    not_tested=NotTested(
        "CM904", "There is no recitation.json, so it is not known how much training text is recited."
    ),
    documents=(RECITATIONS,),
    suspicions=recitation_suspicions,
    findings=recitation_findings,
    remarks=no_baseline,
    sentences=_sentences,
    figures=recitation_figures,
    policy=policy.SECTION,
    details=_details,
)
