"""Accounting: the epsilon of a private training, and the noise that an epsilon needs.

Each step adds Gaussian noise to a sum over units that were each drawn by a coin of their own (Poisson sampling), so the whole training is
a composition of subsampled Gaussian mechanisms. Neighbors differ by one unit that was added or removed. The PLD accountant composes the
distribution of the privacy loss and is the tighter one; the RDP accountant composes its moments.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from coalmine.errors import InputError, MissingExtraError

# Of the noise that is looked for.
LEAST_NOISE, MOST_NOISE = 1e-6, 1e6
_RELATIVE_PRECISION = 2e-4
_MOST_STEPS = 20
# The privacy loss is rounded up to a grid this fine, relative to an epsilon that bounds it; a search takes the coarser one, whose epsilon
# is slightly higher and so still holds.
_GRID, _COARSE_GRID = 3e-5, 1e-4
_FINEST_GRID = 1e-6
# Beyond this, exponentials of the privacy loss overflow, and only the other accountant has an answer.
_MOST_FOR_PLD = 1e5


class Epsilons(NamedTuple):
    """The epsilon of one training by both accountants; None where it is not finite."""

    pld: float | None
    rdp: float | None

    @property
    def best(self) -> float | None:
        """The smaller one; both are upper limits at the same delta."""
        return min((one for one in self if one is not None), default=None)

    @property
    def claimed(self) -> float | None:
        """What is claimed: `best`, rounded up to four digits."""
        return with_digits_rounded_up(self.best) if self.best else self.best

    @property
    def accountant(self) -> str:
        """Which one gave `best`."""
        return "PLD" if self.pld is not None and self.pld == self.best else "RDP"


@cache
def epsilons(noise: float, rate: float, steps: int, delta: float) -> Epsilons:
    """The epsilon at `delta` of `steps` steps, each with units drawn at `rate` and noise of `noise` times the norm of clipping.

    >>> both = epsilons(1.0, 0.01, 1000, 1e-9)
    >>> round(both.pld, 2), round(both.rdp, 2)
    (2.99, 3.41)
    """
    if noise <= 0:
        return Epsilons(None, None)
    rdp = _rdp(noise, rate, steps, delta)
    return Epsilons(_pld(noise, rate, steps, delta, rdp), rdp)


@cache
def noise_for(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """The least noise multiplier, to four digits, with which the training has at most this epsilon.

    >>> noise_for(3.0, 1e-9, 0.01, 1000)
    0.9986
    """
    from scipy.optimize import brentq

    def above(log_noise: float, *, quick: bool) -> float:
        noise = math.exp(log_noise)
        rdp = _rdp(noise, rate, steps, delta)
        found = rdp if quick else Epsilons(_pld(noise, rate, steps, delta, rdp, _COARSE_GRID), rdp).best
        return math.log(math.inf if found is None else max(found, 1e-300)) - math.log(epsilon)

    low, high = math.log(LEAST_NOISE), math.log(MOST_NOISE)
    if above(high, quick=True) > 0:
        raise InputError(
            f"an epsilon of {epsilon:g} at delta {delta:g} cannot be reached in {steps:,} steps at a sampling rate of {rate:.3g} with any "
            f"noise up to {MOST_NOISE:g}; ask for a larger epsilon"
        )
    if above(low, quick=True) < 0:
        return LEAST_NOISE
    # Moments bound it from above, and quickly. How their epsilon falls with more noise is almost how the tighter one does, so that each
    # step is many times as close as the one before.
    at = float(brentq(lambda log_noise: above(log_noise, quick=True), low, high, xtol=1e-2))
    slope = (above(at + 0.05, quick=True) - above(at - 0.05, quick=True)) / 0.1
    for _ in range(_MOST_STEPS):
        step = above(at, quick=False) / slope
        at -= step
        if abs(step) < _RELATIVE_PRECISION / 2:
            break
    noise = with_digits_rounded_up(math.exp(at))
    while above(math.log(noise), quick=False) > 0:
        noise = with_digits_rounded_up(noise * (1 + _RELATIVE_PRECISION))
    return noise


def with_digits_rounded_up(number: float, digits: int = 4) -> float:
    """A positive number, rounded up to some digits.

    >>> with_digits_rounded_up(1.95231)
    1.953
    """
    places = digits - 1 - math.floor(math.log10(number))
    return float(f"{math.ceil(number * 10**places) / 10**places:.{digits}g}")


def _rdp(noise: float, rate: float, steps: int, delta: float) -> float | None:
    _require_accounting()
    from dp_accounting.rdp import RdpAccountant

    with _quiet():
        return _finite(RdpAccountant().compose(_training(noise, rate, steps)).get_epsilon(delta))


def _pld(
    noise: float, rate: float, steps: int, delta: float, bound: float | None, fineness: float = _GRID
) -> float | None:
    """The tighter one, on a grid that suits `bound`, an upper limit of what it gives."""
    _require_accounting()
    from dp_accounting.pld import PLDAccountant

    if bound is None or bound > _MOST_FOR_PLD:
        return None
    grid = max(_FINEST_GRID, fineness * bound)
    accountant = PLDAccountant(value_discretization_interval=grid)
    return _finite(accountant.compose(_training(noise, rate, steps)).get_epsilon(delta))


def _training(noise: float, rate: float, steps: int) -> Any:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent

    step = GaussianDpEvent(noise)
    return SelfComposedDpEvent(step if rate >= 1 else PoissonSampledDpEvent(rate, step), steps)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the library's warnings on orders that it leaves out: an epsilon from the other orders is still an upper limit."""
    logger = logging.getLogger("absl")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _finite(epsilon: float) -> float | None:
    return float(epsilon) if math.isfinite(epsilon) else None


def _require_accounting() -> None:
    from importlib.util import find_spec

    if find_spec("dp_accounting") is None:
        raise MissingExtraError("private training", "dp-accounting", "private")
