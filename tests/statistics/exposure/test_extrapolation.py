"""Extrapolated exposure where the truth is known: coverage, the level and power of the test, exact ranks."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine.errors import InputError, ModelOutputError, NotMeasurableError
from coalmine.randomness import arrays
from coalmine.statistics import SkewNormal, TailFit, exposure_bits, extrapolated_exposures, fit_tail

SIZE = 10**9


def draw(rng: np.random.Generator, curve: SkewNormal, n: int) -> np.ndarray:
    lean = curve.shape / math.hypot(1.0, curve.shape)
    return curve.location + curve.scale * (
        lean * np.abs(rng.normal(size=n)) + math.sqrt(1 - lean**2) * rng.normal(size=n)
    )


@pytest.fixture(scope="module")
def normal_fit() -> TailFit:
    return fit_tail(arrays(0, "normal").normal(30.0, 4.0, size=2_000), seed=0)


def test_bootstrap_intervals_cover_when_the_curve_is_true():
    canaries = np.array([26.0, 18.0, 8.0])  # in the body, at the edge, far beyond every sample
    # Of 120 intervals that hold in 85 of 100 cases, 108 would hold once in 15 tries.
    shapes = [0.0, -3.0, 2.0] * 40
    rng = arrays(0, "coverage")
    covered = np.zeros(len(canaries))
    for seed, shape in enumerate(shapes):
        truth = SkewNormal(30.0, 4.0, shape)
        exact = truth.exposure_bits(canaries)
        fit = fit_tail(draw(rng, truth, 500), seed=seed, bootstraps=50)
        intervals = np.array([estimate.interval for estimate in fit.estimates(canaries, 2**400)])
        covered += (intervals[:, 0] <= exact) & (exact <= intervals[:, 1])
    assert np.all(covered / len(shapes) >= 0.90)


def test_a_true_curve_is_rejected_about_as_rarely_as_the_level_says():
    rng = arrays(0, "level")
    rejected = [
        fit_tail(draw(rng, SkewNormal(30.0, 4.0, shape), 1_000), seed=seed, bootstraps=1).rejected
        for seed, shape in enumerate([0.0, 1.0, -4.0] * 70)
    ]
    assert 0.01 <= np.mean(rejected) <= 0.12


def test_a_false_curve_is_rejected_and_the_warning_says_so():
    rng = arrays(0, "power")
    for seed in range(20):
        two_peaks = np.concatenate([rng.normal(25, 1.5, 500), rng.normal(35, 1.5, 500)])
        fit = fit_tail(two_peaks, seed=seed, bootstraps=40)
        assert fit.rejected
        estimate = fit.estimate(10.0, SIZE)
        assert "is rejected (KS p = " in estimate.warnings[0]
        assert "on 200 held-out samples): do not rely on this number" in estimate.warnings[0]


def test_agrees_with_exact_ranks_of_an_enumerated_space():
    rng = arrays(0, "space")
    space = draw(rng, SkewNormal(60.0, 6.0, -1.5), 10**6)
    ordered = np.sort(space)
    ranks = [1, 10, 100, 10**4, 10**5, 5 * 10**5]
    estimates = extrapolated_exposures(ordered[np.array(ranks) - 1], rng.choice(space, 10_000), 10**6, seed=1)
    for rank, estimate in zip(ranks, estimates, strict=True):
        # The least member of a space is itself random: its score moves by about 1.4 bits of exposure.
        slack = 3.0 / math.sqrt(rank)
        assert estimate.low - slack <= exposure_bits(rank, 10**6) <= estimate.high + slack
        assert estimate.value == pytest.approx(exposure_bits(rank, 10**6), abs=0.05 + 4.0 / rank**0.25)


def test_agrees_with_exact_ranks_of_all_nine_digit_numbers_in_the_body():
    # Each digit has a cost in bits at its place, as from a model that reads digit by digit. Such a sum ends where every
    # digit is the cheapest, and a skew-normal does not: far out the two differ, and no test of the body shows it.
    costs = arrays(0, "digits").gamma(9.0, 0.4, size=(9, 10))
    front, back = np.zeros(1), np.zeros(1)
    for place in range(4):
        front = np.add.outer(front, costs[place]).ravel()
    for place in range(4, 9):
        back = np.add.outer(back, costs[place]).ravel()
    back.sort()
    sample = costs[np.arange(9), arrays(1, "digits").integers(0, 10, size=(20_000, 9))].sum(axis=1)
    canaries = sample.mean() - sample.std() * np.array([0.0, 1.0, 2.0])
    fit = fit_tail(sample, seed=0, bootstraps=60)
    assert not fit.rejected
    for canary, estimate in zip(canaries, fit.estimates(canaries, SIZE), strict=True):
        rank = int(np.searchsorted(back, canary - front, side="right").sum())
        assert estimate.value == pytest.approx(exposure_bits(rank, SIZE), abs=0.5)


def test_estimates_keep_the_order_of_the_canaries(normal_fit):
    scores = [22.0, 5.0, 40.0, 13.0, 5.0]
    estimates = normal_fit.estimates(scores, SIZE)
    assert estimates == [normal_fit.estimate(score, SIZE) for score in scores]
    values = [estimate.value for estimate in estimates]
    assert np.argsort(values, kind="stable").tolist() == [2, 0, 3, 1, 4]
    for estimate in estimates:
        assert (estimate.method, estimate.status, estimate.n) == ("extrapolated", "measured", 2_000)
        assert estimate.low <= estimate.value <= estimate.high


def test_more_than_the_space_allows_is_cut_off_and_said(normal_fit):
    far = normal_fit.estimate(-40.0, SIZE)
    assert far.value == far.high == math.log2(SIZE)
    assert any("exceeds 29.90 bits" in warning for warning in far.warnings)
    assert normal_fit.estimate(25.0, SIZE).warnings == ()


def test_a_curve_that_is_wrong_where_it_was_not_seen_neither_excludes_the_truth_nor_stays_silent():
    # The cheapest members of a model that memorized nothing end sooner than any skew-normal curve.
    space = np.sort(arrays(0, "ends").gamma(4.0, 2.0, size=(10**5, 3)).sum(axis=1).clip(6.0))
    ranks, held, wrong_bits = [1, 10, 100, 1_000, 10_000], [], []
    for seed in range(20):
        sample = arrays(seed, "samples").choice(space, 2_000)
        found = extrapolated_exposures(space[np.array(ranks) - 1], sample, 10**5, seed=seed, bootstraps=40)
        for rank, one in zip(ranks, found, strict=True):
            # Ties count as ranks before.
            truth = exposure_bits(int(np.searchsorted(space, space[rank - 1], side="right")), 10**5)
            held.append(one.low <= truth <= one.high)
            assert one.high <= math.log2(10**5)
            if one.value > math.log2(2_000):
                wrong_bits.append(one.value - truth)
                assert any(
                    "beyond the 10.97 bits that 2,000 samples can show" in warning for warning in one.warnings
                )
    assert len(wrong_bits) > 0
    assert np.mean(held) >= 0.95


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.floats(0.1, 0.98))
def test_never_infinite_and_monotone(normal_fit, scores, confidence):
    estimates = normal_fit.estimates(np.sort(scores), SIZE, confidence)
    numbers = np.array([(estimate.value, *estimate.interval) for estimate in estimates])
    assert np.all(np.isfinite(numbers))
    assert np.all(np.diff(numbers, axis=0) <= 1e-9 * (1 + numbers[1:]))


@settings(max_examples=10)
@given(st.floats(-100, 100))
def test_moving_all_scores_moves_nothing(shift):
    sample = draw(arrays(0, "shift"), SkewNormal(30.0, 4.0, 2.0), 500)
    still = fit_tail(sample, seed=3, bootstraps=40)
    moved = fit_tail(sample + shift, seed=3, bootstraps=40)
    assert moved.ks_p_value == pytest.approx(still.ks_p_value, abs=1e-3)
    for score in (10.0, 25.0):
        expected, found = still.estimate(score, SIZE), moved.estimate(score + shift, SIZE)
        assert found.value == pytest.approx(expected.value, rel=1e-3)
        assert found.interval == pytest.approx(expected.interval, rel=0.02)


def test_the_same_seed_gives_the_same_fit_and_it_survives_json(normal_fit):
    sample = arrays(0, "normal").normal(30.0, 4.0, size=2_000)
    assert fit_tail(sample, seed=0) == normal_fit
    assert fit_tail(sample, seed=1) != normal_fit
    again = msgspec.json.decode(msgspec.json.encode(normal_fit), type=TailFit)
    assert again == normal_fit
    assert again.estimates([3.0, 20.0], SIZE) == normal_fit.estimates([3.0, 20.0], SIZE)
    assert (again.n_fit, again.n_test, len(again.refits)) == (1_600, 400, 200)


def test_a_shape_without_end_is_warned_about():
    half_normal = np.abs(arrays(0, "half").normal(size=60))
    fit = fit_tail(half_normal, seed=0, bootstraps=40)
    assert any("no maximum" in warning for warning in fit.estimate(-1.0, SIZE).warnings)


@pytest.mark.parametrize("sample", [[1.0] * 100, np.arange(23.0), []], ids=["equal", "few", "none"])
def test_too_little_to_extrapolate_from(sample):
    with pytest.raises(NotMeasurableError):
        extrapolated_exposures([1.0], sample, SIZE, seed=0)


def test_few_distinct_scores_are_resampled_until_they_differ():
    fit = fit_tail([1.0] * 60 + [2.0] * 4, seed=0, bootstraps=40)
    assert len(fit.refits) == 40
    assert fit.rejected


def test_bad_input_is_refused(normal_fit):
    with pytest.raises(ModelOutputError, match="'c1'"):
        normal_fit.estimates([1.0, math.nan], SIZE, canary_ids=["c0", "c1"])
    with pytest.raises(ModelOutputError, match="1 of the 31"):
        extrapolated_exposures([1.0], [*range(30), math.inf], SIZE, seed=0)
    with pytest.raises(InputError, match="needs at least 2000 bootstraps"):
        normal_fit.estimates([1.0], SIZE, 0.999)
    with pytest.raises(InputError):
        normal_fit.estimates([1.0], 0)
    with pytest.raises(InputError):
        fit_tail(range(50), seed=0, bootstraps=0)
