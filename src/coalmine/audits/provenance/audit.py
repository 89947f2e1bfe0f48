"""The provenance audit, as reports see it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from coalmine.audits.provenance import policy
from coalmine.audits.provenance.catalog import CATALOG
from coalmine.audits.provenance.data_findings import provenance_data_findings
from coalmine.audits.provenance.figures import provenance_figures
from coalmine.audits.provenance.findings import CODES, KNOWN, provenance_findings, provenance_suspicions
from coalmine.audits.provenance.fit_results import FITS
from coalmine.audits.provenance.interpretation import WHOM, blind_of
from coalmine.audits.provenance.naming import names_of_users
from coalmine.audits.provenance.results import PROVENANCES, Asks, Provenance, Question
from coalmine.audits.provenance.table import in_plain_words, question_title, strongest_first
from coalmine.evidence.audit import Audit, NotTested
from coalmine.evidence.details import Detail, Search
from coalmine.evidence.findings import Finding, beyond_chance, first
from coalmine.evidence.replies import RECOGNIZED, TRAINED_ON, Reply, Tone
from coalmine.evidence.run import Run

SECTION = "Users"
# What is said where nobody is found beyond chance, and where nothing could be measured.
_NOBODY, _UNKNOWN = "Nobody was found", "Cannot be said"


def _replies(findings: Sequence[Finding]) -> Iterator[Reply]:
    """Who is found, and whether what is known to be training data is recognized; nobody found does not mean that nothing was used."""
    yield from _of_known(findings)
    yield from _of_suspects(findings)


def _of_known(findings: Sequence[Finding]) -> Iterator[Reply]:
    found = beyond_chance(findings, KNOWN)
    if found is not None:
        tone: Tone = "bad" if found.severity == "high" else "warn"
        yield Reply(RECOGNIZED, _found_in_words(found, "Yes: ", "Yes, taken together"), found.evidence, tone)
        return
    one = first(findings, KNOWN, "not_measured")
    if one is not None:
        spoiled = _spoiled(findings)
        yield (
            Reply(RECOGNIZED, "Not shown", one.evidence, "open")
            if spoiled is None
            else Reply(RECOGNIZED, _UNKNOWN, spoiled.evidence, "open")
        )


def _found_in_words(found: Finding, before: str, together: str) -> str:
    share = found.estimates[0]
    count = round((share.value or 0.0) * share.n)
    return f"{before}{count:,} of {share.n:,}" if count else together


def _spoiled(findings: Sequence[Finding]) -> Finding | None:
    """What is wrong with the data that was compared, if that is so much that nothing can be said."""
    for code in ("CM611", "CM612", "CM615"):
        spoiled = beyond_chance(findings, code)
        if spoiled is not None and spoiled.severity == "medium":
            return spoiled
    return None


def _of_suspects(findings: Sequence[Finding]) -> Iterator[Reply]:
    for code in CODES.values():
        found = beyond_chance(findings, code)
        if found is not None:
            answer = _found_in_words(found, "Found: ", "Somebody's who was asked about")
            yield Reply(TRAINED_ON, answer, found.evidence, "bad")
            return
    spoiled = _spoiled(findings)
    if spoiled is not None and all(
        first(findings, KNOWN, status) is None for status in ("found", "not_measured")
    ):
        yield Reply(TRAINED_ON, _UNKNOWN, spoiled.evidence, "open")
        return
    for code, answer in (
        (CODES["texts"], _NOBODY),
        (CODES["user"], _NOBODY),
        ("CM617", _UNKNOWN),
        ("CM618", _UNKNOWN),
    ):
        one = first(findings, code, "not_measured")
        if one is not None:
            yield Reply(TRAINED_ON, answer, one.evidence, "open")
            return


def _sentences(findings: Sequence[Finding]) -> Iterator[str]:
    if beyond_chance(findings, CODES["texts"]) is not None:
        yield "Text of suspects was used to train it."
    elif beyond_chance(findings, CODES["user"]) is not None:
        yield "Suspects took part in its training."
    if beyond_chance(findings, KNOWN) is not None:
        yield "Its training data can be told from other text."


def _details(run: Run, reveal: bool) -> Iterator[Detail]:
    """Users and statistics of each question, and what was checked about the data; names are masked unless the report reveals them."""
    for _, document in run.all(PROVENANCES):
        for question in document.questions:
            yield _users(document, question, reveal)
            yield _statistics(question)
            yield from _blind(document, question.asks)


def _users(document: Provenance, question: Question, reveal: bool) -> Detail:
    names, by = names_of_users(document, reveal=reveal), document.settings.by
    decisions = list(dict.fromkeys(row.decision for row in question.rows))
    return Detail(
        section=SECTION,
        title=question_title(question),
        note=" ".join(in_plain_words(document, question)),
        columns=(
            by,
            "decision",
            "score",
            "p-value",
            "adjusted p-value",
            "texts",
            "tokens",
            "unknown words",
            "because",
        ),
        rows=[
            (
                names[row.user],
                row.decision,
                row.score,
                row.p_value,
                row.adjusted_p_value,
                row.texts,
                row.tokens,
                row.unknown_tokens,
                row.why,
            )
            for row in strongest_first(question)
        ],
        caption=f"{by.capitalize()}s, the strongest evidence first",
        search=Search(
            name=f"{by}s-{question.asks}",
            column="decision",
            label="Decision",
            choices={one: one for one in decisions},
        ),
    )


def _statistics(question: Question) -> Detail:
    rows: list[tuple[Any, ...]] = []
    for one in question.statistics:
        truth = one.detection
        rates = (None, None, None, None)
        if truth is not None:
            rates = tuple(  # type: ignore[assignment]  # four of them
                rate.statement for rate in (truth.auc, truth.accuracy, truth.precision, truth.recall)
            )
        rows.append(
            (one.name, one.decides, one.calibrated, one.found, one.p_value, *rates, one.not_applicable)
        )
    columns = (
        "statistic",
        "decides",
        "calibrated on",
        "found",
        "p-value of all",
        "AUC",
        "accuracy",
        "precision",
        "recall",
    )
    return Detail(
        section=SECTION,
        title=f"Statistics: {question_title(question)}",
        columns=(*columns, "not applicable"),
        rows=rows,
        caption="Statistics and what each found",
    )


def _blind(document: Provenance, asks: Asks) -> Iterator[Detail]:
    blind = blind_of(document, asks)
    if blind is None:
        return
    every = [
        ("all together", blind.auc, blind.p_value),
        *((one.name, one.auc, one.p_value) for one in blind.groups),
    ]
    yield Detail(
        section=SECTION,
        title=f"Telling {WHOM[asks]} from non-members without any model",
        note="If words, lengths, dates or numbers of texts tell the two groups apart, a model is not needed to do so, and its scores say "
        "nothing about training.",
        columns=("by", "AUC", "low", "high", "p-value", "statement"),
        rows=[(name, auc.value, auc.low, auc.high, p_value, auc.statement) for name, auc, p_value in every],
        caption="The blind baseline" if asks == "texts" else "The blind baseline of other texts",
    )


PROVENANCE = Audit(
    name="provenance",
    command="coalmine provenance",
    catalog=CATALOG,
    not_tested=NotTested(
        "CM905", "There is no provenance.json, so it is not known whose data the model was trained on."
    ),
    documents=(PROVENANCES, FITS),
    # Shadow models alone say nothing about the target.
    is_tested=lambda run: bool(run.all(PROVENANCES)),
    suspicions=provenance_suspicions,
    findings=provenance_findings,
    remarks=provenance_data_findings,
    replies=_replies,
    sentences=_sentences,
    figures=provenance_figures,
    details=_details,
    policy=policy.SECTION,
    incomplete=policy.incomplete,
    incomplete_settle=policy.settle_incomplete,
)
