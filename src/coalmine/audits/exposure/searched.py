"""Exposure from a search that proves what its budget can prove: the bounded and the guided estimator."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coalmine.audits.exposure.candidate_scores import CandidateScores
from coalmine.audits.exposure.question import Compared, Measured, Question, compare_walked
from coalmine.interrupts import deferred_interrupt
from coalmine.randomness import arrays
from coalmine.records import Estimate
from coalmine.search.walks.bounded import BoundedSearch
from coalmine.search.walks.guided import Draws, draw_members
from coalmine.search.walks.thresholds import Ranks, in_steps
from coalmine.statistics.exposure.guided import bounded_exposure, guided_exposures


class _Searched(NamedTuple):
    """What a search has counted and proven about the canaries.

    Attributes:
        most: how many members may at most cost no more than each canary and its resolution.
        proven: the rank of each canary if it is proven, else None.
    """

    compared: Compared
    search: BoundedSearch
    ranks: Ranks
    most: list[int]
    proven: list[int | None]

    def measured(self, estimates: list[Estimate], candidates: CandidateScores | None = None) -> Measured:
        """The result, with what every search reports."""
        return Measured(
            estimates=estimates,
            candidates=candidates,
            ranks=self.proven,
            expansions=self.search.frontier.expansions,
            own=self.ranks.own,
            resolution=self.compared.resolution,
        )

    def bounds(self) -> list[Estimate]:
        """What is proven, for each canary."""
        size = self.compared.question.format.size
        rows = zip(self.ranks.least.tolist(), self.most, self.proven, strict=True)
        return [bounded_exposure(least, most, size, rank=rank) for least, most, rank in rows]


def _searched(question: Question, method: str) -> _Searched:
    """The bounded search, run until it is settled or its budget is spent; Ctrl-C keeps what is proven."""
    frontier = question.frontier(method)
    compared = compare_walked(question, frontier)
    search = BoundedSearch(
        frontier,
        compared.costs,
        margins=compared.margins,
        noting=compared.indices,
        memory_bytes=question.options.memory,
    )
    question.progress.start(f"Proving ranks, at most {question.options.budget:,} expansions", None)
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

        search.run(question.options.budget - frontier.expansions, after_step)
    question.progress.finish()
    ranks = compared.ranks(search.counter)
    if search.is_settled():
        compared.check_reached(ranks)
    beyond = ranks.own + compared.resolutions
    behind = search.most_below(beyond)
    # Canaries that were not reached lie below open nodes, and are among those that may.
    reached = search.counter.counts_to(beyond).tolist()
    most = [
        max(known, min(question.format.size, found + more))
        for known, found, more in zip(ranks.most.tolist(), reached, behind, strict=True)
    ]
    rows = zip(ranks.rank.tolist(), ranks.most.tolist(), most, strict=True)
    proven = [rank if known == all_there_may_be else None for rank, known, all_there_may_be in rows]
    return _Searched(compared, search, ranks, most, proven)


def bounded(question: Question) -> Measured:
    """Proven bounds of the rank among all members, which meet where the budget was enough."""
    searched = _searched(question, "bounded")
    return searched.measured(searched.bounds())


def guided(question: Question) -> Measured:
    """Prove what the budget can prove, and estimate the rest by draws from below the nodes that are left open."""
    searched = _searched(question, "guided")
    search, compared, ranks = searched.search, searched.compared, searched.ranks
    if search.is_settled():
        return searched.measured(searched.bounds())
    question.progress.start(f"Drawing {question.samples:,} members", None)
    generator = arrays(question.options.seed, "guided", question.format_id)
    draws = draw_members(search.frontier, search.open, question.samples, generator, search.limit)
    question.progress.finish()
    # Canaries that the search has not reached are known nevertheless: they count as found, and draws of them do not.
    missing = [compared.indices[i] for i in np.flatnonzero(~ranks.reached)]
    of_canaries = np.isin(draws.indices, question.index_array(missing))
    costs = in_steps(np.where(of_canaries, search.limit + 1, draws.costs))
    estimates = guided_exposures(
        ranks.own,
        costs,
        draws.log2_weights,
        log2_most_weight=draws.most_log2_weight(ranks.own + compared.resolutions),
        known=ranks.rank.tolist(),
        most_rank=searched.most,
        size=question.format.size,
        confidence=question.options.confidence,
        canary_ids=question.canary_ids,
        resolutions=compared.resolutions,
        known_near=list(zip(ranks.least.tolist(), ranks.most.tolist(), strict=True)),
    )
    return searched.measured(estimates, _candidates(searched, draws))


def _candidates(searched: _Searched, draws: Draws) -> CandidateScores:
    """The draws that were followed to their ends; a canary among them costs what it was measured with."""
    search, question = searched.search, searched.compared.question
    followed = draws.costs <= search.limit
    indices, costs = draws.indices[followed], in_steps(draws.costs[followed])
    own = dict(zip(searched.compared.indices, searched.ranks.own.tolist(), strict=True))
    for place in np.flatnonzero(np.isin(indices, question.index_array(list(own)))):
        costs[place] = own[int(indices[place])]
    return CandidateScores(
        question.format_id,
        "guided",
        search.frontier.tree.places(indices),
        costs,
        draws.log2_weights[followed],
    )
