"""Multilevel splitting: members that are uniform below a falling cost, from scores only, for models without incremental decoding.

A run begins with members drawn uniformly from the format. At each level those that cost more are replaced by copies of the others,
and each copy is moved by a few refillings of the format (`coalmine.formats.refilling`), of which those that lead above the level
are rejected. The product of the shares that were kept, times the size of the space, estimates how many members are below a level.
The levels come from a first run, the pilot, and are the same in all others, so the estimate of every run is unbiased, whatever its
moves (Del Moral, Feynman-Kac Formulae, 2004, section 7.4; adaptive levels as in Cérou, Del Moral, Furon and Guyader, Sequential
Monte Carlo for Rare Event Estimation, Statistics and Computing 22, 2012).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.formats.format import Format
from coalmine.formats.refilling import Refilling
from coalmine.search.walks.thresholds import in_steps
from coalmine.statistics.exposure.splitting import SplittingRun

# Moves of each copy at each level.
MOVES = 6
# Members whose cost is remembered, some 150 bytes each; beyond that a member that comes again is scored again.
REMEMBERED = 500_000

FloatArray = NDArray[np.float64]
Score = Callable[[Sequence[str]], FloatArray]


class ScoreBook:
    """Members and their costs in bits, so that the model scores each member once.

    Splitting is a function of the seed and of these costs. To resume, it is run again with the saved costs, without asking the model,
    up to where it was stopped.

    Attributes:
        costs: the costs of the members that were scored and are remembered.
        scored: how many members were requested.
    """

    def __init__(self, score: Score, batch: int, *, remembered: int = REMEMBERED) -> None:
        self.costs: dict[str, float] = {}
        self.scored = 0
        self._kept: dict[str, float] = {}
        self._score, self._batch, self._remembered = score, batch, remembered

    def add(self, texts: Sequence[str], costs: FloatArray) -> None:
        """Add costs that are already known."""
        self.costs.update(zip(texts, in_steps(costs).tolist(), strict=True))

    def __call__(self, texts: Sequence[str]) -> FloatArray:
        """The cost of each text, in the order given."""
        new = list(dict.fromkeys(text for text in texts if text not in self.costs))
        found = {text: self._kept[text] for text in new if text in self._kept}
        asked = [text for text in new if text not in found]
        for start in range(0, len(asked), self._batch):
            part = asked[start : start + self._batch]
            found.update(zip(part, in_steps(self._score(part)).tolist(), strict=True))
        self.scored += len(new)
        answer = np.array(
            [found[text] if text in found else self.costs[text] for text in texts], dtype=np.float64
        )
        room = self._remembered - len(self.costs)
        self.costs.update((text, found[text]) for text in new[: max(0, room)])
        return answer

    def sorted_costs(self) -> FloatArray:
        """The costs of all members that are remembered, lowest first."""
        return np.sort(np.fromiter(self.costs.values(), dtype=np.float64, count=len(self.costs)))

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """All costs, as plain arrays."""
        every = {**self._kept, **self.costs}
        return {"texts": np.array(list(every)), "costs": np.array(list(every.values()))}

    def restore(self, saved: dict[str, NDArray[Any]]) -> None:
        """Resume with saved costs."""
        self._kept = dict(zip(saved["texts"].tolist(), saved["costs"].tolist(), strict=True))


class Splitting:
    """Runs of splitting over one format, each with `particles` members at every level."""

    def __init__(self, form: Format, book: ScoreBook, *, particles: int, moves: int = MOVES) -> None:
        self.format, self.book, self.particles, self.moves = form, book, particles, moves
        self._refilling = Refilling(form)

    def pilot(
        self, lowest: float, generator: random.Random, after_level: Callable[[], None] = lambda: None
    ) -> list[float]:
        """Levels that each halve the remaining members, down to `lowest` or to the cheapest member that is found.

        If that is above `lowest`, levels one bit apart follow, for runs that get further down.
        """
        texts, costs = self._first(generator)
        levels: list[float] = []
        while True:
            level = float(np.sort(costs)[(len(costs) - 1) // 2])
            if levels and level >= levels[-1]:  # a plateau: leave it in one step
                below = costs[costs < levels[-1]]
                if not len(below):
                    break
                level = float(below.max())
            if level < lowest:
                break
            levels.append(level)
            self._split(texts, costs, np.arange(len(costs)), level, generator)
            after_level()
        if levels and levels[-1] > lowest and not (costs <= lowest).any():
            levels.extend(np.linspace(levels[-1], lowest, int(np.ceil(levels[-1] - lowest)) + 1)[1:].tolist())
        return levels

    def run(
        self,
        levels: Sequence[float],
        known: set[str],
        generator: random.Random,
        after_level: Callable[[], None] = lambda: None,
    ) -> SplittingRun:
        """One run through the levels; `known` members are marked, because they need not be estimated."""
        shape = (len(levels) + 1, self.particles)
        every_cost, marks = np.full(shape, np.inf), np.zeros(shape, dtype=bool)
        lines = np.zeros(shape, dtype=np.int32)
        texts, costs = self._first(generator)
        ancestors = np.arange(self.particles, dtype=np.int32)
        for stage in range(len(levels) + 1):
            every_cost[stage], lines[stage] = costs, ancestors
            marks[stage] = [text in known for text in texts]
            if stage == len(levels):
                break
            alive = self._split(texts, costs, ancestors, levels[stage], generator)
            after_level()
            if not alive:
                break
        return SplittingRun(every_cost, marks, lines)

    def grow(self, seeds: Sequence[str], threshold: float, most: int) -> bool:
        """Score the neighbors of `seeds`, of their neighbors that cost no more than `threshold`, and so on.

        At most about `most` members are scored. Returns whether that was enough to score them all.
        """
        reached, pending = set(seeds), list(seeds)
        limit = self.book.scored + most
        while pending:
            if self.book.scored >= limit:
                return False
            around = [text for text in self._refilling.neighbors(pending.pop()) if text not in reached]
            for text, cost in zip(around, self.book(around), strict=True):
                if cost <= threshold:
                    reached.add(text)
                    pending.append(text)
        return True

    def _first(self, generator: random.Random) -> tuple[list[str], FloatArray]:
        texts = [self.format.at(generator.randrange(self.format.size)) for _ in range(self.particles)]
        return texts, self.book(texts)

    def _split(
        self,
        texts: list[str],
        costs: FloatArray,
        ancestors: NDArray[np.signedinteger],
        level: float,
        generator: random.Random,
    ) -> bool:
        """Replace, in place, the members that cost more than the level; False where all do."""
        alive = np.flatnonzero(costs <= level).tolist()
        dead = np.flatnonzero(costs > level).tolist()
        if not alive:
            return False
        generator.shuffle(alive)
        for place, one in enumerate(dead):
            parent = alive[place % len(alive)]
            texts[one], costs[one], ancestors[one] = texts[parent], costs[parent], ancestors[parent]
        for _ in range(self.moves):
            proposed = [self._refilling.propose(texts[one], generator) for one in dead]
            for one, text, cost in zip(dead, proposed, self.book(proposed).tolist(), strict=True):
                if cost <= level:
                    texts[one], costs[one] = text, cost
        return True
