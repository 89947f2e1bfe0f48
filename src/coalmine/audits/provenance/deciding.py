"""From scores to decisions: p-values against non-members, the false-discovery rate, and how well the truth is found where it is known."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np

from coalmine.audits.provenance.asking import Numbers
from coalmine.audits.provenance.options import ProvenanceOptions, candidates
from coalmine.audits.provenance.results import (
    Asks,
    Calibrated,
    Question,
    StatisticFacts,
    UserRow,
)
from coalmine.audits.provenance.statistics import STATISTICS, Available
from coalmine.models.protocols import FloatArray
from coalmine.statistics.multiple_tests import benjamini_hochberg
from coalmine.statistics.provenance.conformal import (
    conformal_p_values,
    p_value_together,
    sides_area,
    sides_p_value,
    smallest_p_value,
)
from coalmine.statistics.provenance.detection import measure_detection

NO_TOKENS = "the texts have no token that the model knows"
NOT_COMPARED = "no part of the texts is predicted by the model and by what it is compared with"
NO_NON_MEMBERS = "there are no non-members to compare the score with"
UNREAD_NON_MEMBERS = "no non-member could be measured, so there is nothing to compare the score with"
# What the one row of a person is called.
THE_PERSON = "this person"
Column = Sequence[float | None]
_DECIDING_ALONE = frozenset(one.name for one in STATISTICS if one.decides_alone)
NO_STATISTIC = "no statistic can be computed for this target"


class _Judged(NamedTuple):
    """The scores of users by one statistic, and what follows from them; None where there is nothing."""

    scores: Column
    p_values: Column
    adjusted: Column
    # Whether each is found; None where it cannot be said.
    found: Sequence[bool | None]
    calibrated: Calibrated
    # Of all users taken together.
    together: float | None = None


def decided(
    asks: Asks,
    names: Sequence[str],
    numbers: Numbers,
    non_members: Numbers | None,
    there: Available,
    members: Collection[str] | None,
) -> Question:
    """The answer to one question for all users, by every statistic, and decisions by the one that was chosen beforehand.

    By person, `names` are those of texts, and there is one row about all of them.
    """
    person = there.options.by == "person"
    scores: dict[str, FloatArray] = {}
    facts = []
    for one in STATISTICS:
        why = one.missing(there)
        if why is not None:
            facts.append(StatisticFacts(name=one.name, not_applicable=why))
            continue
        scores[one.name] = one.score(numbers, there)
        others = () if non_members is None else _known(one.score(non_members, there))
        own = _known(scores[one.name]) if person else ()
        facts.append(StatisticFacts(name=one.name, non_member_scores=others, own_scores=own))
    counted = numbers.summed() if person else numbers
    rows = tuple(
        UserRow(
            user=name,
            decision="not measured",
            score=None,
            p_value=None,
            texts=int(counted.texts[place]),
            tokens=int(counted.tokens[place]),
            unknown_tokens=int(counted.unknown[place]),
            why=NOT_COMPARED if counted.tokens[place] else str(counted.reason[place]) or NO_TOKENS,
            scores={} if person else {key: _number(one[place]) for key, one in scores.items()},
        )
        for place, name in enumerate([THE_PERSON] if person else names)
    )
    question = Question(
        asks=asks,
        rows=rows,
        statistics=tuple(facts),
        non_members=0 if non_members is None else len(non_members.tokens),
        smallest_p_value=None,
        mean_texts=0.0,
        mean_tokens_per_text=0.0,
        own_texts=len(names) if person else None,
    )
    return with_decisions(question, there.options, members)


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
            one
            if one.not_applicable
            else _facts(one, judged[one.name], one.name == chosen, question, options, members)
            for one in question.statistics
        ),
        smallest_p_value=smallest_p_value(calibration) if calibration else None,
        mean_texts=texts / max(1, len(question.rows)),
        mean_tokens_per_text=tokens / max(1, texts),
    )


def _judge(one: StatisticFacts, question: Question, fdr: float) -> _Judged:
    others = one.non_member_scores
    if question.own_texts is not None:
        return _judge_person(one, fdr)
    scores = [row.scores.get(one.name) for row in question.rows]
    known = [score for score in scores if score is not None]
    nothing: Column = [None] * len(scores)
    if known and others:
        p_values = conformal_p_values(known, others).tolist()
        tested = benjamini_hochberg(p_values, fdr)
        spread = partial(_spread, scores)
        found = [None if flag is None else bool(flag) for flag in spread(tested.shown)]
        together = p_value_together(p_values, len(others))
        return _Judged(scores, spread(p_values), spread(tested.adjusted), found, "non-members", together)
    if known and one.name in _DECIDING_ALONE:
        # The paper's decision: the side of the classifier's hyperplane.
        sides = [None if score is None else score > 0 for score in scores]
        return _Judged(scores, nothing, nothing, sides, "shadows")
    return _Judged(scores, nothing, nothing, [None] * len(scores), "nothing")


def _judge_person(one: StatisticFacts, fdr: float) -> _Judged:
    """All texts of one person against those of the same person that cannot have been used."""
    if not (one.own_scores and one.non_member_scores):
        return _Judged([None], [None], [None], [None], "nothing")
    area = sides_area(one.own_scores, one.non_member_scores)
    p_value = sides_p_value(one.own_scores, one.non_member_scores)
    return _Judged([area], [p_value], [p_value], [p_value <= fdr], "non-members", p_value)


def _row(place: int, question: Question, judged: dict[str, _Judged], chosen: str | None) -> UserRow:
    row, own = question.rows[place], None if chosen is None else judged[chosen]
    found = None if own is None else own.found[place]
    why: str | None = None
    if own is None:
        why = NO_STATISTIC
    elif own.scores[place] is None:
        why = row.why
    elif found is None:
        why = UNREAD_NON_MEMBERS if question.non_members else NO_NON_MEMBERS
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
    question: Question,
    options: ProvenanceOptions,
    members: Collection[str] | None,
) -> StatisticFacts:
    found = [flag for flag in judged.found if flag is not None]
    truth = one.detection
    rows = [place for place, score in enumerate(judged.scores) if score is not None]
    if members is not None and rows:
        truth = measure_detection(
            [score for score in judged.scores if score is not None],
            [bool(judged.found[place]) for place in rows] if found else None,
            [question.rows[place].user in members for place in rows],
            options.confidence,
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


def _spread(scores: Column, values: Sequence[Any]) -> list[Any]:
    """Values of those who have a score, in the rows of all."""
    rest = iter(values)
    return [None if score is None else next(rest) for score in scores]


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
