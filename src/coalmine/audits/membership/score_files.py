"""Files of scores from other tools, with in or out for each: a table, two lists, or a report of memaudit or TensorFlow Privacy.

- a table (CSV, JSON Lines or a JSON list of objects) with a column for the score, one for in or out, and where they differ `copies`;
- `{"in": [...], "out": [...]}`, also `in_canary_scores` and `out_canary_scores`, as jax_privacy's `CanaryScoreAuditor` takes them;
- `{"perplexities": {"1": [...], "4": [...]}, "perplexities_reference": [...]}`, as TensorFlow Privacy's exposures take them;
- `memaudit-report.json`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from coalmine.audits.membership.populations import ScoredPopulation, ScoredRow, by_copies
from coalmine.corpus.planting.foreign_files import (
    COPIES_COLUMNS,
    MOST_COPIES,
    SIDE_COLUMNS,
    ForeignTable,
    Probability,
    Side,
    copies_of,
    number_of,
    number_of_copies,
    read_foreign,
    shaped,
    side_of,
)
from coalmine.errors import InputError

# Columns whose name implies a direction; `score` is higher for members by the convention of all three tools.
HIGHER = (
    "score",
    "membership_score",
    "headline_score",
    "log_likelihood",
    "log_prob",
    "logprob",
    "mean_logprob",
)
LOWER = ("loss", "nll", "log_perplexity", "log_perplexity_bits", "perplexity", "cross_entropy")
_IN_LISTS = ("in", "in_scores", "in_canary_scores", "members")
_OUT_LISTS = ("out", "out_scores", "out_canary_scores", "nonmembers")
_ASSUMED = "higher scores were taken to mean trained on{}; say --lower-is-member if it is the other way"


class _Perplexities(msgspec.Struct, frozen=True):
    """What is read of the perplexities of TensorFlow Privacy, by number of copies."""

    perplexities: dict[str, tuple[float, ...]]
    perplexities_reference: tuple[float, ...]


class _Headline(msgspec.Struct, frozen=True):
    headline_score: float


class _Reported(msgspec.Struct, frozen=True):
    scores: _Headline
    included: bool
    role: str
    repetitions: Annotated[int, msgspec.Meta(ge=1, le=MOST_COPIES)]


class _Orientation(msgspec.Struct, frozen=True):
    score_orientation: str = ""


class _Scope(msgspec.Struct, frozen=True):
    include_prob: Probability | None = None


class _MemauditReport(msgspec.Struct, frozen=True):
    """What is read of memaudit-report.json."""

    per_canary: tuple[_Reported, ...]
    membership: _Orientation = _Orientation()
    audit_scope: _Scope = _Scope()


class ScoreFile(NamedTuple):
    """What a file of scores says: all shapes become rows.

    `lower_is_member` says whether lower scores are those of members, and `direction` why; `inclusion` is the probability with which a
    coin planted a canary, where the file says it.
    """

    tool: str
    rows: Sequence[ScoredRow]
    lower_is_member: bool
    direction: str
    inclusion: float | None = None

    def populations(self) -> list[ScoredPopulation]:
        """Members by their number of copies, then pooled, each compared with all that was not trained on."""
        sign = -1.0 if self.lower_is_member else 1.0
        rows = [row._replace(score=sign * row.score) for row in self.rows]
        levels = {row.copies for row in rows if row.side == "in"}
        if len(levels) == 1:  # what a coin left out would have been planted as often
            rows = [row._replace(copies=min(levels)) for row in rows]
        others = np.array([row.score for row in rows if row.side == "reference"], dtype=np.float64)
        return by_copies(rows, others)


def read_scores(
    path: str | os.PathLike[str], *, lower_is_member: bool | None = None, column: str | None = None
) -> ScoreFile:
    """The scores of a file, whose kind is detected from its content, and what was assumed while reading it.

    Without `lower_is_member`, the file or the name of the column says whether lower scores mean "was trained on", as with losses.
    `column` is the one of a table that holds the scores.
    """
    place = Path(path)
    document = read_foreign(place, "the file of scores")
    if isinstance(document, ForeignTable):
        found = _from_table(document, column)
    elif isinstance(document, dict) and "per_canary" in document:
        found = _from_memaudit(place, document)
    elif isinstance(document, dict) and {"perplexities", "perplexities_reference"} <= document.keys():
        found = _from_perplexities(place, document)
    else:
        found = _from_lists(place, document)
    if lower_is_member is not None:
        said = "lower" if lower_is_member else "higher"
        found = found._replace(
            lower_is_member=lower_is_member, direction=f"{said} scores mean trained on, as you said"
        )
    elif not found.direction:
        raise InputError(f"{place} does not say which scores mean trained on; say --lower-is-member or not")
    if not all(math.isfinite(row.score) for row in found.rows):
        raise InputError(f"{place} has a score that is not finite; leave out what could not be scored")
    for is_in, what in ((True, "that was trained on"), (False, "that was not trained on")):
        if not any((row.side == "in") == is_in for row in found.rows):
            raise InputError(f"{place} has nothing {what}, and membership compares both; add it")
    return found


def _from_table(table: ForeignTable, column: str | None) -> ScoreFile:
    side = table.needed(SIDE_COLUMNS, "who was trained on")
    copies = table.column(COPIES_COLUMNS, "the number of copies")
    name = table.needed((*HIGHER, *LOWER) if column is None else (column,), "the scores")
    rows = [
        ScoredRow(
            number_of(row, name, table.path),
            side_of(row, side, table.path),
            copies_of(row, copies, table.path),
        )
        for row in table.rows
    ]
    if name in LOWER:
        return ScoreFile("a table", rows, True, f"lower scores mean trained on, because the column is {name}")
    return ScoreFile("a table", rows, False, _ASSUMED.format(f" (column {name})"))


def _from_lists(path: Path, document: Any) -> ScoreFile:
    named = document if isinstance(document, dict) else {}
    ins, outs = ([named[name] for name in names if name in named] for names in (_IN_LISTS, _OUT_LISTS))
    if not len(ins) == len(outs) == 1:
        raise InputError(
            f"{path} is neither a table with scores and in or out, nor two lists named in and out, nor a report of memaudit; see "
            "docs/explanation/interpretation.md for the shapes"
        )
    both = shaped(path, [ins[0], outs[0]], tuple[tuple[float, ...], tuple[float, ...]], "two lists of scores")
    sides: tuple[Side, Side] = ("in", "out")
    rows = [ScoredRow(score, side) for side, scores in zip(sides, both, strict=True) for score in scores]
    return ScoreFile("two lists", rows, False, _ASSUMED.format(""))


def _from_perplexities(path: Path, document: Mapping[str, Any]) -> ScoreFile:
    found = shaped(path, document, _Perplexities, "a file of TensorFlow Privacy's perplexities")
    # References were never in a draw of coins, so one training run shows nothing about epsilon.
    rows = [ScoredRow(score, "reference") for score in found.perplexities_reference]
    for key, values in found.perplexities.items():
        copies = number_of_copies(path, key)
        if copies < 1:
            raise InputError(f"{path} has perplexities of texts with 0 copies; put them with the references")
        rows += [ScoredRow(value, "in", copies) for value in values]
    why = "lower scores mean trained on, because they are perplexities"
    return ScoreFile("TensorFlow Privacy", rows, True, why)


def _from_memaudit(path: Path, document: Mapping[str, Any]) -> ScoreFile:
    found = shaped(path, document, _MemauditReport, "a report of memaudit")
    rows = [
        ScoredRow(
            one.scores.headline_score,
            "reference" if one.role == "control" else "in" if one.included else "out",
            one.repetitions,
        )
        for one in found.per_canary
    ]
    direction = found.membership.score_orientation.partition(" ")[0]
    why = (
        f"{direction} scores mean trained on, as the report says" if direction in {"higher", "lower"} else ""
    )
    return ScoreFile("memaudit", rows, direction == "lower", why, found.audit_scope.include_prob)
