from __future__ import annotations

from collections import Counter
from math import factorial, log10

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from coalmine import Format
from coalmine.errors import InputError, NotMeasurableError
from formats.format_strategies import PIECES, WORDS, template_and_members


def p_value(draws, possible):
    counts = Counter(draws)
    assert set(counts) <= set(possible)
    return chisquare([counts[value] for value in possible]).pvalue


@pytest.mark.parametrize("replace", [True, False])
def test_the_first_digit_of_nine_is_unbiased(replace):
    draws = Format("{digits:9}").sample(20_000, seed=11, replace=replace)
    assert p_value([text[0] for text in draws], "0123456789") > 1e-3
    # Also in the first of the draws, which is where a sorted sample shows.
    assert p_value([text[0] for text in draws[:2000]], "0123456789") > 1e-3


@pytest.mark.parametrize(
    "template",
    ["{re:a{0,6}}", "{choice:a|aa|aaa}{choice:b|a|aa}", "{re:[ab]{0,3}}{re:a?b?}", "{re:x|y[0-9]}"],
)
def test_draws_are_uniform_over_strings_not_over_paths_or_fillings(template):
    secret = Format(template)
    assert p_value(secret.sample(400 * secret.size, seed=5), list(secret)) > 1e-3


def test_draws_without_replacement_are_uniform_over_ordered_selections():
    secret = Format("{re:[a-d]}")
    draws = ["".join(secret.sample(3, seed, replace=False)) for seed in range(24 * 150)]
    possible = sorted(set(draws))
    assert len(possible) == factorial(4)
    assert p_value(draws, possible) > 1e-3


@settings(max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck))
@given(PIECES, st.integers(0, 10))
def test_a_draw_of_all_without_replacement_is_a_permutation(pieces, seed):
    template, members = template_and_members(pieces)
    drawn = Format(template, words=WORDS).sample(len(members), seed, replace=False)
    assert sorted(drawn) == members


def test_one_more_than_all_cannot_be_drawn_without_replacement():
    with pytest.raises(NotMeasurableError, match="11 distinct members"):
        Format("{digits:1}").sample(11, seed=0, replace=False)
    assert len(Format("{digits:1}").sample(11, seed=0)) == 11


@pytest.mark.parametrize("replace", [True, False])
def test_huge_spaces_are_drawn_from_in_full_precision(replace):
    secret = Format("{digits:40}")
    indices = secret.sample_indices(3000, seed=2, replace=replace)
    assert len(set(indices)) == 3000
    # The lowest digit is lost first where floating point creeps in.
    assert p_value([index % 10 for index in indices], range(10)) > 1e-3
    assert log10(max(indices)) > 39.9
    assert secret.sample(3000, seed=2, replace=replace) == [f"{index:040d}" for index in indices]


@pytest.mark.parametrize("replace", [True, False])
def test_a_seed_fixes_the_draw_and_a_longer_draw_begins_with_a_shorter_one(replace):
    secret = Format("{ssn}")
    draw = secret.sample(50, seed=1, replace=replace)
    assert draw == Format("{ssn}").sample(50, seed=1, replace=replace)
    assert draw[:20] == secret.sample(20, seed=1, replace=replace)
    assert draw != secret.sample(50, seed=2, replace=replace)
    assert draw != Format("{phone}").sample(50, seed=1, replace=replace)


def test_the_number_of_draws_is_checked():
    assert Format("{digits:1}").sample(0, seed=0) == []
    with pytest.raises(InputError):
        Format("{digits:1}").sample(-1, seed=0)
