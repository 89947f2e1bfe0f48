"""From scores to decisions: p-values against non-members, the false-discovery rate, and whether the scores say anything at all."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from coalmine.audits.provenance.blind_baseline import LEVEL, blind_baseline
from coalmine.audits.provenance.data_checks import Asks, DataCheck
from coalmine.audits.provenance.options import ProvenanceOptions, candidates
from coalmine.audits.provenance.records import (
    Calibrated,
    Decision,
    Provenance,
    Question,
    StatisticFacts,
    UserRow,
)
from coalmine.audits.provenance.scores import STATISTICS, Available
from coalmine.audits.provenance.users import User, counted
from coalmine.engines.units import Arrays
from coalmine.models.protocols import FloatArray
from coalmine.statistics.multiple_tests import benjamini_hochberg
from coalmine.statistics.provenance.conformal import (
    conformal_p_values,
    p_value_together,
    sides_area,
    sides_p_value,
)
from coalmine.statistics.provenance.detection import measure_detection, undecided

# What the one row of a person is called.
THE_PERSON = "this person"
# Above this p-value of all suspects together, and with nobody found, no report and no gate accuses anyone.
TOGETHER = 0.05
_DECIDING_ALONE = frozenset(one.name for one in STATISTICS if one.decides_alone)


def question_of(
    asks: Asks,
    users: tuple[Sequence[User], Sequence[User]],
    asked: Arrays,
    non_members: Arrays | None,
    there: Available,
    options: ProvenanceOptions,
    checks: tuple[DataCheck, ...] = (),
) -> Question:
    """A question with the scores of all users by every statistic, of which nothing follows yet, and the blind baseline beside it.

    `users` are those who are asked about, and those that they are compared with. By person, these are texts, and there is one row about
    all of them.
    """
    person = options.by == "person"
    scores: dict[str, FloatArray] = {}
    others: dict[str, FloatArray] = {}
    facts = []
    for one in STATISTICS:
        why = one.missing(there)
        if why is None:
            scores[one.name] = one.score(asked[one.name], there)
            if non_members is not None:
                others[one.name] = one.score(non_members[one.name], there)
        facts.append(
            StatisticFacts(
                name=one.name,
                not_applicable=why,
                non_member_scores=_known(others.get(one.name)),
                own_scores=_known(scores.get(one.name)) if person else (),
            )
        )
    blind = None
    if non_members is not None:
        chosen = _chosen(scores, options, non_members=True)
        bits = asked["beside_bits"], non_members["beside_bits"]
        blind = blind_baseline(
            *users,
            scores=None if chosen is None else (scores[chosen], others[chosen]),
            model_bits=None if any(np.isnan(side).all() for side in bits) else bits,
            confidence=options.confidence,
            seed=options.seed,
        )
    counts = {name: asked[name].tolist() for name in ("texts", "tokens", "unknown", "reason")}
    if person:
        counts = {name: [values[0] if name == "reason" else sum(values)] for name, values in counts.items()}
    rows = []
    for place, name in enumerate([THE_PERSON] if person else [user.name for user in users[0]]):
        why = counts["reason"][place] or "the texts have no token that the model knows"
        if counts["tokens"][place]:
            why = "no part of the texts is predicted by the model and by what it is compared with"
        own_scores = {} if person else {key: float(one[place]) for key, one in scores.items()}
        rows.append(
            UserRow(
                user=name,
                texts=counts["texts"][place],
                tokens=counts["tokens"][place],
                unknown_tokens=counts["unknown"][place],
                why=why,
                scores={key: None if np.isnan(score) else score for key, score in own_scores.items()},
            )
        )
    return Question(
        asks=asks,
        rows=tuple(rows),
        statistics=tuple(facts),
        non_members=0 if non_members is None else len(non_members["tokens"]),
        own_texts=len(users[0]) if person else None,
        blind=blind,
        checks=checks,
    )


def _chosen(computed: Collection[str], options: ProvenanceOptions, *, non_members: bool) -> str | None:
    """The statistic that decides, which does not depend on any score."""
    wanted = candidates(options.statistic, non_members=non_members)
    return next((name for name in wanted if name in computed), None)


def decide(
    question: Question, options: ProvenanceOptions, members: Collection[str] | None = None
) -> Question:
    """The same question with all that follows from its scores: p-values, decisions, counts, and why nothing follows from them.

    The statistic that decides was chosen before any score was seen. `members` are those whose texts are in the training data, where that
    is known.
    """
    judged = {
        one.name: _judge(one, question, options.fdr)
        for one in question.statistics
        if one.not_applicable is None
    }
    chosen = _chosen(judged, options, non_members=question.non_members > 0)
    own = None if chosen is None else judged[chosen]
    why = _why(question, own, options)
    silenced = bool(why) and own is not None and own.calibrated == "non-members"
    rows = []
    for place, row in enumerate(question.rows):
        cell = _Cell() if own is None else own.cells[place]
        decision: Decision = "not measured"
        if cell.found is not None:
            decision = "cannot be said" if silenced else "found" if cell.found else "not found"
        unmeasured = "no statistic can be computed for this target" if own is None else row.why
        rows.append(
            msgspec.structs.replace(
                row,
                decision=decision,
                score=cell.score,
                p_value=cell.p_value,
                adjusted_p_value=cell.adjusted,
                why=unmeasured if cell.score is None else None,
                scores={name: one.cells[place].score for name, one in judged.items()},
                p_values={name: one.cells[place].p_value for name, one in judged.items()},
            )
        )
    statistics = []
    for one in question.statistics:
        if one.name in judged:
            cells, calibrated, together = judged[one.name]
            scored = [
                (cell, row.user) for cell, row in zip(cells, rows, strict=True) if cell.score is not None
            ]
            decided = [bool(cell.found) for cell, _ in scored if cell.found is not None]
            truth = one.detection
            if members is not None and scored:
                truth = measure_detection(
                    np.array([cell.score for cell, _ in scored], dtype=float),
                    decided or None,
                    [user in members for _, user in scored],
                    options.confidence,
                )
            one = msgspec.structs.replace(  # noqa: PLW2901
                one,
                decides=one.name == chosen,
                calibrated=calibrated,
                found=sum(decided) if decided and not silenced else None,
                p_value=together,
                detection=undecided(truth) if silenced and truth is not None else truth,
            )
        statistics.append(one)
    return msgspec.structs.replace(question, rows=tuple(rows), statistics=tuple(statistics), why=why)


def decided_again(document: Provenance) -> Provenance:
    """The same result with everything that follows from its scores and counts computed again."""
    questions = tuple(decide(one, document.settings) for one in document.questions)
    return msgspec.structs.replace(document, questions=questions)


class _Cell(NamedTuple):
    """The score of a user by one statistic, and what follows from it; None where there is nothing."""

    score: float | None = None
    p_value: float | None = None
    adjusted: float | None = None
    found: bool | None = None


class _Judged(NamedTuple):
    """What follows from the scores of all users by one statistic, and the p-value of all taken together."""

    cells: Sequence[_Cell]
    calibrated: Calibrated = "nothing"
    together: float | None = None


def _judge(one: StatisticFacts, question: Question, fdr: float) -> _Judged:
    others = one.non_member_scores
    if question.own_texts is not None:
        # All texts of one person against those of the same person that cannot have been used.
        if not (one.own_scores and others):
            return _Judged([_Cell()])
        p_value = sides_p_value(one.own_scores, others)
        cell = _Cell(sides_area(one.own_scores, others), p_value, p_value, p_value <= fdr)
        return _Judged([cell], "non-members", p_value)
    cells = [_Cell(row.scores.get(one.name)) for row in question.rows]
    known = [cell.score for cell in cells if cell.score is not None]
    if known and others:
        p_values = conformal_p_values(known, others).tolist()
        tested = benjamini_hochberg(p_values, fdr)
        numbers = zip(known, p_values, tested.adjusted, tested.shown, strict=True)
        cells = [cell if cell.score is None else _Cell(*next(numbers)) for cell in cells]
        return _Judged(cells, "non-members", p_value_together(p_values, len(others)))
    if known and one.name in _DECIDING_ALONE:
        # The paper's decision: the side of the classifier's hyperplane.
        sides = [cell if cell.score is None else cell._replace(found=cell.score > 0) for cell in cells]
        return _Judged(sides, "shadows")
    return _Judged(cells)


def _known(scores: FloatArray | None) -> tuple[float, ...]:
    """The scores of those who have one, in ascending order."""
    return () if scores is None else tuple(np.sort(scores[~np.isnan(scores)]).tolist())


def _why(question: Question, own: _Judged | None, options: ProvenanceOptions) -> str:
    """Why the scores say nothing; empty where they do."""
    whom = counted(len(question.rows), options.by)
    if own is None:
        why = [
            f"{one.name}: {one.not_applicable}"
            for one in question.statistics
            if one.not_applicable is not None and options.statistic in {None, one.name}
        ]
        return f"no statistic could be computed of {whom} ({'; '.join(why)})"
    if all(cell.score is None for cell in own.cells):
        return f"none of {whom} could be measured"
    if own.calibrated == "non-members":
        reasons = "; ".join(_reasons(question, own, options.fdr))
        return f"{reasons}, so the scores of {whom} say nothing" if reasons else ""
    gone = "there are no known non-members"
    if question.non_members:
        gone = f"none of {counted(question.non_members, 'non-member')} could be measured"
    if own.calibrated == "nothing":
        return f"{gone} to compare the scores of {whom} with"
    return (
        f"{sum(bool(cell.found) for cell in own.cells):,} of {whom} are on the member side of the audit classifier, but {gone} to compare "
        "them with, so there is no p-value, and it is not known how many of them are there by mistake"
    )


def _reasons(question: Question, own: _Judged, fdr: float) -> Iterator[str]:
    """Why scores that were compared with those of non-members say nothing, one clause each."""
    whom, others = sides_of(question)
    told, untested = told_apart(question), _untested(question, own, fdr)
    if told:
        yield f"{whom} can be told from {others} without any model, by {told}"
    elif untested:
        yield f"it is not known whether {whom} differ from {others} in more than the training: {untested}"
    for check in question.checks:
        if check.effect == "spoils":
            yield check.says


def _untested(question: Question, own: _Judged, fdr: float) -> str:
    """Why a blind baseline that told nobody apart says nothing: it must be able to notice a difference as large as that of the scores."""
    blind = question.blind
    if blind is None:
        return "whether they can be told apart without any model was not tried"
    if blind.p_value is None:
        return blind.auc.statement
    if blind.smallest_p_value is None or blind.smallest_p_value > LEVEL:
        return f"with {blind.suspects:,} and {blind.non_members:,} of them, no difference could be noticed without a model"
    found = any((cell.adjusted or 1.0) <= fdr * (1 + 1e-9) for cell in own.cells)
    accused = found or (own.together is not None and own.together <= TOGETHER)
    if accused and (blind.scores_p_value is None or blind.scores_p_value > LEVEL):
        return (
            "a difference of their texts that is as large as that of their scores could have gone unnoticed"
        )
    return ""


def sides_of(question: Question) -> tuple[str, str]:
    """What the blind baseline tried to tell apart, as in "telling suspects from non-members"."""
    if question.own_texts is not None:
        return "the two sides", "each other"
    return "suspects" if question.asks == "texts" else "other texts of suspects", "non-members"


def told_apart(question: Question) -> str:
    """By what users can be told from non-members without a model, in words; empty where they cannot."""
    names = () if question.blind is None else question.blind.separating()
    return f"their {' and '.join(filter(None, [', '.join(names[:-1]), names[-1]]))}" if names else ""
