"""A local minimum of a smooth function of a few variables within bounds, by BFGS.

SciPy's L-BFGS-B finds the same minima, but hands matrices of a few rows to a threaded linear algebra library; on a busy
machine its threads wait for each other for milliseconds in every step, twenty times as long as the function takes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coalmine.statistics.scores import FloatArray

LossAndGradient = Callable[[FloatArray], tuple[float, FloatArray]]

# The usual constants of the weak Wolfe conditions: enough descent, and enough flattening of the slope.
_DESCENT = 1e-4
_FLATTENING = 0.9


def minimize_bounded(
    function: LossAndGradient,
    start: FloatArray,
    bounds: FloatArray,
    inverse_curvature: FloatArray,
    tolerance: float,
    *,
    most_steps: int = 300,
) -> tuple[FloatArray, float]:
    """A local minimum by BFGS, and the value there, from a `start` within bounds (one row of low and high per variable).

    It stops when no component of the gradient that is free to move exceeds `tolerance`, or when the value stops
    changing. `inverse_curvature` is a rough guess of one over the second derivative in each direction.

    >>> def bowl(x):
    ...     return float((x[0] - 1.0) ** 2 + (x[1] - 5.0) ** 2), 2.0 * (x - [1.0, 5.0])
    >>> place, value = minimize_bounded(bowl, np.zeros(2), np.array([[-9.0, 9.0], [-9.0, 3.0]]), np.ones(2), 1e-9)
    >>> place.round(6), round(value, 6)
    (array([1., 3.]), 4.0)
    """
    place = start
    value, gradient = function(place)
    inverse = np.diag(inverse_curvature)
    for _ in range(most_steps):
        at_low, at_high = place <= bounds[:, 0], place >= bounds[:, 1]
        free = np.where((at_low & (gradient > 0.0)) | (at_high & (gradient < 0.0)), 0.0, gradient)
        if np.abs(free).max() <= tolerance:
            break
        direction = np.where(free == 0.0, 0.0, -(inverse @ free))
        # Components that lead out of the bounds are dropped; they would have led uphill, so the rest still descends.
        direction[(at_low & (direction < 0.0)) | (at_high & (direction > 0.0))] = 0.0
        found = None
        if direction @ free < 0.0:
            found = _search_line(function, place, (value, free), direction, bounds)
        if found is None:
            # The learned curvature leads nowhere, as it can at a bound: start over, straight down.
            inverse = np.diag(inverse_curvature)
            found = _search_line(function, place, (value, free), -inverse_curvature * free, bounds)
        if found is None:
            break
        next_place, (next_value, next_gradient) = found
        move = next_place - place
        inverse = _updated(inverse, move, np.where(move == 0.0, 0.0, next_gradient - gradient))
        place, value, gradient = next_place, next_value, next_gradient
    return place, value


def _search_line(
    function: LossAndGradient,
    place: FloatArray,
    there: tuple[float, FloatArray],
    direction: FloatArray,
    bounds: FloatArray,
) -> tuple[FloatArray, tuple[float, FloatArray]] | None:
    """A point along `direction` that meets the weak Wolfe conditions or is at a bound; None if nothing descends."""
    value, gradient = there
    slope = float(direction @ gradient)
    moving = direction != 0.0
    room = np.where(direction > 0.0, bounds[:, 1] - place, place - bounds[:, 0])
    with np.errstate(over="ignore"):  # a direction that hardly moves never reaches its bound
        longest = float((room[moving] / np.abs(direction[moving])).min())
    shortest, step, limit = 0.0, min(1.0, longest), np.inf
    for _ in range(60):
        trial_place = np.clip(place + step * direction, bounds[:, 0], bounds[:, 1])
        if step == longest:
            # Rounding must not leave a tiny gap to the bound, or the next step would be no longer than that.
            ends = room <= longest * np.abs(direction)
            trial_place = np.where(
                moving & ends, np.where(direction > 0.0, bounds[:, 1], bounds[:, 0]), trial_place
            )
        trial = function(trial_place)
        if not trial[0] <= value + _DESCENT * step * slope:
            limit = step
        elif float(trial[1] @ direction) < _FLATTENING * slope and step < longest:
            shortest = step
        else:
            return trial_place, trial
        step = (shortest + limit) / 2.0 if limit < np.inf else min(2.0 * step, longest)
    return None


def _updated(inverse: FloatArray, move: FloatArray, change: FloatArray) -> FloatArray:
    """The BFGS update of the inverse curvature; unchanged where the function did not curve upwards."""
    along = float(move @ change)
    if along <= 0.0:
        return inverse
    turned = inverse @ change
    grown = (1.0 + float(change @ turned) / along) / along
    return np.asarray(
        inverse + grown * np.outer(move, move) - (np.outer(turned, move) + np.outer(move, turned)) / along
    )
