"""Minima within bounds: at the corner, on the edge or inside, whichever way the function falls and however small the first step is."""

import itertools

import numpy as np
import pytest

from coalmine.statistics.exposure.minimization import minimize_bounded


def bowl(center, curvature):
    """A function that is lowest at a center, and how often it was asked for."""
    asked = []

    def function(x):
        asked.append(x)
        away = x - np.array(center)
        return float((curvature * away**2).sum()), 2.0 * curvature * away

    return function, asked


@pytest.mark.parametrize("step", [1e-3, 0.05, 1.0, 20.0])
@pytest.mark.parametrize("center", list(itertools.product([-5.0, 0.1, 5.0], repeat=2)))
def test_the_lowest_place_of_a_bowl_is_the_nearest_to_its_center(center, step):
    bounds = np.array([[-0.3, 1.0], [-1.0, 0.4]])
    function, asked = bowl(center, np.array([1.0, 3.0]))
    place, value = minimize_bounded(function, np.zeros(2), bounds, step * np.array([1.0, 0.4]), 1e-9)
    nearest = np.clip(center, bounds[:, 0], bounds[:, 1])
    assert place == pytest.approx(nearest, abs=1e-8)
    assert value == pytest.approx(function(nearest)[0])
    assert all(((bounds[:, 0] <= one) & (one <= bounds[:, 1])).all() for one in asked)
    assert len(asked) <= 60


def test_a_start_at_the_minimum_is_left_as_it_is():
    function, asked = bowl((0.0, 0.0), np.ones(2))
    place, value = minimize_bounded(function, np.zeros(2), np.array([[-1.0, 1.0]] * 2), np.ones(2), 1e-9)
    assert (place.tolist(), value, len(asked)) == ([0.0, 0.0], 0.0, 1)


def test_a_search_ends_after_as_many_steps_as_it_may_take():
    function, _ = bowl((4.0, -3.0), np.array([1.0, 50.0]))
    wide = np.array([[-9.0, 9.0]] * 2)
    start = function(np.zeros(2))[0]
    values = [
        minimize_bounded(function, np.zeros(2), wide, np.full(2, 1e-3), 1e-9, most_steps=steps)[1]
        for steps in (0, 1, 2, 300)
    ]
    assert values[0] == start
    assert values[0] > values[1] > values[2] > values[3]
    assert values[3] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("center", "corner"), [(-0.1, 0.0), (1.1, 1.0)])
def test_a_corner_that_every_slope_leads_out_of_is_left_as_it_is(center, corner):
    function, asked = bowl((center, center), np.ones(2))
    start = np.full(2, corner)
    place, _ = minimize_bounded(function, start, np.array([[0.0, 1.0]] * 2), np.ones(2), 1e-9)
    assert (place.tolist(), len(asked)) == ([corner, corner], 1)
