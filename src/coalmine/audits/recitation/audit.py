"""The recitation audit, as reports see it."""

from __future__ import annotations

from collections.abc import Iterator

from coalmine.audits.recitation import report
from coalmine.audits.recitation.display import recitation_figures
from coalmine.audits.recitation.records import RECITATIONS
from coalmine.evidence.audit import Audit
from coalmine.evidence.details import Detail
from coalmine.evidence.run import Run
from coalmine.evidence.words import hidden


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
    documents=(RECITATIONS,),
    measures=report.measures,
    rules=report.RULES,
    figures=recitation_figures,
    details=_details,
)
