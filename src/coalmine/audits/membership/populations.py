"""Populations of members and non-members, from the results of `expose`.

A score is minus a log-perplexity in bits, so that higher means "was trained on". With a reference model it is by how much the
reference model's log-perplexity is higher. Scores of different formats are never mixed: one format may be less surprising than
another for reasons that have nothing to do with training.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from coalmine.audits.exposure.candidate_scores import CandidateScores, read_candidates
from coalmine.audits.exposure.estimators import estimator_of
from coalmine.audits.exposure.results import (
    RESULTS_FILE,
    SCORES_FILE,
    ExposureResult,
    Exposures,
    FormatFacts,
    read_exposures,
)
from coalmine.audits.membership.records import ProvenCanary
from coalmine.corpus.planting.foreign_files import Side
from coalmine.errors import InputError, NotMeasurableError
from coalmine.evidence.directories import result_directory
from coalmine.evidence.words import times_in_words
from coalmine.formats.naming import unique_names
from coalmine.grouped import grouped
from coalmine.statistics.scores import FloatArray, MembershipScores, membership_scores
from coalmine.storage.files import sha256_of_file

# The probability, at most, that chance alone makes one canary of the audit stand out; a report has the same error rate.
CHANCE = 0.025
# Kinds of candidates that are members of the space like any other; guided draws are not, because they were drawn for their scores.
# Of kinds with equally many, the first is taken: references were drawn before the training.
_UNIFORM = ("reference", "sample", "member")
_WITHHOLD = ", and one training run needs a coin for each: plant with --withhold 0.5"
_NATURAL = "nobody tossed a coin for secrets that were found, and one training run needs a coin for each: plant canaries of this kind"


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
    # Of its format; for secrets that were found, `format_id` is their kind.
    format_id: str | None = None
    template: str | None = None
    natural: bool = False
    # The planted canaries that have a score, those of them that are proven to be memorized, and how many have none.
    canary_ids: tuple[str, ...] = ()
    proven: tuple[ProvenCanary, ...] = ()
    unscored: int = 0


def population_name(copies: int | None, form: str = "") -> str:
    """What people call a population: how often its canaries were planted, or "pooled", and its format where there are several.

    >>> population_name(4), population_name(None, "my pin is {digits:4}")
    ('4 times', 'my pin is {digits:4}, pooled')
    """
    times = "pooled" if copies is None else times_in_words(copies)
    return f"{form}, {times}" if form else times


def load_source(given: Exposures | str | os.PathLike[str]) -> ScoredExposures:
    """Results in memory, the directory that `expose` wrote them to, or that of the model."""
    if isinstance(given, Exposures):
        return ScoredExposures(given, given.candidates, given.saved_sha256)
    path = result_directory(given, "exposure", RESULTS_FILE)
    if path.is_dir():
        path /= RESULTS_FILE
    document = read_exposures(path)
    scores = path.with_name(SCORES_FILE)
    candidates = tuple(read_candidates(scores)) if scores.exists() else ()
    return ScoredExposures(document, candidates, sha256_of_file(path))


def populations(
    source: ScoredExposures, reference: ScoredExposures | None = None
) -> tuple[list[ScoredPopulation], list[str]]:
    """Each format's canaries by how often they were planted, then pooled; and warnings."""
    _check_reference(source, reference)
    scores, warnings = _canary_scores(source, reference), list(source.document.warnings)
    found: list[ScoredPopulation] = []
    if source.document.natural:
        groups = grouped((str(one.kind), one) for one in source.document.results if one.planted)
        for kind, group in groups.items():
            found += _of_kind(kind, group, source, reference, scores, warnings)
    else:
        names = unique_names({facts.format_id: facts.template for facts in source.document.formats})
        for facts in source.document.formats:
            found += _of_format(facts, names, source, reference, scores, warnings)
    if not found:
        raise NotMeasurableError("membership cannot be measured: " + "; ".join(warnings))
    return found, warnings


def _check_reference(source: ScoredExposures, reference: ScoredExposures | None) -> None:
    if reference is None:
        return
    if reference.document.manifest_sha256 != source.document.manifest_sha256:
        raise InputError(
            "the reference results are of other canaries: calibration needs both models measured with the same canaries.json"
        )
    if _canary_scores(source, None) == _canary_scores(reference, None):
        raise InputError(
            "the reference results give every canary the same score as the model, so nothing would be left of what it "
            "remembers; give those of a model that was not trained on the canaries"
        )


def _canary_scores(source: ScoredExposures, reference: ScoredExposures | None) -> dict[str, float]:
    """The score of each canary that both models could score, by its id."""
    bits = {one.canary_id: one.known_log_perplexity_bits for one in source.document.results}
    if reference is None:
        return {name: -own for name, own in bits.items() if own is not None}
    before = {one.canary_id: one.known_log_perplexity_bits for one in reference.document.results}
    pairs = ((name, before.get(name), own) for name, own in bits.items())
    return {name: other - own for name, other, own in pairs if own is not None and other is not None}


def _of_kind(
    kind: str,
    group: Sequence[ExposureResult],
    source: ScoredExposures,
    reference: ScoredExposures | None,
    scores: Mapping[str, float],
    warnings: list[str],
) -> list[ScoredPopulation]:
    """The secrets of one kind that were found.

    Each has a format of its own, so its score and those of its references are taken relative to their median. Without
    memorization a secret is as likely as any of its references, whatever its context.
    """
    inside, outside, used = list[float](), list[FloatArray](), list[ExposureResult]()
    for one in group:
        others, _ = _other_scores(source, reference, one.format_id, kind)
        if one.canary_id in scores and len(others):
            middle = float(np.median(others))
            inside.append(scores[one.canary_id] - middle)
            outside.append(others - middle)
            used.append(one)
    if len(used) < len(group):
        missing = len(group) - len(used)
        warnings.append(f"{missing} of {len(group)} secrets of the kind {kind} have no scores to compare")
    if not used:
        return []
    return [
        ScoredPopulation(
            kind,
            max(one.repetitions for one in used),
            MembershipScores(np.array(inside), np.concatenate(outside)),
            why_no_coins=_NATURAL,
            format_id=kind,
            natural=True,
            canary_ids=tuple(one.canary_id for one in used),
            proven=proven_canaries(used, sum(one.planted for one in source.document.results)),
        )
    ]


def _of_format(
    facts: FormatFacts,
    names: Mapping[str, str],
    source: ScoredExposures,
    reference: ScoredExposures | None,
    scores: Mapping[str, float],
    warnings: list[str],
) -> list[ScoredPopulation]:
    """One population per number of copies, and one of all where there are several numbers; none where there is nothing to compare."""
    name = names[facts.format_id]
    group = [one for one in source.document.results if one.format_id == facts.format_id]
    lost = [one for one in group if one.canary_id not in scores]
    planted = [one for one in group if one.planted and one.canary_id in scores]
    withheld = [one for one in group if not one.planted and one.canary_id in scores]
    others, notes = _other_scores(source, reference, facts.format_id, name)
    if lost:
        notes.insert(0, _without_score(name, len(group), lost, reference))
    if not planted or not len(withheld) + len(others):
        nothing = "there is nothing that was not trained on to compare with"
        what = nothing if planted else "no canary that has a score was planted"
        notes.append(f"format {name} is left out: {what}; plant with --withhold 0.5, or with references")
        warnings += notes
        return []
    warnings += [*notes, *_rewritten(name, planted)]
    # A coin decided whether this many copies were planted, whatever a rewritten corpus has left of them.
    rows = [
        ScoredRow(scores[one.canary_id], "in" if one.planted else "out", _copies(one), one.canary_id)
        for one in (*planted, *withheld)
    ]
    trained = sum(one.planted for one in source.document.results)
    return [
        one._replace(
            format_id=facts.format_id,
            template=facts.template,
            unscored=sum(r.planted and (one.pooled or _copies(r) == one.copies) for r in lost),
            proven=proven_canaries([r for r in planted if r.canary_id in set(one.canary_ids)], trained),
        )
        for one in by_copies(rows, others, form=name if len(names) > 1 else "", advice=_WITHHOLD)
    ]


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
        found.append(
            ScoredPopulation(
                population_name(copies, form),
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


def _without_score(
    name: str, canaries: int, lost: Sequence[ExposureResult], reference: ScoredExposures | None
) -> str:
    """A warning about canaries that a model could not score, which their text decides and not whether they were trained on."""
    first = lost[0]
    if first.known_log_perplexity_bits is not None and reference is not None:
        first = next(one for one in reference.document.results if one.canary_id == first.canary_id)
    return (
        f"format {name} is compared without those of its canaries that have no score, {len(lost)} of {canaries}; "
        f"{first.estimate.statement}"
    )


def _rewritten(name: str, planted: Sequence[ExposureResult]) -> list[str]:
    """A note if the corpus was rewritten after planting and has lost copies."""
    lost = [one for one in planted if one.repetitions != _copies(one)]
    gone = sum(one.repetitions == 0 for one in lost)
    note = (
        f"{len(lost)} canaries of format {name} are in the training data another number of times than they were planted ({gone} "
        "are not in it at all), because the corpus was rewritten: they are grouped by the copies that were planted, and epsilon is that "
        "of rewriting and training together"
    )
    return [note] if lost else []


def _other_scores(
    source: ScoredExposures, reference: ScoredExposures | None, format_id: str, name: str
) -> tuple[FloatArray, list[str]]:
    """Scores of members of a format that are not canaries, and warnings."""
    mine = _uniform_scores(source, format_id)
    if not mine:
        note = (
            f"format {name} has no scores of references: withheld canaries alone are compared with; plant with references, and run "
            "`coalmine expose` again"
        )
        return np.empty(0), [note]
    if reference is None:
        return -max(mine, key=lambda one: len(one[0]))[1], []
    known: dict[str, float] = {}
    for theirs, before in _uniform_scores(reference, format_id):
        known.update(zip(theirs, before.tolist(), strict=True))
    # Of the kinds that this model scored, the one that the reference model scored most of.
    keys, bits = max(mine, key=lambda one: sum(key in known for key in one[0]))
    shared = [place for place, key in enumerate(keys) if key in known]
    missing = len(keys) - len(shared)
    note = f"{missing:,} references of format {name} were not scored by the reference model and are left out"
    others = np.array([known[keys[place]] for place in shared], dtype=np.float64)
    return others - bits[shared], [note] if missing else []


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


def proven_canaries(group: Sequence[ExposureResult], canaries: int) -> tuple[ProvenCanary, ...]:
    """The canaries of a group whose rank in the whole space chance does not explain, the least surprising first.

    A canary that was not trained on has a rank of at most r with probability r / |R|, whatever the model. All planted `canaries` of
    the audit share the error. Ranks that were estimated in the whole space count by the limit of their interval.
    """
    found = []
    for one in group:
        low, level = one.estimate.low, one.estimate.confidence
        estimator = estimator_of(one.estimate.method)
        in_space = level is None or (estimator.is_evidence and not estimator.among_others)
        if low is None or not in_space or one.estimate.status == "not_measured":
            continue
        p_value = min(1.0, canaries * 2.0**-low)
        if p_value <= CHANCE:
            found.append(
                ProvenCanary(
                    canary_id=one.canary_id,
                    rank=one.rank,
                    at_least_bits=low,
                    p_value=p_value,
                    confidence=level,
                )
            )
    return tuple(sorted(found, key=lambda one: -one.at_least_bits))
