"""Whether the answers to a question can be true together: p-values follow from scores, decisions from p-values, and counts from rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from coalmine.audits.provenance.detection_checks import detection_problems
from coalmine.audits.provenance.options import candidates
from coalmine.records.contradictions import count_problems, in_range, same, share_problems, twice
from coalmine.statistics.multiple_tests import benjamini_hochberg
from coalmine.statistics.provenance.conformal import (
    conformal_p_values,
    p_value_together,
    sides_area,
    sides_p_value,
)

if TYPE_CHECKING:
    from coalmine.audits.provenance.options import ProvenanceOptions
    from coalmine.audits.provenance.results import Calibrated, Decision, Question, StatisticFacts, UserRow

# The statistic whose sign decides where there are no non-members.
_CLASSIFIER = "rank-histogram"
Column = Sequence[float | None]


class _Recalculated(NamedTuple):
    """What follows from the scores of one statistic; None where there is nothing."""

    calibrated: Calibrated
    p_values: Column
    adjusted: Column
    found: Sequence[bool | None]
    # Of all users taken together.
    p_value: float | None


def question_problems(question: Question, settings: ProvenanceOptions, *, said: bool = True) -> Iterator[str]:
    """What cannot be true in the answers to one question. Messages name no user, but the place of a row.

    `said` is whether scores can be interpreted; where they cannot, nobody is found and nobody is not.
    """
    name = f"the question {question.asks!r}"
    strange = [*_range_problems(name, question), *_name_problems(name, question)]
    if strange or not (0 < settings.fdr < 1 and 0 < settings.confidence < 1):
        yield from strange  # nothing can be computed from such numbers
        return
    yield from _count_problems(name, question)
    if (question.own_texts is not None) != (settings.by == "person") or (
        settings.by == "person" and len(question.rows) != 1
    ):
        yield f"{name} has one row about all texts of a person if and only if it was asked by person"
    yield from _choice_problems(name, question, settings)
    computed = {one.name: one for one in question.statistics if one.not_applicable is None}
    missing = [
        place
        for place, row in enumerate(question.rows, 1)
        if not computed.keys() == row.scores.keys() == row.p_values.keys()
    ]
    if missing:
        yield f"{name}: row {missing[0]} has the scores of other statistics than those that were computed"
        return
    for one in computed.values():
        yield from _statistic_problems(f"{name}: {one.name}", one, question, settings, said)
    yield from _decision_problems(name, question, settings, said)


def _range_problems(name: str, question: Question) -> Iterator[str]:
    yield from count_problems(f"{name}: the number of non-members", question.non_members)
    yield from share_problems(f"{name}: the smallest p-value", question.smallest_p_value)
    yield from in_range(f"{name}: the mean number of texts", question.mean_texts, 0)
    yield from in_range(f"{name}: the mean number of tokens", question.mean_tokens_per_text, 0)
    for place, row in enumerate(question.rows, 1):
        whose = f"{name}: row {place}"
        for what, count in (
            ("texts", row.texts),
            ("tokens", row.tokens),
            ("unknown tokens", row.unknown_tokens),
        ):
            yield from count_problems(f"{whose}: the number of {what}", count)
        for score in (row.score, *row.scores.values()):
            yield from in_range(f"{whose}: a score", score)
        for p_value in (row.p_value, row.adjusted_p_value, *row.p_values.values()):
            yield from share_problems(f"{whose}: a p-value", p_value)
    for one in question.statistics:
        yield from count_problems(f"{name}: the number of users found by {one.name}", one.found)
        yield from share_problems(f"{name}: the p-value of {one.name}", one.p_value)
        for score in (*one.non_member_scores, *one.own_scores):
            yield from in_range(f"{name}: a score of a non-member or of a text by {one.name}", score)


def _name_problems(name: str, question: Question) -> Iterator[str]:
    if not question.rows:
        yield f"{name} was asked about nobody"
    places: dict[str, int] = {}
    for place, row in enumerate(question.rows, 1):
        first = places.setdefault(row.user, place)
        if first != place:
            yield f"{name} has the user of row {first} again in row {place}"
    for problem in twice("statistic", [one.name for one in question.statistics]):
        yield f"{name}: {problem}"


def _count_problems(name: str, question: Question) -> Iterator[str]:
    texts, tokens = (sum(getattr(row, what) for row in question.rows) for what in ("texts", "tokens"))
    if not same(question.mean_texts, texts / max(1, len(question.rows))):
        yield f"{name} has a mean of {question.mean_texts:g} texts per user, which is not that of its rows"
    if not same(question.mean_tokens_per_text, tokens / max(1, texts)):
        yield f"{name} has a mean of {question.mean_tokens_per_text:g} tokens per text, which is not that of its rows"
    person = question.own_texts is not None
    smallest = 1 / (question.non_members + 1) if question.non_members and not person else None
    if not _equal(question.smallest_p_value, smallest):
        yield f"{name} has a smallest p-value that {question.non_members:,} non-members do not give"


def _choice_problems(name: str, question: Question, settings: ProvenanceOptions) -> Iterator[str]:
    """The statistic that decides is the one that was asked for, or the first of the usual ones: it was not chosen by its result."""
    there = [one.name for one in question.statistics if one.not_applicable is None]
    wanted = candidates(settings.statistic, non_members=question.non_members > 0)
    chosen = next((one for one in wanted if one in there), None)
    if [one.name for one in question.statistics if one.decides] != ([] if chosen is None else [chosen]):
        yield f"{name} is not decided by the statistic that was chosen beforehand, which is {chosen or 'none'}"
    for one in question.statistics:
        numbers = (one.found, one.p_value, one.detection, *one.non_member_scores)
        if one.not_applicable is not None and (
            one.calibrated != "nothing" or any(number is not None for number in numbers)
        ):
            yield f"{name}: {one.name} was not computed, and has results"


def _statistic_problems(
    name: str, one: StatisticFacts, question: Question, settings: ProvenanceOptions, said: bool
) -> Iterator[str]:
    others = one.non_member_scores
    if len(others) > question.non_members:
        yield f"{name} has scores of {len(others):,} non-members, and there are {question.non_members:,}"
    if list(others) != sorted(others):
        yield f"{name} has scores of non-members that are not in ascending order"
    if len(one.own_scores) > (question.own_texts or 0) or list(one.own_scores) != sorted(one.own_scores):
        yield f"{name} has scores of more texts than were asked about, or not in ascending order"
    scores = [row.scores[one.name] for row in question.rows]
    judged = _judge(one, scores, settings.fdr)
    if question.own_texts is not None and not _equal(scores[0], _area(one)):
        yield f"{name} has a share of pairs that does not follow from the scores of texts"
    if one.calibrated != judged.calibrated:
        yield f"{name} is said to be calibrated on {one.calibrated}, and is on {judged.calibrated}"
        return
    for place, (row, p_value) in enumerate(zip(question.rows, judged.p_values, strict=True), 1):
        if not _equal(row.p_values[one.name], p_value):
            yield f"{name} gives row {place} a p-value that does not follow from its score and those of non-members"
    if not _equal(one.p_value, judged.p_value):
        yield f"{name} has a p-value of all users together that does not follow from theirs"
    decided = [flag for flag in judged.found if flag is not None]
    found = sum(decided) if decided and said else None
    if one.found != found:
        yield f"{name} is said to find {_number(one.found)} users, and finds {_number(found)}"
    yield from detection_problems(
        name, one.detection, sum(score is not None for score in scores), found, settings.confidence
    )


def _judge(one: StatisticFacts, scores: Column, fdr: float) -> _Recalculated:
    known = [score for score in scores if score is not None]
    nothing: list[float | None] = [None] * len(scores)
    if one.own_scores and one.non_member_scores:
        p_value = sides_p_value(one.own_scores, one.non_member_scores)
        return _Recalculated("non-members", [p_value], [p_value], [p_value <= fdr], p_value)
    if known and one.non_member_scores:
        p_values = conformal_p_values(known, one.non_member_scores).tolist()
        tested = benjamini_hochberg(p_values, fdr)
        return _Recalculated(
            "non-members",
            _spread(p_values, scores),
            _spread(tested.adjusted, scores),
            [None if flag is None else bool(flag) for flag in _spread(tested.shown, scores)],
            p_value_together(p_values, len(one.non_member_scores)),
        )
    if one.name == _CLASSIFIER and known:
        return _Recalculated(
            "shadows", nothing, nothing, [None if score is None else score > 0 for score in scores], None
        )
    return _Recalculated("nothing", nothing, nothing, [None] * len(scores), None)


def _area(one: StatisticFacts) -> float | None:
    """The one score of a person, from those of texts; None without any on one side."""
    if not (one.own_scores and one.non_member_scores):
        return None
    return sides_area(one.own_scores, one.non_member_scores)


def _spread(values: Sequence[float], scores: Column) -> list[float | None]:
    """Values of those who have a score, in the rows of all."""
    rest = iter(values)
    return [None if score is None else next(rest) for score in scores]


def _decision_problems(
    name: str, question: Question, settings: ProvenanceOptions, said: bool
) -> Iterator[str]:
    """Rows say of the deciding statistic what it says itself, and their decisions follow from it."""
    deciding = question.deciding
    empty: list[None] = [None] * len(question.rows)
    judged = _Recalculated("nothing", empty, empty, empty, None)
    if deciding is not None:
        judged = _judge(deciding, [row.scores[deciding.name] for row in question.rows], settings.fdr)
    for place, row in enumerate(question.rows):
        whose = f"{name}: row {place + 1}"
        score, p_value = (None, None) if deciding is None else _own(row, deciding.name)
        if not (_equal(row.score, score) and _equal(row.p_value, p_value)):
            yield f"{whose} has another score or p-value than the statistic that decides gives it"
        if not _equal(row.adjusted_p_value, judged.adjusted[place]):
            yield f"{whose} has an adjusted p-value that does not follow from the p-values of all rows"
        decision = _decision(judged.found[place])
        if not said and decision != "not measured":
            decision = "cannot be said"
        if row.decision != decision:
            yield f"{whose} is {row.decision!r}, and its numbers say {decision!r}"
        if (row.why is None) != (decision != "not measured"):
            yield f"{whose} has a reason for not being measured where it was, or none where it was not"


def _own(row: UserRow, name: str) -> tuple[float | None, float | None]:
    return row.scores[name], row.p_values[name]


def _decision(found: bool | None) -> Decision:
    if found is None:
        return "not measured"
    return "found" if found else "not found"


def _equal(first: float | None, second: float | None) -> bool:
    return first is second is None or (first is not None and second is not None and same(first, second))


def _number(count: int | None) -> str:
    return "no number of" if count is None else f"{count:,}"
