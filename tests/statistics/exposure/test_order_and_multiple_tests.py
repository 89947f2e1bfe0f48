"""Tests that share an error: Holm keeps it, and the order tests are exact enough to see a few canaries among many."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine.errors import InputError
from coalmine.randomness import arrays
from coalmine.statistics import holm, order_test, shared_order_test
from coalmine.statistics.exposure.order_tests import places_to_test

LISTS = st.lists(st.floats(0, 1), min_size=1, max_size=8)


def holm_by_definition(p_values, level, weights):
    """Every subset of hypotheses is tested by weighted Bonferroni; one is rejected if all subsets with it are (closed testing)."""

    def rejected(subset):
        total = sum(weights[i] for i in subset)
        return any(p_values[i] <= level * weights[i] / total for i in subset)

    everyone = range(len(p_values))
    subsets = [s for size in range(1, len(p_values) + 1) for s in itertools.combinations(everyone, size)]
    return tuple(all(rejected(s) for s in subsets if i in s) for i in everyone)


@given(st.lists(st.tuples(st.floats(0, 0.2), st.sampled_from([1.0, 2.0, 4.0])), min_size=1, max_size=6))
def test_holm_is_the_closed_test(drawn):
    p_values, weights = zip(*drawn, strict=True)
    assert holm(p_values, 0.05, weights).shown == holm_by_definition(p_values, 0.05, weights)


@given(LISTS)
def test_what_holm_shows_is_within_the_level_that_it_names(p_values):
    found = holm(p_values, 0.05)
    for p_value, shown, level in zip(p_values, found.shown, found.levels, strict=True):
        assert shown == (p_value <= level * (1 + 1e-9))


def test_holm_refuses_what_is_no_probability_or_weight():
    for p_values, weights in (([1.2], None), ([math.nan], None), ([0.1], [0.0]), ([0.1], [1.0, 1.0])):
        with pytest.raises(InputError):
            holm(p_values, 0.05, weights)


@pytest.mark.parametrize("references", [None, 30, 400])
@pytest.mark.parametrize("canaries", [1, 5, 40])
def test_the_order_tests_are_valid(references, canaries):
    generator = arrays(0, "order tests", references or 0, canaries)
    trials, small = 1_500, 0
    for _ in range(trials):
        if references is None:
            found = order_test(generator.random(canaries))
        else:
            others, own = generator.normal(size=references), generator.normal(size=canaries)
            found = shared_order_test([int(np.sum(others >= one)) for one in own], references)
        small += found.p_value <= 0.05
    assert small <= 0.05 * trials + 3 * math.sqrt(trials * 0.05 * 0.95)


def test_a_few_among_many_are_seen():
    ordinary = list(range(20, 1000, 17))[:56]
    assert shared_order_test([0] * 4 + ordinary, 1000).p_value < 1e-3
    assert shared_order_test([0] * 50 + ordinary[:10], 1000).p_value < 1e-9
    # One alone that beats a thousand references proves little among sixty.
    assert shared_order_test([0, *ordinary], 1000).p_value > 0.05
    assert order_test([1e-9, *np.linspace(0.02, 1, 99)]).place == 1


def test_places():
    assert [places_to_test(n) for n in (1, 2, 3, 4)] == [(1,), (1, 2), (1, 2), (1, 2, 4)]
    with pytest.raises(InputError):
        order_test([])
    with pytest.raises(InputError):
        shared_order_test([5], 4)
