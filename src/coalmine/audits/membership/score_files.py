"""Files of scores from other tools, with in or out for each: a table, two lists, or a report of memaudit or TensorFlow Privacy.

- a table (CSV, JSON Lines or a JSON list of objects) with a column for the score, one for in or out, and where they differ `copies`;
- `{"in": [...], "out": [...]}`, also `in_canary_scores` and `out_canary_scores`, as jax_privacy's `CanaryScoreAuditor` takes them;
- `{"perplexities": {"1": [...], "4": [...]}, "perplexities_reference": [...]}`, as TensorFlow Privacy's exposures take them;
- `memaudit-report.json`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from coalmine.audits.membership.sources import ScoredPopulation
from coalmine.corpus.planting.foreign_files import (
    COPIES_COLUMNS,
    MOST_COPIES,
    SIDE_COLUMNS,
    Probability,
    Row,
    Side,
    Table,
    copies_of,
    csv_table,
    is_number,
    number_of,
    number_of_copies,
    read_foreign,
    shaped,
    side_of,
)
from coalmine.errors import InputError
from coalmine.statistics.scores import membership_scores
from coalmine.storage.files import read_text

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


class _Perplexities(msgspec.Struct, frozen=True):
    """What is read of the perplexities of TensorFlow Privacy, by number of copies."""

    perplexities: dict[str, tuple[float, ...]]
    perplexities_reference: tuple[float, ...]


class _Headline(msgspec.Struct, frozen=True):
    headline_score: float | None


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
    membership: _Orientation | None = None
    audit_scope: _Scope | None = None


class ScoredRow(NamedTuple):
    """One score, as its file has it."""

    score: float
    side: Side
    # Copies that were trained on, or were meant to be; None where the file does not say it.
    copies: int | None


class ScoreFile(NamedTuple):
    """What a file of scores says."""

    tool: str
    rows: Sequence[ScoredRow]
    # Whether lower scores were read as those of members, and have their sign changed.
    lower_is_member: bool
    # The probability with which a coin planted a canary, where the file says it.
    inclusion: float | None
    # One sentence each.
    notes: tuple[str, ...]

    def populations(self) -> list[ScoredPopulation]:
        """Members by their number of copies, then pooled, each compared with all that was not trained on."""
        sign = -1.0 if self.lower_is_member else 1.0
        members = [row for row in self.rows if row.side == "in"]
        others = [sign * row.score for row in self.rows if row.side != "in"]
        tossed = [row for row in self.rows if row.side == "out"]
        levels = sorted({row.copies or 1 for row in members})
        found = []
        for copies in [*levels, *([None] if len(levels) > 1 else [])]:
            some = [sign * row.score for row in members if copies in {None, row.copies or 1}]
            coins = [sign * row.score for row in tossed if len(levels) == 1 or copies in {None, row.copies}]
            scores = membership_scores(some, others)
            which = "" if copies is None else "of so many copies "
            found.append(
                ScoredPopulation(
                    msgspec.UNSET,
                    None,
                    copies or levels[-1],
                    pooled=copies is None,
                    scores=scores,
                    coins=membership_scores(some, coins) if coins else None,
                    why_no_coins="" if coins else f"the file has no canaries {which}that a coin left out",
                )
            )
        return found


def read_scores(
    path: str | os.PathLike[str], *, lower_is_member: bool | None = None, column: str | None = None
) -> ScoreFile:
    """The scores of a file, and what was assumed while reading it.

    Args:
        path: the file; its kind is detected from its content.
        lower_is_member: whether lower scores mean "was trained on", as with losses. None takes what the file says, or what the
            name of the column means, and says so.
        column: the column of a table that holds the scores.
    """
    place = Path(path)
    document = read_foreign(place, "the file of scores")
    if isinstance(document, Table):
        found = _from_table(document, column)
    elif column is not None:
        raise InputError(f"a column was named, but {place} is not a table; leave it out")
    elif isinstance(document, dict) and "per_canary" in document:
        found = _from_memaudit(place, document)
    elif isinstance(document, dict) and {"perplexities", "perplexities_reference"} <= document.keys():
        found = _from_perplexities(place, document)
    else:
        found = _from_lists(place, document)
    if lower_is_member is not None:
        said = "lower" if lower_is_member else "higher"
        found = found._replace(
            lower_is_member=lower_is_member,
            notes=(*found.notes[:-1], f"{said} scores mean trained on, as you said"),
        )
    for side, what in (("in", "that was trained on"), ("out", "that was not trained on")):
        if not any((row.side == "in") == (side == "in") for row in found.rows):
            raise InputError(f"{place} has nothing {what}, and membership compares both; add it")
    return found


def read_score_file(path: Path) -> list[float]:
    """The scores of a CSV: one number per line, or the column `score` under a header."""
    text = read_text(path, "the file of scores")
    table = csv_table(path, text, ("score",) if is_number(text.partition("\n")[0]) else ())
    column = table.needed(("score",), "the scores")
    return [number_of(row, column, path) for row in table.rows]


def _from_table(table: Table, column: str | None) -> ScoreFile:
    side = table.needed(SIDE_COLUMNS, "who was trained on")
    copies = table.column(COPIES_COLUMNS, "the number of copies")
    name = table.needed((*HIGHER, *LOWER) if column is None else (column,), "the scores")
    rows = [
        ScoredRow(
            number_of(row, name, table.path),
            side_of(row, side, table.path),
            None if copies is None else copies_of(row, copies, table.path),
        )
        for row in table.rows
    ]
    if name in LOWER:
        direction = f"lower scores mean trained on, because the column is {name}"
    else:
        direction = f"higher scores were taken to mean trained on (column {name}); say --lower-is-member if it is the other way"
    return ScoreFile("a table", rows, name in LOWER, None, (direction,))


def _from_lists(path: Path, document: Any) -> ScoreFile:
    if isinstance(document, dict):
        ins = [name for name in _IN_LISTS if isinstance(document.get(name), list)]
        outs = [name for name in _OUT_LISTS if isinstance(document.get(name), list)]
        if len(ins) == len(outs) == 1:
            sides: dict[str, Side] = {ins[0]: "in", outs[0]: "out"}
            rows = [
                ScoredRow(_number(path, value, f"entry {number} of {name}"), side, None)
                for name, side in sides.items()
                for number, value in enumerate(document[name])
            ]
            note = "higher scores were taken to mean trained on; say --lower-is-member if it is the other way"
            return ScoreFile("two lists", rows, False, None, (note,))
    raise InputError(
        f"{path} is neither a table with scores and in or out, nor two lists named in and out, nor a report of memaudit; see "
        "docs/explanation/interpretation.md for the shapes"
    )


def _from_perplexities(path: Path, document: Mapping[str, Any]) -> ScoreFile:
    found = shaped(path, document, _Perplexities, "a file of TensorFlow Privacy's perplexities")
    rows: list[ScoredRow] = []
    for key, values in found.perplexities.items():
        copies = number_of_copies(path, key)
        if copies < 1:
            raise InputError(f"{path} has perplexities of texts with 0 copies; put them with the references")
        rows += [
            ScoredRow(_number(path, value, f"perplexity {number} of {copies}"), "in", copies)
            for number, value in enumerate(values)
        ]
    rows += [
        ScoredRow(_number(path, value, f"reference {number}"), "reference", None)
        for number, value in enumerate(found.perplexities_reference)
    ]
    notes = (
        "references were never in a draw of coins, so one training run shows nothing about epsilon",
        "lower scores mean trained on, because they are perplexities",
    )
    return ScoreFile("TensorFlow Privacy", rows, True, None, notes)


def _from_memaudit(path: Path, document: Mapping[str, Any]) -> ScoreFile:
    found = shaped(path, document, _MemauditReport, "a report of memaudit")
    rows = []
    for number, one in enumerate(found.per_canary):
        side: Side = "reference" if one.role == "control" else "in" if one.included else "out"
        where = f"the headline score of canary {number}"
        rows.append(ScoredRow(_number(path, one.scores.headline_score, where), side, one.repetitions))
    orientation = "" if found.membership is None else found.membership.score_orientation
    if not orientation.startswith(("higher", "lower")):
        raise InputError(f"{path} does not say which scores mean trained on; say --lower-is-member or not")
    lower = orientation.startswith("lower")
    note = f"{'lower' if lower else 'higher'} scores mean trained on, as the report says"
    inclusion = None if found.audit_scope is None else found.audit_scope.include_prob
    return ScoreFile("memaudit", rows, lower, inclusion, (note,))


def _number(path: Path, value: Any, where: str) -> float:
    return number_of(Row(where, {"score": value}), "score", path)
