"""The estimators of exposure: each takes the canaries of one format and gives an estimate for each, in their order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure_results import CandidateScores
from coalmine.errors import ModelOutputError, NotMeasurableError
from coalmine.formats.format import Format
from coalmine.interrupts import deferred_interrupt
from coalmine.models.protocols import Model
from coalmine.progress import Progress
from coalmine.randomness import arrays
from coalmine.records import Estimate
from coalmine.search.bounded import BoundedSearch
from coalmine.search.enumeration import enumerate_unit, split_into_units
from coalmine.search.frontier import Frontier, Nodes
from coalmine.search.guided import draw_members
from coalmine.search.members import Members
from coalmine.search.resuming import ResumeFile
from coalmine.search.thresholds import ThresholdCounter
from coalmine.statistics.exposure import exact_exposure, reference_exposures, sampled_exposures
from coalmine.statistics.importance import bounded_exposure, guided_exposures
from coalmine.statistics.tail import TailFit, fit_tail

# Scores of single members are kept for the result's table up to this many a format; 16 bytes each.
KEEP_UP_TO = 2_000_000
# Members scored one by one where a model cannot be walked: an hour's work for a small transformer on a CPU.
SCORED_UP_TO = 1_000_000


class Measured(NamedTuple):
    """What one method found for the canaries of one format, in their order."""

    estimates: list[Estimate]
    candidates: CandidateScores | None = None
    ranks: list[int | None] | None = None
    expansions: int = 0
    fit: TailFit | None = None


class Question(NamedTuple):
    """The canaries of one format, and how they are to be measured."""

    members: Members
    format_id: str
    references: tuple[str, ...]
    canary_ids: list[str]
    canary_texts: tuple[str, ...]
    canary_scores: NDArray[np.float64]
    samples: int
    budget: int
    memory_bytes: int
    confidence: float
    seed: int
    resume: ResumeFile
    progress: Progress

    @property
    def model(self) -> Model:
        """Who is asked."""
        return self.members.model

    @property
    def format(self) -> Format:
        """What is asked about."""
        return self.members.format

    @property
    def thresholds(self) -> NDArray[np.float64]:
        """What a member may cost and still count: ties count, and rounding does not decide what a tie is."""
        return self.canary_scores + self.model.resolution_bits

    def frontier(self, method: str) -> Frontier:
        """The frontier over this format, for a model that can be walked."""
        return self.members.frontier(
            f"the {method} method", "use the exact, sampled, extrapolated or references method"
        )

    def index_array(self, indices: list[int]) -> NDArray[Any]:
        """Indices as an array, of 64 bits where the space allows."""
        return np.array(indices, dtype=np.int64 if self.format.size < 2**62 else object)


def _exact(question: Question) -> Measured:
    if question.members.obstacle is not None:
        return _exact_by_scoring(question)
    form, frontier = question.format, question.frontier("exact")
    keep = form.size <= KEEP_UP_TO
    question.progress.start(f"Ranking {form.size:,} members", form.size)
    ranking = _Ranking(question, frontier, keep=keep)
    ranking.run()
    question.progress.finish()
    ranks = ranking.counter.counts
    _check_found(question, ranks)
    return Measured(
        estimates=[exact_exposure(int(rank), form.size) for rank in ranks],
        candidates=ranking.candidates() if keep else None,
        ranks=[int(rank) for rank in ranks],
        expansions=frontier.expansions,
    )


def _exact_by_scoring(question: Question) -> Measured:
    """The same ranks for a model that cannot be walked: every member is scored by itself."""
    form = question.format
    if form.size > SCORED_UP_TO:
        raise NotMeasurableError(
            f"{question.model.name!r} cannot be walked ({question.members.obstacle}), and scoring {form.size:,} members one by one is "
            f"refused above {SCORED_UP_TO:,}; use the sampled, extrapolated or references method"
        )
    question.progress.start(f"Scoring {form.size:,} members", form.size)
    counter, kept = ThresholdCounter(question.thresholds), []
    for indices, costs in question.members.scored_one_by_one():
        counter.add(costs)
        kept.append((indices, costs))
        question.progress.advance(len(costs))
    question.progress.finish()
    ranks = counter.counts
    _check_found(question, ranks)
    indices, costs = (np.concatenate(column) for column in zip(*kept, strict=True))
    return Measured(
        estimates=[exact_exposure(int(rank), form.size) for rank in ranks],
        candidates=CandidateScores(question.format_id, "member", indices, costs),
        ranks=[int(rank) for rank in ranks],
    )


class _Ranking:
    """The enumeration of a space unit by unit; after each unit it can be killed and continued."""

    def __init__(self, question: Question, frontier: Frontier, *, keep: bool) -> None:
        self.question, self.frontier, self.keep = question, frontier, keep
        self.counter = ThresholdCounter(question.thresholds)
        self._kept: list[Nodes] = []

    def run(self) -> None:
        resume = self.question.resume
        units, above = split_into_units(self.frontier)
        self._count(above)
        finished = 0
        # A space that is kept whole is one that takes seconds; only larger ones are worth going on with.
        saved = None if self.keep else resume.load()
        if saved is not None:
            self.counter.between, finished = saved["between"], int(saved["finished"])
            self.frontier.expansions = int(saved["expansions"])
            self.question.progress.advance(int(self.counter.between.sum()))
        with deferred_interrupt() as interrupted:
            for unit in units[finished:]:
                proven = self._state(finished)  # before the unit: half a unit proves nothing
                for leaves in enumerate_unit(self.frontier, unit):
                    self._count(leaves)
                    if interrupted():
                        resume.save(proven.copy, now=True)
                        raise KeyboardInterrupt
                finished += 1
                resume.save(self._state(finished).copy)

    def candidates(self) -> CandidateScores:
        """Every member with its score."""
        numbers, costs = (
            np.concatenate([getattr(leaves, name) for leaves in self._kept]) for name in ("indices", "costs")
        )
        return CandidateScores(self.question.format_id, "member", self.frontier.tree.places(numbers), costs)

    def _count(self, leaves: Nodes) -> None:
        self.counter.add(leaves.costs)
        if self.keep:
            self._kept.append(leaves)
        self.question.progress.advance(len(leaves.costs))

    def _state(self, finished: int) -> dict[str, NDArray[Any]]:
        return {
            "between": self.counter.between,
            "finished": np.array(finished),
            "expansions": np.array(self.frontier.expansions),
        }


def _check_found(question: Question, ranks: NDArray[np.int64]) -> None:
    for name, rank in zip(question.canary_ids, ranks, strict=True):
        if rank < 1:  # not even the canary itself was found at its own cost
            raise ModelOutputError(
                f"the model {question.model.name!r} scores canary {name} differently when it is asked a second time; "
                "its adapter does not conform: run coalmine.models.conformance.check_model on it"
            )


def _searched(question: Question, method: str) -> BoundedSearch:
    """The bounded search, run until it is settled or its budget is spent; Ctrl-C keeps what is proven."""
    frontier = question.frontier(method)
    canaries = tuple(frontier.tree.index_of(text) for text in question.canary_texts)
    search = BoundedSearch(frontier, question.thresholds, noting=canaries, memory_bytes=question.memory_bytes)
    question.progress.start("Proving ranks", question.budget)
    saved = question.resume.load()
    if saved is None:
        search.start()
    else:
        search.restore(saved)
        question.progress.advance(frontier.expansions)
    with deferred_interrupt() as interrupted:

        def after_step(expanded: int) -> None:
            question.progress.advance(expanded)
            question.resume.save(search.snapshot, now=interrupted())
            if interrupted():
                raise KeyboardInterrupt

        search.run(question.budget - frontier.expansions, after_step)
    question.progress.finish()
    if search.is_settled():
        _check_found(question, search.known)
    return search


def _bounded(question: Question) -> Measured:
    search = _searched(question, "bounded")
    # A canary that was not reached is a member all the same, so its rank is at least 1.
    bounds = [(max(1, bound.least), bound.most) for bound in search.bounds()]
    return Measured(
        estimates=[bounded_exposure(least, most, question.format.size) for least, most in bounds],
        ranks=[least if least == most else None for least, most in bounds],
        expansions=search.frontier.expansions,
    )


def _guided(question: Question) -> Measured:
    """Prove what the budget can prove, and estimate the rest by draws from behind the nodes that are left open."""
    search = _searched(question, "guided")
    form = question.format
    if search.is_settled():
        proven = [int(rank) for rank in search.known]
        return Measured(
            estimates=[bounded_exposure(rank, rank, form.size) for rank in proven],
            ranks=list(proven),
            expansions=search.frontier.expansions,
        )
    question.progress.start(f"Drawing {question.samples:,} members", None)
    generator = arrays(question.seed, "guided", question.format_id)
    draws = draw_members(search.frontier, search.open, question.samples, generator, search.limit)
    question.progress.finish()
    # Canaries that the search has not come to are known all the same: they count as found, and draws of them do not.
    canaries = [search.frontier.tree.index_of(text) for text in question.canary_texts]
    missing = [i for i, index in enumerate(canaries) if index not in search.noted]
    also_known = np.sort(question.canary_scores[missing])
    known = search.known + np.searchsorted(also_known, question.thresholds, side="right")
    of_canaries = np.isin(draws.indices, question.index_array([canaries[i] for i in missing]))
    costs = np.where(of_canaries, search.limit + 1, draws.costs)
    bounds = [
        (int(least), max(bound.most, int(least))) for bound, least in zip(search.bounds(), known, strict=True)
    ]
    estimates = guided_exposures(
        question.thresholds,
        costs,
        draws.log2_weights,
        log2_most_weight=draws.most_log2_weight(question.thresholds),
        known=[least for least, _ in bounds],
        most_rank=[most for _, most in bounds],
        size=form.size,
        confidence=question.confidence,
        canary_ids=question.canary_ids,
    )
    followed = draws.costs <= search.limit
    return Measured(
        estimates=estimates,
        candidates=CandidateScores(
            question.format_id,
            "guided",
            search.frontier.tree.places(draws.indices[followed]),
            draws.costs[followed],
            draws.log2_weights[followed],
        ),
        ranks=[least if least == most else None for least, most in bounds],
        expansions=search.frontier.expansions,
    )


def _drawn(question: Question) -> CandidateScores:
    """A uniform sample of the space, scored."""
    indices = question.format.sample_indices(question.samples, question.seed)
    question.progress.start(f"Scoring {question.samples:,} samples", question.samples)
    scores = []
    for start in range(0, len(indices), question.members.batch):
        part = indices[start : start + question.members.batch]
        scores.append(question.members.score([question.format.at(index) for index in part]))
        question.progress.advance(len(part))
    question.progress.finish()
    return CandidateScores(
        question.format_id, "sample", question.index_array(indices), np.concatenate(scores)
    )


def _sampled(question: Question) -> Measured:
    sample = _drawn(question)
    estimates = sampled_exposures(
        question.thresholds,
        sample.log_perplexities_bits,
        question.format.size,
        question.confidence,
        canary_ids=question.canary_ids,
    )
    return Measured(estimates=estimates, candidates=sample)


def _extrapolated(question: Question) -> Measured:
    sample = _drawn(question)
    # Twice the refits that an interval at this confidence needs at least.
    refits = max(200, math.ceil(4 / (1 - question.confidence)))
    fit = fit_tail(sample.log_perplexities_bits, seed=question.seed, bootstraps=refits)
    estimates = fit.estimates(
        question.thresholds, question.format.size, question.confidence, canary_ids=question.canary_ids
    )
    return Measured(estimates=estimates, candidates=sample, fit=fit)


def _references(question: Question) -> Measured:
    texts = question.references
    if not texts:
        raise NotMeasurableError(
            f"the manifest has no references for format {question.format_id}; plant with references, or use another method"
        )
    names = [f"reference {i}" for i in range(len(texts))]
    batch = question.members.batch
    parts = []
    question.progress.start(f"Scoring {len(texts):,} references", len(texts))
    for start in range(0, len(texts), batch):
        parts.append(question.members.score(texts[start : start + batch], names[start : start + batch]))
        question.progress.advance(len(parts[-1]))
    question.progress.finish()
    scores = np.concatenate(parts)
    estimates = reference_exposures(
        question.thresholds, scores, question.confidence, canary_ids=question.canary_ids
    )
    indices = question.index_array([question.format.index(text) for text in texts])
    ranks = 1 + np.searchsorted(np.sort(scores), question.thresholds, side="right")
    return Measured(
        estimates=estimates,
        candidates=CandidateScores(question.format_id, "reference", indices, scores),
        ranks=[int(rank) for rank in ranks],
    )


MEASURES: dict[str, Callable[[Question], Measured]] = {
    "exact": _exact,
    "bounded": _bounded,
    "guided": _guided,
    "sampled": _sampled,
    "extrapolated": _extrapolated,
    "references": _references,
}
