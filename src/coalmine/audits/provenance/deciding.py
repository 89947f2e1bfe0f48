"""From scores to decisions: p-values against non-members, the false-discovery rate, and whether the scores say anything at all."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from coalmine.audits.provenance.blind_baseline import LEVEL, BlindBaseline
from coalmine.audits.provenance.data_checks import Overlap
from coalmine.audits.provenance.options import By, ProvenanceOptions, candidates
from coalmine.audits.provenance.records import Asks, Calibrated, Provenance, Question, StatisticFacts, UserRow
from coalmine.audits.provenance.scores import STATISTICS, Available
from coalmine.audits.provenance.users import Group, counted, listed
from coalmine.engines.units import Arrays
from coalmine.models.protocols import FloatArray
from coalmine.statistics.multiple_tests import benjamini_hochberg
from coalmine.statistics.provenance.conformal import (
    conformal_p_values,
    fewest_shown,
    non_members_needed,
    p_value_together,
    sides_area,
    sides_p_value,
    smallest_p_value,
)
from coalmine.statistics.provenance.detection import measure_detection, undecided

# What the one row of a person is called.
THE_PERSON = "this person"
# Above this p-value of all suspects together, and with nobody found, no report and no gate accuses anyone.
TOGETHER = 0.05
# Whose texts a question is asked with.
WHOM: dict[Asks, str] = {"texts": "suspects", "user": "other texts of suspects"}
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
_GROUPS: dict[Group, str] = {
    "suspects": "suspects",
    "others": "other texts of suspects",
    "non-members": "non-members",
    "reference": "the users that shadow models were trained on",
}
_DECIDING_ALONE = frozenset(one.name for one in STATISTICS if one.decides_alone)


class _Judged(NamedTuple):
    """The scores of users by one statistic, and what follows from them; None where there is nothing, or it cannot be said."""

    scores: Sequence[float | None]
    p_values: Sequence[float | None]
    adjusted: Sequence[float | None]
    found: Sequence[bool | None]
    calibrated: Calibrated = "nothing"
    # Of all users taken together.
    together: float | None = None


def decided(
    asks: Asks,
    names: Sequence[str],
    asked: Arrays,
    non_members: Arrays | None,
    there: Available,
    options: ProvenanceOptions,
    members: Collection[str] | None = None,
) -> Question:
    """The answer to one question for all users, by every statistic, and decisions by the one that was chosen beforehand.

    By person, `names` are those of texts, and there is one row about all of them.
    """
    person = options.by == "person"
    scores: dict[str, FloatArray] = {}
    facts = []
    for one in STATISTICS:
        why = one.missing(there)
        if why is not None:
            facts.append(StatisticFacts(name=one.name, not_applicable=why))
            continue
        scores[one.name] = one.score(asked[one.name], there)
        others = () if non_members is None else _known(one.score(non_members[one.name], there))
        own = _known(scores[one.name]) if person else ()
        facts.append(StatisticFacts(name=one.name, non_member_scores=others, own_scores=own))
    counts = {name: asked[name].tolist() for name in ("texts", "tokens", "unknown", "reason")}
    if person:
        counts = {name: [values[0] if name == "reason" else sum(values)] for name, values in counts.items()}
    rows = []
    for place, name in enumerate([THE_PERSON] if person else names):
        why = counts["reason"][place] or "the texts have no token that the model knows"
        if counts["tokens"][place]:
            why = "no part of the texts is predicted by the model and by what it is compared with"
        rows.append(
            UserRow(
                user=name,
                texts=counts["texts"][place],
                tokens=counts["tokens"][place],
                unknown_tokens=counts["unknown"][place],
                why=why,
                scores={} if person else {key: _number(one[place]) for key, one in scores.items()},
            )
        )
    question = Question(
        asks=asks,
        rows=tuple(rows),
        statistics=tuple(facts),
        non_members=0 if non_members is None else len(non_members["tokens"]),
        own_texts=len(names) if person else None,
    )
    return with_decisions(question, options, members)


def with_decisions(
    question: Question, options: ProvenanceOptions, members: Collection[str] | None = None
) -> Question:
    """The same question with all that follows from its scores: p-values, decisions and counts.

    `members` are those whose texts are in the training data, where that is known.
    """
    judged = {
        one.name: _judge(one, question, options.fdr) for one in question.statistics if not one.not_applicable
    }
    wanted = candidates(options.statistic, non_members=question.non_members > 0)
    chosen = next((name for name in wanted if name in judged), None)
    texts, tokens = (sum(getattr(row, what) for row in question.rows) for what in ("texts", "tokens"))
    calibration = question.non_members if question.own_texts is None else 0
    return msgspec.structs.replace(
        question,
        rows=tuple(_row(place, question, judged, chosen) for place in range(len(question.rows))),
        statistics=tuple(
            _facts(one, judged[one.name], one.name == chosen, question.rows, options.confidence, members)
            if one.name in judged
            else one
            for one in question.statistics
        ),
        smallest_p_value=smallest_p_value(calibration) if calibration else None,
        mean_texts=texts / max(1, len(question.rows)),
        mean_tokens_per_text=tokens / max(1, texts),
    )


def _judge(one: StatisticFacts, question: Question, fdr: float) -> _Judged:
    others = one.non_member_scores
    if (
        question.own_texts is not None
    ):  # all texts of one person against those of the same person that cannot have been used
        if not (one.own_scores and others):
            return _Judged([None], [None], [None], [None])
        p_value = sides_p_value(one.own_scores, others)
        area = sides_area(one.own_scores, others)
        return _Judged([area], [p_value], [p_value], [p_value <= fdr], "non-members", p_value)
    scores = [row.scores.get(one.name) for row in question.rows]
    known = [score for score in scores if score is not None]
    nothing: list[None] = [None] * len(scores)
    if known and others:
        p_values = conformal_p_values(known, others).tolist()
        tested = benjamini_hochberg(p_values, fdr)
        p_column, adjusted, found = (
            _spread(scores, column) for column in (p_values, tested.adjusted, tested.shown)
        )
        together = p_value_together(p_values, len(others))
        return _Judged(scores, p_column, adjusted, found, "non-members", together)
    if known and one.name in _DECIDING_ALONE:
        # The paper's decision: the side of the classifier's hyperplane.
        sides = [None if score is None else score > 0 for score in scores]
        return _Judged(scores, nothing, nothing, sides, "shadows")
    return _Judged(scores, nothing, nothing, nothing)


def _row(place: int, question: Question, judged: dict[str, _Judged], chosen: str | None) -> UserRow:
    row, own = question.rows[place], None if chosen is None else judged[chosen]
    found = None if own is None else own.found[place]
    why: str | None = None
    if own is None:
        why = "no statistic can be computed for this target"
    elif own.scores[place] is None:
        why = row.why
    elif found is None:
        why = "there are no non-members to compare the score with"
        if question.non_members:
            why = "no non-member could be measured, so there is nothing to compare the score with"
    return msgspec.structs.replace(
        row,
        decision="not measured" if found is None else "found" if found else "not found",
        score=None if own is None else own.scores[place],
        p_value=None if own is None else own.p_values[place],
        adjusted_p_value=None if own is None else own.adjusted[place],
        why=why,
        scores={name: one.scores[place] for name, one in judged.items()},
        p_values={name: one.p_values[place] for name, one in judged.items()},
    )


def _facts(
    one: StatisticFacts,
    judged: _Judged,
    decides: bool,
    users: Sequence[UserRow],
    confidence: float,
    members: Collection[str] | None,
) -> StatisticFacts:
    found = [flag for flag in judged.found if flag is not None]
    truth = one.detection
    rows = [place for place, score in enumerate(judged.scores) if score is not None]
    if members is not None and rows:
        truth = measure_detection(
            [score for score in judged.scores if score is not None],
            [bool(judged.found[place]) for place in rows] if found else None,
            [users[place].user in members for place in rows],
            confidence,
        )
    return msgspec.structs.replace(
        one,
        decides=decides,
        calibrated=judged.calibrated,
        found=sum(found) if found else None,
        p_value=judged.together,
        detection=truth,
    )


def _known(scores: FloatArray) -> tuple[float, ...]:
    """The scores of those who have one, in ascending order."""
    return tuple(np.sort(scores[~np.isnan(scores)]).tolist())


def _spread(scores: Sequence[float | None], values: Sequence[Any]) -> list[Any]:
    """Values of those who have a score, in the rows of all."""
    rest = iter(values)
    return [None if score is None else next(rest) for score in scores]


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def interpreted(document: Provenance) -> Provenance:
    """The same result, in which it "cannot be said" of anybody, or by any statistic, who is found by scores that say nothing."""
    questions = []
    for question in document.questions:
        if cannot_be_decided(document, question):
            rows = tuple(
                row
                if row.decision == "not measured"
                else msgspec.structs.replace(row, decision="cannot be said")
                for row in question.rows
            )
            statistics = tuple(
                msgspec.structs.replace(
                    one, found=None, detection=None if one.detection is None else undecided(one.detection)
                )
                for one in question.statistics
            )
            question = msgspec.structs.replace(question, rows=rows, statistics=statistics)  # noqa: PLW2901
        questions.append(question)
    return msgspec.structs.replace(document, questions=tuple(questions))


def decided_again(document: Provenance) -> Provenance:
    """The same result with everything that follows from its scores and counts computed again."""
    questions = tuple(with_decisions(one, document.settings) for one in document.questions)
    return interpreted(msgspec.structs.replace(document, questions=questions))


def cannot_be_decided(document: Provenance, question: Question) -> bool:
    """Whether scores were compared with those of non-members, and the comparison says nothing."""
    compared = question.deciding is not None and question.deciding.calibrated == "non-members"
    return compared and bool(not_interpretable(document, question.asks))


def not_interpretable(document: Provenance, asks: Asks) -> list[str]:
    """Why the scores of a question say nothing, one clause each; empty where they can be compared with those of non-members."""
    return list(_reasons(document, asks))


def _reasons(document: Provenance, asks: Asks) -> Iterator[str]:
    whom, others = sides_of(document, asks)
    blind, question = document.blind(asks), document.question(asks)
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
    times = document.times(asks)
    if times is not None and times.disjoint:
        yield f"{'texts of suspects' if asks == 'texts' else WHOM[asks]} and texts of non-members are from different times"
    for one in document.checks.overlaps:
        # Asked with texts of suspects, the second question would be the first one again.
        groups = {one.first, one.second}
        spoiled = (
            ("user",) if "others" in groups else ("texts",) if "suspects" in groups else ("texts", "user")
        )
        if one.spoils and asks in spoiled:
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
    accused = found or (together is not None and together <= TOGETHER)
    if accused and (blind.scores_p_value is None or blind.scores_p_value > LEVEL):
        return (
            "a difference of their texts that is as large as that of their scores could have gone unnoticed"
        )
    return ""


def sides_of(document: Provenance, asks: Asks) -> tuple[str, str]:
    """What the blind baseline tried to tell apart, as in "telling suspects from non-members"."""
    person = document.settings.by == "person"
    return ("the two sides", "each other") if person else (WHOM[asks], "non-members")


def told_apart(blind: BlindBaseline | None) -> str:
    """By what users can be told from non-members without a model, in words; empty where they cannot."""
    words = [_BY_WHAT[one] for one in (() if blind is None else blind.separating())]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def overlap_words(one: Overlap, document: Provenance) -> str:
    """What two groups share, and whose it is, in words."""
    shared = [] if not one.users else [f"{one.users:,} of {one.first_users:,} users"]
    shared += [] if not one.texts else [f"{one.texts:,} of {one.first_texts:,} texts"]
    if one.first == "non-members":
        whose = [f"non-member {place}" for place in one.sharing]
    else:
        first, names = document.questions[0].rows, document.names()
        whose = [names[first[place - 1].user] for place in one.sharing if place <= len(first)]
    said = f"{' and '.join(shared)} of {_GROUPS[one.first]} are also among {_GROUPS[one.second]}"
    return f"{said} ({listed(whose)})" if whose else said


def person_words(document: Provenance, question: Question, deciding: StatisticFacts) -> str:
    """What was compared of one person, what it depends on, and how the scores compare."""
    row, own = question.rows[0], question.own_texts or 0
    blind = document.blind(question.asks)
    apart = "" if blind is None or blind.p_value is None else f" (p = {blind.p_value:.2g})"
    style = ""
    if document.reference_model is None:
        style = " No reference model was given, so a change of style that only a language model sees could go unnoticed."
    return (
        f"{counted(own, 'text' if row.texts <= own else 'thread')} that may have been used {'was' if own == 1 else 'were'} compared with "
        f"{question.non_members:,} of the same person that cannot have been. This holds if the two sides are alike in everything but the "
        f"training, also if they were written at different times: without the model they could not be told apart{apart}.{style} By "
        f"{deciding.name}, which was chosen before any score was seen, the first score higher in {100 * (row.score or 0.0):.0f}% of pairs "
        "(one-sided test of ranks)"
    )


class QuestionPower(NamedTuple):
    """What the non-members of a question can show at a false-discovery rate.

    Attributes:
        suspects: those who have a p-value.
        non_members: those who have a score.
        fdr: the false-discovery rate.
    """

    suspects: int
    non_members: int
    fdr: float

    @property
    def fewest(self) -> int | None:
        """So many suspects must be above all non-members for any of them to be found; None where nobody can be found."""
        return fewest_shown(self.non_members, self.suspects, self.fdr)

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

    def words(self, by: By = "user") -> str:
        """What so many non-members can show, in a sentence.

        >>> QuestionPower(suspects=20, non_members=149, fdr=0.05).words()
        'With 149 non-members no p-value is below 0.0067, so at least 3 of 20 users must score above all of them for any to be found at 5%.'
        """
        least = f"With {counted(self.non_members, 'non-member')} no p-value is below {smallest_p_value(self.non_members):.2g}"
        percent = f"{100 * self.fdr:g}%"
        if self.fewest is None:
            return (
                f"{least}, so nobody can be found at {percent}, whatever the scores are; that takes {self.needed_for_any:,} non-members, "
                f"and {self.needed_for_one:,} to find one {by} alone."
            )
        if self.fewest == 1:
            return f"{least}, which is enough to find one of {counted(self.suspects, by)} at {percent}."
        return (
            f"{least}, so at least {self.fewest:,} of {counted(self.suspects, by)} must score above all of them for any to be found at "
            f"{percent}."
        )


def power_of(question: Question, fdr: float) -> QuestionPower | None:
    """What the non-members of a question can show; None where there are no p-values, and by person."""
    deciding = question.deciding
    suspects = sum(row.p_value is not None for row in question.rows)
    if (
        question.own_texts is not None
        or deciding is None
        or deciding.calibrated != "non-members"
        or not suspects
    ):
        return None
    return QuestionPower(suspects, len(deciding.non_member_scores), fdr)
