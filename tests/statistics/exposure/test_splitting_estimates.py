"""From runs of splitting to exposures: intervals hold the truth where runs are ideal, and are bounds where too few runs saw anything."""

import math

import numpy as np
import pytest

from coalmine.errors import InputError
from coalmine.statistics.exposure.splitting import (
    SplittingRun,
    SplittingRuns,
    log2_mean_interval,
    splitting_exposures,
)

SIZE = 2**30
LEVELS = [float(SIZE >> (stage + 1)) for stage in range(25)]
PARTICLES = 100


def ideal_runs(generator, count=8, floor=0.0):
    """The cost of a member is its rank less 1, and members below a level are drawn anew: nothing below `floor` is found."""
    runs = []
    for _ in range(count):
        tops = np.array([float(SIZE), *LEVELS])
        costs = np.floor(generator.random((len(tops), PARTICLES)) * (tops[:, None] + 1))
        costs = np.maximum(costs, floor)
        dead = np.flatnonzero(np.array([*LEVELS, -1.0]) < floor)
        if len(dead):
            costs[dead[0] + 1 :] = np.inf
        lines = np.tile(np.arange(PARTICLES, dtype=np.int32), (len(tops), 1))
        runs.append(SplittingRun(costs, np.zeros(costs.shape, dtype=bool), lines))
    return SplittingRuns(runs, LEVELS)


def estimate(runs, cost, *, known=0, proven=1, complete=True):
    (found,) = splitting_exposures(
        [cost], runs, known=[known], proven=[proven], complete=[complete], size=SIZE, scored=1_000
    )
    return found


@pytest.mark.parametrize("rank", [40, 5_000, 3_000_000, SIZE // 3 * 2])
def test_intervals_of_ideal_runs_hold_the_truth_and_ranks_are_unbiased(rank):
    truth = math.log2(SIZE) - math.log2(rank)
    audits = [ideal_runs(np.random.default_rng(seed)) for seed in range(150)]
    found = [estimate(runs, rank - 1.0) for runs in audits]
    assert np.mean([one.status == "measured" for one in found]) >= 0.9
    held = np.mean([one.low <= truth <= one.high for one in found])
    assert held >= 0.92
    ratios = np.concatenate([np.exp2(runs.below(rank - 1.0).log2_every + truth) for runs in audits])
    assert abs(ratios.mean() - 1) <= 4 * ratios.std() / math.sqrt(len(ratios))


def test_what_no_run_reached_has_a_bound_from_the_lowest_level_that_they_show():
    runs = ideal_runs(np.random.default_rng(0), floor=500.0)
    found = estimate(runs, 3.0)
    assert found.status == "lower_bound"
    assert found.value is None
    assert "too few runs" in found.warnings[0]
    # Some 500 to 2,000 members lie below the lowest level that was seen, the canary's rank is at least 1.
    assert math.log2(SIZE / 8_000) <= found.low <= math.log2(SIZE / 500)
    assert found.high == math.log2(SIZE)
    assert "uniform draws alone show at least" in found.statement


def test_where_the_members_around_a_canary_were_not_all_seen_only_the_uniform_draws_count():
    found = estimate(ideal_runs(np.random.default_rng(0), floor=500.0), 3.0, complete=False)
    assert found.low == pytest.approx(-math.log2(1 - 0.05 ** (1 / (8 * PARTICLES))))
    assert found.assumptions == (
        "the first members of the runs are independent and uniform draws from the whole secret space",
    )


def test_a_rank_is_never_below_what_is_proven_and_a_contradiction_gives_no_value():
    runs = ideal_runs(np.random.default_rng(0))
    assert estimate(runs, 5_000.0, proven=4_900).high <= math.log2(SIZE / 4_900)
    against = estimate(runs, 5_000.0, proven=50_000)
    assert against.status == "lower_bound"
    assert against.low <= against.high == math.log2(SIZE / 50_000)


def test_what_is_known_is_counted_and_not_estimated():
    truth, held, widths = math.log2(SIZE / 5_001), [], []
    for seed in range(100):
        plain = ideal_runs(np.random.default_rng(seed))
        parts = zip(plain.costs, plain.ancestors, strict=True)
        marked = SplittingRuns([SplittingRun(costs, costs < 4_000, lines) for costs, lines in parts], LEVELS)
        whole, rest = estimate(plain, 5_000.0), estimate(marked, 5_000.0, known=4_000, proven=4_000)
        held.append(rest.low <= truth <= rest.high)
        if "measured" == rest.status == whole.status:
            widths.append((whole.high - whole.low) / (rest.high - rest.low))
    assert np.mean(held) >= 0.9
    assert np.median(widths) > 2


def test_one_run_that_decides_alone_is_no_estimate():
    runs = ideal_runs(np.random.default_rng(0))
    runs.log2_weights[0] += 20.0
    assert estimate(runs, 5_000.0).status == "lower_bound"


def test_the_interval_of_a_mean_works_far_below_the_smallest_float():
    middle, low, high = log2_mean_interval(np.array([-5_000.0, -5_001.0, -5_000.5]), 0.95)
    assert -5_001.0 < middle < -5_000.0
    assert low < middle < high


def test_levels_that_do_not_fall_and_single_runs_are_refused():
    run = SplittingRun(np.ones((3, 2)), np.zeros((3, 2), dtype=bool), np.zeros((3, 2), dtype=np.int32))
    with pytest.raises(InputError, match="levels must fall"):
        SplittingRuns([run, run], [1.0, 2.0])
    with pytest.raises(InputError, match="at least two"):
        SplittingRuns([run], [2.0, 1.0])
