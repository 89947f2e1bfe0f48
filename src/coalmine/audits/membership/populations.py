"""Populations of members and non-members, from the results of `expose`.

A score is minus a log-perplexity in bits, so that higher means "was trained on". With a reference model it is by how much the
reference model's log-perplexity is higher. Scores of different formats are never mixed: one format may be less surprising than
another for reasons that have nothing to do with training.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from coalmine.audits.exposure.results import (
    RESULTS_FILE,
    SCORES_FILE,
    ExposureResult,
    Exposures,
    read_candidates,
    read_exposures,
)
from coalmine.corpus.planting.foreign_files import Side
from coalmine.errors import InputError, NotMeasurableError
from coalmine.evidence.directories import result_directory
from coalmine.evidence.words import times_in_words
from coalmine.formats.naming import unique_names
from coalmine.statistics.scores import FloatArray, MembershipScores, membership_scores
from coalmine.storage.files import sha256_of_file

# Kinds of candidates that are members of the space like any other; guided draws are not, because they were drawn for their scores.
# Of kinds with equally many, the first is taken: references were drawn before the training.
_UNIFORM = ("reference", "sample", "member")
WITHHOLD = ", and one training run needs a coin for each: plant with --withhold 0.5"


class ScoredRow(NamedTuple):
    """The score of a canary that was planted or withheld, and how often it was, or would have been, planted."""

    score: float
    side: Side
    copies: int = 1
    canary_id: str = ""


class ScoredPopulation(NamedTuple):
    """The scores of one population; `coins` are those of canaries with a coin, and None where it is not known which these are."""

    name: str
    copies: int
    scores: MembershipScores
    coins: MembershipScores | None = None
    why_no_coins: str = ""
    pooled: bool = False
    format_id: str | None = None
    template: str | None = None
    # The planted canaries that have a score.
    canary_ids: tuple[str, ...] = ()


def load_source(given: Exposures | str | os.PathLike[str]) -> Exposures:
    """Results in memory, or in the directory that `expose` wrote them to, or that of the model, with the scores of candidates."""
    if isinstance(given, Exposures):
        return given
    path = result_directory(given, "exposure", RESULTS_FILE)
    if path.is_dir():
        path /= RESULTS_FILE
    document, scores = read_exposures(path), path.with_name(SCORES_FILE)
    return document.beside(read_candidates(scores) if scores.exists() else (), sha256_of_file(path))


def populations(
    source: Exposures, reference: Exposures | None = None
) -> tuple[list[ScoredPopulation], list[str]]:
    """One population per format and number of copies, and one of all where a format has several numbers; and warnings."""
    if source.natural:
        raise NotMeasurableError(
            "membership compares canaries that were planted with others, and these are secrets that were in the data all along; their "
            "exposures say how likely they are by chance"
        )
    scores, warnings = _scores_of_canaries(source, reference), list(source.warnings)
    found: list[ScoredPopulation] = []
    names = unique_names({facts.format_id: facts.template for facts in source.formats})
    for format_id, name in names.items():
        others = _others(source, reference, format_id)
        group = [one for one in source.results if one.format_id == format_id]
        scored = [one for one in group if one.canary_id in scores]
        planted = [one for one in scored if one.planted]
        if len(scored) < len(group):
            warnings.append(
                f"{len(group) - len(scored)} of {len(group)} canaries of format {name} have no score"
            )
        if not len(others):
            warnings.append(
                f"format {name} has no scores of references: withheld canaries alone are compared with; plant with references, and run "
                "`coalmine expose` again"
            )
        if not planted or len(scored) - len(planted) + len(others) == 0:
            nothing = "there is nothing that was not trained on to compare with"
            what = nothing if planted else "no canary that has a score was planted"
            warnings.append(
                f"format {name} is left out: {what}; plant with --withhold 0.5, or with references"
            )
            continue
        changed = sum(one.repetitions != _copies(one) for one in planted)
        if changed:
            gone = sum(one.repetitions == 0 for one in planted)
            warnings.append(
                f"{changed} canaries of format {name} are in the training data another number of times than they were planted ({gone} "
                "are not in it at all): epsilon is that of rewriting and training together"
            )
        # A coin decided whether this many copies were planted, whatever a rewritten corpus has left of them.
        rows = [
            ScoredRow(scores[one.canary_id], "in" if one.planted else "out", _copies(one), one.canary_id)
            for one in scored
        ]
        template = next(facts.template for facts in source.formats if facts.format_id == format_id)
        every = by_copies(rows, others, form="" if len(names) == 1 else name)
        found += [one._replace(format_id=format_id, template=template) for one in every]
    if not found:
        raise NotMeasurableError("membership cannot be measured: " + "; ".join(warnings))
    return found, warnings


def _scores_of_canaries(source: Exposures, reference: Exposures | None) -> dict[str, float]:
    bits, *before = (
        {one.canary_id: one.known_log_perplexity_bits for one in document.results}
        for document in (source, reference)
        if document is not None
    )
    scores = {name: -own for name, own in bits.items() if own is not None}
    if reference is None:
        return scores
    if reference.manifest_sha256 != source.manifest_sha256:
        raise InputError(
            "the reference results are of other canaries: calibration needs both models measured with the same canaries.json"
        )
    if before == [bits]:
        raise InputError(
            "the reference results give every canary the score that the model gives it; give those of a model that was not trained on "
            "the canaries"
        )
    pairs = ((name, before[0].get(name), own) for name, own in scores.items())
    return {name: other + own for name, other, own in pairs if other is not None}


def _others(source: Exposures, reference: Exposures | None, format_id: str) -> FloatArray:
    """Scores of members of a format that are not canaries, of those that the reference model scored too."""
    mine = _uniform_scores(source, format_id)
    if not mine:
        return np.empty(0)
    if reference is None:
        return -max(mine, key=lambda one: len(one[0]))[1]
    known: dict[str, float] = {}
    for theirs, before in _uniform_scores(reference, format_id):
        known.update(zip(theirs, before.tolist(), strict=True))
    # Of the kinds that this model scored, the one that the reference model scored most of.
    keys, bits = max(mine, key=lambda one: sum(key in known for key in one[0]))
    shared = [place for place, key in enumerate(keys) if key in known]
    return np.array([known[keys[place]] for place in shared], dtype=np.float64) - bits[shared]


def by_copies(rows: Sequence[ScoredRow], others: FloatArray, *, form: str = "") -> list[ScoredPopulation]:
    """One population per number of copies, and one of all where there are several numbers, each compared with all that is not in."""
    members = [row for row in rows if row.side == "in"]
    tossed = [row for row in rows if row.side == "out"]
    outside = np.concatenate([_scores(tossed), others])
    levels = sorted({row.copies for row in members})
    found = []
    for copies in [*levels, *([None] if len(levels) > 1 else [])]:
        some = [row for row in members if copies in {None, row.copies}]
        same = [row for row in tossed if copies in {None, row.copies}]
        of_these = f" that was to be planted {times_in_words(copies)}" if copies and tossed else ""
        times = "pooled" if copies is None else times_in_words(copies)
        found.append(
            ScoredPopulation(
                f"{form}, {times}" if form else times,
                copies or levels[-1],
                membership_scores(_scores(some), outside),
                coins=membership_scores(_scores(some), _scores(same)) if same else None,
                why_no_coins="" if same else f"no canary{of_these} was withheld by a coin{WITHHOLD}",
                pooled=copies is None,
                canary_ids=tuple(row.canary_id for row in some if row.canary_id),
            )
        )
    return found


def _scores(rows: Sequence[ScoredRow]) -> FloatArray:
    return np.array([row.score for row in rows], dtype=np.float64)


def _copies(result: ExposureResult) -> int:
    """How often a canary was planted, or would have been."""
    return result.planned_repetitions or result.repetitions


def _uniform_scores(source: Exposures, format_id: str) -> list[tuple[list[str], FloatArray]]:
    """The indices and scores of candidates of a format that are not canaries, of each kind that was drawn uniformly."""
    own = {one.kind: one for one in source.candidates if one.format_id == format_id}
    canaries = own["canary"].indices.astype(str) if "canary" in own else ()
    found = []
    for kind in _UNIFORM:
        if kind in own:
            keys = own[kind].indices.astype(str)
            keep = ~np.isin(keys, canaries)
            found.append((keys[keep].tolist(), own[kind].log_perplexities_bits[keep]))
    return found
