"""Conformal p-values against counting, and over simulated audits: their level, the false-discovery rate, and what n can show."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine.errors import InputError, ModelOutputError, NotMeasurableError
from coalmine.randomness import arrays
from coalmine.statistics import (
    benjamini_hochberg,
    conformal_p_values,
    fewest_shown,
    non_members_needed,
    simes,
    smallest_p_value,
)
from coalmine.statistics.provenance.conformal import sides_p_value

# Few values, so that there are ties.
SCORES = st.lists(st.integers(-5, 5) | st.sampled_from([-math.inf, math.inf]), min_size=1, max_size=20)


@given(SCORES, SCORES)
def test_p_values_are_counted(scores, calibration):
    expected = [(1 + sum(other >= one for other in calibration)) / (1 + len(calibration)) for one in scores]
    assert conformal_p_values(scores, calibration).tolist() == expected


def test_the_smallest_p_value_is_that_of_a_suspect_above_all():
    for n in (1, 9, 99):
        assert conformal_p_values([5.0], np.zeros(n))[0] == smallest_p_value(n) == 1 / (n + 1)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=8), st.data())
def test_however_texts_are_divided_p_values_hold(scores, data):
    """Of all ways to divide these scores into two sides, at most a share of `level` gives a p-value of `level` or less."""
    own = data.draw(st.integers(1, len(scores) - 1))
    found = []
    for chosen in itertools.combinations(range(len(scores)), own):
        others = [score for place, score in enumerate(scores) if place not in chosen]
        found.append(sides_p_value([scores[place] for place in chosen], others))
    for level in found:
        assert np.mean(np.array(found) <= level + 1e-12) <= level + 1e-9


def test_many_texts_that_stand_out_a_little_and_few_that_stand_out_far_both_show():
    chance = arrays(0, "sides")
    others = chance.normal(0, 1, 400)  # more pairs than are counted out
    assert sides_p_value(chance.normal(0.4, 1, 300), others) < 1e-4
    assert sides_p_value([*chance.normal(0, 1, 285), *[5.0] * 15], others) < 0.01
    assert sides_p_value(chance.normal(-0.4, 1, 300), others) > 0.5


def draw(chance, size, ties):
    scores = chance.standard_t(3, size)
    return np.round(scores) if ties else scores


@pytest.mark.parametrize("ties", [False, True])
def test_without_memorization_p_values_are_uniform_or_larger(ties):
    chance, audits, n = arrays(0, "uniform", str(ties)), 20_000, 19
    found = np.array(
        [conformal_p_values(draw(chance, 1, ties), draw(chance, n, ties))[0] for _ in range(audits)]
    )
    for level in np.arange(1, n + 1) / (n + 1):
        share, error = np.mean(found <= level + 1e-9), math.sqrt(level * (1 - level) / audits)
        assert share <= level + 4 * error
        if not ties:
            assert share >= level - 4 * error


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("members", [0, 5, 25])
def test_the_false_discovery_rate_is_held_over_audits_that_share_their_non_members(members, ties):
    chance, audits, suspects, n, fdr = arrays(0, "fdr", members, str(ties)), 1_000, 50, 199, 0.1
    false_shares, found = [], 0
    for _ in range(audits):
        scores = draw(chance, suspects, ties)
        scores[:members] += 8.0
        shown = np.array(benjamini_hochberg(conformal_p_values(scores, draw(chance, n, ties)), fdr).shown)
        false_shares.append(shown[members:].sum() / max(1, shown.sum()))
        found += shown[:members].sum()
    error = np.std(false_shares) / math.sqrt(audits)
    # The bound is fdr times the share of suspects who are not members.
    assert np.mean(false_shares) <= fdr * (1 - members / suspects) + 3 * error
    if members == 25:
        assert found > 0.5 * members * audits


@pytest.mark.parametrize("ties", [False, True])
def test_the_level_of_simes_is_held(ties):
    chance, audits = arrays(0, "simes", str(ties)), 4_000
    small = sum(
        simes(conformal_p_values(draw(chance, 20, ties), draw(chance, 99, ties))) <= 0.05
        for _ in range(audits)
    )
    assert small <= 0.05 * audits + 3 * math.sqrt(audits * 0.05 * 0.95)
    scores = draw(chance, 20, ties)
    scores[:10] += 9.0
    assert simes(conformal_p_values(scores, draw(chance, 99, ties))) <= 0.05


def can_show(n, suspects, fdr, above):
    """Whether so many suspects who are above all of n non-members are shown, and all others are as low as can be."""
    p_values = conformal_p_values([1.0] * above + [-1.0] * (suspects - above), np.zeros(n))
    return sum(benjamini_hochberg(p_values, fdr).shown) >= above


@pytest.mark.parametrize("fdr", [0.01, 0.05, 0.1, 0.3])
@pytest.mark.parametrize("suspects", [1, 2, 3, 7, 30])
def test_what_non_members_can_show_is_what_benjamini_hochberg_shows(suspects, fdr):
    for shown in {1, suspects // 2 or 1, suspects}:
        needed = non_members_needed(suspects, fdr, shown)
        assert can_show(needed, suspects, fdr, shown)
        assert needed == 1 or not can_show(needed - 1, suspects, fdr, shown)
    for n in (1, 5, 19, 99, 400):
        tried = [above for above in range(1, suspects + 1) if can_show(n, suspects, fdr, above)]
        assert fewest_shown(n, suspects, fdr) == (tried[0] if tried else None)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: conformal_p_values([1.0, math.nan], [1.0]), ModelOutputError, "1 of the 2 scores are NaN .the first at position 1"),
        (lambda: conformal_p_values([1.0], [math.nan]), ModelOutputError, "calibration scores are NaN"),
        (lambda: conformal_p_values([1.0], []), NotMeasurableError, "there are none"),
        (lambda: conformal_p_values(1.0, [1.0]), InputError, "one row"),
        (lambda: smallest_p_value(0), InputError, "non_members must be at least 1"),
        (lambda: non_members_needed(0, 0.05), InputError, "suspects must be at least 1"),
        (lambda: non_members_needed(3, 0.05, shown=4), InputError, "got 4 of 3"),
        (lambda: non_members_needed(3, 0.05, shown=0), InputError, "shown must be at least 1"),
        (lambda: non_members_needed(3, 0.0), InputError, "fdr must be strictly between 0 and 1, got 0.0"),
        (lambda: fewest_shown(9, 3, 1.0), InputError, "got 1.0"),
        (lambda: fewest_shown(9, 0, 0.05), InputError, "suspects must be at least 1"),
    ],
)  # fmt: skip
def test_what_has_no_p_value_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_no_suspect_has_no_p_value():
    assert conformal_p_values([], [1.0, 2.0]).shape == (0,)
