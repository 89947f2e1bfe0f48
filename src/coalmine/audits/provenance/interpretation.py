"""What an audit can say at all: why its scores say nothing about training, and what its number of non-members can show."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from coalmine.audits.provenance.blind_baseline import LEVEL, BlindBaseline
from coalmine.audits.provenance.data_checks import TimeRanges, users_needed
from coalmine.audits.provenance.deciding import with_decisions
from coalmine.audits.provenance.naming import counted, listed, names_of_users
from coalmine.audits.provenance.options import By
from coalmine.audits.provenance.overlaps import Overlap
from coalmine.statistics.provenance.conformal import (
    fewest_shown,
    non_members_needed,
    p_value_together,
    smallest_p_value,
)
from coalmine.statistics.provenance.detection import undecided

if TYPE_CHECKING:
    from coalmine.audits.provenance.results import Asks, Provenance, Question

# A few texts that everybody forwards change no score; above this share of texts, the groups are not apart.
SHARED = 0.01
# Above this p-value of all suspects together, and with nobody found, no report and no gate accuses anyone.
TOGETHER = 0.05
# Whose texts a question is asked with.
WHOM: dict[Asks, str] = {"texts": "suspects", "user": "other texts of suspects"}
_OF: dict[Asks, str] = {"texts": "texts of suspects", "user": "other texts of suspects"}
_BY_WHAT = {
    "words": "their words",
    "order": "the order of their words",
    "characters": "their characters",
    "single": "a single feature of their texts",
    "length": "the lengths of their texts",
    "dates": "their dates",
    "posts": "how many texts they have",
    "model": "the scores of a model that saw neither",
    "all": "all of these together",
}


def sides_of(document: Provenance, asks: Asks) -> tuple[str, str]:
    """What the blind baseline tried to tell apart, as in "telling suspects from non-members"."""
    return (
        ("the two sides", "each other") if document.settings.by == "person" else (WHOM[asks], "non-members")
    )


def not_interpretable(document: Provenance, asks: Asks) -> list[str]:
    """Why the scores of a question say nothing, one clause each; empty where they can be compared with those of non-members."""
    return list(_reasons(document, asks))


def cannot_be_decided(document: Provenance, question: Question) -> bool:
    """Whether scores were compared with those of non-members, and the comparison says nothing."""
    compared = question.deciding is not None and question.deciding.calibrated == "non-members"
    return compared and bool(not_interpretable(document, question.asks))


def interpreted(document: Provenance) -> Provenance:
    """The same result, in which it "cannot be said" of anybody, or by any statistic, who is found by scores that say nothing."""
    questions = []
    for question in document.questions:
        rows, statistics = question.rows, question.statistics
        if cannot_be_decided(document, question):
            rows = tuple(
                row
                if row.decision == "not measured"
                else msgspec.structs.replace(row, decision="cannot be said")
                for row in rows
            )
            statistics = tuple(
                msgspec.structs.replace(
                    one, found=None, detection=None if one.detection is None else undecided(one.detection)
                )
                for one in statistics
            )
        questions.append(msgspec.structs.replace(question, rows=rows, statistics=statistics))
    return msgspec.structs.replace(document, questions=tuple(questions))


def decided_again(document: Provenance) -> Provenance:
    """The same result with everything that follows from its scores and counts computed again."""
    needed = document.checks.users_needed
    if needed is not None:
        smallest = smallest_p_value(needed.non_members)
        needed = users_needed(needed.suspects, needed.non_members, document.settings.fdr, smallest)
    questions = tuple(with_decisions(one, document.settings) for one in document.questions)
    checks = msgspec.structs.replace(document.checks, users_needed=needed)
    return interpreted(msgspec.structs.replace(document, questions=questions, checks=checks))


def _reasons(document: Provenance, asks: Asks) -> Iterator[str]:
    whom, others = sides_of(document, asks)
    blind, question = blind_of(document, asks), document.question(asks)
    told = told_apart(blind)
    if told:
        yield f"{whom} can be told from {others} without any model, by {told}"
    elif (
        question is not None
        and question.deciding is not None
        and question.deciding.calibrated == "non-members"
    ):
        untested = _untested(blind, question, document.settings.fdr)
        if untested:
            yield f"it is not known whether {whom} differ from {others} in more than the training: {untested}"
    times = times_of(document, asks)
    if times is not None and times.disjoint:
        yield f"{_OF[asks]} and texts of non-members are from different times"
    for one in document.checks.overlaps:
        if spoils(one) and asks in spoiled_questions(one):
            yield overlap_words(one, document)


def _untested(blind: BlindBaseline | None, question: Question, fdr: float) -> str:
    """Why a blind baseline that told nobody apart says nothing: it must be able to notice a difference as large as that of the scores."""
    if blind is None:
        return "whether they can be told apart without any model was not tried"
    if blind.p_value is None:
        return blind.auc.statement
    if blind.smallest_p_value is None or blind.smallest_p_value > LEVEL:
        return f"with {blind.suspects:,} and {blind.non_members:,} of them, no difference could be noticed without a model"
    together = None if question.deciding is None else question.deciding.p_value
    found = any((row.adjusted_p_value or 1.0) <= fdr * (1 + 1e-9) for row in question.rows)
    if not found and (together is None or together > TOGETHER):
        return ""
    if blind.scores_p_value is None or blind.scores_p_value > LEVEL:
        return (
            "a difference of their texts that is as large as that of their scores could have gone unnoticed"
        )
    return ""


def blind_of(document: Provenance, asks: Asks) -> BlindBaseline | None:
    """The blind baseline for the texts of a question."""
    return document.blind_baseline if asks == "texts" else document.others_blind_baseline


def times_of(document: Provenance, asks: Asks) -> TimeRanges | None:
    """When the texts of a question and those of non-members were written."""
    return document.checks.time_ranges if asks == "texts" else document.checks.others_time_ranges


def told_apart(blind: BlindBaseline | None) -> str:
    """By what users can be told from non-members without a model, in words; empty where they cannot."""
    found = () if blind is None else blind.separating()
    words = [_BY_WHAT.get(one, one) for one in found]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def spoils(one: Overlap) -> bool:
    """Whether two groups are not apart: users are shared, or too many texts."""
    return bool(one.users or one.text_share > SHARED)


def spoiled_questions(one: Overlap) -> tuple[Asks, ...]:
    """The questions that two groups must be apart for: asked with texts of suspects, the second question would be the first one again."""
    groups = {one.first, one.second}
    if "others" in groups:
        return ("user",)
    return ("texts",) if "suspects" in groups else ("texts", "user")


_GROUPS = {
    "suspects": "suspects",
    "others": "other texts of suspects",
    "non-members": "non-members",
    "reference": "the users that shadow models were trained on",
}


def overlap_words(one: Overlap, document: Provenance) -> str:
    """What two groups share, and whose it is, in words."""
    shared = [] if not one.users else [f"{one.users:,} of {one.first_users:,} users"]
    shared += [] if not one.texts else [f"{one.texts:,} of {one.first_texts:,} texts"]
    if one.first == "non-members":
        whose = [f"non-member {place}" for place in one.sharing]
    else:
        first, names = document.questions[0].rows, names_of_users(document)
        whose = [names[first[place - 1].user] for place in one.sharing if place <= len(first)]
    said = f"{' and '.join(shared)} of {_GROUPS[one.first]} are also among {_GROUPS[one.second]}"
    return f"{said} ({listed(whose)})" if whose else said


def person_words(document: Provenance, question: Question, *, shown: bool) -> list[str]:
    """The answer about one person in sentences: data, method, what follows, and what that depends on."""
    deciding, row, reasons = question.deciding, question.rows[0], not_interpretable(document, question.asks)
    own = question.own_texts or 0
    what = "text" if row.texts <= own else "thread"
    data = (
        f"{counted(own, what)} that may have been used {'was' if own == 1 else 'were'} compared with {question.non_members:,} of the same "
        "person that cannot have been."
    )
    if reasons or deciding is None:
        return [
            data,
            "The scores CANNOT BE INTERPRETED, so nothing is known about this person:",
            *(f"{reason[:1].upper()}{reason[1:]}." for reason in reasons),
        ]
    p_value = deciding.p_value or 0.0
    method = (
        f"By {deciding.name}, which was chosen before any score was seen, the first score higher in {100 * (row.score or 0.0):.0f}% of "
        f"pairs; by chance it is 50%, and scores as high occur with probability {p_value:.2g} if none was used (one-sided test of ranks)."
    )
    if shown and row.decision == "found":
        answer = (
            "So texts of this person were used to train the model; which ones, and how many, is not said."
        )
    elif row.decision == "found":
        answer = "That MAY BE CHANCE, given everything that is tested."
    else:
        answer = "That does not show that texts of this person were used, nor that none was."
    blind = blind_of(document, question.asks)
    apart = "" if blind is None or blind.p_value is None else f" (p = {blind.p_value:.2g})"
    limits = (
        "This holds if the two sides are alike in everything but the training, also if they were written at different times: without the "
        f"model they could not be told apart{apart}."
    )
    if document.reference_model is None:
        limits += " No reference model was given, so a change of style that only a language model sees could go unnoticed."
    return [data, method, answer, limits]


class QuestionPower(NamedTuple):
    """What the non-members of a question can show at a false-discovery rate.

    Attributes:
        suspects: those who have a p-value.
        non_members: those who have a score.
        fdr: the false-discovery rate.
        fewest: so many suspects must be above all non-members for any of them to be found; None where nobody can be found.
    """

    suspects: int
    non_members: int
    fdr: float
    fewest: int | None

    @property
    def needed_for_one(self) -> int:
        """How many non-members it takes to find a single suspect."""
        return non_members_needed(self.suspects, self.fdr)

    @property
    def needed_for_any(self) -> int:
        """How many it takes to find anybody, if all suspects stand out."""
        return non_members_needed(self.suspects, self.fdr, shown=self.suspects)

    def needed_for_all_together(self, level: float) -> int:
        """How many it takes before the p-value of all suspects together can be at most `level`, if all of them stand out."""

        def enough(others: int) -> bool:
            return p_value_together([smallest_p_value(others)] * self.suspects, others) <= level * (1 + 1e-9)

        most = 1
        while not enough(most):
            most *= 2
        return 1 + bisect_left(range(1, most), True, key=enough)


def power_of(question: Question, fdr: float) -> QuestionPower | None:
    """What the non-members of a question can show; None where there are no p-values, and by person."""
    if question.own_texts is not None:
        return None
    deciding = question.deciding
    suspects = sum(row.p_value is not None for row in question.rows)
    if deciding is None or deciding.calibrated != "non-members" or not suspects:
        return None
    others = len(deciding.non_member_scores)
    return QuestionPower(suspects, others, fdr, fewest_shown(others, suspects, fdr))


def power_words(power: QuestionPower, by: By = "user") -> str:
    """What so many non-members can show, in a sentence.

    >>> power_words(QuestionPower(suspects=20, non_members=149, fdr=0.05, fewest=3))
    'With 149 non-members no p-value is below 0.0067, so at least 3 of 20 users must score above all of them for any to be found at 5%.'
    """
    least = f"With {counted(power.non_members, 'non-member')} no p-value is below {smallest_p_value(power.non_members):.2g}"
    percent = f"{100 * power.fdr:g}%"
    if power.fewest is None:
        return (
            f"{least}, so nobody can be found at {percent}, whatever the scores are; that takes {power.needed_for_any:,} non-members, and "
            f"{power.needed_for_one:,} to find one {by} alone."
        )
    if power.fewest == 1:
        return f"{least}, which is enough to find one of {counted(power.suspects, by)} at {percent}."
    return (
        f"{least}, so at least {power.fewest:,} of {counted(power.suspects, by)} must score above all of them for any to be found at "
        f"{percent}."
    )
