"""Exposure by splitting, for models that can only score: several runs go down to the least surprising canary."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure.estimators import SPLITTING
from coalmine.audits.exposure.ranked import FormatQuestion, Measured, exact, sampled, warned
from coalmine.audits.exposure.results import CandidateScores
from coalmine.engines.courses import SURVIVED, Course, CourseStep, one_result
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
    """Runs of splitting; a space no larger than the first members of all runs is ranked as a whole.

    Where they meet a member that has no number, the paths below it are unknown, and with them every rank: a sample of as many members as
    the runs begin with gives bounds instead.
    """
    if question.format.size <= question.samples:
        return (yield from exact(question))
    try:
        return (yield from _split(question))
    except SURVIVED as problem:
        warning = f"these are the bounds that a sample gives, because splitting failed: {problem}"
    found = yield from sampled(question)
    return found._replace(estimates=[warned(one, warning) for one in found.estimates])


def _split(question: FormatQuestion) -> Course[Measured]:
    given = (
        question.members, question.format_id, question.canary_texts, question.canary_scores, question.samples
    )  # fmt: skip
    seed, thresholds = question.options.seed, in_steps(question.canary_scores)
    pilot = yield from one_result(
        CourseStep(SplittingPilot(*given), [Unit(seed, size=0)], "Looking for the levels of splitting")
    )
    known = pilot["levels"], pilot["texts"], pilot["costs"]
    work = SplittingDescents(*given)
    units = [Unit((seed, number), known, 0) for number in range(RUNS)]
    found = yield CourseStep(work, units, f"Splitting in {RUNS} runs")
    every = dict(zip(pilot["texts"].tolist(), pilot["costs"].tolist(), strict=True))
    before = len(every)
    for one in found:
        every.update(zip(one["texts"].tolist(), one["text_costs"].tolist(), strict=True))
    # A member that several runs came to counts once, although each asked the model about it.
    twice = sum(len(one["texts"]) for one in found) - (len(every) - before)
    runs = SplittingRuns(
        [SplittingRun(one["costs"], one["known"], one["ancestors"]) for one in found],
        pilot["levels"].tolist(),
    )
    estimates = splitting_exposures(
        thresholds,
        runs,
        known=np.searchsorted(np.sort(pilot["costs"]), thresholds, side="right").tolist(),
        proven=np.searchsorted(np.sort(list(every.values())), thresholds, side="right").tolist(),
        complete=pilot["complete"].tolist(),
        size=question.format.size,
        scored=int(pilot["scored"]) + sum(int(one["scored"]) for one in found) - twice,
        confidence=question.options.confidence,
        canary_ids=question.canary_ids,
    )
    first = question.index_array(
        [index for number in range(RUNS) for index in work.first_members(seed, number, runs.costs.shape[2])]
    )
    candidates = CandidateScores(question.format_id, "sample", first, runs.costs[:, 0].ravel())
    return Measured(estimates=estimates, candidates=candidates)


@dataclass(frozen=True)
class _SplittingWork(MembersWork):
    """What the pilot and the runs have in common; what they keep are the scores of members."""

    format_id: str
    canary_texts: tuple[str, ...]
    canary_scores: NDArray[np.float64]
    samples: int

    memory_bytes = 0

    def sampler(self, known: Sequence[str], costs: NDArray[np.float64], running: Running) -> Splitting:
        """What splits, with costs that are known, and those that an earlier run of the same unit kept."""
        book = ScoreBook(self.members.score, self.members.batch)
        book.add(known, costs)
        saved = running.kept()
        if saved is not None:
            book.restore(saved)
        return Splitting(self.members.format, book, particles=particles_of(self.samples))

    def generator(self, seed: int, use: str) -> random.Random:
        """The random numbers of the pilot, or of one of the runs."""
        return integers(seed, "splitting", self.format_id, use)


class SplittingPilot(_SplittingWork):
    """The pilot, which finds the levels, and the neighbors of canaries, for one format; all that they scored is part of the result."""

    name = "split pilot/1"

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Go down with the seed of the unit."""
        sampler = self.sampler(self.canary_texts, self.canary_scores, running)
        book, lowest = sampler.book, float(in_steps(self.canary_scores).min())
        levels = sampler.pilot(
            lowest,
            self.generator(unit.inputs, "pilot"),
            lambda: advance_and_keep(running, 1, book.snapshot),
        )
        complete = self._look_around(sampler, levels)
        return {
            "levels": np.array(levels, dtype=np.float64),
            "complete": np.array(complete, dtype=bool),
            "texts": np.array(list(book.costs), dtype=str),
            "costs": np.array(list(book.costs.values()), dtype=np.float64),
            "scored": np.array(book.scored),
        }

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


class SplittingDescents(_SplittingWork):
    """One run through the levels of the pilot per unit; the payload has these, and the members that the pilot scored."""

    name = "split/2"

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Go down once, with the seed and the number of the unit."""
        (seed, number), (levels, texts, costs) = unit.inputs, unit.payload
        known = dict.fromkeys(texts.tolist())
        sampler = self.sampler(list(known), costs, running)
        book = sampler.book
        found = sampler.run(
            levels.tolist(),
            set(known),
            self.generator(seed, f"run {number}"),
            lambda: advance_and_keep(running, 1, book.snapshot),
        )
        new = [(text, cost) for text, cost in book.costs.items() if text not in known]
        return {
            "costs": found.costs,
            "known": found.known,
            "ancestors": found.ancestors,
            "texts": np.array([text for text, _ in new], dtype=str),
            "text_costs": np.array([cost for _, cost in new], dtype=np.float64),
            "scored": np.array(book.scored),
        }

    def first_members(self, seed: int, number: int, particles: int) -> list[int]:
        """The places of the uniform draws that a run begins with."""
        generator = self.generator(seed, f"run {number}")
        return [generator.randrange(self.members.format.size) for _ in range(particles)]
