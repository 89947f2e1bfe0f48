"""Splitting over a small space where every cost is known: its estimates are unbiased, and what is scored is scored once."""

import math
import random
from itertools import pairwise

import numpy as np
import pytest

from coalmine import Format
from coalmine.search.walks.splitting import ScoreBook, Splitting
from coalmine.search.walks.thresholds import in_steps
from coalmine.statistics.exposure.splitting import SplittingRuns

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
    runs = SplittingRuns([splitting.run(levels, known, random.Random(seed)) for seed in range(1_500)], levels)
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


@pytest.mark.parametrize("costs", [COSTS, np.round(COSTS / 8) * 8], ids=["all differ", "plateaus"])
def test_levels_fall_to_the_lowest_and_halve_what_is_left_where_costs_differ(costs):
    splitting = sampler(costs, particles=40)
    lowest = float(np.sort(costs)[4])
    levels = splitting.pilot(lowest, random.Random(5))
    assert all(one > other for one, other in pairwise(levels))
    assert levels[-1] >= lowest
    shares = [np.mean(costs <= level) for level in levels]
    if len(set(costs)) == len(costs):
        # Each is the median of forty that cost no more than the one before.
        assert all(0.3 <= other / one <= 0.75 for one, other in pairwise([1.0, *shares]) if other > 0.02)
    else:
        assert set(levels) <= set(costs)


def test_levels_go_on_one_bit_apart_to_what_the_pilot_did_not_find():
    costs = np.full(1_000, 30.0)
    costs[777] = 5.5
    levels = sampler(costs, particles=4).pilot(5.5, random.Random(0))
    assert levels[0] == 30.0
    assert levels[-1] == 5.5
    assert len(levels) == 1 + math.ceil(30.0 - 5.5)
    steps = [one - other for one, other in pairwise(levels)]
    assert max(steps) <= 1.0
    assert min(steps) > 0.9


def test_a_run_marks_what_is_known_and_follows_its_first_members():
    splitting = sampler(COSTS, particles=30)
    known = {f"{number:03d}" for number in range(500)}
    levels = [30.0, 27.0, 25.0]
    run = splitting.run(levels, known, random.Random(4))
    assert run.costs.shape == run.known.shape == run.ancestors.shape == (4, 30)
    assert run.ancestors[0].tolist() == list(range(30))
    for stage, level in enumerate(levels, 1):
        assert (run.costs[stage] <= level).all()
        # Whoever was below the level stays, and the others descend from them.
        alive = run.costs[stage - 1] <= level
        assert (run.costs[stage][alive] == run.costs[stage - 1][alive]).all()
        assert set(run.ancestors[stage]) <= set(run.ancestors[stage - 1][alive])
        counts = np.unique(run.ancestors[stage], return_counts=True)[1]
        assert counts.sum() == 30
    by_cost = {cost: place for place, cost in enumerate(COSTS.tolist())}
    for stage in range(4):
        assert run.known[stage].tolist() == [by_cost[cost] < 500 for cost in run.costs[stage].tolist()]


def test_a_book_asks_in_batches_and_for_nothing_twice():
    table, sizes = Table(COSTS), []

    def score(texts):
        sizes.append(len(texts))
        return table(texts)

    book = ScoreBook(score, 4, remembered=7)
    book.add(["000", "001"], np.array([1.0, 2.0]))
    texts = ["005", "000", "006", "005", "007", "008", "009"]
    expected = [1.0 if text == "000" else COSTS[int(text)] for text in texts]
    assert book(texts).tolist() == pytest.approx(expected)
    assert (sizes, book.scored) == ([4, 1], 5)
    assert len(book.costs) == 7  # there is no more room
    assert book(["010", "005"]).tolist() == pytest.approx([COSTS[10], COSTS[5]])
    assert (sizes, book.scored, len(book.costs)) == ([4, 1, 1], 6, 7)
    assert book.sorted_costs().tolist() == sorted(book.costs.values())
    assert book.sorted_costs()[:2].tolist() == [1.0, 2.0]


def test_growing_stops_when_it_has_scored_as_many_as_it_may():
    costs = np.full(1_000, 5.0)
    splitting = sampler(costs)
    assert not splitting.grow(["123"], 5.0, most=100)
    # Each of the members around one is scored together: 27 of them at first, and then no more than that beyond the limit.
    assert 100 <= splitting.book.scored < 100 + 27
    costs[:] = 6.0
    alone = sampler(costs)
    assert alone.grow(["123"], 5.0, most=27)
    assert alone.book.scored == 27
