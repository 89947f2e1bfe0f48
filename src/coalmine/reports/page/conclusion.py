"""The first screen of a report, from its findings: whether the canaries are memorized, whether they come out, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from coalmine.audits.exposure.chance import share
from coalmine.audits.exposure.findings import AND_MEASURED
from coalmine.evidence.findings import Finding
from coalmine.records import Estimate

Tone = Literal["bad", "warn", "good", "open"]


class Answer(NamedTuple):
    """A question that every reader has, with its answer in a few words and in a sentence."""

    question: str
    answer: str
    detail: str
    tone: Tone


class Conclusion(NamedTuple):
    """The verdict in a sentence, and three answers."""

    sentence: str
    tone: Tone
    answers: tuple[Answer, Answer, Answer]


def conclusion_of(findings: Sequence[Finding]) -> Conclusion:
    """What findings come to; nothing that was not tested or not measured is called safe."""
    apart = any(_first(findings, code, "found") is not None for code in _NOT_OF_THIS)
    memorized, extracted = (_doubted(one, apart) for one in (_memorized(findings), _extracted(findings)))
    broken = _first(findings, "CM105", "found")
    return Conclusion(
        sentence=_sentence(findings, memorized, extracted, broken is not None)
        + (" But not all results belong to this model and these canaries." if apart else ""),
        tone="bad" if broken is not None else _worse(memorized.tone, extracted.tone),
        answers=(memorized, extracted, _what_to_do(findings)),
    )


def _doubted(answer: Answer, apart: bool) -> Answer:
    """An answer that is good news only if the results belong together is open where they do not."""
    if not apart or answer.tone != "good":
        return answer
    detail = f"Not all results belong to this model and these canaries. {answer.detail}"
    return answer._replace(answer="Cannot be said", detail=detail, tone="open")


def _memorized(findings: Sequence[Finding]) -> Answer:
    question = "Did it memorize the canaries?"
    shown = [
        one for one in (_first(findings, code, "found") for code in ("CM101", "CM102")) if one is not None
    ]
    if shown:
        hits = sum(_hits(one.estimates[0]) for one in shown)
        total = shown[0].estimates[0].n
        partial = AND_MEASURED in shown[0].estimates[0].statement
        trained = AND_MEASURED if partial else "that were trained on"
        all_of_them = share(hits, total, f"{trained} {'is' if hits == 1 else 'are'} memorized")
        full = _first(findings, "CM101", "found")
        first = 0 if full is None else _hits(full.estimates[0])
        guess = (
            f"; {first:,} of them {'is' if first == 1 else 'are'} among the model's first two guesses"
            if first
            else ""
        )
        rest = _first(findings, "CM911", "not_measured") if partial else None
        detail = f"{all_of_them.statement}{guess}.{'' if rest is None else f' {rest.evidence}'}"
        answer = f"Yes: {hits:,} of {total:,}{' measured' if partial else ''}"
        return Answer(question, answer, detail, "bad")
    together = _first(findings, "CM103", "found")
    if together is not None:
        strongly = together.severity == "high"
        return Answer(
            question,
            "Yes, together" if strongly else "In part",
            together.evidence,
            "bad" if strongly else "warn",
        )
    other = _told_otherwise(findings)
    if other is not None:
        return other
    if _first(findings, "CM901", "not_tested") is not None:
        return Answer(question, "Not tested", "No exposures were measured.", "open")
    unmeasured = _first(findings, "CM911", "not_measured") or _first(findings, "CM104", "not_measured")
    if unmeasured is not None:
        return Answer(question, "Cannot be said", unmeasured.evidence, "open")
    clear = _first(findings, "CM104", "clear")
    if clear is not None:
        return Answer(question, "Not that can be seen", clear.evidence, "good")
    return Answer(question, "Cannot be said", "No canary that was trained on was measured.", "open")


def _told_otherwise(findings: Sequence[Finding]) -> Answer | None:
    """What searches and membership show of memorization, where the exposures show none."""
    question = "Did it memorize the canaries?"
    out = _found(findings, "CM201")
    if out is not None:
        hits, total = _hits(out.estimates[0]), out.estimates[0].n
        return Answer(question, f"Yes: {hits:,} of {total:,}", f"They came out of it. {out.evidence}", "bad")
    for code in ("CM301", "CM302", "CM304"):
        told = _found(findings, code)
        if told is not None:
            return Answer(question, "In part", told.evidence, "bad" if told.severity == "high" else "warn")
    return None


def _extracted(findings: Sequence[Finding]) -> Answer:
    question = "Can they be extracted?"
    out = _found(findings, "CM201")
    if out is not None:
        return Answer(
            question, f"Yes: {_hits(out.estimates[0]):,} of {out.estimates[0].n:,}", out.evidence, "bad"
        )
    for code, status, answer, tone in (
        ("CM203", "not_measured", "Not found, not proven", "open"),
        ("CM201", "found", "As chance explains", "open"),
        ("CM202", "not_measured", "None came out", "open"),
        ("CM202", "clear", "No, by this search", "good"),
        ("CM902", "not_tested", "Not tested", "open"),
    ):
        one = _first(findings, code, status)
        if one is not None:
            return Answer(question, answer, one.evidence, tone)  # type: ignore[arg-type]  # tones, by the list above
    return Answer(question, "Not tested", "Formats were searched, but no canaries were looked for.", "open")


def _what_to_do(findings: Sequence[Finding]) -> Answer:
    question = "What should I do?"
    broken = _first(findings, "CM105", "found")
    serious = [
        one for one in findings if one.status == "found" and one.severity in {"critical", "high", "medium"}
    ]
    if broken is not None:
        return Answer(question, "Mend the measurement", broken.advice, "bad")
    if serious:
        first = serious[0]
        if first.code in _AT_FAULT:
            return Answer(question, "Mend the measurement", first.advice, "warn")
        release = {
            "critical": "Do not release it",
            "high": "Reduce what it remembers",
            "medium": "Look closer",
        }
        return Answer(
            question, release[first.severity], first.advice, "bad" if first.severity == "critical" else "warn"
        )
    left = [
        one for one in findings if one.status in {"not_measured", "not_tested"} and one.code in _FIRST_STEPS
    ]
    if left:
        return Answer(question, "Measure more", left[0].advice, "open")
    return Answer(
        question,
        "Keep measuring",
        "Measure again whenever data, training or model change, with `coalmine check`.",
        "good",
    )


# The model was trained on other data, or a result is of other canaries: what is not seen may be there all the same.
_NOT_OF_THIS = ("CM501", "CM502", "CM503")
# Findings about the measurement and not about the model.
_AT_FAULT = frozenset({*_NOT_OF_THIS, "CM106", "CM205"})
# What has to be there before a report can say anything; the rest is welcome.
_FIRST_STEPS = frozenset({"CM901", "CM902", "CM911", "CM104", "CM203", "CM202"})


def _sentence(findings: Sequence[Finding], memorized: Answer, extracted: Answer, broken: bool) -> str:
    if broken:
        return "The measurement cannot be trusted: canaries that were never trained on look memorized."
    parts = []
    if memorized.tone == "bad" and memorized.answer.startswith("Yes: "):
        parts.append(f"The model memorized {memorized.answer.removeprefix('Yes: ')} canaries")
    elif memorized.tone == "bad":
        parts.append("The model memorized canaries")
    elif memorized.tone == "warn":
        parts.append("The model remembers its canaries in part")
    elif memorized.tone == "good":
        parts.append("There is no evidence that the model memorized the canaries")
    elif memorized.answer == "Not tested":
        parts.append("Whether the model memorized the canaries was not tested")
    else:
        parts.append("It cannot be said whether the model memorized the canaries")
    if extracted.tone == "bad":
        parts.append(f"and {extracted.answer.removeprefix('Yes: ')} can be extracted")
    elif extracted.tone == "good":
        parts.append("and none of them can be extracted by a search that is proven")
    elif extracted.answer == "Not tested":
        parts.append("and whether they can be extracted was not tested")
    else:
        parts.append("and it is not proven that none can be extracted")
    sentence = " ".join(parts) + "."
    claim = _first(findings, "CM303", "found")
    recited = _first(findings, "CM401", "found")
    if claim is not None:
        sentence += " The claimed epsilon is violated."
    if recited is not None and recited.severity in {"critical", "high", "medium"}:
        sentence += " It recites training data."
    return sentence


def _worse(one: Tone, other: Tone) -> Tone:
    order: tuple[Tone, ...] = ("bad", "warn", "open", "good")
    return min(one, other, key=order.index)


def _first(findings: Sequence[Finding], code: str, status: str) -> Finding | None:
    return next((one for one in findings if one.code == code and one.status == status), None)


def _found(findings: Sequence[Finding], code: str) -> Finding | None:
    """A finding with evidence beyond chance; what chance explains is found too, as a remark."""
    return next(
        (one for one in findings if one.code == code and one.status == "found" and one.severity != "info"),
        None,
    )


def _hits(share: Estimate) -> int:
    return round((share.value or 0.0) * share.n)
