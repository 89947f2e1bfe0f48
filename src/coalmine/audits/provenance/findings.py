"""The findings about provenance: whose text was used for training, within the error budget of the report; nobody is ever cleared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from coalmine.audits.provenance.catalog import finding
from coalmine.audits.provenance.deciding import not_interpretable, person_words, power_of
from coalmine.audits.provenance.records import (
    PROVENANCES,
    Asks,
    Provenance,
    Question,
    StatisticFacts,
    UserRow,
)
from coalmine.audits.provenance.users import counted, listed
from coalmine.evidence.budget import Decisions, Key, Suspicion, decide
from coalmine.evidence.findings import Finding, Severity
from coalmine.evidence.run import Run
from coalmine.records import Estimate

KIND = "provenance"
CODES: dict[Asks, str] = {"texts": "CM601", "user": "CM602"}
# The code in place of these where all suspects are known to be in the training data: what is found is that the model gives them away.
KNOWN = "CM603"
# The share of known members, by its lower limit, from which on being recognized is severe.
MANY = 0.1
# What nobody is known to have done, if a question has no answer.
_DONE: dict[Asks, str] = {"texts": "their texts were not used", "user": "they did not take part"}
NOT_SAID: dict[Asks, str] = {
    "texts": "Whether text of suspects was used cannot be said",
    "user": "Whether suspects took part cannot be said",
}
_NOBODY: dict[Asks, str] = {
    "texts": "It is not shown that text of suspects was used",
    "user": "It is not shown that suspects took part",
}
_NOT_SHOWN_OF_KNOWN = "It is not shown that training data can be told from other text"
_NOT_SAID_OF_KNOWN = "Whether training data can be told from other text cannot be said"


def _are_known(question: Question) -> bool:
    """Whether all suspects are known to be in the training data."""
    truth = None if question.deciding is None else question.deciding.detection
    return truth is not None and truth.members > 0 and truth.non_members == 0


def code_of(question: Question) -> str:
    """The code of what a question finds."""
    return KNOWN if _are_known(question) else CODES[question.asks]


def _severity(question: Question) -> Severity:
    """Of users or documents that are found by name; of known members, by how many there are."""
    truth = None if question.deciding is None else question.deciding.detection
    if truth is None or not _are_known(question):
        return "high"
    return "high" if (truth.recall.low or 0.0) >= MANY else "medium"


def provenance_suspicions(run: Run) -> Iterator[Suspicion]:
    """Each question with p-values, as a test that no suspect's text was used; not where the scores cannot be interpreted."""
    for number, (_, document) in enumerate(run.all(PROVENANCES)):
        yield from _suspicions(document, number)


def _suspicions(document: Provenance, number: int) -> Iterator[Suspicion]:
    for question in document.questions:
        deciding = question.deciding
        if (
            deciding is not None
            and deciding.p_value is not None
            and not not_interpretable(document, question.asks)
        ):
            yield Suspicion(KIND, _key(number, question), deciding.p_value)


def shown_by_itself(document: Provenance, question: Question) -> bool:
    """Whether a report of this result alone would say that chance does not explain the scores."""
    return decide(_suspicions(document, 0)).shown(KIND, *_key(0, question))


def _key(number: int, question: Question) -> Key:
    return (str(number), question.asks)


def provenance_findings(run: Run, decided: Decisions) -> Iterator[Finding]:
    """Who is found by each question; or why that cannot be said."""
    for number, (_, document) in enumerate(run.all(PROVENANCES)):
        for question in document.questions:
            reasons = not_interpretable(document, question.asks)
            key = _key(number, question)
            yield from _answer(document, question, reasons, decided.shown(KIND, *key))
            yield from _unmeasured(document, question)
        few = {
            _few(document, one, decided.levels.get((KIND, _key(number, one)))) for one in document.questions
        }
        yield from (finding("CM616", "info", "found", evidence) for evidence in sorted(few - {""}))


def _answer(
    document: Provenance, question: Question, reasons: Sequence[str], shown: bool
) -> Iterator[Finding]:
    deciding = question.deciding
    if deciding is None or deciding.calibrated == "nothing":
        yield finding("CM618", "info", "not_measured", _nothing_words(document, question))
    elif deciding.calibrated == "shadows":
        yield finding("CM617", "info", "not_measured", _shadow_words(document, question, deciding))
    elif reasons:
        evidence = f"{'; '.join(reasons)[:1].upper()}{'; '.join(reasons)[1:]}. So the scores of {_whom(document, question)} say nothing."
        title = _NOT_SAID_OF_KNOWN if _are_known(question) else _titled(document, NOT_SAID[question.asks])
        yield finding(code_of(question), "info", "not_measured", evidence, title=title)
    else:
        yield _judged(document, question, deciding, shown)


def _judged(document: Provenance, question: Question, deciding: StatisticFacts, shown: bool) -> Finding:
    settings, names, found = document.settings, document.names(), question.found()
    if settings.by == "person":
        return _judged_person(document, question, bool(found), shown)
    tested = sum(row.p_value is not None for row in question.rows)
    said = [names[row.user] for row in found]
    rate = f"a false-discovery rate of {100 * settings.fdr:g}%"
    against = f"by {deciding.name}, against {counted(len(deciding.non_member_scores), 'non-member')}"
    share = _share(len(found), tested, f"found at {rate}", settings.by)
    truth = _truth(deciding)
    say = partial(finding, code_of(question), estimates=[share, *truth], subject=said)
    nobody_title = _NOT_SHOWN_OF_KNOWN if _are_known(question) else _NOBODY[question.asks]
    chance = f"{deciding.p_value or 0.0:.2g}"
    together = f"If {_DONE[question.asks]}, scores this high, all taken together, would occur with probability {chance}."
    known = "".join(f" {one.statement[:1].upper()}{one.statement[1:]}." for one in truth)
    if found:
        evidence = f"{share.statement} {against}: {listed(said)}. {together}{known}"
        if shown:
            return say(_severity(question), "found", evidence)
        evidence += " Given everything that this report tests, that may be chance."
        return say("info", "not_measured", evidence, title=f"{nobody_title} beyond chance")
    nobody = f"None of {counted(tested, settings.by)} is found at {rate} {against}"
    if shown:
        return say("medium", "found", f"{nobody}. {together} So {some_of_them(document, question)}.{known}")
    evidence = f"{nobody}; the smallest adjusted p-value is {_smallest(question):.2g}.{_power(document, question)} That does not show that "
    if _are_known(question):
        return say("info", "not_measured", f"{evidence}they cannot be recognized.{known}", title=nobody_title)
    return say("info", "not_measured", f"{evidence}{_DONE[question.asks]}.{known}", title=nobody_title)


def _judged_person(document: Provenance, question: Question, found: bool, shown: bool) -> Finding:
    """The one answer about all texts of a person."""
    evidence = " ".join(person_words(document, question, shown=shown))
    say = partial(finding, code_of(question), subject=[])
    share = _share(int(found), 1, "found", "person")
    if found and shown:
        title = "Text of this person was used for training"
        return say("high", "found", evidence, estimates=[share], title=title)
    title = _titled(document, _NOBODY[question.asks]) + (" beyond chance" if found else "")
    return say("info", "not_measured", evidence, estimates=[share], title=title)


def _titled(document: Provenance, title: str) -> str:
    return title.replace("suspects", "this person") if document.settings.by == "person" else title


def some_of_them(document: Provenance, question: Question) -> str:
    """What follows where they stand out together and none by itself."""
    if _are_known(question):
        return f"the model gives some of these {document.settings.by}s away, and it cannot be said which"
    if document.settings.by == "document":
        return "some of these documents were used, and it cannot be said which"
    done = (
        "texts of some of these users were used"
        if question.asks == "texts"
        else "some of these users took part"
    )
    return f"{done}, and it cannot be said whose"


def _share(count: int, tested: int, what: str, by: str) -> Estimate:
    """How many of these users are found, which was counted and not estimated."""
    return Estimate(
        method="suspects found",
        status="measured",
        value=count / max(1, tested),
        low=count / max(1, tested),
        high=count / max(1, tested),
        confidence=None,
        n=tested,
        statement=f"{count:,} of {counted(tested, by)} {'is' if count == 1 else 'are'} {what}",
    )


def _smallest(question: Question) -> float:
    return min(
        (row.adjusted_p_value for row in question.rows if row.adjusted_p_value is not None), default=1.0
    )


def _truth(deciding: StatisticFacts) -> list[Estimate]:
    """How well members were found, where the truth is known."""
    truth = deciding.detection
    if truth is None:
        return []
    return [one for one in (truth.recall, truth.precision, truth.auc) if one.status == "measured"]


def _power(document: Provenance, question: Question) -> str:
    power = power_of(question, document.settings.fdr)
    return "" if power is None else f" {power.words(document.settings.by)}"


def _whom(document: Provenance, question: Question) -> str:
    return counted(len(question.rows), document.settings.by)


def _shadow_words(document: Provenance, question: Question, deciding: StatisticFacts) -> str:
    asked = "" if len(document.questions) == 1 else f" (question {question.asks!r})"
    return (
        f"{deciding.found or 0:,} of {_whom(document, question)} are on the member side of the audit classifier{asked}. There are no known "
        "non-members to compare them with, so there is no p-value, and it is not known how many of them are there by mistake."
    )


def _nothing_words(document: Provenance, question: Question) -> str:
    asked = "" if len(document.questions) == 1 else f", question {question.asks!r}"
    about = f"Nothing can be said about {_whom(document, question)}{asked}"
    if question.deciding is not None and all(row.score is None for row in question.rows):
        return f"{about}: none of them could be measured."
    if question.deciding is not None and question.non_members:
        return f"{about}: none of {counted(question.non_members, 'non-member')} could be measured."
    if question.deciding is not None:
        return f"{about}: there are no non-members to compare scores of {question.deciding.name} with."
    wanted = document.settings.statistic
    why = [
        f"{one.name}: {one.not_applicable}"
        for one in question.statistics
        if one.not_applicable is not None and wanted in {None, one.name}
    ]
    return f"{about}: no statistic could be computed ({'; '.join(why)})."


def _few(document: Provenance, question: Question, level: float | None) -> str:
    """What so few non-members can show, to the audit and to this report; empty where they can show anything."""
    power = power_of(question, document.settings.fdr)
    if power is None:
        return ""
    evidence = power.words(document.settings.by)
    needed = 0 if level is None else power.needed_for_all_together(level)
    if power.non_members < needed:
        return f"{evidence} A finding of this report takes a p-value of {level:.2g} or less, and for that at least {needed:,} non-members."
    if power.fewest is None:
        return evidence
    if power.fewest == 1:
        return ""
    return (
        f"{evidence} It takes {power.needed_for_one:,} non-members to find one {document.settings.by} alone."
    )


def _unmeasured(document: Provenance, question: Question) -> Iterator[Finding]:
    """Users of whom the model says nothing, where it does of others."""
    names = document.names()
    missing = [row for row in question.rows if row.score is None]
    if question.deciding is None or not missing:
        return
    by_reason: dict[str, list[UserRow]] = {}
    for row in missing:
        by_reason.setdefault(row.why or "no reason is given", []).append(row)
    told = "; ".join(f"{listed([names[row.user] for row in rows])}: {why}" for why, rows in by_reason.items())
    yield finding(
        "CM618",
        "info",
        "not_measured",
        f"{len(missing):,} of {_whom(document, question)} could not be measured. {told[:1].upper()}{told[1:]}.",
        subject=[names[row.user] for row in missing],
        title="Users who could not be measured",
    )
