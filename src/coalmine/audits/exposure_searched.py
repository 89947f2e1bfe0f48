"""Exposure from a search that proves what its budget can prove: the bounded and the guided estimator."""

from __future__ import annotations

import numpy as np

from coalmine.audits.exposure_question import Measured, Question, check_found
from coalmine.audits.exposure_results import CandidateScores
from coalmine.interrupts import deferred_interrupt
from coalmine.randomness import arrays
from coalmine.search.bounded import BoundedSearch
from coalmine.search.guided import draw_members
from coalmine.statistics.importance import bounded_exposure, guided_exposures


def _searched(question: Question, method: str) -> BoundedSearch:
    """The bounded search, run until it is settled or its budget is spent; Ctrl-C keeps what is proven."""
    frontier = question.frontier(method)
    canaries = tuple(frontier.tree.index_of(text) for text in question.canary_texts)
    search = BoundedSearch(frontier, question.thresholds, noting=canaries, memory_bytes=question.memory_bytes)
    question.progress.start(f"Proving ranks, at most {question.budget:,} expansions", None)
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
        check_found(question, search.known)
    return search


def bounded(question: Question) -> Measured:
    """Proven bounds of the rank among all members, which meet where the budget was enough."""
    search = _searched(question, "bounded")
    # A canary that was not reached is a member all the same, so its rank is at least 1.
    bounds = [(max(1, bound.least), bound.most) for bound in search.bounds()]
    return Measured(
        estimates=[bounded_exposure(least, most, question.format.size) for least, most in bounds],
        ranks=[least if least == most else None for least, most in bounds],
        expansions=search.frontier.expansions,
    )


def guided(question: Question) -> Measured:
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
