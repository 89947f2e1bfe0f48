"""The test of how far secrets lead: exact for every outcome that a model without memory can have."""

import itertools
import math

import pytest

from coalmine.statistics.exposure.order_tests import lead_test


def test_no_model_without_memory_is_accused_more_often_than_the_p_value_says():
    leads, others = [5.0, 3.0, 3.0, 1.0, -2.0], [1, 4, 2, 3, 6]
    found = []
    for first in itertools.product((False, True), repeat=len(leads)):
        chance = math.prod(1 / (n + 1) if own else n / (n + 1) for own, n in zip(first, others, strict=True))
        found.append((lead_test(leads, first, others).p_value, chance))
    for level in {p_value for p_value, _ in found}:
        assert sum(chance for p_value, chance in found if p_value <= level) <= level + 1e-12


def test_few_that_lead_far_show_among_many():
    many = 1_000
    leads, others = [40.0, 30.0, *([5.0] * (many - 2))], [100] * many
    # Both of the two sets that lead most are led by their secrets; nine places share half of the error.
    found = lead_test(leads, [True, True] + [False] * (many - 2), others)
    assert found.p_value == pytest.approx(2 * 9 / 101**2)
    assert lead_test(leads, [False] * many, others).p_value == 1.0
