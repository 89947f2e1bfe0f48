"""Mechanisms whose epsilon is known: scores of members and non-members, and the truth that no bound may exceed."""

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr


class Mechanism(NamedTuple):
    """Scores of m members and n non-members; for one copy it is exactly (epsilon, delta) private."""

    name: str
    draw: object  # (generator, m, n) -> in scores, out scores
    epsilon: float
    delta: float
    copies: int = 1


def gaussian_epsilon(shift, delta):
    """The smallest epsilon at which N(shift, 1) and N(0, 1) are (epsilon, delta) close (Balle and Wang)."""

    def excess(epsilon):
        return (
            ndtr(shift / 2 - epsilon / shift) - math.exp(epsilon) * ndtr(-shift / 2 - epsilon / shift) - delta
        )

    return brentq(excess, 0.0, 60.0)


def randomized_response(epsilon, delta=0.0):
    truth = 1 / (1 + math.exp(-epsilon))

    def answers(rng, count):
        return np.where(rng.random(count) < delta, 2.0, np.where(rng.random(count) < truth, 1.0, -1.0))

    return Mechanism(
        f"randomized response, epsilon {epsilon}, delta {delta}",
        lambda rng, m, n: (answers(rng, m), -answers(rng, n)),
        epsilon,
        delta,
    )


def laplace(epsilon, copies=1, step=0.0):
    def rounded(values):
        return np.floor(values / step) * step if step else values

    return Mechanism(
        f"Laplace, epsilon {epsilon}, {copies} copies, step {step}",
        lambda rng, m, n: (
            rounded(rng.laplace(copies, 1 / epsilon, m)),
            rounded(rng.laplace(0, 1 / epsilon, n)),
        ),
        epsilon,
        0.0,
        copies,
    )


def gaussian(shift, delta, copies=1, step=0.0):
    def rounded(values):
        return np.floor(values / step) * step if step else values

    return Mechanism(
        f"Gaussian, shift {shift}, delta {delta}, {copies} copies, step {step}",
        lambda rng, m, n: (rounded(rng.normal(copies * shift, 1, m)), rounded(rng.normal(0, 1, n))),
        gaussian_epsilon(shift, delta),
        delta,
        copies,
    )


MECHANISMS = [
    randomized_response(1.0),
    randomized_response(1.0, delta=0.02),
    laplace(1.0),
    laplace(0.5, copies=4, step=0.5),
    gaussian(1.0, 1e-5),
    gaussian(1.5, 0.05, step=0.5),
    gaussian(0.3, 1e-3, copies=4),
]
