"""Exposure from a search that proves what its budget can prove: the bounded and the guided estimator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from coalmine.audits.exposure.candidate_scores import CandidateScores
from coalmine.audits.exposure.question import (
    Compared,
    CountingWork,
    FormatQuestion,
    Measured,
    compared,
    warned,
    without_numbers,
)
from coalmine.engines.courses import SURVIVED, Course, CourseStep, one_result
from coalmine.engines.units import Arrays, Running, Unit, advance_and_keep
from coalmine.randomness import arrays
from coalmine.records import Estimate
from coalmine.search.walks.bounded import BoundedSearch
from coalmine.search.walks.guided import (
    DRAWS_AT_A_TIME,
    DrawnBelow,
    DrawPlan,
    Draws,
    FollowedDraws,
    follow_draws,
)
from coalmine.search.walks.plain_arrays import plain_integers, whole_integers
from coalmine.search.walks.thresholds import Ranks, in_steps
from coalmine.search.walks.works import MembersWork
from coalmine.statistics.exposure.guided import bounded_exposure, guided_exposures


class _Searched(NamedTuple):
    """What a search has counted and proven about the canaries.

    Attributes:
        most: how many members may at most cost no more than each canary and its resolution.
        proven: the rank of each canary if it is proven, else None.
        unknown: how many members that the search met have no number.
    """

    among: Compared
    search: BoundedSearch
    ranks: Ranks
    most: list[int]
    proven: list[int | None]
    unknown: int

    def measured(
        self, estimates: list[Estimate] | None = None, candidates: CandidateScores | None = None
    ) -> Measured:
        """The result, with what every search reports; by default what is proven."""
        return Measured(
            estimates=self.bounds() if estimates is None else estimates,
            candidates=candidates,
            ranks=self.proven,
            expansions=self.search.frontier.expansions,
            own=self.ranks.own,
            resolution=self.among.resolution,
        )

    def bounds(self) -> list[Estimate]:
        """What is proven, for each canary."""
        size = self.among.question.format.size
        rows = zip(self.ranks.least.tolist(), self.most, self.proven, strict=True)
        found = [bounded_exposure(least, most, size, rank=rank) for least, most, rank in rows]
        return [without_numbers(one, self.unknown) for one in found]


@dataclass(frozen=True)
class RankSearching(CountingWork):
    """A bounded search for the ranks of canaries; its result is the finished search as `snapshot` gives it."""

    budget: int

    name = "search ranks/2"

    @property
    def memory_bytes(self) -> int:
        """The states, and two copies of them while they are kept."""
        return 3 * self.members.memory_bytes

    def search(self) -> BoundedSearch:
        """A search that has not started."""
        return BoundedSearch(
            self.members.frontier("a search", "score the texts instead", leave_out=True),
            self.thresholds,
            margins=self.margins,
            noting=self.indices,
            memory_bytes=self.members.memory_bytes,
        )

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Search until it is settled or the budget is spent."""
        del unit
        search, saved = self.search(), running.kept()
        if saved is None:
            search.start()
        else:
            search.restore(saved)
            running.advance(search.frontier.expansions)
        keep = partial(search.snapshot, states=True)
        search.run(
            self.budget - search.frontier.expansions,
            lambda expanded: advance_and_keep(running, expanded, keep),
        )
        return search.snapshot()


def _searched(question: FormatQuestion) -> Course[_Searched]:
    """The bounded search, run until it is settled or its budget is spent."""
    among = yield from compared(question, walked=True)
    budget = question.options.budget
    work = RankSearching(question.members, *among.counted_by(), budget)
    task = f"Proving ranks, at most {budget:,} expansions"
    found = yield from one_result(CourseStep(work, [Unit("search", size=0)], task))
    search = work.search()
    search.restore(found)
    unknown = search.frontier.without_number
    ranks = among.ranks(search.counter, complete=search.is_settled() and not unknown)
    beyond = ranks.own + among.resolution.at(ranks.own)
    behind = search.most_below(beyond)
    # Canaries that were not reached lie below open nodes, and are among those that may.
    reached = search.counter.counts_to(beyond).tolist()
    most = [
        max(known, min(question.format.size, found + more + unknown))
        for known, found, more in zip(ranks.most.tolist(), reached, behind, strict=True)
    ]
    rows = zip(ranks.rank.tolist(), ranks.most.tolist(), most, strict=True)
    proven = [rank if known == all_there_may_be else None for rank, known, all_there_may_be in rows]
    return _Searched(among, search, ranks, most, proven, unknown)


def bounded(question: FormatQuestion) -> Course[Measured]:
    """Proven bounds of the rank among all members, which meet where the budget was enough."""
    question.frontier("bounded")  # refused before any work
    searched = yield from _searched(question)
    return searched.measured()


@dataclass(frozen=True)
class Drawing(MembersWork):
    """Guided draws, followed to their ends or up to a limit (bits)."""

    limit: float

    name = "draw/1"

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Follow the draws of a unit."""
        drawn: DrawnBelow = unit.inputs
        frontier = self.members.frontier("guided draws", "score the texts instead")
        indices, costs, log2_guided = follow_draws(frontier, drawn, self.limit)
        running.advance(len(costs))
        return {
            "indices": plain_integers(indices),
            "costs": costs,
            "log2_guided": log2_guided,
            "expansions": np.array(frontier.expansions),
        }


def _drawn(question: FormatQuestion, search: BoundedSearch) -> Course[Draws]:
    """Draws from below the open nodes of a search, to which their expansions are added."""
    number, tree = question.samples, search.frontier.tree
    generator = arrays(question.options.seed, "guided", question.format_id)
    plan = DrawPlan(tree, search.open.all(), number, generator)
    cuts = [(begin, min(begin + DRAWS_AT_A_TIME, number)) for begin in range(0, number, DRAWS_AT_A_TIME)]
    units = [Unit(plan.part(begin, end), size=end - begin) for begin, end in cuts]
    work = Drawing(question.members, search.limit)
    found = yield CourseStep(work, units, f"Drawing {number:,} members", number)
    search.frontier.expansions += sum(int(one["expansions"]) for one in found)
    return plan.draws(
        [
            FollowedDraws(whole_integers(one["indices"], tree.index_type), one["costs"], one["log2_guided"])
            for one in found
        ]
    )


def guided(question: FormatQuestion) -> Course[Measured]:
    """Prove what the budget can prove, and estimate the rest by draws from below the nodes that are left open."""
    question.frontier("guided")  # refused before any work
    searched = yield from _searched(question)
    search, among, ranks = searched.search, searched.among, searched.ranks
    if search.is_settled() or searched.unknown:
        return searched.measured()  # draws cannot say how many of the members without a number count
    try:
        draws = yield from _drawn(question, search)
    except SURVIVED as problem:
        warning = f"only what the search has proven is known, because members could not be drawn: {problem}"
        return searched.measured([warned(one, warning) for one in searched.bounds()])
    resolutions = among.resolution.at(ranks.own)
    # Canaries that the search has not reached are known nevertheless: they count as found, and draws of them do not.
    missing = [among.indices[i] for i in np.flatnonzero(~ranks.reached)]
    of_canaries = np.isin(draws.indices, question.index_array(missing))
    costs = in_steps(np.where(of_canaries, search.limit + 1, draws.costs))
    estimates = guided_exposures(
        ranks.own,
        costs,
        draws.log2_weights,
        log2_most_weight=draws.most_log2_weight(ranks.own + resolutions),
        known=ranks.rank.tolist(),
        most_rank=searched.most,
        size=question.format.size,
        confidence=question.options.confidence,
        canary_ids=question.canary_ids,
        resolutions=resolutions,
        known_near=list(zip(ranks.least.tolist(), ranks.most.tolist(), strict=True)),
    )
    return searched.measured(estimates, _candidates(searched, draws))


def _candidates(searched: _Searched, draws: Draws) -> CandidateScores:
    """The draws that were followed to their ends; a canary among them costs what it was measured with."""
    search, question = searched.search, searched.among.question
    followed = draws.costs <= search.limit
    indices, costs = draws.indices[followed], in_steps(draws.costs[followed])
    own = dict(zip(searched.among.indices, searched.ranks.own.tolist(), strict=True))
    for place in np.flatnonzero(np.isin(indices, question.index_array(list(own)))):
        costs[place] = own[int(indices[place])]
    return CandidateScores(
        question.format_id,
        "guided",
        search.frontier.tree.places(indices),
        costs,
        draws.log2_weights[followed],
    )
