"""Exposure by splitting, for models that can only score: several runs go down to the least surprising canary."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure.candidate_scores import CandidateScores
from coalmine.audits.exposure.estimators import SPLITTING
from coalmine.audits.exposure.question import FormatQuestion, Measured
from coalmine.audits.exposure.ranked import exact
from coalmine.engines.courses import Course, CourseStep, one_result
from coalmine.engines.units import Arrays, Running, Unit, advance_and_keep
from coalmine.randomness import integers
from coalmine.search.walks.splitting import MOVES, ScoreBook, Splitting
from coalmine.search.walks.thresholds import in_steps
from coalmine.search.walks.works import MembersWork
from coalmine.statistics.exposure.splitting import SplittingRun, SplittingRuns, splitting_exposures

RUNS = 8
# Around canaries of which a run of the pilot's size would count fewer members than this, neighbors are looked at one by one.
NEAR_UP_TO, NEAR_SCORES = 1_000, 10_000


def expected_scores(log2_size: float, first_members: int = SPLITTING.samples) -> int:
    """About how many members a model is asked about at most, if a canary is the least surprising member of the space.

    >>> expected_scores(30.0) < 250_000
    True
    """
    particles = particles_of(first_members)
    return int((RUNS + 1) * particles * (1 + log2_size * MOVES / 2))


def particles_of(first_members: int) -> int:
    """How many members each run holds."""
    return max(2, first_members // RUNS)


def splitting(question: FormatQuestion) -> Course[Measured]:
    """Runs of splitting; a space no larger than the first members of all runs is ranked as a whole."""
    if question.format.size <= question.samples:
        return (yield from exact(question))
    work = Splits(
        question.members, question.format_id, question.canary_texts, question.canary_scores, question.samples
    )
    seed, thresholds = question.options.seed, in_steps(question.thresholds)
    found = yield from one_result(CourseStep(work, [Unit(seed, size=0)], f"Splitting in {RUNS} runs"))
    columns = (found["costs"], found["known"], found["ancestors"])
    runs = SplittingRuns([SplittingRun(*run) for run in zip(*columns, strict=True)], found["levels"].tolist())
    estimates = splitting_exposures(
        thresholds,
        runs,
        known=found["known_before"].tolist(),
        proven=found["proven"].tolist(),
        complete=found["complete"].tolist(),
        size=question.format.size,
        scored=int(found["scored"]),
        confidence=question.options.confidence,
        canary_ids=question.canary_ids,
    )
    first = question.index_array(
        [index for number in range(RUNS) for index in work.first_members(seed, number, runs.costs.shape[2])]
    )
    candidates = CandidateScores(question.format_id, "sample", first, runs.costs[:, 0].ravel())
    return Measured(estimates=estimates, candidates=candidates)


@dataclass(frozen=True)
class Splits(MembersWork):
    """The pilot, the neighbors of canaries and the runs, for one format; what it keeps are the scores of members."""

    format_id: str
    canary_texts: tuple[str, ...]
    canary_scores: NDArray[np.float64]
    samples: int

    name = "split/1"
    memory_bytes = 0

    @property
    def facts(self) -> Any:
        """The members, the canaries and the number of first members."""
        return self.members.facts, self.format_id, self.canary_texts, self.canary_scores, self.samples

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Split with the seed of the unit."""
        book = ScoreBook(self.members.score, self.members.batch)
        book.add(self.canary_texts, self.canary_scores)
        saved = running.kept()
        if saved is not None:
            book.restore(saved)

        def after_level() -> None:
            advance_and_keep(running, 1, book.snapshot)

        sampler = Splitting(self.members.format, book, particles=particles_of(self.samples))
        thresholds = in_steps(self.canary_scores)
        levels = sampler.pilot(float(thresholds.min()), self._generator(unit.inputs, "pilot"), after_level)
        complete = self._look_around(sampler, levels)
        known, known_costs = set(book.costs), book.sorted_costs()
        runs = [
            sampler.run(levels, known, self._generator(unit.inputs, f"run {number}"), after_level)
            for number in range(RUNS)
        ]
        costs, marks, ancestors = (np.stack(column) for column in zip(*runs, strict=True))
        return {
            "levels": np.array(levels, dtype=np.float64),
            "costs": costs,
            "known": marks,
            "ancestors": ancestors,
            "known_before": np.searchsorted(known_costs, thresholds, side="right"),
            "proven": np.searchsorted(book.sorted_costs(), thresholds, side="right"),
            "complete": np.array(complete, dtype=bool),
            "scored": np.array(book.scored),
        }

    def first_members(self, seed: int, number: int, particles: int) -> list[int]:
        """The places of the uniform draws that a run begins with."""
        generator = self._generator(seed, f"run {number}")
        return [generator.randrange(self.members.format.size) for _ in range(particles)]

    def _look_around(self, sampler: Splitting, levels: list[float]) -> list[bool]:
        """Score the members near canaries that may be less surprising than nearly all others; whether all that count were found."""
        halvings = math.log2(self.members.format.size) - math.log2(NEAR_UP_TO)
        costs = in_steps(self.canary_scores).tolist()
        complete = []
        for threshold in costs:
            near = [text for text, cost in zip(self.canary_texts, costs, strict=True) if cost <= threshold]
            # Each level halves what is left, so their number says about how many members are below the canary.
            deep = sum(level >= threshold for level in levels) >= halvings
            complete.append(deep and sampler.grow(near, threshold, NEAR_SCORES))
        return complete

    def _generator(self, seed: int, use: str) -> random.Random:
        return integers(seed, "splitting", self.format_id, use)
