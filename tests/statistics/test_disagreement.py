"""Disagreement of two models: spans against a brute force, and the share of false discoveries where the truth is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine.errors import InputError
from coalmine.statistics.disagreement import beyond_chance, span_share


@given(
    st.lists(st.tuples(*[st.integers(-80, 0).map(lambda eighths: eighths / 8)] * 2), min_size=1, max_size=20),
    st.integers(1, 25),
)
def test_the_share_is_the_best_of_all_spans(pairs, span):
    size = min(span, len(pairs))
    parts = [pairs[start : start + size] for start in range(len(pairs) - size + 1)]
    shares = [
        sum(own - other for own, other in part) / (size - sum(other for _, other in part)) for part in parts
    ]
    found = span_share([own for own, _ in pairs], [other for _, other in pairs], span)
    assert found.size == pytest.approx(max(shares))
    assert found.size < 1


@given(st.lists(st.integers(-20, 20).map(float), min_size=1, max_size=40), st.sampled_from([0.05, 0.2, 0.5]))
def test_the_threshold_is_the_least_that_keeps_the_rate(scores, fdr):
    def kept(t):
        return 1 + sum(one <= -t for one in scores) <= fdr * sum(one >= t for one in scores)

    good = [t for t in sorted({one for one in scores if one > 0}) if kept(t)]
    assert beyond_chance(scores, fdr) == (good[0] if good else None)


def test_false_discoveries_are_as_rare_as_promised():
    chance = np.random.default_rng(0)
    shares = []
    for _ in range(400):
        null = chance.normal(0, 1, 300)  # of either sign with the same probability
        memorized = chance.normal(4, 1, 30)
        threshold = beyond_chance(np.concatenate([null, memorized]), 0.2)
        found = (0, 0) if threshold is None else ((null >= threshold).sum(), (memorized >= threshold).sum())
        shares.append(found[0] / max(1, sum(found)))
    # The mean is at most 0.2 in theory; three standard errors above it.
    assert np.mean(shares) < 0.2 + 3 * np.std(shares) / 20
    assert np.mean(shares) > 0.1  # the bound is not far off, or nothing would be found


def test_nothing_is_found_where_nothing_is_there():
    chance = np.random.default_rng(1)
    silent = [beyond_chance(chance.normal(0, 1, 200), 0.1) is None for _ in range(300)]
    assert np.mean(silent) > 0.87


def test_bad_parameters_are_refused():
    with pytest.raises(InputError, match="the same tokens"):
        span_share([-1.0], [-1.0, -2.0], 4)
    with pytest.raises(InputError, match="the span"):
        span_share([-1.0], [-1.0], 0)
    with pytest.raises(InputError, match="fdr"):
        beyond_chance([1.0], 1.0)
    with pytest.raises(InputError, match="NaN"):
        beyond_chance([float("nan")], 0.1)
