"""Results of provenance audits: a row per user for each question, what was checked about the data, and the file provenance.json."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from coalmine.audits.provenance.blind_baseline import BlindBaseline
from coalmine.audits.provenance.data_checks import Asks, DataCheck
from coalmine.audits.provenance.options import ProvenanceOptions
from coalmine.audits.provenance.users import masked_names
from coalmine.records.documents import Document, Origin, differences
from coalmine.records.estimate import Count, Positive, Share
from coalmine.statistics.provenance.detection import Detection
from coalmine.visible import visible

SCHEMA = "coalmine.provenance/3"
RESULT_FILE = "provenance.json"

Decision = Literal["found", "not found", "cannot be said", "not measured"]
# How scores become decisions: by known non-members that the target was asked about, by the audit classifier alone, or not at all.
Calibrated = Literal["non-members", "shadows", "nothing"]


class UserRow(msgspec.Struct, frozen=True, kw_only=True):
    """What was found about one user, by the statistic that decides and by the others.

    `decision` is "found" where the text of the user was used for training, at the false-discovery rate of the audit; "not found" does not
    mean that it was not used; "cannot be said" is for scores that say nothing about training, whatever they are.
    """

    user: str
    decision: Decision = "not measured"
    # Higher means "was trained on"; None where the model could not be asked, and `why` says why.
    score: float | None = None
    # The probability of a score as high for a user who is not in the training data; None without known non-members.
    p_value: Share | None = None
    # The lowest false-discovery rate at which the user is found.
    adjusted_p_value: Share | None = None
    texts: Count
    tokens: Count
    unknown_tokens: Count = 0
    why: str | None = None
    # By all statistics, the deciding one included.
    scores: dict[str, float | None] = {}
    p_values: dict[str, float | None] = {}


class StatisticFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How one statistic did in one question."""

    name: str
    # Why it could not be computed; None where it was.
    not_applicable: str | None = None
    decides: bool = False
    calibrated: Calibrated = "nothing"
    # How many users are found by it at the false-discovery rate of the audit; None where scores say nothing.
    found: Count | None = None
    # The probability of scores as high, all taken together, if no suspect is in the training data (`p_value_together`).
    p_value: Share | None = None
    # The scores of non-members, in ascending order.
    non_member_scores: tuple[float, ...] = ()
    # By person: those of the texts that are asked about, in ascending order.
    own_scores: tuple[float, ...] = ()
    # Where the truth is known.
    detection: Detection | None = None


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One question about all suspects: whether these very texts were used ("texts"), or whether these users took part ("user")."""

    asks: Asks
    rows: tuple[UserRow, ...]
    statistics: tuple[StatisticFacts, ...]
    non_members: Count
    # By person: how many texts, or groups of texts, are asked about; `non_members` are then as many others of the same person. The one row
    # has the share of pairs of the two in which the first scores higher, and the p-value of the test of all texts (`sides_p_value`).
    own_texts: Count | None = None
    # Whether the users can be told from non-members without the model, and what else was noticed about their texts.
    blind: BlindBaseline | None = None
    checks: tuple[DataCheck, ...] = ()
    # Why nothing follows from the scores; empty where something does.
    why: str = ""

    @property
    def deciding(self) -> StatisticFacts | None:
        """The statistic that decides; None where none could be computed."""
        return next((one for one in self.statistics if one.decides), None)

    @property
    def scores(self) -> tuple[float, ...]:
        """Those that were compared with non-members', by the statistic that decides."""
        own = () if self.deciding is None else self.deciding.own_scores
        return own or tuple(row.score for row in self.rows if row.score is not None)

    def found(self) -> tuple[UserRow, ...]:
        """The users that are found."""
        return tuple(row for row in self.rows if row.decision == "found")


class WordPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A point of a figure about words, of suspects or of non-members.

    "ranks" are the mean ranks `y` of words at a place `x` of the table of frequencies, from 0 (most frequent) to 1, with an interval over
    users. "log-probabilities" are the shares `y` of words between `x` and `to` bits, and the leftmost bin has what is less likely.
    "ablation" is the share `y` of words that are predicted while a random share `x` of the last hidden layer is set to zero.
    """

    figure: Literal["ranks", "log-probabilities", "ablation"]
    group: Literal["suspects", "non-members"]
    # Of the most frequent words of the table, a fifth or for ablation a tenth, or of all others; None for ranks.
    words: Literal["frequent", "rare"] | None = None
    x: float
    to: float | None = None
    y: float
    low: float | None = None
    high: float | None = None


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the texts of users were used to train a model; provenance.json. Names of users are in it, so that only you can read it.

    >>> result = audit_provenance(model, AuditedUsers(suspects, non_members=others))  # doctest: +SKIP
    >>> [(row.user, row.p_value, row.decision) for row in result.questions[0].rows]  # doctest: +SKIP
    [('ann', 0.005, 'found'), ('bob', 0.61, 'not found')]
    """

    schema: str = SCHEMA
    model: dict[str, Any]
    reference_model: dict[str, Any] | None = None
    # Of the provenance-fit.json that the shadows and the classifier come from, and how many shadows there are.
    fit_sha256: str | None = None
    shadows: Count = 0
    settings: ProvenanceOptions
    # What the target shows: how many tokens it ranks, how many it lists, and whether it gives probabilities.
    ranked: Positive | None
    top: Positive | None
    probabilities: bool
    questions: tuple[Question, ...]
    # Of the three figures about words, as far as the target and the options allow for them.
    words: tuple[WordPoint, ...] = ()
    # Hashes of the corpora, by role.
    data_sha256: dict[str, str] = {}
    warnings: tuple[str, ...] = ()

    def names(self, *, reveal: bool = False) -> dict[str, str]:
        """What each user is called, the same in all questions: "user 3" is the third row of the first; with `reveal`, the name itself."""
        names = [row.user for question in self.questions for row in question.rows]
        return {name: visible(name) for name in names} if reveal else masked_names(names, self.settings.by)

    def without_names(self) -> Provenance:
        """The same result with users called by numbers, for whoever may not see their names."""
        names, renamed = self.names(), []
        for question in self.questions:
            rows = tuple(msgspec.structs.replace(row, user=names[row.user]) for row in question.rows)
            renamed.append(msgspec.structs.replace(question, rows=rows))
        return msgspec.structs.replace(self, questions=tuple(renamed))

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Write provenance.json, readable by its owner only; returns its path."""
        return PROVENANCES.save(directory, self)


def _again(_: Path, found: Provenance) -> Iterator[str]:
    """P-values, decisions and counts follow from the scores."""
    from coalmine.audits.provenance.deciding import decided_again

    yield from differences(found, decided_again(found))


PROVENANCES = Document(
    record=Provenance,
    schema=SCHEMA,
    file=RESULT_FILE,
    title="provenance",
    by="`coalmine provenance`",
    again=_again,
    origin=Origin(
        model=lambda found: found.model,
    ),
)
"""provenance.json: `run.all(PROVENANCES)` gives the results of `coalmine provenance` in a run."""


def read_provenance(path: str | os.PathLike[str]) -> Provenance:
    """A provenance.json, or the one in a directory.

    >>> read_provenance("model-audit/provenance").questions[0].rows[0].decision  # doctest: +SKIP
    'found'
    """
    return PROVENANCES.load(path)
