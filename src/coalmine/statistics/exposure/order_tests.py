"""Exact tests of whether the best of many canaries are too good for a model without memorization.

The k-th best of m canaries is compared with chance, for k = 1, 2, 4, 8, ...: a few strongly memorized canaries show at small k,
many weakly memorized ones at large k. Half of the error is for k = 1, so that one canary that stands out is detected nearly as
well as if it alone had been tested; the other places share the rest. The p-value is valid after choosing k.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from coalmine.errors import InputError
from coalmine.statistics.exposure.guessing import RandomGuessing


class OrderTest(NamedTuple):
    """The p-value of "no memorization", and the place that gives it, from 1 for the best canary."""

    p_value: float
    place: int


def places_to_test(canaries: int) -> tuple[int, ...]:
    """The places that are tested among this many canaries.

    >>> places_to_test(1), places_to_test(20)
    ((1,), (1, 2, 4, 8, 16))
    """
    return tuple(2**power for power in range(canaries.bit_length()))


def order_test(p_values: ArrayLike) -> OrderTest:
    """The test for canaries whose p-values are independent, such as those from ranks in the whole secret space.

    >>> found = order_test([0.001, 0.7, 0.9])
    >>> round(found.p_value, 4), found.place
    (0.006, 1)
    """
    from scipy.special import bdtrc

    ordered = np.sort(np.asarray(p_values, dtype=np.float64))
    if not len(ordered) or not np.all((ordered >= 0) & (ordered <= 1)):
        raise InputError(
            f"a test needs p-values between 0 and 1, got {ordered.tolist()}; give one per canary"
        )
    m = len(ordered)
    # The probability that at least k of m are this good.
    return _smallest(m, [float(bdtrc(k - 1, m, ordered[k - 1])) for k in places_to_test(m)])


def shared_order_test(better: Sequence[int], references: int) -> OrderTest:
    """The test for canaries that were ranked among the same references; `better` counts, per canary, those no more surprising.

    Without memorization every order of canaries and references is equally likely, so the p-values are exact although
    all canaries share the references.

    >>> shared_order_test([0, 0, 0, 0, *range(10, 900, 50)], 1000).place
    4
    """
    ordered = sorted(better)
    if not ordered or ordered[0] < 0 or ordered[-1] > references:
        raise InputError(
            f"counts must be between 0 and the {references} references, got {list(better)}; give one per canary"
        )
    guessing = RandomGuessing(references=references, canaries=len(ordered))
    places = places_to_test(len(ordered))
    return _smallest(len(ordered), [guessing.chance_of(k, ordered[k - 1]) for k in places])


def lead_test(leads: Sequence[float], first: Sequence[bool], others: Sequence[int]) -> OrderTest:
    """The test for secrets that each have others of their own, by how far the most probable of each set is ahead of the rest of it.

    Without memorization the secret is the most probable of its set of n others and itself with probability 1 / (n + 1), however far
    ahead that is. So the k secrets that are first by the largest leads are compared with the sets in which anything leads by as much:
    one recited secret shows among many that are not, because few models are as sure of a stranger. Leads are in bits, and only those
    above 0 count, which nothing else in the set can have.

    >>> found = lead_test([30.0, 4.0, 2.0, -1.0], [True, False, False, False], [9_999] * 4)
    >>> round(found.p_value, 4), found.place
    (0.0002, 1)
    """
    sizes = np.asarray(others, dtype=np.float64) + 1.0
    ahead = np.asarray(leads, dtype=np.float64)
    own = np.sort(ahead[np.asarray(first, dtype=bool) & (ahead > 0.0)])[::-1]
    chances = []
    for k in places_to_test(len(ahead)):
        if k > len(own):
            chances.append(1.0)
            continue
        fewer = np.zeros(k)  # the probability of 0, 1, ..., k - 1 secrets that are first
        fewer[0] = 1.0
        at_least = 0.0
        for size in sizes[ahead >= own[k - 1]].tolist():
            at_least += float(fewer[-1]) / size
            fewer = fewer * (1.0 - 1.0 / size) + np.concatenate([[0.0], fewer[:-1] / size])
        chances.append(at_least)
    return _smallest(len(ahead), chances)


def _smallest(canaries: int, chances: Sequence[float]) -> OrderTest:
    places = places_to_test(canaries)
    if len(places) == 1:
        return OrderTest(min(1.0, chances[0]), 1)
    shared = [2.0 * chances[0], *(2.0 * (len(places) - 1) * one for one in chances[1:])]
    best = int(np.argmin(shared))
    return OrderTest(min(1.0, shared[best]), places[best])
