"""Tables and sentences about provenance: one row per user and one per statistic, with names masked unless they are revealed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from coalmine.audits.provenance.deciding import (
    cannot_be_decided,
    not_interpretable,
    person_words,
    power_of,
)
from coalmine.audits.provenance.findings import shown_by_itself, some_of_them
from coalmine.audits.provenance.records import Asks, Provenance, Question, StatisticFacts, UserRow
from coalmine.audits.provenance.users import counted
from coalmine.evidence.tables import Right, plain_table, rights
from coalmine.records import Estimate
from coalmine.visible import visible

if TYPE_CHECKING:
    from rich.table import Table

# The most users that a terminal shows for each question.
MOST_ROWS = 30
ASKS: dict[Asks, str] = {
    "texts": "Are these very texts in it?",
    "user": "Did these users take part, by other texts of theirs?",
}


def question_title(question: Question) -> str:
    """What was asked, in words."""
    if question.own_texts is not None:
        return "Were texts of this person used to train it?"
    return ASKS[question.asks]


def strongest_first(question: Question) -> list[UserRow]:
    """Users by their p-value, then by their score; those who could not be measured last."""

    def place(row: UserRow) -> tuple[float, float]:
        return (
            math.inf if row.p_value is None else row.p_value,
            math.inf if row.score is None else -row.score,
        )

    return sorted(question.rows, key=place)


def decision_of(document: Provenance, question: Question) -> Callable[[UserRow], str]:
    """What is decided about each user, given everything that is known about the question."""
    instead = {}
    if question.deciding is not None and question.deciding.calibrated == "shadows":
        instead = {"found": "member side", "not found": "other side"}
    elif not shown_by_itself(document, question):
        instead = {"found": "may be chance"}
    return lambda row: instead.get(row.decision, row.decision)


def users_table(
    document: Provenance, question: Question, *, reveal: bool = False, most: int = MOST_ROWS
) -> Table:
    """The users with the strongest evidence, one row each; `more_users` says how many are left out."""
    names = document.names(reveal=reveal)
    table = plain_table(
        document.settings.by, "decision", *rights("score", "p", "adjusted p", "texts", "tokens"), ""
    )
    decide = decision_of(document, question)
    for row in strongest_first(question)[:most]:
        table.add_row(
            names[row.user],
            decide(row),
            "" if row.score is None else f"{row.score:.4g}",
            _p_value(row.p_value),
            _p_value(row.adjusted_p_value),
            f"{row.texts:,}",
            f"{row.tokens:,}",
            "" if row.why is None else visible(row.why),
        )
    return table


def more_users(document: Provenance, question: Question, *, most: int = MOST_ROWS) -> str | None:
    """How many users the table leaves out; None where it has all of them."""
    more = len(question.rows) - most
    return None if more <= 0 else f"And {counted(more, document.settings.by)} more, in provenance.json."


def statistics_table(document: Provenance, question: Question) -> Table:
    """Each statistic with what it found: how well, where the truth is known, or why it could not be computed.

    Nobody is found, and nothing is probable or not, by scores that cannot be interpreted.
    """
    said = not cannot_be_decided(document, question)
    known = any(one.detection is not None for one in question.statistics)
    rates = ("AUC", "accuracy", "precision", "recall") if known else ()
    table = plain_table("statistic", Right("found"), *rights("p of all", *rates), "")
    for one in question.statistics:
        table.add_row(
            one.name,
            _found(one, question),
            _p_value(one.p_value) if said else "",
            *_rates(one, known=known),
            _remark(one),
        )
    return table


def _found(one: StatisticFacts, question: Question) -> str:
    if one.found is None:
        return ""
    return f"{one.found:,} of {sum(row.scores.get(one.name) is not None for row in question.rows):,}"


def _rates(one: StatisticFacts, *, known: bool) -> list[str]:
    truth = one.detection
    if not known:
        return []
    rates = [None] * 4 if truth is None else [truth.auc, truth.accuracy, truth.precision, truth.recall]
    return [_rate(rate) for rate in rates]


def _rate(estimate: Estimate | None) -> str:
    if estimate is None or estimate.value is None or estimate.low is None or estimate.high is None:
        return ""
    return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"


def _remark(one: StatisticFacts) -> str:
    if one.not_applicable is not None:
        return f"not applicable: {visible(one.not_applicable)}"
    calibrated = {
        "non-members": "",
        "shadows": "calibrated on shadows",
        "nothing": "nobody to compare with, or nobody measured",
    }
    said = [calibrated[one.calibrated], *(["decides"] if one.decides else [])]
    return ", ".join(part for part in said if part)


def _p_value(p_value: float | None) -> str:
    return "" if p_value is None else f"{p_value:.2g}"


def in_plain_words(document: Provenance, question: Question) -> list[str]:
    """The answer to a question in sentences: who is found, what so many non-members can show, and what it does not mean."""
    deciding, by = question.deciding, document.settings.by
    found, whom = len(question.found()), counted(len(question.rows), by)
    if deciding is None:
        return [f"No statistic could be computed, so nothing is known about {whom}."]
    if all(row.score is None for row in question.rows):
        return [f"None of {whom} could be measured, so nothing is known about them."]
    unread = (
        f"none of {counted(question.non_members, 'non-member')} could be measured"
        if question.non_members
        else ""
    )
    if deciding.calibrated == "nothing":
        why = unread or "there are no non-members"
        return [
            f"{why[:1].upper()}{why[1:]} to compare the scores of {whom} with, so nothing can be decided; give some with --non-members."
        ]
    if deciding.calibrated == "shadows":
        found = deciding.found or 0
        without = f"Because {unread}," if unread else "Without known non-members"
        return [
            f"{found:,} of {whom} {_are(found)} on the member side of the audit classifier (calibrated on shadows).",
            f"{without} there are no p-values, and it is not known how many of them are there by mistake.",
        ]
    if by == "person":
        return [
            *person_words(document, question, shown=shown_by_itself(document, question)),
            *([] if document.left_out is None else [visible(document.left_out)]),
        ]
    rate = f"{100 * document.settings.fdr:g}%"
    reasons = not_interpretable(document, question.asks)
    if reasons:
        return [
            f"The scores of {whom} CANNOT BE INTERPRETED, so nothing is known about them:",
            *(f"{reason[:1].upper()}{reason[1:]}." for reason in reasons),
        ]
    power = power_of(question, document.settings.fdr)
    said = [
        f"{found:,} of {whom} {_are(found)} found by {deciding.name} at a false-discovery rate of {rate}."
    ]
    shown = shown_by_itself(document, question)
    if shown and not found:
        some = some_of_them(document, question)
        said.append(
            f"But scores this high, all taken together, occur with probability {deciding.p_value or 0.0:.2g} otherwise, so {some}."
        )
    elif found and not shown:
        said.append(
            f"That MAY BE CHANCE: scores this high, all taken together, occur with probability {deciding.p_value or 0.0:.2g} if nobody's "
            "text was used."
        )
    elif found:
        said.append(f"On average, at most {rate} of such findings are wrong names.")
    said += [] if power is None else [power.words(by)]
    missing = sum(row.score is None for row in question.rows)
    if missing:
        said.append(f"{counted(missing, by)} could not be measured, and nothing is known about them.")
    said += [] if document.left_out is None else [visible(document.left_out)]
    if found < len(question.rows):
        said.append(f"A {by} that is not found may still be in the training data.")
    return said


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
