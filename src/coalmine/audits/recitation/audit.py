"""The recitation audit, as reports see it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coalmine.audits.recitation import policy, report
from coalmine.audits.recitation.display import recitation_figures
from coalmine.audits.recitation.findings import (
    CATALOG,
    no_baseline,
    recitation_findings,
    recitation_suspicions,
)
from coalmine.audits.recitation.records import RECITATIONS
from coalmine.evidence.audit import Audit, NotTested
from coalmine.evidence.details import Detail
from coalmine.evidence.findings import Finding, FindingStatus, first
from coalmine.evidence.replies import RECITED, Reply, Tone
from coalmine.evidence.run import Run
from coalmine.evidence.words import hidden

# The first of these findings that a report has is the reply, if the model is not shown to recite.
_OTHERWISE: tuple[tuple[FindingStatus, str, Tone], ...] = (
    ("found", "Hardly", "warn"),
    ("not_measured", "Not shown", "open"),
    ("clear", "Hardly any of it", "good"),
)


def _replies(findings: Sequence[Finding]) -> Iterator[Reply]:
    """How much training data is recited, wherever that was asked."""
    recited = _shown(findings)
    if recited is not None:
        answer = _share_in_words(recited)
        yield Reply(
            RECITED, f"Yes: {answer}", recited.evidence, "bad" if recited.severity == "high" else "warn"
        )
        return
    for status, answer, tone in _OTHERWISE:
        one = first(findings, "CM401", status)
        if one is not None:
            yield Reply(RECITED, answer, one.evidence, tone)
            return


def _shown(findings: Sequence[Finding]) -> Finding | None:
    recited = first(findings, "CM401", "found")
    return recited if recited is not None and recited.severity in {"critical", "high", "medium"} else None


def _share_in_words(recited: Finding) -> str:
    """The share of one model; of several, there is none that speaks for all."""
    value = recited.estimates[0].value if len(recited.subject) == 1 and recited.estimates else None
    return (
        "training text comes out" if value is None else f"{float(f'{100 * value:.2g}'):g}% of what was tried"
    )


def _sentences(findings: Sequence[Finding]) -> Iterator[str]:
    if _shown(findings) is None:
        return
    if first(findings, "CM909", "not_tested") is None:
        yield "It recites training data."
    else:
        yield "It recites training data, which without a baseline may be text that any model guesses."


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
    replies=_replies,
    sentences=_sentences,
    figures=recitation_figures,
    policy=policy.SECTION,
    measures=report.measures,
    rules=report.RULES,
    details=_details,
)
