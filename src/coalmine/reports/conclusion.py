"""`conclusion_of`: the first screen of a report, from its findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from coalmine.audits.registry import audits, catalog
from coalmine.evidence.findings import Entry, Finding
from coalmine.evidence.replies import EXTRACTED, MEMORIZED, TONES, Reply, Tone, Topic

TO_DO = Topic("What should I do?", "")
_APART = "not all results belong to this model and these canaries."
# The verdict where no canaries were tested and no audit has a sentence for it.
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


class Conclusion(NamedTuple):
    """The verdict in a sentence, and the answers: about the canaries, about anything else that an audit replies to, and what to do."""

    sentence: str
    tone: Tone
    answers: tuple[Reply, ...]


def conclusion_of(findings: Sequence[Finding]) -> Conclusion:
    """What the findings amount to; nothing that was not tested or not measured is called safe.

    Questions about canaries are left out where none were tested and something else was.
    """
    # Why good news cannot be relied on: the first reason, since one is enough.
    doubt = next((e.verdict or _APART for _, e in _found(findings) if e.discredits == "good news"), None)
    # An audit without any finding, not even that it was not run, has nothing to reply.
    replies = [
        one
        for audit in audits()
        if any(found.code in audit.catalog for found in findings)
        for one in audit.replies(findings)
    ]
    topics = dict.fromkeys((MEMORIZED, EXTRACTED, *(one.topic for one in replies)))
    answers = [
        _to(topic, replies) if doubt is None else _of_doubtful_results(_to(topic, replies), doubt)
        for topic in topics
    ]
    # The worst first, since it is what a reader must not miss.
    about_canaries, others = answers[:2], sorted(answers[2:], key=lambda one: TONES.index(one.tone))
    if others and not any(one.tested for one in about_canaries):
        about_canaries = []
    shown = (*about_canaries, *others)
    broken = next((one for one in _found(findings) if discredits_report(one[0])), None)
    if broken is None:
        clauses = " ".join(one.clause or one.topic.open_clause for one in about_canaries)
        said = [
            *([f"{clauses}."] if clauses else []),
            *(one for audit in audits() for one in audit.sentences(findings)),
        ]
        to_do = _to_do(findings)
        tone = min((one.tone for one in shown), key=TONES.index)
        nothing = not any(one.tested for one in shown)
        some = "open" if any(one.tone == "good" for one in shown) else "none"
        sentences = said or [_NOTHING_TESTED if nothing else _NO_LEAK["good" if tone == "good" else some]]
    else:
        sentences = [broken[1].verdict]
        to_do = Reply(TO_DO, "Mend the measurement", broken[0].advice, "bad")
        tone = "bad"
    if doubt is not None:
        sentences.append(f"But {doubt}")
    return Conclusion(" ".join(sentences), tone, (*shown, to_do))


def discredits_report(found: Finding) -> bool:
    """Whether no number can be trusted because of this finding, in the report and in the gate alike; not where chance explains it."""
    return (
        catalog()[found.code].discredits == "report" and found.status == "found" and found.severity != "info"
    )


def _found(findings: Sequence[Finding]) -> Iterator[tuple[Finding, Entry]]:
    """What was found, each with the entry of its code."""
    return ((one, catalog()[one.code]) for one in findings if one.status == "found")


def _to(topic: Topic, replies: Sequence[Reply]) -> Reply:
    """The first reply to a question that accuses the model, otherwise the first there is."""
    these = [one for one in replies if one.topic == topic]
    nothing = Reply(topic, "Not tested", "No audit has an answer.", "open", tested=False)
    return next((one for one in these if one.accuses), these[0] if these else nothing)


def _of_doubtful_results(reply: Reply, doubt: str) -> Reply:
    """A reply that would be good news if the results belonged together is open if they do not."""
    if reply.tone != "good":
        return reply
    return Reply(reply.topic, "Cannot be said", f"{doubt[:1].upper()}{doubt[1:]} {reply.detail}", "open")


def _to_do(findings: Sequence[Finding]) -> Reply:
    for one, entry in _found(findings):
        if one.severity not in _TO_DO_FIRST:
            continue
        if entry.discredits != "nothing":
            return Reply(TO_DO, "Mend the measurement", one.advice, "warn")
        tone: Tone = "bad" if one.severity == "critical" else "warn"
        return Reply(TO_DO, _TO_DO_FIRST[one.severity], one.advice, tone)
    for one in findings:
        if one.status in {"not_measured", "not_tested"} and catalog()[one.code].first_step:
            return Reply(TO_DO, "Measure more", one.advice, "open")
    again = "Measure again whenever data, training or model change, with `coalmine check`."
    return Reply(TO_DO, "Keep measuring", again, "good")
