"""Splitting over a small space where every cost is known: its estimates are unbiased, and what is scored is scored once."""

import math
import random
from itertools import pairwise

import numpy as np
import pytest

from coalmine import Format
from coalmine.search.splitting import ScoreBook, Splitting
from coalmine.search.thresholds import in_steps
from coalmine.statistics.splitting import Runs

PIN = Format("{digits:3}")
COSTS = in_steps(np.random.default_rng(3).normal(30, 4, 1_000))


class Table:
    """Costs by member, and how often each was asked for."""

    def __init__(self, costs):
        self.costs, self.asked = costs, []

    def __call__(self, texts):
        self.asked += texts
        return self.costs[[int(text) for text in texts]]


def sampler(costs, particles=12, **options):
    return Splitting(PIN, ScoreBook(Table(costs), 64, **options), particles=particles, moves=3)


@pytest.mark.parametrize("costs", [COSTS, np.round(COSTS / 2) * 2], ids=["all differ", "ties"])
def test_the_estimated_number_of_members_below_a_cost_is_unbiased(costs):
    splitting = sampler(costs)
    ordered = np.sort(costs)
    levels = splitting.pilot(float(ordered[0]), random.Random(1))
    assert all(later < earlier for earlier, later in pairwise(levels))
    known = set(splitting.book.costs)
    runs = Runs([splitting.run(levels, known, random.Random(seed)) for seed in range(1_500)], levels)
    for rank in (1, 3, 20, 150, 700):
        cost = float(ordered[rank - 1])
        below = runs.below(cost)
        for log2, truth in (
            (below.log2_every, int((costs <= cost).sum())),
            (below.log2_others, sum(1 for i in range(1_000) if costs[i] <= cost and f"{i:03d}" not in known)),
        ):
            estimates = 1_000 * np.exp2(log2)
            error = estimates.std(ddof=1) / math.sqrt(len(estimates))
            assert abs(estimates.mean() - truth) <= 4 * error + 1e-9


def test_every_member_is_scored_once_and_a_restored_book_asks_for_nothing_again():
    splitting = sampler(COSTS)
    levels = splitting.pilot(float(COSTS.min()), random.Random(1))
    first = splitting.run(levels, set(), random.Random(2))
    table = splitting.book._score
    assert len(table.asked) == len(set(table.asked)) == splitting.book.scored

    again = sampler(COSTS)
    again.book.restore(splitting.book.snapshot())
    assert again.pilot(float(COSTS.min()), random.Random(1)) == levels
    np.testing.assert_array_equal(again.run(levels, set(), random.Random(2)).costs, first.costs)
    assert again.book._score.asked == []
    assert again.book.scored == splitting.book.scored


def test_a_book_holds_no_more_than_it_may():
    splitting = sampler(COSTS, remembered=50)
    levels = splitting.pilot(float(COSTS.min()), random.Random(1))
    assert len(splitting.book.costs) == 50
    assert levels == sampler(COSTS).pilot(float(COSTS.min()), random.Random(1))


def test_growing_finds_what_is_connected_and_says_when_it_stopped_early():
    costs = np.full(1_000, 30.0)
    connected = [123, 124, 154, 954]
    costs[[*connected, 700]] = 5.0
    splitting = sampler(costs)
    assert splitting.grow(["123"], 5.0, most=1_000)
    assert {text for text, cost in splitting.book.costs.items() if cost <= 5.0} >= {
        f"{i:03d}" for i in connected[1:]
    }
    assert "700" not in splitting.book.costs
    assert not sampler(costs).grow(["123"], 5.0, most=30)


def test_a_run_that_finds_nothing_below_a_level_ends_there():
    splitting = sampler(COSTS)
    run = splitting.run([28.0, 1.0], set(), random.Random(0))
    assert np.isfinite(run.costs[:2]).all()
    assert np.isinf(run.costs[2]).all()
