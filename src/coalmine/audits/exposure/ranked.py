"""Exposure from the rank of each canary among all members of its format: the exact estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure.candidate_scores import CandidateScores
from coalmine.audits.exposure.question import (
    Compared,
    Measured,
    Question,
    compare_scored,
    compare_walked,
    methods_without_walking,
)
from coalmine.errors import NotMeasurableError
from coalmine.interrupts import deferred_interrupt
from coalmine.search.walks.enumeration import enumerate_unit, split_into_units
from coalmine.search.walks.frontier import Frontier, Nodes
from coalmine.search.walks.thresholds import ThresholdCounter, in_steps
from coalmine.statistics.exposure.ranks import exact_exposure

# Scores of single members are kept for the result's table up to this many per format; 16 bytes each.
KEEP_UP_TO = 2_000_000
# Members scored one by one where a model does not support incremental decoding: an hour's work for a small transformer on a CPU.
SCORED_UP_TO = 1_000_000


def exact(question: Question) -> Measured:
    """The rank among all members: by walking the tree if possible, else by scoring each."""
    if question.members.obstacle is not None:
        return _exact_by_scoring(question)
    form, frontier = question.format, question.frontier("exact")
    keep = form.size <= KEEP_UP_TO
    question.progress.start(f"Ranking {form.size:,} members", form.size)
    compared = compare_walked(question, frontier)
    ranking = _Ranking(compared, frontier, keep=keep)
    ranking.run()
    question.progress.finish()
    return _measured(
        compared, ranking.counter, ranking.candidates() if keep else None, expansions=frontier.expansions
    )


def _exact_by_scoring(question: Question) -> Measured:
    """The same ranks for a model that does not support incremental decoding: every member is scored by itself."""
    form = question.format
    if form.size > SCORED_UP_TO:
        raise NotMeasurableError(
            f"{question.model.name!r} cannot be searched ({question.members.obstacle}), and scoring {form.size:,} members one by one is "
            f"refused above {SCORED_UP_TO:,}; use the {methods_without_walking(but='exact')} method"
        )
    question.progress.start(f"Scoring {form.size:,} members", form.size)
    compared = compare_scored(question)
    counter, kept = ThresholdCounter(compared.costs, compared.margins, compared.indices), []
    for indices, costs in question.members.scored_one_by_one():
        counter.add(costs, indices)
        kept.append((indices, costs))
        question.progress.advance(len(costs))
    question.progress.finish()
    places, bits = (np.concatenate(column) for column in zip(*kept, strict=True))
    return _measured(compared, counter, CandidateScores(question.format_id, "member", places, bits))


def _measured(
    compared: Compared, counter: ThresholdCounter, candidates: CandidateScores | None, *, expansions: int = 0
) -> Measured:
    """The plain count over the members' own costs; what the model's arithmetic leaves open is in the interval."""
    ranks = compared.ranks(counter)
    compared.check_reached(ranks)
    size = compared.question.format.size
    counted = zip(ranks.rank.tolist(), ranks.least.tolist(), ranks.most.tolist(), strict=True)
    return Measured(
        estimates=[exact_exposure(rank, size, least=least, most=most) for rank, least, most in counted],
        candidates=candidates,
        ranks=ranks.rank.tolist(),
        expansions=expansions,
        own=ranks.own,
        resolution=compared.resolution,
    )


class _Ranking:
    """The enumeration of a space unit by unit; after each unit it can be killed and resumed."""

    def __init__(self, compared: Compared, frontier: Frontier, *, keep: bool) -> None:
        self.question, self.frontier, self.keep = compared.question, frontier, keep
        self.counter = ThresholdCounter(compared.costs, compared.margins, compared.indices)
        self._kept: list[Nodes] = []

    def run(self) -> None:
        resume = self.question.resume
        units, above = split_into_units(self.frontier)
        self._count(above)
        finished = 0
        # A space that is kept whole is one that takes seconds; only larger ones are worth resuming.
        saved = None if self.keep else resume.load()
        if saved is not None:
            self.counter.restore(saved)
            finished = int(saved["finished"])
            self.frontier.expansions = int(saved["expansions"])
            self.question.progress.advance(self.counter.total)
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
        return CandidateScores(
            self.question.format_id, "member", self.frontier.tree.places(numbers), in_steps(costs)
        )

    def _count(self, leaves: Nodes) -> None:
        self.counter.add(leaves.costs, leaves.indices)
        if self.keep:
            self._kept.append(leaves)
        self.question.progress.advance(len(leaves.costs))

    def _state(self, finished: int) -> dict[str, NDArray[Any]]:
        return {
            **self.counter.state(),
            "finished": np.array(finished),
            "expansions": np.array(self.frontier.expansions),
        }
