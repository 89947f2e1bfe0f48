"""The probability that a suffix comes out at least once in n tries, and how many tries it takes.

This is (n, p)-discoverable extraction (Measuring memorization in language models via probabilistic extraction, Hayes et al., 2024,
arXiv:2410.19482): a suffix that sampling writes with probability q comes out at least once in n independent
tries with probability 1 - (1 - q)^n. All of it is done in logarithms, because q is often far below what a float can hold.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine.errors import InputError

FloatArray = NDArray[np.float64]
# Below this, q and -log(1 - q) are the same float64.
_SMALL = -60.0


def log2_chance_in_tries(log2_probability: ArrayLike, tries: float) -> FloatArray:
    """Log2 of the probability that a suffix of log2 probability `log2_probability` comes out at least once in `tries` tries.

    >>> log2_chance_in_tries([0.0, -1.0, -200.0], 1).tolist()
    [0.0, -1.0, -200.0]
    >>> round(float(log2_chance_in_tries(-2000.0, 2.0**40)), 6)
    -1960.0
    """
    if not (math.isfinite(tries) and tries >= 1):
        raise InputError(f"tries must be a number of at least 1, got {tries}; one try is the fewest")
    # (1 - q)^n = exp(-2^power)
    power = _log2_rate(log2_probability) + math.log2(tries)
    result = np.array(power)
    large = power > _SMALL
    with np.errstate(over="ignore"):
        result[large] = np.log2(-np.expm1(-np.exp2(power[large])))
    return result


def chance_in_tries(log2_probability: ArrayLike, tries: float) -> FloatArray:
    """The probability that a suffix comes out at least once; 0 where it is below what a float can hold.

    >>> chance_in_tries([-1.0, -np.inf], 3).round(6).tolist()
    [0.875, 0.0]
    """
    return np.exp2(log2_chance_in_tries(log2_probability, tries))


def tries_needed(log2_probability: ArrayLike, chance: float) -> FloatArray:
    """The fewest tries in which a suffix comes out at least once with probability `chance` or more; infinite where it never does.

    Whole up to 2^53, and rounded to a float beyond; infinite too where there are more than a float can hold.

    >>> tries_needed([0.0, -1.0, -20.0, -np.inf], 0.5).tolist()
    [1.0, 1.0, 726818.0, inf]
    """
    if not 0 < chance < 1:
        raise InputError(f"chance must be above 0 and below 1, got {chance}; 0.5 is usual")
    power = math.log2(-math.log1p(-chance)) - _log2_rate(log2_probability)
    with np.errstate(over="ignore"):
        whole = np.array(np.maximum(1.0, np.ceil(np.exp2(power))))
    # Rounding in the logarithms can put the answer one try off; the definition decides.
    sure = whole < 2.0**40
    given = np.broadcast_to(np.asarray(log2_probability, dtype=np.float64), power.shape)
    fewer = np.maximum(1.0, whole - 1)
    for place in np.argwhere(sure):
        at = tuple(place)
        if chance_in_tries(given[at], float(fewer[at])) >= chance:
            whole[at] = fewer[at]
        elif chance_in_tries(given[at], float(whole[at])) < chance:
            whole[at] += 1
    return whole


def _log2_rate(log2_probability: ArrayLike) -> FloatArray:
    """Log2 of -log(1 - q): what one try adds to the exponent of never seeing the suffix; infinite for q = 1."""
    log2_q = np.asarray(log2_probability, dtype=np.float64)
    if np.any(np.isnan(log2_q)) or np.any(log2_q > 1e-3):
        raise InputError("log2 probabilities must be at most 0, and numbers; check the model's scores")
    log2_q = np.minimum(log2_q, 0.0)
    rate = np.array(log2_q)
    large = log2_q > _SMALL
    own = log2_q[large]
    with np.errstate(divide="ignore"):
        # Each keeps its digits on its own side of one half.
        near_one = np.log(-np.expm1(own * math.log(2)))
        near_none = np.log1p(-np.exp2(np.minimum(own, -1.0)))
        rate[large] = np.log2(-np.where(own > -1, near_one, near_none))
    return rate
