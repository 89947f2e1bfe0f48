"""Scores of members of a format that are not canaries: what planted canaries are compared with, next to the withheld ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure.candidate_scores import CandidateScores
from coalmine.audits.exposure.results import ExposureResult, Exposures
from coalmine.statistics.scores import FloatArray

# Kinds of candidates that are members of the space like any other; guided draws are not, because they were drawn for their scores.
# Of kinds with equally many, the first is taken: references were drawn before the training.
_UNIFORM = ("reference", "sample", "member")


class ScoredExposures(NamedTuple):
    """The results of `expose`, with the scores of candidates if they exist."""

    document: Exposures
    candidates: tuple[CandidateScores, ...]
    # Of the exposure.json, where there is one.
    sha256: str | None = None


def other_scores(
    source: ScoredExposures,
    reference: ScoredExposures | None,
    format_id: str,
    name: str,
    canaries: Sequence[ExposureResult],
) -> tuple[FloatArray, list[str]]:
    """Scores of members that are not canaries, and warnings."""
    mine = [_without_canaries(source, one, canaries) for one in _uniform_candidates(source, format_id)]
    if not mine:
        note = (
            f"format {name} has no scores of references: withheld canaries alone are compared with; plant with references, and run "
            "`coalmine expose` again"
        )
        return np.empty(0), [note]
    if reference is None:
        return -max(mine, key=lambda one: len(one[0]))[1], []
    known: dict[str, float] = {}
    for theirs in _uniform_candidates(reference, format_id):
        known.update(
            zip(theirs.indices.astype(str).tolist(), theirs.log_perplexities_bits.tolist(), strict=True)
        )
    # Of the kinds that this model scored, the one that the reference model scored most of.
    keys, bits = max(mine, key=lambda one: sum(key in known for key in one[0]))
    shared = np.array([key in known for key in keys], dtype=bool)
    before = np.array([known[key] for key in keys if key in known], dtype=np.float64)
    missing = int(np.sum(~shared))
    notes = (
        [f"{missing:,} references of format {name} were not scored by the reference model and are left out"]
        if missing
        else []
    )
    return before - bits[shared], notes


def _without_canaries(
    source: ScoredExposures, candidates: CandidateScores, canaries: Sequence[ExposureResult]
) -> tuple[list[str], FloatArray]:
    """The indices and scores of candidates that are not canaries."""
    keys, bits = candidates.indices.astype(str), candidates.log_perplexities_bits
    rows = [one for one in source.candidates if (one.format_id, one.kind) == (candidates.format_id, "canary")]
    if rows:
        keep = ~np.isin(keys, rows[0].indices.astype(str))
    elif candidates.kind == "member":
        # Results of an earlier version do not say which members are the canaries.
        keep = _rows_of_others(bits, [result.log_perplexity_bits for result in canaries])
    else:
        keep = np.ones(len(keys), dtype=bool)
    return keys[keep].tolist(), bits[keep]


def _rows_of_others(bits: FloatArray, canary_bits: Sequence[float]) -> NDArray[np.bool_]:
    """Which rows of all members are not canaries, each of which is the closest one to its score that is left."""
    order = np.argsort(bits, kind="stable")
    left = np.ones(len(bits), dtype=bool)
    for score in canary_bits:
        places = np.flatnonzero(left)
        near = int(np.argmin(np.abs(bits[order[places]] - score)))
        left[places[near]] = False
    rows = np.zeros(len(bits), dtype=bool)
    rows[order[left]] = True
    return rows


def _uniform_candidates(source: ScoredExposures, format_id: str) -> list[CandidateScores]:
    of_format = [one for one in source.candidates if one.format_id == format_id and one.kind in _UNIFORM]
    return sorted(of_format, key=lambda one: _UNIFORM.index(one.kind))
