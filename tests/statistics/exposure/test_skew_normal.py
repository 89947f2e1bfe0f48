"""The skew-normal curve against 50-digit integration of its density, and its fit against SciPy's."""

import math
import warnings

import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import optimize, special, stats

from coalmine.errors import InputError, ModelOutputError, NotMeasurableError
from coalmine.randomness import arrays
from coalmine.statistics import SkewNormal, fit_skew_normal
from coalmine.statistics.exposure.minimization import minimize_bounded
from coalmine.statistics.exposure.skew_normal_fit import (
    _coordinate_of_shape,
    _loss_and_gradient,
    _shape_of_skewness,
    group_scores,
)

shapes = st.one_of(st.floats(-10, 10), st.floats(-100, 100), st.just(0.0))


def skew_normal_sample(shape: float, n: int, *names: str | int) -> np.ndarray:
    """Scores around 30 bits, from two normals and not from any distribution function."""
    rng = arrays(0, "skew-normal", *names)
    lean = shape / math.hypot(1.0, shape)
    return 30.0 + 4.0 * (lean * np.abs(rng.normal(size=n)) + math.sqrt(1 - lean**2) * rng.normal(size=n))


def log_cdf_by_integration(z: float, shape: float) -> mpmath.mpf:
    """The definition: the integral of 2 phi(t) Phi(a t) up to z, at 50 digits."""
    z, shape = mpmath.mpf(z), mpmath.mpf(shape)
    rate = 1 + abs(z) * (1 + shape**2 if shape > 0 else 1)  # how fast the integrand falls below z
    cuts = [z - fall / rate for fall in (200, 120, 70, 40, 25, 15, 8, 4, 2, 1, 0)]
    density = 2 * mpmath.sqrt(1 / (2 * mpmath.pi))
    return mpmath.log(
        mpmath.quad(
            lambda t: density * mpmath.exp(-t * t / 2) * mpmath.erfc(-shape * t / mpmath.sqrt(2)) / 2, cuts
        )
    )


@pytest.mark.parametrize("shape", [-10.0, -2.0, -0.3, 0.0, 0.4, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("z", [-40.0, -20.0, -10.0, -2.0, -0.63, -0.1])
def test_log_cdf_matches_fifty_digits(z, shape):
    with mpmath.workdps(50):
        exact = log_cdf_by_integration(z, shape)
        ours = SkewNormal(0.0, 1.0, shape).log_cdf(z)
        assert abs((ours - exact) / exact) < 1e-11


def test_shapes_with_a_closed_form():
    z = np.concatenate([np.linspace(-60, 8, 5_001), [-1e4, -1e-9, 0.0, 1e-9]])
    np.testing.assert_allclose(
        SkewNormal(0.0, 1.0, 0.0).log_cdf(z), special.log_ndtr(z), rtol=1e-11, atol=1e-15
    )
    # The larger of two independent normals is skew-normal with shape 1.
    np.testing.assert_allclose(
        SkewNormal(0.0, 1.0, 1.0).log_cdf(z), 2 * special.log_ndtr(z), rtol=1e-11, atol=1e-15
    )


@given(st.floats(-50, 50), shapes, st.floats(-100, 100), st.floats(0.01, 100))
def test_reflection_translation_and_scaling(z, shape, location, scale):
    curve = SkewNormal(location, scale, shape)
    x = location + scale * z
    assert curve.cdf(x) + SkewNormal(-location, scale, -shape).cdf(-x) == pytest.approx(1.0, abs=1e-12)
    z_again = (x - location) / scale
    assert curve.log_cdf(x) == pytest.approx(
        SkewNormal(0.0, 1.0, shape).log_cdf(z_again), rel=1e-9, abs=1e-12
    )


@given(st.lists(st.floats(-60, 10), min_size=2, max_size=40), shapes)
def test_lower_scores_are_never_less_exposed(scores, shape):
    bits = SkewNormal(0.0, 1.0, shape).exposure_bits(np.sort(scores))
    assert np.all(np.isfinite(bits))
    assert np.all(bits >= 0.0)
    assert np.all(np.diff(bits) <= 1e-12 * (1 + bits[1:]))


@given(st.floats(-30, 2), st.floats(-10, 10))
def test_the_density_is_the_slope_of_the_cdf(z, shape):
    curve = SkewNormal(0.0, 1.0, shape)
    # d log F = f / F, which keeps its size in the tail.
    step = 1e-5 / (1 + abs(z) * (1 + shape**2))
    slope = (curve.log_cdf(z + step) - curve.log_cdf(z - step)) / (2 * step)
    assert slope == pytest.approx(math.exp(curve.log_pdf(z) - curve.log_cdf(z)), rel=1e-3, abs=1e-6)


def test_never_infinite_however_far():
    for shape in (-100.0, 0.0, 100.0):
        bits = SkewNormal(30.0, 1e-6, shape).exposure_bits(np.array([-1e300, -1e6, 29.0, 31.0, 1e300]))
        assert np.all(np.isfinite(bits))
        assert bits[-1] == 0.0


def test_numbers_give_numbers_and_arrays_keep_their_shape():
    curve = SkewNormal(0.0, 1.0, 2.0)
    for function in (curve.log_pdf, curve.log_cdf, curve.cdf, curve.exposure_bits):
        assert type(function(0.5)) is float
        assert function(np.full((2, 3), 0.5)).shape == (2, 3)
        assert function(np.full((2, 3), 0.5))[1, 2] == pytest.approx(function(0.5))
        assert function([]).shape == (0,)


@pytest.mark.parametrize(
    "parameters", [(0.0, 0.0, 1.0), (0.0, -1.0, 1.0), (math.nan, 1.0, 1.0), (0.0, 1.0, math.inf)]
)
def test_what_is_no_distribution_is_refused(parameters):
    with pytest.raises(InputError):
        SkewNormal(*parameters)


@pytest.mark.parametrize("shape", [0.0, 0.5, -2.0, 3.0, -8.0])
@pytest.mark.parametrize("n", [60, 3_000])
def test_the_fit_is_at_least_as_likely_as_that_of_scipy(shape, n):
    scores = skew_normal_sample(shape, n, "likelihood", shape, n)
    fitted = fit_skew_normal(scores)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = SkewNormal(*np.roll(stats.skewnorm.fit(scores), -1))
    slack = 1e-4 if abs(fitted.shape) < 99 else 1.0  # theirs may run on towards an infinite shape
    assert fitted.log_pdf(scores).sum() >= theirs.log_pdf(scores).sum() - slack


@pytest.mark.parametrize("shape", [0.0, 2.0, -5.0])
def test_a_large_sample_gives_the_truth_back(shape):
    scores = skew_normal_sample(shape, 200_000, "truth", shape)
    grid = np.linspace(10, 50, 200)
    np.testing.assert_allclose(
        fit_skew_normal(scores).cdf(grid), SkewNormal(30.0, 4.0, shape).cdf(grid), atol=0.005
    )


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3), st.integers(0, 5))
def test_the_fit_moves_with_the_scores(shift, factor, which):
    scores = skew_normal_sample(2.0 - which, 200, "moves", which)
    fitted, moved = fit_skew_normal(scores), fit_skew_normal(shift + factor * scores)
    probe = np.array([10.0, 25.0, 30.0, 40.0])
    np.testing.assert_allclose(moved.cdf(shift + factor * probe), fitted.cdf(probe), atol=1e-5)


def test_the_fit_is_deterministic_and_does_not_depend_on_order():
    scores = skew_normal_sample(2.0, 5_000, "order")
    assert fit_skew_normal(scores) == fit_skew_normal(scores)
    probe = np.array([5.0, 20.0, 30.0])
    backwards = fit_skew_normal(scores[::-1])
    np.testing.assert_allclose(backwards.log_cdf(probe), fit_skew_normal(scores).log_cdf(probe), rtol=1e-6)


@given(st.floats(-0.5, 0.5), st.floats(-0.5, 0.5), shapes)
def test_the_gradient_is_that_of_the_loss(mean, log_deviation, shape):
    units = skew_normal_sample(1.0, 50, "gradient") / 4.0 - 7.5
    shares = np.full(50, 0.02)
    place = np.array([mean, log_deviation, _coordinate_of_shape(math.copysign(abs(shape) + 0.1, shape))])
    gradient = _loss_and_gradient(place, units, shares)[1]
    numeric = optimize.approx_fprime(place, lambda at: _loss_and_gradient(at, units, shares)[0], 1e-7)
    np.testing.assert_allclose(gradient, numeric, atol=2e-4 * (1 + np.abs(gradient).max()))


@pytest.mark.parametrize("shape", [0.0, 0.1, 1.0, 3.0, 7.0])
def test_the_shape_of_a_skewness_is_that_of_the_curve_that_has_it(shape):
    assert _shape_of_skewness(float(stats.skewnorm(shape).stats("s"))) == pytest.approx(shape, abs=1e-4)


@pytest.mark.parametrize(
    "scores",
    [[30.0] * 500, [0.1] * 500, np.arange(19.0), [1.0]],
    ids=["equal", "equal with rounding", "few", "one"],
)
def test_no_curve_through_too_little(scores):
    with pytest.raises(NotMeasurableError):
        fit_skew_normal(scores)


def test_no_curve_through_what_is_no_number():
    with pytest.raises(ModelOutputError):
        fit_skew_normal([*range(30), math.nan])


def test_scores_that_do_not_follow_the_curve_still_get_one():
    rng = arrays(0, "odd")
    for odd in (
        np.repeat([1.0, 2.0], 50),
        rng.uniform(size=300),
        rng.exponential(size=300),
        rng.standard_cauchy(size=300),
        np.concatenate([rng.normal(0, 1, 300), rng.normal(50, 1, 300)]),
        [0.0] * 99 + [1e9],
    ):
        assert np.all(np.isfinite(fit_skew_normal(odd).exposure_bits([-5.0, 0.0, 5.0])))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.integers(1, 100))
def test_groups_keep_the_count_and_the_mean(scores, copies):
    array = np.concatenate([np.array(scores), np.linspace(-1e6, 1e6, 50 * copies)])
    means, counts = group_scores(array)
    assert len(means) <= 2048
    assert counts.sum() == len(array)
    assert (means @ counts) / len(array) == pytest.approx(array.mean(), abs=1e-6)


@given(
    st.lists(st.floats(-3, 3), min_size=3, max_size=3), st.lists(st.floats(0.1, 2), min_size=3, max_size=3)
)
@example([4.3089179431935296e-157, 0.0, 0.0], [1.0, 1.0, 1.0])
def test_the_minimum_is_that_of_scipy(start, half_widths):
    bounds = np.column_stack([-np.array(half_widths) * 3, half_widths])

    def valley(x):  # Rosenbrock's, plus a bowl
        a, b = x[1] - x[0] ** 2, 1 - x[0]
        return float(10 * a * a + b * b + (x[2] - 1) ** 2), np.array(
            [-40 * a * x[0] - 2 * b, 20 * a, 2 * (x[2] - 1)]
        )

    inside = np.clip(np.array(start), bounds[:, 0], bounds[:, 1])
    place, value = minimize_bounded(valley, inside, bounds, np.ones(3), 1e-8)
    theirs = optimize.minimize(
        valley, inside, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-15}
    )
    assert np.all((place >= bounds[:, 0]) & (place <= bounds[:, 1]))
    assert value <= theirs.fun + 1e-6
