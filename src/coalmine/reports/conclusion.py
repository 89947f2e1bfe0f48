"""`conclusion_of`: the first screen of a report, from its findings; and `reported`: runs as every form of a report shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from coalmine.audits.registry import COMPARISONS, audits
from coalmine.evidence.charts import Chart
from coalmine.evidence.measures import Status
from coalmine.evidence.run import Run, names_of
from coalmine.evidence.tables import AcrossRuns
from coalmine.reports.catalog import catalog
from coalmine.reports.findings import Finding, findings_of

Tone = Literal["bad", "warn", "open", "good"]
# The worst first.
TONES: tuple[Tone, ...] = ("bad", "warn", "open", "good")
_TONE_OF: dict[str, Tone] = {
    "critical": "bad",
    "high": "bad",
    "medium": "warn",
    "low": "warn",
    "info": "open",
    "pass": "good",
}
TO_DO = "What should I do?"
# The verdict where no finding has a sentence for it.
_NO_LEAK = {
    "good": "No leak was found in what was tested.",
    "open": "What was tested shows no leak, and does not rule one out.",
    "none": "It cannot be said whether it leaks: what was tested neither shows a leak nor rules one out.",
}
_NOTHING_TESTED = "Nothing was tested, so it is not known what the model remembers."
_TO_DO_FIRST = {
    "critical": "Do not release it",
    "high": "Reduce what it remembers",
    "medium": "Look closer",
}


class Answer(NamedTuple):
    """The answer to a question of the first screen, in a few words and in a sentence."""

    question: str
    answer: str
    detail: str
    tone: Tone


class Conclusion(NamedTuple):
    """The verdict in a sentence or two, and an answer to each question that was asked; the last one says what to do."""

    sentence: str
    tone: Tone
    answers: tuple[Answer, ...]


def conclusion_of(findings: Sequence[Finding]) -> Conclusion:
    """What the findings amount to; nothing that was not tested or not measured is called safe.

    Each question has the answer of its worst finding. One that was not tested is left out where others were, but for those about canaries.
    """
    worst = {one.question: one for one in reversed(findings) if one.answer}
    order = dict.fromkeys(entry.question for entry in catalog().values())
    asked = [worst[question] for question in order if question in worst]
    tested = [one for one in asked if one.status != "not_tested"]
    # Of two questions about canaries, one that was not tested is said beside the other.
    first_steps = {entry.question for entry in catalog().values() if entry.first_step}
    about_canaries = any(one.question in first_steps for one in tested)
    asked = [
        one for one in asked if one in tested or (about_canaries and one.question in first_steps)
    ] or asked
    spoiled = next((one for one in findings if one.discredits == "report"), None)
    doubted = next((one for one in findings if one.discredits == "good news"), None)
    doubt = "" if doubted is None else catalog()[doubted.key].verdict
    answers = [_answer(one, doubt) for one in asked]
    if spoiled is not None:
        to_do = Answer(TO_DO, "Mend the measurement", spoiled.advice, "bad")
        return Conclusion(_with_doubt(catalog()[spoiled.key].verdict, doubt), "bad", (*answers, to_do))
    tone: Tone = min((one.tone for one in answers), key=TONES.index, default="open")
    said = [one.sentence for one in asked if one.sentence and not (doubt and one.severity == "pass")]
    sentence = " ".join(dict.fromkeys(said))
    if not sentence:
        some = "open" if any(one.tone == "good" for one in answers) else "none"
        nothing = all(one.status == "not_tested" for one in findings)
        sentence = _NOTHING_TESTED if nothing else _NO_LEAK["good" if tone == "good" else some]
    return Conclusion(_with_doubt(sentence, doubt), tone, (*answers, _to_do(findings)))


def _with_doubt(sentence: str, doubt: str) -> str:
    return f"{sentence} But {doubt}" if doubt else sentence


def _answer(one: Finding, doubt: str) -> Answer:
    """The answer that a finding gives; good news is open where there is a reason to doubt it."""
    tone = _TONE_OF[one.severity]
    if doubt and tone == "good":
        detail = f"{doubt[:1].upper()}{doubt[1:]} {one.evidence}"
        return Answer(one.question, "Cannot be said", detail, "open")
    return Answer(one.question, one.answer, one.evidence, tone)


def _to_do(findings: Sequence[Finding]) -> Answer:
    for one in findings:
        if one.status == "found" and one.severity in _TO_DO_FIRST:
            if one.discredits:
                return Answer(TO_DO, "Mend the measurement", one.advice, "warn")
            tone: Tone = "bad" if one.severity == "critical" else "warn"
            return Answer(TO_DO, _TO_DO_FIRST[one.severity], one.advice, tone)
    for one in findings:
        if one.status in {"not_measured", "not_tested"} and catalog()[one.key].first_step:
            return Answer(TO_DO, "Measure more", one.advice, "open")
    again = "Measure again whenever data, training or model change, with `coalmine check`."
    return Answer(TO_DO, "Keep measuring", again, "good")


STATUS_WORDS: dict[Status, str] = {
    "found": "found",
    "clear": "clear",
    "not_tested": "not tested",
    "not_measured": "could not be measured",
}
HEADINGS: dict[Status, str] = {
    "found": "What was found",
    "not_measured": "What could not be measured",
    "not_tested": "What was not tested",
    "clear": "What was looked for and not found",
}


class ReportedRun(NamedTuple):
    """A run with its findings and their conclusion."""

    name: str
    run: Run
    findings: tuple[Finding, ...]
    conclusion: Conclusion


def reported(runs: Sequence[Run]) -> list[ReportedRun]:
    """Runs with their findings and conclusions."""
    found = []
    for name, run in zip(names_of(runs), runs, strict=True):
        findings = findings_of(run)
        found.append(ReportedRun(name, run, findings, conclusion_of(findings)))
    return found


def findings_by_status(findings: Sequence[Finding]) -> dict[Status, list[Finding]]:
    """The findings of each status that there are any of, in the order of a report."""
    found = {status: [one for one in findings if one.status == status] for status in HEADINGS}
    return {status: these for status, these in found.items() if these}


def label(finding: Finding) -> str:
    """The severity of what was found, and the status of everything else."""
    return finding.severity if finding.status == "found" else STATUS_WORDS[finding.status]


def figures_of(run: Run) -> list[Chart]:
    """The figures of one run."""
    return [figure for audit in audits() for figure in audit.figures(run) if figure is not None]


def across_runs(runs: Sequence[Run]) -> list[AcrossRuns]:
    """What the runs show beside each other."""
    return [found for one in COMPARISONS if (found := one.across(runs)) is not None]


def comparing_figures(runs: Sequence[Run]) -> list[Chart]:
    """The figures that compare runs."""
    return [figure for one in across_runs(runs) for figure in one.figures]
