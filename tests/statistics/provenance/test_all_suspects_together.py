"""The p-value of all suspects together, against counting all orders of suspects and non-members."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine.errors import InputError
from coalmine.statistics import conformal_p_values, p_value_together, smallest_p_value


def every_order(suspects, non_members):
    """The scores of suspects and of non-members in each order, which are equally likely if nobody was trained on."""
    places = range(suspects + non_members)
    for own in combinations(places, suspects):
        yield list(own), [place for place in places if place not in own]


@pytest.mark.parametrize(
    ("suspects", "non_members"), [(1, 1), (1, 6), (2, 5), (3, 4), (4, 6), (5, 3), (8, 4)]
)
def test_over_all_orders_it_is_a_p_value(suspects, non_members):
    found = [
        p_value_together(conformal_p_values(own, others).tolist(), non_members)
        for own, others in every_order(suspects, non_members)
    ]
    for level in sorted(set(found)):
        assert Fraction(sum(one <= level for one in found), len(found)) <= level * (1 + 1e-9)


@given(
    st.lists(st.integers(-3, 3), min_size=1, max_size=12),
    st.lists(st.integers(-3, 3), min_size=1, max_size=20),
)
def test_ties_count_against_suspects(scores, others):
    tied = p_value_together(conformal_p_values(scores, others).tolist(), len(others))
    # However ties are broken, in favor of suspects or not.
    for nudge in (0.1, -0.1):
        broken = conformal_p_values(np.array(scores) + nudge, others).tolist()
        assert p_value_together(broken, len(others)) <= tied * (1 + 1e-9)


def test_many_suspects_above_most_non_members_are_stronger_evidence_than_any_of_them():
    n = 149
    many = p_value_together([smallest_p_value(n)] * 24 + [0.5] * 36, n)
    assert many < 1e-8
    assert p_value_together([smallest_p_value(n)], n) == pytest.approx(1 / 150)
    # One of two who stands out: the highest of 151 scores is one of theirs in 2 of 151 orders, and half of the error is for that.
    assert p_value_together([smallest_p_value(n), 1.0], n) == pytest.approx(2 * 2 / 151)


@pytest.mark.parametrize(("p_values", "non_members"), [([], 5), ([0.5], 0), ([2.0], 9)])
def test_nothing_follows_from_nothing(p_values, non_members):
    with pytest.raises(InputError):
        p_value_together(p_values, non_members)
