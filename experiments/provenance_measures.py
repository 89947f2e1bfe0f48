"""Scores of users under a target, and how well they tell members from non-members: the rows of `provenance_paper.py`."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.provenance.fit import Fit
from coalmine.audits.provenance.measure import audit_provenance
from coalmine.audits.provenance.users import AuditedUsers, User
from coalmine.models.protocols import DistributionScore, DistributionScorer, Model, TokenSequence
from coalmine.randomness import arrays
from coalmine.statistics import benjamini_hochberg, conformal_p_values, measure_detection
from coalmine.storage.files import whole_file

RESULTS = Path(__file__).parent / "results"
LEVEL = 0.05
# How often non-members are divided at random into calibration and suspects.
DIVISIONS = 200
Scores = NDArray[np.float64]


class Group(NamedTuple):
    """What was found about some users: a score each by every statistic, and how much was asked."""

    scores: dict[str, Scores]
    texts: float
    tokens_per_text: float
    unknown_share: float


@dataclasses.dataclass(frozen=True)
class Row:
    """How well one statistic tells members from non-members in one setting.

    `accuracy`, `precision` and `recall` are those of the classifier's sign, as in the paper, and empty for other statistics.
    `recall_at_5` is the share of members with a p-value of at most 5% against all non-members. `recall_at_fdr` and `false_share` are
    what Benjamini-Hochberg at 5% finds where half of the non-members are among the suspects: the share of members, and the share of
    non-members among those found, as means over random halves.
    """

    task: str
    part: str
    setting: str
    statistic: str
    members: int
    non_members: int
    auc: float
    auc_low: float | None
    auc_high: float | None
    accuracy: float | None
    precision: float | None
    recall: float | None
    recall_at_5: float
    recall_at_fdr: float
    false_share: float
    texts: float
    tokens_per_text: float


def remembering(model: Model) -> Model:
    """The same model, which answers from memory what it was asked before: one set of texts serves many tables."""
    asked: dict[TokenSequence, DistributionScore] = {}
    score = cast("DistributionScorer", model).score_distribution

    def remembered(sequences: Sequence[TokenSequence]) -> list[DistributionScore]:
        new = [one for one in dict.fromkeys(sequences) if one not in asked]
        asked.update(zip(new, score(new), strict=True))
        return [asked[one] for one in sequences]

    model.score_distribution = remembered  # type: ignore[attr-defined]
    return model


class Audited(NamedTuple):
    """A target, and all that it is audited with; models are asked in this process, where they remember what they were asked."""

    task: str
    target: Model
    fit: Fit
    reference: Sequence[User]

    @classmethod
    def of(cls, task: str, target: Model, fit: Fit, reference: Sequence[User]) -> Audited:
        """With models that remember."""
        for shadow in fit.shadows:
            remembering(shadow)
        return cls(task, remembering(target), fit, reference)

    def scores(self, groups: Mapping[str, Sequence[User]], **options: Any) -> dict[str, Group]:
        """The scores of several groups of users, in one audit: nobody's score depends on who else is asked about."""
        suspects = [
            User(f"{name} {user.name}", user.texts) for name, group in groups.items() for user in group
        ]
        found = audit_provenance(
            self.target,
            AuditedUsers(suspects, reference=self.reference),
            fit=self.fit,
            ablation_texts=0,
            **options,
        )
        rows, first = found.questions[0].rows, 0
        answers = {}
        for name, group in groups.items():
            own = rows[first : first + len(group)]
            first += len(group)
            texts, tokens = sum(row.texts for row in own), sum(row.tokens for row in own)
            unknown = sum(row.unknown_tokens for row in own)
            answers[name] = Group(
                {
                    name: np.array([np.nan if row.scores[name] is None else row.scores[name] for row in own])
                    for name in own[0].scores
                },
                texts / len(own),
                tokens / max(1, texts),
                unknown / max(1, unknown + tokens),
            )
        return answers

    def rows(self, part: str, setting: str, members: Group, non_members: Group) -> list[Row]:
        """A row for each statistic that could be computed."""
        return [
            _row((self.task, part, setting, name), own, non_members.scores[name], members)
            for name, own in members.scores.items()
        ]


def _row(names: tuple[str, str, str, str], members: Scores, others: Scores, asked: Group) -> Row:
    members, others = members[~np.isnan(members)], others[~np.isnan(others)]
    both, truth = np.concatenate([members, others]), np.repeat([True, False], [len(members), len(others)])
    signed = measure_detection(both, both > 0, truth)
    is_signed = names[-1] == "rank-histogram"
    recall_at_fdr, false_share = _at_fdr(members, others)
    return Row(
        *names,
        len(members),
        len(others),
        float(signed.auc.value or 0.0),
        signed.auc.low,
        signed.auc.high,
        signed.accuracy.value if is_signed else None,
        signed.precision.value if is_signed else None,
        signed.recall.value if is_signed else None,
        float(np.mean(conformal_p_values(members, others) <= LEVEL)),
        recall_at_fdr,
        false_share,
        asked.texts,
        asked.tokens_per_text,
    )


def _at_fdr(members: Scores, others: Scores) -> tuple[float, float]:
    """The share of members that are found, and the share of non-members among those found, if half of the others are suspects."""
    drawn = arrays(0, "experiment", "divisions")
    recalls, false_shares = [], []
    for _ in range(DIVISIONS):
        order = drawn.permutation(len(others))
        suspects, calibration = others[order[: len(order) // 2]], others[order[len(order) // 2 :]]
        found = found_at_fdr(np.concatenate([members, suspects]), calibration)
        recalls.append(float(found[: len(members)].mean()))
        false_shares.append(float(found[len(members) :].sum()) / max(1, int(found.sum())))
    return float(np.mean(recalls)), float(np.mean(false_shares))


def found_at_fdr(suspects: Scores, calibration: Scores) -> NDArray[np.bool_]:
    """Who is found by Benjamini-Hochberg at 5%, as an audit does it."""
    p_values = conformal_p_values(suspects, calibration).tolist()
    return np.array(benjamini_hochberg(p_values, LEVEL).shown)


def write_rows(name: str, rows: Iterable[Any]) -> Path:
    """Write records as a CSV file of the results, with four digits after the point."""
    rows = list(rows)
    path = RESULTS / f"{name}.csv"
    with whole_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(
            stream, [field.name for field in dataclasses.fields(rows[0])], lineterminator="\n"
        )
        writer.writeheader()
        for row in rows:
            facts = dataclasses.asdict(row).items()
            writer.writerow({key: round(one, 4) if isinstance(one, float) else one for key, one in facts})
    return path
