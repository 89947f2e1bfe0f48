"""Differences: exact tests against brute force, and the level and coverage of tests and intervals by simulation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine.errors import InputError, NotMeasurableError
from coalmine.statistics import (
    adjusted_p_values,
    differences,
    median_estimate,
    paired_difference,
    unpaired_difference,
)
from coalmine.statistics.differences import difference_words


def naive_paired_p(pairs):
    """Two-sided, by turning round every subset of the pairs."""
    true = sum(a - b for a, b in pairs)
    sums = [
        sum((b - a) if flip else (a - b) for flip, (a, b) in zip(flips, pairs, strict=True))
        for flips in itertools.product([False, True], repeat=len(pairs))
    ]
    higher = sum(total >= true - 1e-9 for total in sums)
    lower = sum(total <= true + 1e-9 for total in sums)
    return min(1.0, 2 * min(higher, lower) / len(sums))


def naive_unpaired_p(first, second):
    both, true = first + second, np.mean(first) - np.mean(second)
    found = []
    for chosen in itertools.combinations(range(len(both)), len(first)):
        own = [both[place] for place in chosen]
        rest = [both[place] for place in range(len(both)) if place not in chosen]
        found.append(np.mean(own) - np.mean(rest))
    higher = sum(one >= true - 1e-9 for one in found)
    lower = sum(one <= true + 1e-9 for one in found)
    return min(1.0, 2 * min(higher, lower) / len(found))


bits = st.integers(0, 60).map(lambda steps: steps / 4)


@settings(max_examples=60)
@given(st.lists(st.tuples(bits, bits), min_size=1, max_size=7))
def test_the_paired_test_is_that_of_brute_force(pairs):
    found = paired_difference(*zip(*pairs, strict=True), most=15.0)
    assert found.every_exchange
    assert found.p_value == pytest.approx(naive_paired_p(pairs))
    assert found.p_value >= found.least_p_value - 1e-12


@settings(max_examples=60)
@given(st.lists(bits, min_size=1, max_size=4), st.lists(bits, min_size=1, max_size=4))
def test_the_unpaired_test_is_that_of_brute_force(first, second):
    found = unpaired_difference([first], [second], most=15.0)
    assert found.p_value == pytest.approx(naive_unpaired_p(first, second))
    assert found.estimate.value == pytest.approx(np.mean(first) - np.mean(second))


@settings(max_examples=40)
@given(st.lists(st.tuples(bits, bits), min_size=6, max_size=8), st.integers(-40, 40))
def test_the_interval_has_exactly_the_shifts_that_the_test_does_not_reject(pairs, quarters):
    shift = quarters / 4 + 0.0625  # never on a limit, where both answers are right
    first, second = map(np.array, zip(*pairs, strict=True))
    found = paired_difference(first, second).estimate
    rejected = naive_paired_p(list(zip((first - shift).tolist(), second.tolist(), strict=True))) <= 0.05
    assert rejected == (not found.low <= shift <= found.high)


@settings(max_examples=30)
@given(st.lists(bits, min_size=4, max_size=5), st.lists(bits, min_size=4, max_size=5), st.integers(-40, 40))
def test_the_unpaired_interval_too(first, second, quarters):
    shift = quarters / 4 + 0.0371
    found = unpaired_difference([first], [second]).estimate
    rejected = naive_unpaired_p([one - shift for one in first], second) <= 0.05
    assert rejected == (not found.low <= shift <= found.high)


@settings(max_examples=30)
@given(st.lists(st.tuples(bits, bits), min_size=6, max_size=20))
def test_the_other_way_round_it_is_the_same_with_the_other_sign(pairs):
    first, second = zip(*pairs, strict=True)
    one, other = paired_difference(first, second), paired_difference(second, first)
    assert one.p_value == pytest.approx(other.p_value)
    assert (one.estimate.low, one.estimate.high) == pytest.approx((-other.estimate.high, -other.estimate.low))


def test_strata_are_compared_within_themselves():
    # Each stratum has the same difference, and the strata are far apart: pooled, the difference would drown.
    first, second = [[1.0, 1.1, 1.2], [21.0, 21.1]], [[0.0, 0.1, 0.2], [20.0, 20.1]]
    found = unpaired_difference(first, second)
    assert found.estimate.value == pytest.approx(1.0)
    assert found.p_value == pytest.approx(2 / (20 * 6))
    pooled = unpaired_difference([[*first[0], *first[1]]], [[*second[0], *second[1]]])
    assert pooled.p_value > 0.5


@pytest.mark.parametrize("n", [6, 9])
@pytest.mark.parametrize("kind", ["normal", "heavy"])
def test_the_level_and_the_coverage_of_the_paired_test(n, kind):
    chance = np.random.default_rng(n)
    trials, rejected, missed = 600, 0, 0
    for _ in range(trials):
        noise = chance.normal(size=n) if kind == "normal" else chance.standard_cauchy(size=n)
        rejected += paired_difference(noise, np.zeros(n)).p_value <= 0.05
        interval = paired_difference(noise + 1.5, np.zeros(n)).estimate
        missed += not interval.low <= 1.5 <= interval.high
    for share in (rejected / trials, missed / trials):
        assert share <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)
    if n == 9:
        assert rejected / trials > 0.02  # not exact by never rejecting


def test_the_level_and_the_coverage_of_the_unpaired_test_also_with_random_exchanges(monkeypatch):
    monkeypatch.setattr(differences, "MOST_EXCHANGES", 1)
    monkeypatch.setattr(differences, "RANDOM_EXCHANGES", 199)
    chance = np.random.default_rng(3)
    trials, rejected, missed = 300, 0, 0
    for trial in range(trials):
        first, second = chance.exponential(size=8), chance.exponential(size=6)
        found = unpaired_difference([first + 2], [second], seed=trial)
        assert not found.every_exchange
        missed += not found.estimate.low <= 2.0 <= found.estimate.high
        rejected += unpaired_difference([first], [second], seed=trial).p_value <= 0.05
    for share in (rejected / trials, missed / trials):
        assert share <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)


def test_many_pairs_take_random_exchanges_in_bounded_memory_and_the_same_seed_gives_the_same_number():
    chance = np.random.default_rng(4)
    first, second = chance.normal(0.5, size=300), chance.normal(size=300)
    found = paired_difference(first, second, seed=1)
    assert not found.every_exchange
    assert found == paired_difference(first, second, seed=1)
    assert found.p_value < 0.001
    half = 1.96 * float(np.std(first - second, ddof=1)) / math.sqrt(300)
    assert found.estimate.low == pytest.approx(float(np.mean(first - second)) - half, abs=0.03)


def test_few_pairs_exclude_nothing_and_say_so():
    found = paired_difference([9.0] * 5, [1.0] * 5, most=20.0)
    assert (found.estimate.low, found.estimate.high) == (-20.0, 20.0)
    assert found.p_value == pytest.approx(2 / 32)
    assert "too few" in found.estimate.warnings[0]
    with pytest.raises(NotMeasurableError):
        paired_difference([], [])
    with pytest.raises(InputError):
        paired_difference([1.0], [1.0, 2.0])
    with pytest.raises(InputError):
        paired_difference([math.nan], [1.0])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_adjusted_p_values_reject_what_the_closed_test_does(p_values):
    # Holm is the closed test that takes Bonferroni for every subset: the largest over all subsets that hold it.
    for place, adjusted in enumerate(adjusted_p_values(p_values)):
        worst = 0.0
        others = [other for other in range(len(p_values)) if other != place]
        for size in range(len(p_values)):
            for subset in itertools.combinations(others, size):
                members = [p_values[other] for other in (*subset, place)]
                worst = max(worst, min(1.0, len(members) * min(members)))
        assert adjusted == pytest.approx(worst)


def test_the_interval_of_a_median_covers_and_bounds_keep_it_open():
    chance = np.random.default_rng(5)
    for n in (6, 12, 25):
        missed = 0
        for _ in range(400):
            sample = chance.exponential(size=n)
            found = median_estimate(sample, sample, most=100.0)
            missed += not found.low <= math.log(2) <= found.high
        assert missed / 400 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)
    few = median_estimate([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], most=20.0)
    assert (few.value, few.low, few.high) == (2.0, 0.0, 20.0)
    # A bound above the median leaves it known; one below does not.
    assert median_estimate([1, 2, 9], [1, 2, 20], most=20.0).value == 2.0
    open_one = median_estimate([1, 2, 9], [20, 2, 9], most=20.0)
    assert (open_one.status, open_one.value) == ("lower_bound", None)
    assert open_one.high == 20.0


def test_differences_that_are_only_rounding_are_none():
    """0.1 + 0.2 is not 0.3 to a computer, and eight such pairs are not eight of the same sign."""
    found = paired_difference([0.1 + 0.2] * 8, [0.3] * 8)
    assert found.p_value == 1.0
    found = unpaired_difference([[0.1 + 0.2] * 5], [[0.3] * 5])
    assert found.p_value == 1.0


@pytest.mark.parametrize("at_once", [1, 24, 24 * 7, 24 * 30_000])
def test_random_exchanges_are_the_same_however_many_are_drawn_at_a_time(monkeypatch, at_once):
    one, other = np.arange(24.0) ** 2, np.arange(24.0)[::-1] * 6.0  # whole numbers, whose sums are exact
    whole = paired_difference(one, other)
    monkeypatch.setattr(differences, "_NUMBERS_AT_ONCE", at_once)
    assert paired_difference(one, other) == whole
    assert whole.exchanges == differences.RANDOM_EXCHANGES + 1


@pytest.mark.parametrize("interval", [(0.5, math.inf), (-math.inf, 2.0), (-math.inf, math.inf)])
def test_an_interval_without_end_is_none(interval):
    assert "(no interval)" in difference_words(1.0, interval, 0.95, 0.03, "by 4 pairs", "bits")
    assert "95% interval 0.50 to 2.00" in difference_words(1.0, (0.5, 2.0), 0.95, 0.03, "by 4 pairs", "bits")
