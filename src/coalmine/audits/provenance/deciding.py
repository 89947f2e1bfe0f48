"""From scores to decisions: p-values against non-members, the false-discovery rate, and how well the truth is found where it is known."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from coalmine.audits.provenance.asking import Numbers
from coalmine.audits.provenance.results import (
    Asks,
    Calibrated,
    Decision,
    Question,
    StatisticFacts,
    UserRow,
)
from coalmine.audits.provenance.statistics import STATISTICS, Available, Statistic, deciding_statistic
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
NO_STATISTIC = "no statistic can be computed for this target"


class _Judged(NamedTuple):
    """The scores of users by one statistic, and what follows from them; NaN where there is nothing."""

    scores: FloatArray
    p_values: FloatArray
    adjusted: FloatArray
    # Whether each is found; None where it cannot be said.
    found: list[bool | None]
    calibrated: Calibrated
    non_members: FloatArray
    # By person: the scores of the texts behind the one score.
    own: FloatArray | tuple[()] = ()


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
    own_texts = len(names) if person else None
    names = [THE_PERSON] if person else names
    decides = deciding_statistic(there, non_members=non_members is not None)
    judged: dict[str, _Judged] = {
        one.name: (_judge_person if person else _judge)(one, numbers, non_members, there)
        for one in STATISTICS
        if one.missing(there) is None
    }
    if person:
        numbers = numbers.summed()
    own = None if decides is None else judged[decides.name]
    calibration = 0 if non_members is None else len(non_members.tokens)
    rows = tuple(_row(place, name, numbers, own, judged, calibration) for place, name in enumerate(names))
    texts, tokens = int(numbers.texts.sum()), int(numbers.tokens.sum())
    return Question(
        asks=asks,
        rows=rows,
        statistics=tuple(
            _facts(one, judged.get(one.name), one is decides, names, there, members) for one in STATISTICS
        ),
        non_members=calibration,
        smallest_p_value=smallest_p_value(calibration) if calibration and not person else None,
        mean_texts=texts / max(1, len(names)),
        mean_tokens_per_text=tokens / max(1, texts),
        own_texts=own_texts,
    )


def _judge(statistic: Statistic, numbers: Numbers, non_members: Numbers | None, there: Available) -> _Judged:
    scores = statistic.score(numbers, there)
    known = ~np.isnan(scores)
    nothing = np.full(len(scores), np.nan)
    others = np.empty(0) if non_members is None else np.sort(statistic.score(non_members, there))
    others = others[~np.isnan(others)]
    if len(others) and known.any():
        p_values, adjusted = nothing.copy(), nothing.copy()
        p_values[known] = conformal_p_values(scores[known], others)
        judged = benjamini_hochberg(p_values[known].tolist(), there.options.fdr)
        adjusted[known] = judged.adjusted
        flags = iter(judged.shown)
        found = [bool(next(flags)) if one else None for one in known]
        return _Judged(scores, p_values, adjusted, found, "non-members", others)
    if statistic.decides_alone and known.any():
        # The paper's decision: the side of the classifier's hyperplane.
        sides = [bool(one > 0) if measured else None for one, measured in zip(scores, known, strict=True)]
        return _Judged(scores, nothing, nothing, sides, "shadows", others)
    return _Judged(scores, nothing, nothing, [None] * len(scores), "nothing", others)


def _judge_person(
    statistic: Statistic, numbers: Numbers, non_members: Numbers | None, there: Available
) -> _Judged:
    """All texts of one person against those of the same person that cannot have been used."""
    own = np.sort(statistic.score(numbers, there))
    others = np.empty(0) if non_members is None else np.sort(statistic.score(non_members, there))
    own, others = own[~np.isnan(own)], others[~np.isnan(others)]
    nothing = np.array([np.nan])
    if not (len(own) and len(others)):
        return _Judged(nothing, nothing, nothing, [None], "nothing", others, own)
    p_value = np.array([sides_p_value(own, others)])
    found: list[bool | None] = [bool(p_value[0] <= there.options.fdr)]
    return _Judged(np.array([sides_area(own, others)]), p_value, p_value, found, "non-members", others, own)


def _row(
    place: int,
    name: str,
    numbers: Numbers,
    own: _Judged | None,
    judged: dict[str, _Judged],
    compared_with: int,
) -> UserRow:
    why = None
    if own is None:
        why = NO_STATISTIC
    elif np.isnan(own.scores[place]):
        why = NOT_COMPARED if numbers.tokens[place] else str(numbers.reason[place]) or NO_TOKENS
    elif own.found[place] is None:
        why = UNREAD_NON_MEMBERS if compared_with else NO_NON_MEMBERS
    decision: Decision = "not measured"
    if own is not None and own.found[place] is not None:
        decision = "found" if own.found[place] else "not found"
    return UserRow(
        user=name,
        decision=decision,
        score=None if own is None else _number(own.scores[place]),
        p_value=None if own is None else _number(own.p_values[place]),
        adjusted_p_value=None if own is None else _number(own.adjusted[place]),
        texts=int(numbers.texts[place]),
        tokens=int(numbers.tokens[place]),
        unknown_tokens=int(numbers.unknown[place]),
        why=why,
        scores={key: _number(one.scores[place]) for key, one in judged.items()},
        p_values={key: _number(one.p_values[place]) for key, one in judged.items()},
    )


def _facts(
    statistic: Statistic,
    judged: _Judged | None,
    decides: bool,
    names: Sequence[str],
    there: Available,
    members: Collection[str] | None,
) -> StatisticFacts:
    if judged is None:
        return StatisticFacts(name=statistic.name, not_applicable=statistic.missing(there))
    known = ~np.isnan(judged.scores)
    found = [one for one in judged.found if one is not None]
    truth = None
    if members is not None and known.any():
        is_member = np.array([name in members for name in names])
        decisions = np.array([bool(one) for one in judged.found])[known] if found else None
        truth = measure_detection(judged.scores[known], decisions, is_member[known], there.options.confidence)
    return StatisticFacts(
        name=statistic.name,
        decides=decides,
        calibrated=judged.calibrated,
        found=sum(found) if found else None,
        p_value=_together(judged),
        non_member_scores=tuple(map(float, judged.non_members)),
        own_scores=tuple(map(float, judged.own)),
        detection=truth,
    )


def _together(judged: _Judged) -> float | None:
    if judged.calibrated != "non-members":
        return None
    if len(judged.own):
        return float(judged.p_values[0])
    return p_value_together(
        [float(one) for one in judged.p_values if not np.isnan(one)], len(judged.non_members)
    )


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
