"""The band of the TPR at a fixed FPR includes the error of its threshold, and its p-value is exact without memorization."""

import itertools

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from coalmine.statistics import tpr_at_fpr, tpr_p_value

AUDITS = 1000


def limits(draw, m, n, fpr):
    """(audits, 2): the limits of so many audits."""
    found = []
    for seed in range(AUDITS):
        rng = np.random.default_rng(seed)
        estimate = tpr_at_fpr(*draw(rng, m, n), fpr)
        found.append((estimate.low, estimate.high))
    return np.array(found)


def normal(shift):
    return lambda rng, m, n: (rng.normal(shift, 1, m), rng.normal(0, 1, n))


def laplace(rng, m, n):
    return rng.laplace(1, 1, m), rng.laplace(0, 1, n)


def tied(rng, m, n):
    """Four values: an FPR of 10% lies within a tie, and the highest threshold that keeps it has 5%."""
    return rng.choice(4, m, p=[0.3, 0.2, 0.2, 0.3]), rng.choice(4, n, p=[0.5, 0.3, 0.15, 0.05])


@pytest.mark.parametrize(
    ("draw", "fpr", "m", "n", "truth"),
    [
        (normal(0), 0.01, 1000, 100, 0.01),
        (normal(0), 0.01, 50, 1000, 0.01),
        (normal(0), 0.1, 500, 200, 0.1),
        (normal(1), 0.01, 200, 500, ndtr(ndtri(0.01) + 1)),
        (normal(3), 0.001, 100, 4000, ndtr(ndtri(0.001) + 3)),
        (laplace, 0.1, 1000, 300, 0.1 * np.e),
        (tied, 0.1, 300, 300, 0.3),
        (tied, 0.1, 1000, 100, 0.3),
    ],
)
def test_the_band_covers_the_tpr_at_the_true_fpr(draw, fpr, m, n, truth):
    found = limits(draw, m, n, fpr)
    # Each limit errs in 2.5% of audits at most; 1,000 of them allow for two standard errors more.
    assert np.mean(found[:, 0] > truth + 1e-12) <= 0.035
    assert np.mean(found[:, 1] < truth - 1e-12) <= 0.035


def test_without_memorization_p_values_are_uniform_or_higher():
    for m, n, fpr in ((1000, 100, 0.01), (30, 400, 0.1), (200, 1000, 0.001)):
        p_values = []
        for seed in range(AUDITS):
            rng = np.random.default_rng(seed)
            p_values.append(tpr_p_value(rng.normal(0, 1, m), rng.normal(0, 1, n), fpr))
        for level in (0.01, 0.05, 0.3):
            slack = 2 * np.sqrt(level / AUDITS)
            assert np.mean(np.array(p_values) <= level) <= level + slack


def test_the_p_value_counts_orders():
    # All ways in which 3 in scores can lie among 5 out scores, one allowed above the threshold.
    counts = []
    for places in itertools.combinations(range(8), 3):
        outs = [place for place in range(8) if place not in places]
        counts.append(np.sum(np.array(places) > sorted(outs)[-2]))
    for hits in range(4):
        ins = [10.0] * hits + [0.5] * (3 - hits)
        expected = np.mean(np.array(counts) >= hits)
        assert tpr_p_value(ins, [1.0, 2.0, 3.0, 4.0, 5.0], 0.2) == pytest.approx(expected)


def test_ties_count_against_the_canaries():
    ins, outs = [1.0] * 50, [0.0] + [1.0] * 99
    assert tpr_p_value(ins, outs, 0.1) == 1.0
    assert tpr_at_fpr(ins, outs, 0.1).low == 0.0


def test_where_references_are_few_the_lower_limit_is_zero_and_says_what_it_takes():
    few = tpr_at_fpr([9.0] * 500, np.arange(5, 0, -0.0025), 0.001)
    assert few.low == 0.0
    assert few.value == 1.0
    assert "3,688" in few.warnings[0]
    enough = tpr_at_fpr([9.0] * 500, np.linspace(0, 5, 3688), 0.001)
    assert enough.low > 0.9
    assert not enough.warnings
