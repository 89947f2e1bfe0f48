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

from coalmine.audits.exposure.candidate_scores import CandidateScores, read_candidates
from coalmine.audits.exposure.results import (
    RESULTS_FILE,
    SCORES_FILE,
    ExposureResult,
    Exposures,
    FormatFacts,
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
_WITHHOLD = ", and one training run needs a coin for each: plant with --withhold 0.5"


class ScoredExposures(NamedTuple):
    """The results of `expose`, with the scores of candidates, and the hash of the exposure.json, if they exist."""

    document: Exposures
    candidates: tuple[CandidateScores, ...]
    sha256: str | None = None


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


def load_source(given: Exposures | str | os.PathLike[str]) -> ScoredExposures:
    """Results in memory, the directory that `expose` wrote them to, or that of the model."""
    if isinstance(given, Exposures):
        return ScoredExposures(given, given.candidates, given.saved_sha256)
    path = result_directory(given, "exposure", RESULTS_FILE)
    if path.is_dir():
        path /= RESULTS_FILE
    document, scores = read_exposures(path), path.with_name(SCORES_FILE)
    candidates = tuple(read_candidates(scores)) if scores.exists() else ()
    return ScoredExposures(document, candidates, sha256_of_file(path))


def populations(
    source: ScoredExposures, reference: ScoredExposures | None = None
) -> tuple[list[ScoredPopulation], list[str]]:
    """Each format's canaries by how often they were planted, then pooled; and warnings."""
    if source.document.natural:
        raise NotMeasurableError(
            "membership compares canaries that were planted with others, and these are secrets that were in the data all along; their "
            "exposures say how likely they are by chance"
        )
    compared = _Compared(source, reference)
    found: list[ScoredPopulation] = []
    results = source.document.results
    names = unique_names({facts.format_id: facts.template for facts in source.document.formats})
    for facts in source.document.formats:
        group = [one for one in results if one.format_id == facts.format_id]
        found += compared.of_format(facts, names[facts.format_id], group, alone=len(names) == 1)
    if not found:
        raise NotMeasurableError("membership cannot be measured: " + "; ".join(compared.warnings))
    return found, compared.warnings


class _Compared:
    """The scores of two models, or of one without another, and what is to be said about them."""

    def __init__(self, source: ScoredExposures, reference: ScoredExposures | None) -> None:
        self.source, self.reference = source, reference
        self.warnings = list(source.document.warnings)
        bits = {one.canary_id: one.known_log_perplexity_bits for one in source.document.results}
        self.scores = {name: -own for name, own in bits.items() if own is not None}
        if reference is None:
            return
        if reference.document.manifest_sha256 != source.document.manifest_sha256:
            raise InputError(
                "the reference results are of other canaries: calibration needs both models measured with the same canaries.json"
            )
        before = {one.canary_id: one.known_log_perplexity_bits for one in reference.document.results}
        if before == bits:
            raise InputError(
                "the reference results give every canary the same score as the model, so nothing would be left of what it "
                "remembers; give those of a model that was not trained on the canaries"
            )
        pairs = ((name, before.get(name), own) for name, own in self.scores.items())
        self.scores = {name: other + own for name, other, own in pairs if other is not None}

    def of_format(
        self, facts: FormatFacts, name: str, group: Sequence[ExposureResult], *, alone: bool
    ) -> list[ScoredPopulation]:
        """One population per number of copies, and one of all where there are several numbers; none where there is nothing to compare."""
        others, missing = self._others(facts.format_id)
        lost = [one for one in group if one.canary_id not in self.scores]
        scored = [one for one in group if one.canary_id in self.scores]
        planted = [one for one in scored if one.planted]
        if lost:
            self.warnings.append(
                f"format {name} is compared without those of its canaries that have no score, {len(lost)} of {len(group)}, such as "
                f"{lost[0].canary_id}"
            )
        if not len(others):
            self.warnings.append(
                f"format {name} has no scores of references: withheld canaries alone are compared with; plant with references, and run "
                "`coalmine expose` again"
            )
        if missing:
            self.warnings.append(
                f"{missing:,} references of format {name} were not scored by the reference model and are left out"
            )
        if not planted or len(scored) - len(planted) + len(others) == 0:
            nothing = "there is nothing that was not trained on to compare with"
            what = nothing if planted else "no canary that has a score was planted"
            self.warnings.append(
                f"format {name} is left out: {what}; plant with --withhold 0.5, or with references"
            )
            return []
        changed = sum(one.repetitions != _copies(one) for one in planted)
        if changed:
            gone = sum(one.repetitions == 0 for one in planted)
            self.warnings.append(
                f"{changed} canaries of format {name} are in the training data another number of times than they were planted ({gone} "
                "are not in it at all), because the corpus was rewritten: they are grouped by the copies that were planted, and epsilon is "
                "that of rewriting and training together"
            )
        # A coin decided whether this many copies were planted, whatever a rewritten corpus has left of them.
        rows = [
            ScoredRow(self.scores[one.canary_id], "in" if one.planted else "out", _copies(one), one.canary_id)
            for one in scored
        ]
        found = by_copies(rows, others, form="" if alone else name, advice=_WITHHOLD)
        return [one._replace(format_id=facts.format_id, template=facts.template) for one in found]

    def _others(self, format_id: str) -> tuple[FloatArray, int]:
        """Scores of members of a format that are not canaries, and how many the reference model did not score."""
        mine = _uniform_scores(self.source, format_id)
        if not mine:
            return np.empty(0), 0
        if self.reference is None:
            return -max(mine, key=lambda one: len(one[0]))[1], 0
        known: dict[str, float] = {}
        for theirs, before in _uniform_scores(self.reference, format_id):
            known.update(zip(theirs, before.tolist(), strict=True))
        # Of the kinds that this model scored, the one that the reference model scored most of.
        keys, bits = max(mine, key=lambda one: sum(key in known for key in one[0]))
        shared = [place for place, key in enumerate(keys) if key in known]
        others = np.array([known[keys[place]] for place in shared], dtype=np.float64)
        return others - bits[shared], len(keys) - len(shared)


def by_copies(
    rows: Sequence[ScoredRow], others: FloatArray, *, form: str = "", advice: str = ""
) -> list[ScoredPopulation]:
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
                why_no_coins="" if same else f"no canary{of_these} was withheld by a coin{advice}",
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


def _uniform_scores(source: ScoredExposures, format_id: str) -> list[tuple[list[str], FloatArray]]:
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
