"""Exposure from scores of members that were drawn or planted as references: sampled, extrapolated and references."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from coalmine.audits.exposure.candidate_scores import CandidateScores
from coalmine.audits.exposure.question import FormatQuestion, Measured
from coalmine.engines.courses import Course
from coalmine.errors import NotMeasurableError
from coalmine.formats.naming import format_name
from coalmine.records import Estimate
from coalmine.search.walks.works import score_in_batches
from coalmine.statistics.exposure.extrapolation import fit_tail
from coalmine.statistics.exposure.ranks import reference_exposures, sampled_exposures


def _drawn(question: FormatQuestion) -> Course[CandidateScores]:
    """A uniform sample of the space, scored; those without a number are left out."""
    indices = question.format.sample_indices(question.samples, question.options.seed)
    texts = [question.format.at(index) for index in indices]
    scored = yield from score_in_batches(question.members, texts, f"Scoring {question.samples:,} samples")
    known = [place for place in range(len(texts)) if place not in scored.problems]
    indices, bits = [indices[place] for place in known], scored.bits[known]
    # A canary that was drawn keeps its own score, whatever rounding does to it in another batch.
    own = dict(
        zip(map(question.format.index, question.canary_texts), question.canary_scores.tolist(), strict=True)
    )
    for place, index in enumerate(indices):
        if index in own:
            bits[place] = own[index]
    return CandidateScores(question.format_id, "sample", question.index_array(indices), bits)


def sampled(question: FormatQuestion) -> Course[Measured]:
    """The rank within a uniform sample of the space."""
    sample = yield from _drawn(question)
    estimates = sampled_exposures(
        question.thresholds,
        sample.log_perplexities_bits,
        question.format.size,
        question.options.confidence,
        canary_ids=question.canary_ids,
        unknown=question.samples - len(sample.indices),
    )
    return Measured(estimates=estimates, candidates=sample)


def extrapolated(question: FormatQuestion) -> Course[Measured]:
    """The tail of a curve through such a sample."""
    sample = yield from _drawn(question)
    # Twice the refits that an interval at this confidence needs at least.
    refits = max(200, math.ceil(4 / (1 - question.options.confidence)))
    fit = fit_tail(sample.log_perplexities_bits, seed=question.options.seed, bootstraps=refits)
    estimates = fit.estimates(
        question.thresholds,
        question.format.size,
        question.options.confidence,
        canary_ids=question.canary_ids,
        sample_scores=sample.log_perplexities_bits,
    )
    missing = question.samples - len(sample.indices)
    estimates = _without(estimates, missing, f"{question.samples:,} samples")
    return Measured(estimates=estimates, candidates=sample, fit=fit)


def references(question: FormatQuestion) -> Course[Measured]:
    """The rank among the manifest's references."""
    texts = question.references
    if not texts:
        raise NotMeasurableError(
            f"the manifest has no references for format {format_name(question.format.template)}; plant with references, or use "
            "another method"
        )
    scored = yield from score_in_batches(question.members, texts, f"Scoring {len(texts):,} references")
    # Whether a text has a number is decided by the text, so those that have one are still independent draws like the canary.
    known = [place for place in range(len(texts)) if place not in scored.problems]
    scores = scored.bits[known]
    estimates = reference_exposures(
        question.thresholds,
        scores,
        question.options.confidence,
        canary_ids=question.canary_ids,
        size=question.format.size,
    )
    estimates = _without(estimates, len(scored.problems), f"{len(texts):,} references")
    indices = question.index_array([question.format.index(texts[place]) for place in known])
    ranks = 1 + np.searchsorted(np.sort(scores), question.thresholds, side="right")
    return Measured(
        estimates=estimates,
        candidates=CandidateScores(question.format_id, "reference", indices, scores),
        ranks=[int(rank) for rank in ranks],
    )


def _without(estimates: list[Estimate], missing: int, of: str) -> list[Estimate]:
    """The same with a warning where some that canaries were compared with have no number, and were left out."""
    if not missing:
        return estimates
    warning = f"{missing:,} of {of} have no number by this model, and were left out"
    return [
        msgspec.structs.replace(estimate, warnings=(*estimate.warnings, warning)) for estimate in estimates
    ]
