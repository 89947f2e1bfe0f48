"""Guided exposure against spaces whose every member is known: exactly on small ones, by simulation on large ones."""

import functools
import itertools
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine import Estimate
from coalmine.errors import InputError, ModelOutputError
from coalmine.randomness import arrays
from coalmine.statistics import bounded_exposure, exposure_bits, guided_exposures


@pytest.mark.parametrize("known", [1, 3])
@pytest.mark.parametrize("threshold", [1.5, 3.0, 9.0])
def test_the_rank_is_unbiased_over_every_possible_sequence_of_draws(threshold, known):
    costs = np.array([1.0, 2.0, 3.0, 4.0, 9.0])  # the threshold 3.0 ties, which counts
    chances = np.array([0.4, 0.1, 0.25, 0.05, 0.2])
    weights, size = -np.log2(chances), 10**6
    expected = 0.0
    for sequence in map(list, itertools.product(range(5), repeat=4)):
        estimate = guided_exposures(
            [threshold],
            costs[sequence],
            weights[sequence],
            log2_most_weight=[weights.max()],
            known=[known],
            most_rank=[size],
            size=size,
        )[0]
        # Without a draw that counts there is no value: only the proven members contribute to the mean.
        value = estimate.high if estimate.value is None else estimate.value
        expected += chances[sequence].prod() * size / 2.0**value
        assert estimate.low <= value <= estimate.high
    assert expected == pytest.approx(known + sum(costs <= threshold), rel=1e-9)


class Space:
    """A million members but one with normal costs, drawn by 2**-cost but for a tenth of the draws, which are uniform."""

    def __init__(self, spread):
        size = 10**6 - 1
        self.costs = np.sort(arrays(0, "space", str(spread)).normal(60.0, spread, size))
        by_model = np.exp2(self.costs[0] - self.costs)
        chances = 0.9 * by_model / by_model.sum() + 0.1 / size
        self.log2_weights = -np.log2(chances)
        self.cumulative = np.cumsum(chances)

    def draw(self, rng, n):
        index = np.searchsorted(self.cumulative, rng.random(n) * self.cumulative[-1])
        return self.costs[index], self.log2_weights[index]

    def canaries(self, ranks):
        # The canary is the one member that is missing: it costs as much as the last member before it.
        return {
            "thresholds": [self.costs[r - 2] if r > 1 else self.costs[0] - 1.0 for r in ranks],
            "log2_most_weight": [self.log2_weights[max(r - 2, 0)] for r in ranks],
            "known": [1] * len(ranks),
            "most_rank": [10**6] * len(ranks),
            "size": 10**6,
        }


@functools.cache
def space(spread):
    return Space(spread)


@pytest.mark.parametrize(("n", "confidence"), [(2_000, 0.95), (2_000, 0.5), (10_000, 0.95)])
@pytest.mark.parametrize("spread", [2.5, 6.0])
def test_coverage_with_draws_from_the_model(spread, n, confidence):
    ranks, repeats = [1, 10, 1_000, 100_000], 250
    canaries = space(spread).canaries(ranks)
    thresholds = canaries.pop("thresholds")
    truths = [exposure_bits(rank, 10**6) for rank in ranks]
    rng = arrays(0, "guided coverage", str(spread), n, str(confidence))
    too_low, too_high, width = np.zeros(4), np.zeros(4), np.zeros(4)
    for _ in range(repeats):
        costs, weights = space(spread).draw(rng, n)
        estimates = guided_exposures(thresholds, costs, weights, confidence=confidence, **canaries)
        too_low += [e.high < truth - 1e-9 for e, truth in zip(estimates, truths, strict=True)]
        too_high += [e.low > truth + 1e-9 for e, truth in zip(estimates, truths, strict=True)]
        width += [e.high - e.low for e in estimates]
    tail = (1 - confidence) / 2
    noise = 3.5 * math.sqrt(tail * (1 - tail) / repeats)
    assert max(too_low) / repeats <= tail + noise
    assert max(too_high) / repeats <= tail + noise
    # An interval that always covers is not enough: it must also be narrow. Uniform draws would leave 6 bits and more
    # open up to rank 1,000. In the crowd at rank 100,000, only the tenth of the draws that is uniform contributes.
    assert np.all(width / repeats < [2.0, 3.2, 1.0, 3.0])


def test_guided_draws_beat_uniform_ones_far_from_the_crowd():
    # At rank 1,000 of 10**6 a uniform sample of 2,000 meets 2 members that count.
    canaries = space(2.5).canaries([1_000])
    costs, weights = space(2.5).draw(arrays(0, "beat"), 2_000)
    guided = guided_exposures(canaries.pop("thresholds"), costs, weights, **canaries)[0]
    assert guided.effective_n > 50
    assert guided.warnings == ()
    assert guided.high - guided.low < 1.0


draws = st.lists(st.tuples(st.integers(0, 12).map(float), st.floats(0.0, 200.0)), max_size=30)
canary = st.tuples(st.integers(-1, 13).map(float), st.integers(1, 10**40), st.integers(1, 10**40))


@given(draws, st.lists(canary, max_size=6), st.floats(0.05, 0.999), st.randoms(use_true_random=False))
def test_order_is_kept_and_every_estimate_is_possible(drawn, canaries, confidence, random):
    costs, weights = [c for c, _ in drawn], [w for _, w in drawn]
    ids = [f"canary-{j}" for j in range(len(canaries))]

    def exposures(chosen):
        return guided_exposures(
            [canaries[j][0] for j in chosen],
            costs,
            weights,
            log2_most_weight=[200.0] * len(chosen),
            known=[min(canaries[j][1:]) for j in chosen],
            most_rank=[max(canaries[j][1:]) for j in chosen],
            size=10**40,
            confidence=confidence,
            canary_ids=[ids[j] for j in chosen],
        )

    estimates = exposures(range(len(canaries)))
    shuffled = random.sample(range(len(canaries)), len(canaries))
    assert exposures(shuffled) == [estimates[j] for j in shuffled]
    for (threshold, *ranks), estimate in zip(canaries, estimates, strict=True):
        floor, ceiling = exposure_bits(max(ranks), 10**40), exposure_bits(min(ranks), 10**40)
        assert floor <= estimate.low <= estimate.high <= ceiling
        assert msgspec.json.decode(msgspec.json.encode(estimate), type=Estimate) == estimate
        if estimate.method == "bounded":
            assert not drawn or floor == ceiling
            continue
        counted = [c <= threshold for c in costs]
        assert (estimate.n, estimate.confidence) == (len(drawn), confidence)
        if any(counted):
            assert estimate.status == "measured"
            assert estimate.low <= estimate.value <= estimate.high
        else:
            assert (estimate.status, estimate.value, estimate.high) == ("lower_bound", None, ceiling)
        assert -1e-9 <= estimate.effective_n <= sum(counted) + 1e-9
        assert (estimate.effective_n >= 1 - 1e-9) == any(counted)
        assert bool(estimate.warnings) == (estimate.effective_n < 10)


@given(draws.filter(len))
def test_a_larger_limit_on_the_weights_never_moves_the_value(drawn):
    costs, weights = zip(*drawn, strict=True)
    one, other = (
        guided_exposures(
            [6.0], costs, weights, log2_most_weight=[limit], known=[1], most_rank=[10**80], size=10**80
        )[0]
        for limit in (200.0, 230.0)
    )
    assert one.status == other.status
    assert one.value == (None if other.value is None else pytest.approx(other.value))
    assert one.effective_n == pytest.approx(other.effective_n)


@pytest.mark.parametrize("size", [10**40, 10**400])
def test_spaces_beyond_floats(size):
    bits = math.log2(size)
    # A tenth of the draws count, each standing for 2**-20 of the space; the others are as light as a weight can be.
    costs = np.where(np.arange(1_000) % 10 == 3, 5.0, 50.0)
    weights = np.where(costs == 5.0, bits - 20.0, 0.0)
    estimate = guided_exposures(
        [10.0], costs, weights, log2_most_weight=[bits - 20.0], known=[1], most_rank=[size], size=size
    )[0]
    assert estimate.value == pytest.approx(20.0 + math.log2(10))
    assert estimate.value - 1.0 < estimate.low < estimate.value < estimate.high < estimate.value + 1.0
    # Every draw counts and is lost beside the largest possible weight: the interval is wide, and no number is lost.
    light = guided_exposures(
        [99.0], costs, np.zeros(1_000), log2_most_weight=[bits], known=[1], most_rank=[size], size=size
    )[0]
    assert light.value == pytest.approx(bits - 1.0)
    assert light.effective_n == pytest.approx(1_000)
    assert light.low < 12.0
    assert bits - 1.01 <= light.high <= bits


def test_no_draw_that_counts_leaves_bounds_and_no_value():
    estimate = guided_exposures(
        [10.0], np.full(5_000, 30.0), np.full(5_000, 15.0), log2_most_weight=[12.0], known=[4], most_rank=[2**19], size=2**20
    )[0]  # fmt: skip
    assert (estimate.status, estimate.value, estimate.high) == ("lower_bound", None, 18.0)
    assert (estimate.n, estimate.effective_n, estimate.confidence) == (5_000, 0.0, 0.95)
    # Up to about 3.7 draws of 5,000 might have counted, each standing for at most 4,096 members.
    assert 18.0 - math.log2(1 + 1.2 * 3.69 * 4_096 / 5_000 / 4) <= estimate.low <= 17.2
    assert "no draw was as unsurprising" in estimate.warnings[0]
    assert "exposure is between 1" in estimate.statement
    assert estimate.statement.endswith("4 members are proven no more surprising, and none of 5,000 draws is")


def test_what_lies_within_the_resolution_opens_the_interval_and_moves_no_value():
    costs = np.where(np.arange(1_000) % 10 == 3, 9.0, 30.0)
    costs[[200, 500, 800]] = [9.9, 10.0, 10.1]
    given_ = {"log2_most_weight": [6.0], "known": [5], "most_rank": [2**19], "size": 2**20}

    def estimate(**near):
        return guided_exposures([10.0], costs, np.full(1_000, 6.0), **given_, **near)[0]

    plain = estimate()
    closed = estimate(resolutions=[0.01], known_near=[(5, 5)])
    opened = estimate(resolutions=[0.2], known_near=[(3, 7)])
    assert closed == plain
    assert plain.value == opened.value
    assert opened.low < plain.low < plain.high < opened.high
    # All near ones on one side, and on the other; what costs the same is a tie and counts.
    low = guided_exposures([10.1], costs, np.full(1_000, 6.0), **(given_ | {"known": [7]}))[0].low
    high = guided_exposures(
        [9.5], np.where(costs == 10.0, 9.0, costs), np.full(1_000, 6.0), **(given_ | {"known": [3]})
    )[0].high
    assert (opened.low, opened.high) == pytest.approx((low, high), abs=0.01)


def test_a_proven_rank_with_near_ties_keeps_its_value():
    (estimate,) = guided_exposures(
        [10.0], [30.0], [5.0], log2_most_weight=[6.0], known=[4], most_rank=[5], size=1024, resolutions=[0.1], known_near=[(2, 5)]
    )  # fmt: skip
    assert (estimate.status, estimate.value, estimate.high, estimate.confidence) == (
        "measured",
        8.0,
        9.0,
        None,
    )
    assert estimate.low == pytest.approx(10 - math.log2(5))


def test_few_draws_that_count_are_told_by_their_worth():
    estimate = guided_exposures(
        [10.0], [1.0, 2.0, 3.0, 99.0], [1.0, 1.0, 3.0, 0.0], log2_most_weight=[5.0], known=[1], most_rank=[50], size=100
    )[0]  # fmt: skip
    assert estimate.effective_n == pytest.approx((2 + 2 + 8) ** 2 / (4 + 4 + 64))
    assert estimate.warnings == ("based on an effective sample of only 2.0 draws",)
    assert estimate.value == pytest.approx(math.log2(100 / (1 + 3)))


def test_a_proven_rank_is_exact_whatever_was_drawn():
    estimates = guided_exposures(
        [10.0, 20.0], [1.0], [1.0], log2_most_weight=[3.0, 3.0], known=[8, 8], most_rank=[8, 9], size=1_024
    )
    assert [e.method for e in estimates] == ["bounded", "guided"]
    exact = estimates[0]
    assert (exact.value, exact.interval, exact.confidence) == (7.0, (7.0, 7.0), None)
    assert exact == bounded_exposure(8, 8, 1_024)


def test_without_draws_the_proven_bounds_remain():
    ranks = {"known": [1_200], "most_rank": [40_000_000], "size": 10**9}
    estimate = guided_exposures([10.0], [], [], log2_most_weight=[3.0], **ranks)[0]
    assert (estimate.method, estimate.status, estimate.value) == ("bounded", "lower_bound", None)
    assert estimate.interval == (exposure_bits(40_000_000, 10**9), exposure_bits(1_200, 10**9))
    assert estimate.confidence is None


@given(st.lists(st.integers(1, 10**12), min_size=3, max_size=3).map(sorted))
def test_bounds_in_words_hold(numbers):
    known, most_rank, size = numbers
    words = bounded_exposure(known, most_rank, size).statement.split()
    if known < most_rank:
        low, high = float(words[-4]), float(words[-2])
        assert low <= exposure_bits(most_rank, size) <= exposure_bits(known, size) <= high
        assert high - low <= exposure_bits(known, size) - exposure_bits(most_rank, size) + 0.02 + 1e-9


GOOD = {
    "thresholds": [10.0],
    "costs": [5.0, 20.0],
    "log2_weights": [3.0, 4.0],
    "log2_most_weight": [3.5],
    "known": [1],
    "most_rank": [100],
    "size": 1_000,
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"known": [0]},
        {"known": [101]},
        {"known": [1.5]},
        {"known": [1, 1]},
        {"most_rank": [1_001]},
        {"most_rank": []},
        {"size": 0},
        {"costs": [5.0]},
        {"costs": []},
        {"costs": [[5.0, 20.0]]},
        {"costs": [[5.0], [20.0, 1.0]]},
        {"log2_weights": [3.0]},
        {"log2_weights": [3.0, math.inf]},
        {"log2_weights": [3.6, 4.0]},  # more than the most that was promised
        {"log2_weights": [-1.0, 4.0]},  # a probability of 2
        {"log2_most_weight": [math.nan]},
        {"log2_most_weight": ["large"]},
        {"confidence": 1.0},
        {"canary_ids": ["a", "b"]},
    ],
)
def test_what_cannot_be_used_is_refused(wrong):
    assert guided_exposures(**GOOD)[0].status == "measured"
    with pytest.raises(InputError):
        guided_exposures(**(GOOD | wrong))


def test_errors_name_the_canary():
    with pytest.raises(InputError, match="canary 'alice'"):
        guided_exposures(**GOOD | {"log2_most_weight": [1.0], "canary_ids": ["alice"]})
    with pytest.raises(InputError, match="position 0"):
        guided_exposures(**GOOD | {"known": [0]})


@pytest.mark.parametrize("wrong", [{"costs": [5.0, math.nan]}, {"thresholds": [math.inf]}])
def test_scores_that_are_no_numbers_are_not_read_as_safe(wrong):
    with pytest.raises(ModelOutputError):
        guided_exposures(**GOOD | wrong)


@pytest.mark.parametrize("excess", [1e-12, 1e-7])
def test_a_weight_that_exceeds_its_limit_by_rounding_is_taken_for_the_limit(excess):
    at, above = (guided_exposures(**GOOD | {"log2_weights": [3.5 + more, 4.0]})[0] for more in (0.0, excess))
    assert at.status == "measured"
    assert above == at
