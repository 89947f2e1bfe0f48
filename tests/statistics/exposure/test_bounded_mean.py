"""The interval of a bounded mean: exact on every sequence of a small distribution, and by simulation on hard ones."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine.errors import InputError, NotMeasurableError
from coalmine.randomness import arrays
from coalmine.statistics import bounded_mean_interval, clopper_pearson
from coalmine.statistics.exposure.bounded_mean import _log_capital, _stakes, sparse_mean_interval

# Many exact zeros and ones, some values that a float hardly holds.
value = st.one_of(st.just(0.0), st.just(1.0), st.floats(0.0, 1.0), st.floats(0.0, 1e-300))
samples = st.lists(value, min_size=1, max_size=60)
SUPPORT = (0.0, 0.3, 1.0)
SEQUENCES = np.array(list(itertools.product(range(3), repeat=7)))
DISTRIBUTIONS = [(0.9, 0.1, 0.0), (0.6, 0.3, 0.1), (0.98, 0.0, 0.02), (0.0, 0.1, 0.9), (1 / 3, 1 / 3, 1 / 3)]


@pytest.mark.parametrize("probabilities", DISTRIBUTIONS)
def test_capital_at_the_true_mean_is_one_on_average(probabilities):
    # A bet that peeked at its own draw, or a factor that is not fair, would not average 1 over all sequences.
    mean = float(np.dot(probabilities, SUPPORT))
    chances = np.prod(np.array(probabilities)[SEQUENCES], axis=1)
    capitals = np.zeros(2)
    for sequence, chance in zip(SEQUENCES, chances, strict=True):
        values = np.array(SUPPORT)[sequence]
        stakes = _stakes(len(values), np.flatnonzero(values), values[values > 0])
        capitals += chance * np.exp([_log_capital(stake, mean) for stake in stakes])
    assert capitals == pytest.approx([1.0, 1.0], rel=1e-12)


@pytest.mark.parametrize("confidence", [0.2, 0.5, 0.8, 0.95])
def test_each_side_errs_no_more_often_than_it_says_over_all_sequences(confidence):
    limits = np.array([bounded_mean_interval(np.array(SUPPORT)[s], confidence) for s in SEQUENCES])
    for probabilities in DISTRIBUTIONS:
        mean = float(np.dot(probabilities, SUPPORT))
        chances = np.prod(np.array(probabilities)[SEQUENCES], axis=1)
        assert chances[limits[:, 0] > mean + 1e-12].sum() <= (1 - confidence) / 2
        assert chances[limits[:, 1] < mean - 1e-12].sum() <= (1 - confidence) / 2


@given(samples, st.floats(0.05, 0.999))
def test_limits_are_where_the_capital_of_a_gambler_reaches_what_is_needed(sample, confidence):
    values = np.array(sample)
    low, high = bounded_mean_interval(values, confidence)
    needed = math.log(2 / (1 - confidence))
    rise, fall = _stakes(len(values), np.flatnonzero(values), values[values > 0])
    starts = np.concatenate([[0], np.cumsum(rise.lengths)]).astype(int)

    def naive(stake, m):
        capital = 0.0
        for block, bet in enumerate(stake.bets):
            for x in values[starts[block] : starts[block + 1]]:
                capital += math.log1p(bet * x) - math.log1p(bet * m)
        return capital

    assert 0.0 <= low <= values.mean() * (1 + 1e-12) + 1e-300
    assert values.mean() * (1 - 1e-12) <= high <= 1.0
    for m in (low * 0.999, low * 0.5) if low else ():
        assert naive(rise, m) >= needed
    if low < values.mean() * 0.99:
        assert naive(rise, min(low * 1.001 + 1e-9, 1.0)) <= needed + 1e-9
    if high < 1.0:
        assert naive(fall, min(high * 1.001, 1.0)) >= needed - 1e-9
    if high > values.mean() * 1.01:
        assert naive(fall, high * 0.999) <= needed


@given(samples, st.floats(0.05, 0.99), st.floats(0.05, 0.99))
def test_a_higher_confidence_gives_an_interval_around_the_lower_one(sample, one, other):
    narrow = bounded_mean_interval(sample, min(one, other))
    wide = bounded_mean_interval(sample, max(one, other))
    assert wide[0] <= narrow[0] * (1 + 1e-9)
    assert narrow[1] * (1 - 1e-9) <= wide[1]


@pytest.mark.parametrize("n", [1, 2, 10, 1_000, 100_000])
def test_all_zeros_and_all_ones(n):
    low, high = bounded_mean_interval(np.zeros(n))
    assert low == 0.0
    rule = math.log(2 / 0.05) / n
    assert -math.expm1(-rule) <= high
    if n >= 10:
        assert high <= min(1.0, 1.2 * rule)
    low, high = bounded_mean_interval(np.ones(n))
    assert high == 1.0
    assert low <= math.exp(-rule)
    if n >= 10:
        assert low >= 1.0 - 1.2 * rule


@pytest.mark.parametrize("p", [0.5, 0.1, 0.01, 0.001])
def test_width_is_close_to_intervals_that_assume_more(p):
    n, rng = 10_000, arrays(0, "width", str(p))
    widths, exact, normal = 0.0, 0.0, 0.0
    for _ in range(40):
        values = (rng.random(n) < p).astype(float)
        low, high = bounded_mean_interval(values)
        widths += high - low
        low, high = clopper_pearson(int(values.sum()), n)
        exact += high - low
        normal += 2 * 1.96 * values.std() / math.sqrt(n)
    # sqrt(2 log(2 / 0.05)) / 1.96 is 1.39, which no bet that is fixed in advance can beat for many draws.
    assert widths / exact <= 1.45
    assert widths / normal <= 1.6


def test_the_interval_adapts_to_the_variance():
    rng = arrays(0, "variance")
    # All values within 1e-3 of each other: a proportion's interval of this mean would be 100 times as wide.
    low, high = bounded_mean_interval(0.3 + 1e-3 * rng.random(10_000))
    assert 0.3 < low < 0.3005 < high
    assert high - low < 0.002


def _two_point(rng, n):
    return np.where(rng.random(n) < 2e-4, 1.0, 1e-3), 2e-4 + (1 - 2e-4) * 1e-3


def _rare(rng, n):
    return (rng.random(n) < 1e-6).astype(float), 1e-6


def _fractal(rng, n):
    # Twice as large at half the chance, for 16 octaves: every octave adds as much to the mean.
    octave = rng.integers(0, 16, n)
    return np.where(rng.random(n) < 2.0**-octave, 2.0 ** (octave - 15), 0.0), 2.0**-15


def _heavy(rng, n):
    # Pareto with exponent 1/2, cut at 1: P(x > y) = sqrt(1e-6 / y) below 1, with an atom of 1e-3 at 1.
    return np.minimum(1e-6 / (1 - rng.random(n)) ** 2, 1.0), 2e-3 - 1e-6


def _uniform(rng, n):
    return rng.random(n), 0.5


@pytest.mark.parametrize("confidence", [0.5, 0.95])
@pytest.mark.parametrize("draw", [_two_point, _rare, _fractal, _heavy, _uniform])
def test_coverage_on_hard_distributions(draw, confidence):
    repeats, rng = 400, arrays(0, "coverage", draw.__name__, str(confidence))
    below, above = 0, 0
    for _ in range(repeats):
        values, mean = draw(rng, 1_000)
        low, high = bounded_mean_interval(values, confidence)
        below += high < mean
        above += low > mean
    tail = (1 - confidence) / 2
    noise = 3.5 * math.sqrt(tail * (1 - tail) / repeats)
    assert max(below, above) / repeats <= tail + noise


def test_the_stated_means_of_the_hard_distributions_are_right():
    for draw in (_two_point, _fractal, _heavy, _uniform):
        values, mean = draw(arrays(0, "mean", draw.__name__), 2_000_000)
        assert abs(values.mean() - mean) <= 5 * values.std() / math.sqrt(len(values))


def test_a_tiny_mean_is_told_from_zero():
    values = np.where(arrays(0, "tiny").random(10_000) < 0.3, 1e-40, 0.0)
    low, _ = bounded_mean_interval(values)
    assert 2.7e-41 < low < 3e-41


def test_the_sparse_form_is_the_same_interval():
    rng = arrays(0, "sparse")
    values = np.where(rng.random(5_000) < 0.01, rng.random(5_000), 0.0)
    positions = np.flatnonzero(values)
    assert sparse_mean_interval(5_000, positions, values[positions], 0.9) == bounded_mean_interval(
        values, 0.9
    )


@pytest.mark.parametrize("values", [[0.5, 1.5], [-0.1], [math.nan], [math.inf], [[0.1, 0.2]], ["many"]])
def test_values_that_are_not_between_0_and_1_are_refused(values):
    with pytest.raises(InputError):
        bounded_mean_interval(values)


def test_no_values_have_no_mean():
    with pytest.raises(NotMeasurableError):
        bounded_mean_interval([])


@pytest.mark.parametrize("confidence", [0.0, 1.0, math.nan])
def test_impossible_confidence_is_refused(confidence):
    with pytest.raises(InputError):
        bounded_mean_interval([0.5], confidence)
