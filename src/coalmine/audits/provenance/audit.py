"""The provenance audit, as reports see it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from coalmine.audits.provenance import policy
from coalmine.audits.provenance.catalog import CATALOG
from coalmine.audits.provenance.data_findings import provenance_data_findings
from coalmine.audits.provenance.deciding import cannot_be_decided, sides_of
from coalmine.audits.provenance.figures import provenance_figures
from coalmine.audits.provenance.findings import (
    CODES,
    KNOWN,
    NOT_SAID,
    provenance_findings,
    provenance_suspicions,
)
from coalmine.audits.provenance.fit import FITS
from coalmine.audits.provenance.records import PROVENANCES, Asks, Provenance, Question
from coalmine.audits.provenance.report import RULES, measures
from coalmine.audits.provenance.table import decision_of, in_plain_words, question_title, strongest_first
from coalmine.evidence.audit import Audit, NotTested
from coalmine.evidence.details import Detail, Search
from coalmine.evidence.findings import Finding, first
from coalmine.evidence.replies import RECOGNIZED, TRAINED_ON, Reply, Tone, Topic
from coalmine.evidence.run import Run

SECTION = "Users"
_UNKNOWN = "Cannot be said"
_FOUND = {
    CODES["texts"]: "Text of suspects was used to train it",
    CODES["user"]: "Suspects took part in its training",
    KNOWN: "Its training data can be told from other text",
}
# After an answer that another result of the same kind does not support, because it cannot be interpreted.
_ONE_ONLY = ", by one result; another cannot be interpreted"


def _replies(findings: Sequence[Finding]) -> Iterator[Reply]:
    """Who is found, and whether what is known to be training data is recognized; nobody found does not mean that nothing was used."""
    yield from _of_known(findings)
    yield from _of_suspects(findings)


def _of_known(findings: Sequence[Finding]) -> Iterator[Reply]:
    known = [one for one in findings if one.code == KNOWN]
    yield from _answer(RECOGNIZED, known, "Yes: ", "Yes, taken together", "Not shown")


def _of_suspects(findings: Sequence[Finding]) -> Iterator[Reply]:
    asked = _about_suspects(findings)
    # These texts and other texts of the same users are two questions, and an answer to one stands without the other.
    told = next((some for some in _by_code(asked) if _standing(some).found is not None), asked)
    yield from _answer(TRAINED_ON, told, "Found: ", "Somebody's who was asked about", "Nobody was found")
    unmeasured = _unmeasured(findings)
    if not asked and unmeasured is not None:
        yield Reply(TRAINED_ON, _UNKNOWN, unmeasured.evidence, "open")


def _unmeasured(findings: Sequence[Finding]) -> Finding | None:
    return first(findings, "CM617", "not_measured") or first(findings, "CM618", "not_measured")


def _about_suspects(findings: Sequence[Finding]) -> list[Finding]:
    return [one for some in _by_code(findings) for one in some]


def _by_code(findings: Sequence[Finding]) -> list[list[Finding]]:
    return [[one for one in findings if one.code == code] for code in CODES.values()]


class _Standing(NamedTuple):
    """Of the findings of several results about one thing: who is found, what may be chance, and what cannot be interpreted."""

    found: Finding | None
    chance: Finding | None
    unsaid: Finding | None


def _standing(findings: Sequence[Finding]) -> _Standing:
    found = next((one for one in findings if one.status == "found"), None)
    open_ones = [one for one in findings if one.status != "found"]
    chance = next((one for one in open_ones if one.estimates and one.estimates[0].value), None)
    return _Standing(found, chance, next((one for one in open_ones if not one.estimates), None))


def _answer(
    topic: Topic, findings: Sequence[Finding], before: str, together: str, nobody: str
) -> Iterator[Reply]:
    found, chance, unsaid = _standing(findings)
    if found is not None:
        share = found.estimates[0]
        count = round((share.value or 0.0) * share.n)
        answer = f"{before}{count:,} of {share.n:,}" if count else together
        tone: Tone = "warn" if found.code == KNOWN and found.severity != "high" else "bad"
        if unsaid is None:
            yield Reply(topic, answer, found.evidence, tone)
        else:
            yield Reply(topic, answer + _ONE_ONLY, f"{found.evidence} {unsaid.evidence}", tone)
    elif unsaid is not None:
        yield Reply(topic, _UNKNOWN, unsaid.evidence, "open")
    elif chance is not None:
        yield Reply(topic, "Not beyond chance", chance.evidence, "open")
    elif findings:
        yield Reply(topic, nobody, findings[0].evidence, "open")


def _sentences(findings: Sequence[Finding]) -> Iterator[str]:
    for some in (*_by_code(findings), [one for one in findings if one.code == KNOWN]):
        found, chance, unsaid = _standing(some)
        if found is not None:
            yield f"{_FOUND[found.code]}{'' if unsaid is None else _ONE_ONLY}."
        elif unsaid is not None:
            yield f"{unsaid.title}."
        elif chance is not None:
            yield f"{chance.title}."
    if (
        not any(one.code in {*CODES.values(), KNOWN} for one in findings)
        and _unmeasured(findings) is not None
    ):
        yield f"{NOT_SAID['texts']}."


def _details(run: Run, reveal: bool) -> Iterator[Detail]:
    """Users and statistics of each question, and what was checked about the data; names are masked unless the report reveals them."""
    for _, document in run.all(PROVENANCES):
        for question in document.questions:
            yield _users(document, question, reveal)
            yield _statistics(document, question)
            yield from _blind(document, question.asks)


def _users(document: Provenance, question: Question, reveal: bool) -> Detail:
    names, by = document.names(reveal=reveal), document.settings.by
    decide = decision_of(document, question)
    decisions = list(dict.fromkeys(decide(row) for row in question.rows))
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
                decide(row),
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


def _statistics(document: Provenance, question: Question) -> Detail:
    said = not cannot_be_decided(document, question)
    rows: list[tuple[Any, ...]] = []
    for one in question.statistics:
        truth = one.detection
        rates = (None, None, None, None)
        if truth is not None:
            rates = tuple(  # type: ignore[assignment]  # four of them
                rate.statement for rate in (truth.auc, truth.accuracy, truth.precision, truth.recall)
            )
        rows.append(
            (
                one.name,
                one.decides,
                one.calibrated,
                one.found,
                one.p_value if said else None,
                *rates,
                one.not_applicable,
            )
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
    blind = document.blind(asks)
    if blind is None:
        return
    every = [
        ("all together", blind.auc, blind.p_value),
        *((one.name, one.auc, one.p_value) for one in blind.groups),
    ]
    yield Detail(
        section=SECTION,
        title="Telling {} from {} without any model".format(*sides_of(document, asks)),
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
    measures=measures,
    rules=RULES,
    incomplete=policy.incomplete,
    incomplete_settle=policy.settle_incomplete,
)
