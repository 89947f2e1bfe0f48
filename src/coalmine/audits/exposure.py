"""How exposed is each canary? The question of the Secret Sharer, answered by the estimator that the caller names."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure_results import CandidateScores, ExposureResult, Exposures, FormatFacts
from coalmine.corpus.manifest import CanarySet
from coalmine.errors import InputError, ModelOutputError, NotMeasurableError
from coalmine.formats.format import Format
from coalmine.models.protocols import Model, Scorer, Stepper
from coalmine.progress import Progress, Silent
from coalmine.records import Canary, Estimate
from coalmine.search.enumeration import enumerate_members
from coalmine.search.frontier import BATCH, Frontier
from coalmine.search.lifting import TokenTree
from coalmine.search.scoring import score_texts
from coalmine.statistics.exposure import exact_exposure, reference_exposures, sampled_exposures
from coalmine.statistics.tail import TailFit, fit_tail

__all__ = ["METHODS", "ExposureResult", "Exposures", "expose"]

METHODS = ("auto", "exact", "sampled", "extrapolated", "references")
# `auto` ranks every member of a space up to this size, and extrapolates from a sample of a larger one.
EXACT_UP_TO = 1_000_000
# Scores of single members are kept for the result's table up to this many a format; 16 bytes each.
KEEP_UP_TO = 2_000_000


class _Measured(NamedTuple):
    """What one method found for the canaries of one format, in their order."""

    estimates: list[Estimate]
    candidates: CandidateScores | None = None
    ranks: list[int] | None = None
    expansions: int = 0
    fit: TailFit | None = None


class _Question(NamedTuple):
    """The canaries of one format, and how they are to be measured."""

    model: Scorer
    format_id: str
    format: Format
    references: tuple[str, ...]
    canary_ids: list[str]
    canary_scores: NDArray[np.float64]
    samples: int
    confidence: float
    seed: int
    batch: int
    progress: Progress

    @property
    def thresholds(self) -> NDArray[np.float64]:
        """What a member may cost and still count: ties count, and rounding does not decide what a tie is."""
        return self.canary_scores + self.model.resolution_bits


def expose(
    model: Model,
    canaries: CanarySet | str | os.PathLike[str],
    *,
    method: str = "auto",
    samples: int = 10_000,
    confidence: float = 0.95,
    seed: int = 0,
    batch: int = BATCH,
    progress: Progress | None = None,
) -> Exposures:
    """The exposure of every canary, in the order of the manifest, each with its interval (bits).

    `method` is one of

    - "exact": the rank among all of R, with the states of shared prefixes computed once;
    - "sampled": `samples` members of R drawn uniformly; exposure beyond what they can show is given as a lower bound;
    - "extrapolated": a skew-normal curve through such a sample, with a test of the fit on samples it has not seen;
    - "references": the rank among the manifest's references;
    - "auto": exact for a space of up to a million members, extrapolated above.
    """
    if method not in METHODS:
        raise InputError(f"unknown method {method!r}: known are {', '.join(METHODS)}")
    if samples < 1:
        raise InputError(f"samples must be at least 1, got {samples}")
    if not 0 < confidence < 1:
        raise InputError(f"confidence must be between 0 and 1, such as 0.95, got {confidence}")
    if not isinstance(model, Scorer):
        raise NotMeasurableError(
            f"exposure is not applicable to {model.name!r}: it does not give the probability of a text"
        )
    chosen = canaries if isinstance(canaries, CanarySet) else CanarySet.load(canaries)
    by_canary: dict[str, ExposureResult] = {}
    formats, candidates, fits, expansions = [], [], {}, 0
    for format_id, form in chosen.formats.items():
        group = [canary for canary in chosen if canary.format_id == format_id]
        if not group:
            continue
        names = [canary.canary_id for canary in group]
        own = score_texts(model, [canary.text for canary in group], names)
        question = _Question(
            model=model,
            format_id=format_id,
            format=form,
            references=chosen.references.get(format_id, ()),
            canary_ids=names,
            canary_scores=own,
            samples=samples,
            confidence=confidence,
            seed=seed,
            batch=batch,
            progress=progress or Silent(),
        )
        used, why = _chosen_method(method, form)
        measured = _MEASURES[used](question)
        by_canary.update(_results(group, own, measured, used, form))
        formats.append(FormatFacts.of(format_id, form, used, why))
        candidates += [] if measured.candidates is None else [measured.candidates]
        expansions += measured.expansions
        if measured.fit is not None:
            fits[format_id] = measured.fit
    return Exposures(
        results=[by_canary[canary.canary_id] for canary in chosen],
        formats=formats,
        candidates=candidates,
        fits=fits,
        seed=seed,
        confidence=confidence,
        model=model.describe(),
        manifest_sha256=chosen.sha256,
        expansions=expansions,
    )


def _chosen_method(method: str, form: Format) -> tuple[str, str]:
    if method != "auto":
        return method, "asked for"
    if form.size <= EXACT_UP_TO:
        return "exact", f"the space has {form.size:,} members, few enough to rank them all"
    return "extrapolated", f"the space has {form.size:,} members, too many to rank them all"


def _exact(question: _Question) -> _Measured:
    model, form = question.model, question.format
    if not isinstance(model, Stepper):
        raise NotMeasurableError(
            f"the exact method is not applicable to {model.name!r}: it cannot be walked token by token; "
            "use the sampled, extrapolated or references method"
        )
    frontier = Frontier(model, TokenTree(form, model.tokenizer), batch=question.batch)
    order = np.argsort(question.thresholds, kind="stable")
    ascending = question.thresholds[order]
    # Of each canary, how many members cost more than the canary before it in this order and no more than itself.
    between = np.zeros(len(order) + 1, dtype=np.int64)
    keep = form.size <= KEEP_UP_TO
    kept_indices, kept_costs = [], []
    question.progress.start(f"Ranking {form.size:,} members", form.size)
    for leaves in enumerate_members(frontier):
        between += np.bincount(np.searchsorted(ascending, leaves.costs), minlength=len(order) + 1)
        if keep:
            kept_indices.append(leaves.indices)
            kept_costs.append(leaves.costs)
        question.progress.advance(len(leaves.costs))
    question.progress.finish()
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.cumsum(between[:-1])
    for name, rank in zip(question.canary_ids, ranks, strict=True):
        if rank < 1:  # not even the canary itself was found at its own cost
            raise ModelOutputError(
                f"the model {model.name!r} scores canary {name} differently when it is walked token by token; "
                "its adapter does not conform: run coalmine.models.conformance.check_model on it"
            )
    candidates = None
    if keep:
        candidates = CandidateScores(
            question.format_id, "member", np.concatenate(kept_indices), np.concatenate(kept_costs)
        )
    return _Measured(
        estimates=[exact_exposure(int(rank), form.size) for rank in ranks],
        candidates=candidates,
        ranks=[int(rank) for rank in ranks],
        expansions=frontier.expansions,
    )


def _drawn(question: _Question) -> CandidateScores:
    """A uniform sample of the space, scored."""
    indices = question.format.sample_indices(question.samples, question.seed)
    question.progress.start(f"Scoring {question.samples:,} samples", question.samples)
    scores = []
    for start in range(0, len(indices), question.batch):
        part = indices[start : start + question.batch]
        scores.append(score_texts(question.model, [question.format.at(index) for index in part]))
        question.progress.advance(len(part))
    question.progress.finish()
    kind = np.int64 if question.format.size < 2**62 else object
    return CandidateScores(
        question.format_id, "sample", np.array(indices, dtype=kind), np.concatenate(scores)
    )


def _sampled(question: _Question) -> _Measured:
    sample = _drawn(question)
    estimates = sampled_exposures(
        question.thresholds,
        sample.log_perplexities_bits,
        question.format.size,
        question.confidence,
        canary_ids=question.canary_ids,
    )
    return _Measured(estimates=estimates, candidates=sample)


def _extrapolated(question: _Question) -> _Measured:
    sample = _drawn(question)
    fit = fit_tail(sample.log_perplexities_bits, seed=question.seed)
    estimates = fit.estimates(
        question.thresholds, question.format.size, question.confidence, canary_ids=question.canary_ids
    )
    return _Measured(estimates=estimates, candidates=sample, fit=fit)


def _references(question: _Question) -> _Measured:
    texts = question.references
    scores = score_texts(question.model, texts, [f"reference {i}" for i in range(len(texts))])
    estimates = reference_exposures(
        question.thresholds, scores, question.confidence, canary_ids=question.canary_ids
    )
    kind = np.int64 if question.format.size < 2**62 else object
    indices = np.array([question.format.index(text) for text in texts], dtype=kind)
    ranks = 1 + np.searchsorted(np.sort(scores), question.thresholds, side="right")
    return _Measured(
        estimates=estimates,
        candidates=CandidateScores(question.format_id, "reference", indices, scores),
        ranks=[int(rank) for rank in ranks],
    )


_MEASURES = {
    "exact": _exact,
    "sampled": _sampled,
    "extrapolated": _extrapolated,
    "references": _references,
}


def _results(
    group: Sequence[Canary], own: NDArray[np.float64], measured: _Measured, method: str, form: Format
) -> dict[str, ExposureResult]:
    ranks: Sequence[int | None] = measured.ranks or [None] * len(group)
    return {
        canary.canary_id: ExposureResult(
            canary_id=canary.canary_id,
            format_id=canary.format_id,
            repetitions=canary.times_trained_on,
            planted=canary.planted,
            method=method,
            log_perplexity_bits=float(bits),
            rank=rank,
            most_possible_bits=math.log2(form.size),
            estimate=estimate,
        )
        for canary, bits, rank, estimate in zip(group, own, ranks, measured.estimates, strict=True)
    }
