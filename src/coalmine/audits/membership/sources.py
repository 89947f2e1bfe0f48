"""Populations of members and non-members, from the results of `expose`.

A score is minus a log-perplexity in bits, so that higher means "was trained on". With a reference model it is by how much the
reference model's log-perplexity is higher. Scores of different formats are never mixed: one format may be less surprising than
another for reasons that have nothing to do with training.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure.candidate_scores import read_candidates
from coalmine.audits.exposure.estimators import estimator_of, is_known
from coalmine.audits.exposure.results import (
    EXPOSURES,
    RESULTS_FILE,
    SCORES_FILE,
    ExposureResult,
    Exposures,
    FormatFacts,
    read_exposures,
)
from coalmine.audits.membership.other_scores import ScoredExposures, other_scores
from coalmine.audits.membership.results import ProvenCanary, times_in_words
from coalmine.corpus.planting.manifest import CanarySet, as_canary_set
from coalmine.errors import InputError, NotMeasurableError
from coalmine.evidence.directories import result_directory
from coalmine.evidence.originals import manifest_problems
from coalmine.formats.naming import unique_names
from coalmine.grouped import grouped
from coalmine.records.contradictions import refuse_contradictions
from coalmine.statistics.scores import FloatArray, MembershipScores
from coalmine.storage.files import sha256_of_file

# The probability, at most, that chance alone makes one canary of the audit stand out; a report has the same error rate.
CHANCE = 0.025


_NONE_WITHHELD = (
    "no canary was withheld, and one training run needs a coin for each canary: plant with --withhold 0.5"
)


_NATURAL = "nobody tossed a coin for secrets that were found, and one training run needs a coin for each: plant canaries of this kind"


class ScoredPopulation(NamedTuple):
    """The scores of one population; `coins` are those of canaries with a coin, and None where it is not known which these are."""

    # What its format is called where there are several; else UNSET.
    format_name: str | msgspec.UnsetType
    format_id: str | None
    copies: int
    pooled: bool
    scores: MembershipScores
    coins: MembershipScores | None
    why_no_coins: str = ""
    template: str | None = None
    # Canaries of this population whose proven exposure is more than chance explains.
    proven: tuple[ProvenCanary, ...] = ()
    # Whether these are secrets that were in the data all along, all of a kind together.
    natural: bool = False
    # Planted canaries of this population that have no score.
    unscored: int = 0

    @property
    def name(self) -> str:
        """What people call it: the format where there are several, and how often its canaries were planted."""
        if self.natural and self.format_id is not None:
            return self.format_id
        times = times_in_words(self.copies, pooled=self.pooled)
        return times if self.format_name is msgspec.UNSET else f"{self.format_name}, {times}"


def load_source(given: Exposures | str | os.PathLike[str]) -> ScoredExposures:
    """Results in memory, the directory that `expose` wrote them to, or that of the model."""
    if isinstance(given, Exposures):
        return ScoredExposures(given, given.candidates, given.saved_sha256)
    place = result_directory(given, "exposure", RESULTS_FILE)
    if place.is_dir():
        place /= RESULTS_FILE
    document = read_exposures(place)
    scores = place.with_name(SCORES_FILE)
    candidates = tuple(read_candidates(scores)) if scores.exists() else ()
    return ScoredExposures(document, candidates, sha256_of_file(place))


def populations(
    source: ScoredExposures,
    reference: ScoredExposures | None = None,
    canaries: CanarySet | str | os.PathLike[str] | None = None,
) -> tuple[list[ScoredPopulation], list[str]]:
    """Each format's canaries by how often they were planted, then pooled; and warnings."""
    _check_results(source.document.results)
    _check_same_canaries(source, reference)
    planned = _planned(source.document, canaries)
    warnings: list[str] = list(source.document.warnings)
    if source.document.natural:
        found, notes = _of_kinds(source, reference)
        return _some_of(found, warnings + notes), warnings + notes
    found = []
    names = unique_names({facts.format_id: facts.template for facts in source.document.formats})
    for facts in source.document.formats:
        own, notes = _of_format(source, reference, facts, names, planned)
        found += own
        warnings += notes
    return _some_of(found, warnings), warnings


def _some_of(found: list[ScoredPopulation], warnings: Sequence[str]) -> list[ScoredPopulation]:
    if not found:
        raise NotMeasurableError("membership cannot be measured: " + "; ".join(warnings))
    return found


def _of_kinds(
    source: ScoredExposures, reference: ScoredExposures | None
) -> tuple[list[ScoredPopulation], list[str]]:
    """Secrets that were found, one population per kind, and warnings.

    Each has a format of its own, so its score and those of its references are taken relative to their median. Without
    memorization a secret is as likely as any of its references, whatever its context.
    """
    found, warnings = list[ScoredPopulation](), list[str]()
    planted = [one for one in source.document.results if one.planted]
    for kind, group in grouped((str(one.kind), one) for one in planted).items():
        inside, outside, used = list[float](), list[FloatArray](), list[ExposureResult]()
        for one in group:
            if _without_score([one], reference):
                continue
            others, _ = other_scores(source, reference, one.format_id, kind, [one])
            if len(others):
                middle = float(np.median(others))
                inside.append(_canary_scores([one], reference)[one.canary_id] - middle)
                outside.append(others - middle)
                used.append(one)
        if len(used) < len(group):
            warnings.append(
                f"{len(group) - len(used)} of {len(group)} secrets of the kind {kind} have no scores to compare"
            )
        if used:
            found.append(
                ScoredPopulation(
                    kind,
                    kind,
                    max(one.repetitions for one in used),
                    pooled=False,
                    scores=MembershipScores(np.array(inside), np.concatenate(outside)),
                    coins=None,
                    why_no_coins=_NATURAL,
                    proven=proven_canaries(used, len(planted)),
                    natural=True,
                )
            )
    return found, warnings


def _planned(document: Exposures, canaries: CanarySet | str | os.PathLike[str] | None) -> dict[str, int]:
    """How often each canary was planted, or would have been; empty where that is not known."""
    if canaries is None:
        known = {one.canary_id: one.planned_repetitions for one in document.results}
        planned = {name: copies for name, copies in known.items() if copies is not None}
    else:
        manifest = as_canary_set(canaries)
        if manifest.sha256 == document.manifest_sha256:
            refuse_contradictions(
                RESULTS_FILE,
                manifest_problems(EXPOSURES.origin, document, manifest),
                "it",
                "the manifest that it was made with",
            )
        planned = {one.canary_id: one.repetitions for one in manifest}
    unknown = [one.canary_id for one in document.results if planned and one.canary_id not in planned]
    if unknown:
        raise InputError(
            f"the manifest has no canary {unknown[0]!r}, which the results have; give the manifest that was measured"
        )
    return planned


def _of_format(
    source: ScoredExposures,
    reference: ScoredExposures | None,
    facts: FormatFacts,
    names: Mapping[str, str],
    planned: dict[str, int],
) -> tuple[list[ScoredPopulation], list[str]]:
    """The populations of one format, and warnings; none, and the reason, where there is nothing to compare."""
    name = names[facts.format_id]
    group = [result for result in source.document.results if result.format_id == facts.format_id]
    unknown = _without_score(group, reference)
    notes: list[str] = []
    lost: list[ExposureResult] = []
    if unknown:
        names_of = {result.canary_id for result in unknown}
        lost = [result for result in group if result.canary_id in names_of and result.planted]
        reason = f"{len(names_of)} of {len(group)} canaries have no score; {unknown[0].estimate.statement}"
        group = [result for result in group if result.canary_id not in names_of]
        if not group:
            return [], [f"format {name} is left out: {reason}"]
        # Whether a canary has a score is decided by its text and the model, as a guess that is not made.
        notes.append(f"format {name} is compared without those of its canaries that have none: {reason}")
    planted = [result for result in group if result.planted]
    withheld = [result for result in group if not result.planted]
    others, warnings = other_scores(source, reference, facts.format_id, name, group)
    warnings = [*notes, *warnings]
    own = _canary_scores(group, reference)
    held = np.array([own[result.canary_id] for result in withheld], dtype=np.float64)
    out = np.concatenate([held, others])
    if not planted or not len(out):
        what = (
            "no canary was planted"
            if not planted
            else "there is nothing that was not trained on to compare with"
        )
        advice = "plant with --withhold 0.5, or with references"
        return [], [*warnings, f"format {name} is left out: {what}; {advice}"]
    # A coin decided whether this many copies were planted, whatever a rewritten corpus has left of them.
    copies_of = {result.canary_id: planned.get(result.canary_id, result.repetitions) for result in planted}
    warnings += _rewritten(name, planted, copies_of)
    shown = name if len(names) > 1 else msgspec.UNSET
    unscored = [planned.get(result.canary_id, result.repetitions) for result in lost]
    own_scores = _FormatScores(facts, shown, own, planted, withheld, out, unscored)
    trained = sum(result.planted for result in source.document.results)
    return _by_copies(own_scores, copies_of, planned, trained), warnings


class _FormatScores(NamedTuple):
    """The scores of one format: those of its canaries by id, and all that nothing was trained on."""

    facts: FormatFacts
    # What its format is called where there are several; else UNSET.
    name: str | msgspec.UnsetType
    own: dict[str, float]
    planted: list[ExposureResult]
    withheld: list[ExposureResult]
    out: NDArray[np.float64]
    # How often each planted canary that has no score was planted.
    unscored: list[int]


def _by_copies(
    scores: _FormatScores, copies_of: Mapping[str, int], planned: dict[str, int], trained: int
) -> list[ScoredPopulation]:
    """One population per number of copies, and one of all where there are several numbers."""
    facts, name, own, planted, withheld, out, unscored = scores
    held = np.array([own[result.canary_id] for result in withheld], dtype=np.float64)
    repetitions = sorted(set(copies_of.values()))
    found = []
    for copies in [*repetitions, *([None] if len(repetitions) > 1 else [])]:
        some = [result for result in planted if copies in {None, copies_of[result.canary_id]}]
        in_scores = np.array([own[result.canary_id] for result in some])
        if copies is None:
            coins, why = MembershipScores(in_scores, held) if len(held) else None, _NONE_WITHHELD
        else:
            coins, why = _coins(in_scores, withheld, own, copies, repetitions, planned)
        found.append(
            ScoredPopulation(
                name,
                facts.format_id,
                copies or repetitions[-1],
                pooled=copies is None,
                scores=MembershipScores(in_scores, out),
                coins=coins,
                why_no_coins=why,
                template=facts.template,
                proven=proven_canaries(some, trained),
                unscored=sum(copies in {None, lost} for lost in unscored),
            )
        )
    return found


def _rewritten(format_id: str, planted: Sequence[ExposureResult], copies_of: dict[str, int]) -> list[str]:
    """A note if the corpus was rewritten after planting and has lost copies."""
    lost = [result for result in planted if result.repetitions != copies_of[result.canary_id]]
    if not lost:
        return []
    gone = sum(result.repetitions == 0 for result in lost)
    note = (
        f"{len(lost)} canaries of format {format_id} are in the training data another number of times than they were planted ({gone} "
        "are not in it at all), because the corpus was rewritten: they are grouped by the copies that were planted, and epsilon is that "
        "of rewriting and training together"
    )
    return [note]


def _coins(
    in_scores: FloatArray,
    withheld: Sequence[ExposureResult],
    own: dict[str, float],
    copies: int,
    repetitions: Sequence[int],
    planned: dict[str, int],
) -> tuple[MembershipScores | None, str]:
    """Members of one group with the withheld canaries that would have belonged to it."""
    if not withheld:
        return None, _NONE_WITHHELD
    if planned:
        same = [one for one in withheld if planned[one.canary_id] == copies]
    elif len(repetitions) == 1:
        same = list(withheld)
    else:
        return None, (
            "the results do not say how often a withheld canary would have been planted; give the manifest with --canaries"
        )
    if not same:
        return None, (
            f"no canary that was to be planted {times_in_words(copies, pooled=False)} was withheld, and one training run needs a coin for "
            "each: plant with --withhold 0.5"
        )
    return MembershipScores(in_scores, np.array([own[one.canary_id] for one in same])), ""


def _without_score(
    group: Sequence[ExposureResult], reference: ScoredExposures | None
) -> list[ExposureResult]:
    """Results of canaries that the model, or the reference, could not score."""
    others = () if reference is None else reference.document.results
    theirs = {result.canary_id: result for result in others}
    both = [one for result in group for one in (result, theirs.get(result.canary_id)) if one is not None]
    return [result for result in both if result.known_log_perplexity_bits is None]


def _canary_scores(group: Sequence[ExposureResult], reference: ScoredExposures | None) -> dict[str, float]:
    if reference is None:
        return {result.canary_id: -result.log_perplexity_bits for result in group}
    before = {result.canary_id: result for result in reference.document.results}
    return {
        result.canary_id: before[result.canary_id].log_perplexity_bits - result.log_perplexity_bits
        for result in group
    }


def _check_results(results: Sequence[ExposureResult]) -> None:
    seen: set[str] = set()
    for result in results:
        if result.canary_id in seen:
            raise InputError(
                f"the results have canary {result.canary_id!r} twice, and one score must not count twice; run expose again"
            )
        if result.planted and max(result.repetitions, result.planned_repetitions or 0) < 1:
            raise InputError(
                f"the results say that canary {result.canary_id!r} was planted {result.repetitions} times; run expose again"
            )
        seen.add(result.canary_id)


def _check_same_canaries(source: ScoredExposures, reference: ScoredExposures | None) -> None:
    if reference is None:
        return
    if reference.document.manifest_sha256 != source.document.manifest_sha256:
        raise InputError(
            "the reference results are of other canaries: calibration needs both models measured with the same canaries.json"
        )
    known = {result.canary_id for result in reference.document.results}
    missing = [result.canary_id for result in source.document.results if result.canary_id not in known]
    if missing:
        raise InputError(
            f"the reference results have no canary {missing[0]!r}; run expose again for the reference model"
        )
    before = {result.canary_id: result.known_log_perplexity_bits for result in reference.document.results}
    if all(
        before[result.canary_id] == result.known_log_perplexity_bits for result in source.document.results
    ):
        raise InputError(
            "the reference results give every canary the same score as the model, so nothing would be left of what it "
            "remembers; give those of a model that was not trained on the canaries"
        )


def proven_canaries(group: Sequence[ExposureResult], canaries: int) -> tuple[ProvenCanary, ...]:
    """The canaries of a group whose rank in the whole space chance does not explain, the least surprising first.

    A canary that was not trained on has a rank of at most r with probability r / |R|, whatever the model. All planted `canaries` of
    the audit share the error. Ranks that were estimated in the whole space count by the limit of their interval.
    """
    found = []
    for one in group:
        low, level = one.estimate.low, one.estimate.confidence
        estimator = estimator_of(one.estimate.method)
        in_space = level is None or (
            is_known(one.estimate.method) and estimator.is_evidence and not estimator.among_others
        )
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
