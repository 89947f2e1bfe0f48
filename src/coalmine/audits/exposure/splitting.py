"""Exposure by splitting, for models that can only score: several runs go down to the least surprising canary."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np

from coalmine.audits.exposure.candidate_scores import CandidateScores
from coalmine.audits.exposure.estimators import SPLITTING
from coalmine.audits.exposure.question import Measured, Question
from coalmine.audits.exposure.ranked import exact
from coalmine.interrupts import deferred_interrupt
from coalmine.randomness import integers
from coalmine.search.walks.splitting import MOVES, ScoreBook, Splitting
from coalmine.search.walks.thresholds import in_steps
from coalmine.statistics.exposure.splitting import SplittingRuns, splitting_exposures

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


def splitting(question: Question) -> Measured:
    """Runs of splitting; a space no larger than the first members of all runs is ranked as a whole."""
    if question.format.size <= question.samples:
        return exact(question)
    book = ScoreBook(question.members.score, question.members.batch)
    book.add(question.canary_texts, question.canary_scores)
    saved = question.resume.load()
    if saved is not None:
        book.restore(saved)
    with deferred_interrupt() as interrupted:

        def after_level() -> None:
            question.progress.advance()
            question.resume.save(book.snapshot, now=interrupted())
            if interrupted():
                raise KeyboardInterrupt

        return _OneFormatSplit(question, book, after_level).measured()


class _OneFormatSplit:
    """One format, while it is measured."""

    def __init__(self, question: Question, book: ScoreBook, after_level: Callable[[], None]) -> None:
        self.question, self.book, self.after_level = question, book, after_level
        self.sampler = Splitting(question.format, book, particles=particles_of(question.samples))

    def measured(self) -> Measured:
        """The pilot, the neighbors of canaries, the runs."""
        question, thresholds = self.question, in_steps(self.question.thresholds)
        question.progress.start("Finding levels for splitting", None)
        levels = self.sampler.pilot(float(thresholds.min()), self._generator("pilot"), self.after_level)
        complete = self._look_around(levels)
        question.progress.finish()
        known, known_costs = set(self.book.costs), self.book.sorted_costs()
        question.progress.start(f"Splitting in {RUNS} runs", RUNS * len(levels))
        runs = SplittingRuns(
            [
                self.sampler.run(levels, known, self._generator(f"run {number}"), self.after_level)
                for number in range(RUNS)
            ],
            levels,
        )
        question.progress.finish()
        estimates = splitting_exposures(
            thresholds,
            runs,
            known=np.searchsorted(known_costs, thresholds, side="right").tolist(),
            proven=np.searchsorted(self.book.sorted_costs(), thresholds, side="right").tolist(),
            complete=complete,
            size=question.format.size,
            scored=self.book.scored,
            confidence=question.options.confidence,
            canary_ids=question.canary_ids,
        )
        return Measured(estimates=estimates, candidates=self._first_members(runs))

    def _look_around(self, levels: list[float]) -> list[bool]:
        """Score the members near canaries that may be less surprising than nearly all others; whether all that count were found."""
        question = self.question
        halvings = math.log2(question.format.size) - math.log2(NEAR_UP_TO)
        complete = []
        for threshold in in_steps(question.thresholds).tolist():
            texts = zip(question.canary_texts, in_steps(question.canary_scores).tolist(), strict=True)
            near = [text for text, cost in texts if cost <= threshold]
            # Each level halves what is left, so their number says about how many members are below the canary.
            deep = sum(level >= threshold for level in levels) >= halvings
            complete.append(deep and self.sampler.grow(near, threshold, NEAR_SCORES))
        return complete

    def _first_members(self, runs: SplittingRuns) -> CandidateScores:
        """The uniform draws that the runs began with."""
        size, particles = self.question.format.size, runs.costs.shape[2]
        indices = [
            generator.randrange(size)
            for number in range(RUNS)
            for generator in [self._generator(f"run {number}")]
            for _ in range(particles)
        ]
        return CandidateScores(
            self.question.format_id, "sample", self.question.index_array(indices), runs.costs[:, 0].ravel()
        )

    def _generator(self, use: str) -> random.Random:
        return integers(self.question.options.seed, "splitting", self.question.format_id, use)
