"""Accounting: against closed forms and integrals of the mechanism itself, and noise that meets its target."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from coalmine.errors import InputError
from coalmine.training.private.accounting import LEAST_NOISE, epsilons, noise_for


def analytic_delta(epsilon, noise):
    """Of one Gaussian mechanism, from "Improving the Gaussian Mechanism" (Balle and Wang, 2018, arXiv:1805.06530), theorem 8."""
    high, low = 1 / (2 * noise) - epsilon * noise, -1 / (2 * noise) - epsilon * noise
    return norm.cdf(high) - math.exp(epsilon + norm.logcdf(low))


def subsampled_delta(epsilon, noise, rate):
    """Of one step with a coin per unit: beyond one point, one density is more than exp(epsilon) times the other."""

    def crossing(ratio):
        """Where the density with the unit is `ratio` times that without it."""
        return noise**2 * math.log((ratio - 1 + rate) / rate) + 0.5

    def share(above, x):
        """What is above x (or below) without the unit, and with it."""
        tail = norm.sf if above else norm.cdf
        without = tail(x / noise)
        return without, (1 - rate) * without + rate * tail((x - 1) / noise)

    without, with_unit = share(True, crossing(math.exp(epsilon)))
    removed = with_unit - math.exp(epsilon) * without
    if math.exp(-epsilon) <= 1 - rate:  # the density without the unit is nowhere that much larger
        return removed
    without, with_unit = share(False, crossing(math.exp(-epsilon)))
    return max(removed, without - math.exp(epsilon) * with_unit)


def test_the_setting_of_the_literature():
    found = epsilons(1.0, 0.01, 1000, 1e-9)
    assert found.pld == pytest.approx(2.99, abs=0.005)
    assert found.rdp == pytest.approx(3.41, abs=0.005)
    assert (found.best, found.accountant) == (found.pld, "PLD")


@pytest.mark.parametrize(
    ("noise", "steps", "delta"), [(1.0, 1, 1e-5), (4.0, 1, 1e-9), (5.0, 100, 1e-6), (0.5, 1, 1e-3)]
)
def test_without_sampling_steps_are_one_gaussian_mechanism(noise, steps, delta):
    whole = noise / math.sqrt(steps)
    expected = brentq(lambda epsilon: analytic_delta(epsilon, whole) - delta, 0, 200)
    found = epsilons(noise, 1.0, steps, delta)
    assert expected <= found.pld <= expected * 1.001
    assert found.rdp > expected


@pytest.mark.parametrize(("noise", "rate", "delta"), [(1.0, 0.1, 1e-4), (0.6, 0.3, 1e-3)])
def test_one_sampled_step_is_its_integral(noise, rate, delta):
    expected = brentq(lambda epsilon: subsampled_delta(epsilon, noise, rate) - delta, 0.01, 10, xtol=1e-4)
    assert epsilons(noise, rate, 1, delta).pld == pytest.approx(expected, rel=2e-3)


def test_two_sampled_steps_are_their_integral():
    noise, rate, delta = 1.0, 0.2, 1e-3
    points = np.linspace(-7, 8, 1001)
    apart = points[1] - points[0]
    without = norm.pdf(points, 0, noise)
    with_unit = (1 - rate) * without + rate * norm.pdf(points, 1, noise)

    def above(first, second, epsilon):
        both = np.outer(first, first) - math.exp(epsilon) * np.outer(second, second)
        return np.maximum(both, 0).sum() * apart**2

    def delta_of(epsilon):
        return max(above(with_unit, without, epsilon), above(without, with_unit, epsilon))

    expected = brentq(lambda epsilon: delta_of(epsilon) - delta, 0.01, 5, xtol=1e-3)
    assert epsilons(noise, rate, 2, delta).pld == pytest.approx(expected, rel=3e-3)


@pytest.mark.parametrize(("epsilon", "rate", "steps"), [(1.0, 0.05, 40), (8.0, 0.2, 30), (1e9, 0.2, 30)])
def test_noise_meets_its_target_and_is_no_more_than_that_needs(epsilon, rate, steps):
    noise = noise_for(epsilon, 1e-9, rate, steps)
    assert epsilon * 0.998 < epsilons(noise, rate, steps, 1e-9).best <= epsilon


def test_no_noise_has_no_epsilon_and_impossible_targets_are_refused():
    assert epsilons(0.0, 0.1, 10, 1e-9).best is None
    with pytest.raises(InputError, match=r"epsilon of 1e-12 at delta 1e-12 cannot be reached in 10 steps"):
        noise_for(1e-12, 1e-12, 0.5, 10)
    assert noise_for(1e30, 1e-9, 0.5, 10) == LEAST_NOISE
