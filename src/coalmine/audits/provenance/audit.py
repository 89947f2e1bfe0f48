"""The provenance audit, as reports see it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from coalmine.audits.provenance import policy
from coalmine.audits.provenance.catalog import CATALOG
from coalmine.audits.provenance.data_findings import provenance_data_findings
from coalmine.audits.provenance.findings import (
    CODES,
    KNOWN,
    NOT_SAID,
    provenance_findings,
    provenance_suspicions,
)
from coalmine.audits.provenance.fit import FITS
from coalmine.audits.provenance.records import PROVENANCES
from coalmine.audits.provenance.report import RULES, details, figures, measures
from coalmine.evidence.audit import Audit, NotTested
from coalmine.evidence.findings import Finding, first
from coalmine.evidence.replies import RECOGNIZED, TRAINED_ON, Reply, Tone, Topic

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
    figures=figures,
    details=details,
    policy=policy.SECTION,
    measures=measures,
    rules=RULES,
    incomplete=policy.incomplete,
    incomplete_settle=policy.settle_incomplete,
)
