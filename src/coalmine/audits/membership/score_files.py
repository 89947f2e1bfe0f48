"""Files of scores from other tools, with in or out for each.

- a table (CSV, JSON Lines or a JSON list of objects) with a column for the score, one for in or out, and where they differ `copies`;
- `{"in": [...], "out": [...]}`, also `in_canary_scores` and `out_canary_scores`, as jax_privacy's `CanaryScoreAuditor` takes them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from coalmine.audits.membership.populations import ScoredPopulation, ScoredRow, by_copies
from coalmine.corpus.planting.foreign_files import (
    COPIES_COLUMNS,
    SIDE_COLUMNS,
    ForeignTable,
    copies_of,
    number_of,
    read_foreign,
    shaped,
    side_of,
)
from coalmine.errors import InputError

# Columns whose name implies a direction; `score` is higher for members by convention.
HIGHER = ("score", "membership_score", "log_likelihood", "logprob", "log_prob")
LOWER = ("loss", "nll", "log_perplexity", "log_perplexity_bits", "perplexity", "cross_entropy")
_IN_LISTS = ("in", "in_scores", "in_canary_scores", "members")
_OUT_LISTS = ("out", "out_scores", "out_canary_scores", "nonmembers")


def read_scores(
    path: str | os.PathLike[str], *, lower_is_member: bool | None = None
) -> tuple[list[ScoredPopulation], str]:
    """The scores of a file, higher for what was trained on: members by their number of copies, then pooled, each compared with all that
    was not trained on; and a sentence on which scores were taken for those of members.

    Without `lower_is_member`, the name of the column says whether lower scores mean "was trained on", as with losses.
    """
    place = Path(path)
    document = read_foreign(place, "the file of scores")
    rows, name = _from_table(document) if isinstance(document, ForeignTable) else _from_lists(place, document)
    lower = name in LOWER if lower_is_member is None else lower_is_member
    said = "as you said" if lower_is_member is not None else f"because the column is {name}" if lower else ""
    direction = f"{'lower' if lower else 'higher'} scores mean trained on, {said}"
    if not said:
        direction = (
            "higher scores were taken to mean trained on; say --lower-is-member if it is the other way"
        )
    for is_in, what in ((True, "that was trained on"), (False, "that was not trained on")):
        if not any((row.side == "in") == is_in for row in rows):
            raise InputError(f"{place} has nothing {what}, and membership compares both; add it")
    if not np.isfinite([row.score for row in rows]).all():
        raise InputError(
            f"{place} has scores that are not finite numbers; leave out what could not be scored"
        )
    rows = [row._replace(score=-row.score if lower else row.score) for row in rows]
    levels = {row.copies for row in rows if row.side == "in"}
    if len(levels) == 1:  # what a coin left out would have been planted as often
        rows = [row._replace(copies=min(levels)) for row in rows]
    others = np.array([row.score for row in rows if row.side == "reference"], dtype=np.float64)
    return by_copies(rows, others), direction


def _from_table(table: ForeignTable) -> tuple[list[ScoredRow], str]:
    side = table.needed(SIDE_COLUMNS, "who was trained on")
    copies = table.column(COPIES_COLUMNS, "the number of copies")
    name = table.needed((*HIGHER, *LOWER), "the scores")
    path = table.path
    return [
        ScoredRow(number_of(row, name, path), side_of(row, side, path), copies_of(row, copies, path))
        for row in table.rows
    ], name


def _from_lists(path: Path, document: Any) -> tuple[list[ScoredRow], str]:
    named = document if isinstance(document, dict) else {}
    ins, outs = ([named[name] for name in names if name in named] for names in (_IN_LISTS, _OUT_LISTS))
    if not len(ins) == len(outs) == 1:
        raise InputError(
            f"{path} is neither a table with scores and in or out, nor two lists named in and out; see "
            "docs/explanation/interpretation.md for the shapes"
        )
    both = shaped(path, [ins[0], outs[0]], tuple[tuple[float, ...], tuple[float, ...]], "two lists of scores")
    return [ScoredRow(score, "in") for score in both[0]] + [ScoredRow(score, "out") for score in both[1]], ""
