"""Limits at other levels, and how much more measuring would decide: against SciPy's distributions, and at each boundary."""

import math

import pytest
from scipy import stats

from coalmine.audits.exposure.policy import bits, lower_limit, others_needed
from coalmine.evidence.limits import scores_needed
from coalmine.statistics import clopper_pearson
from reports.verdict_parts import interval


def ranked(better, n, method="references"):
    """A canary that so many of n references, or samples, are no more surprising than."""
    added = 1 if method == "references" else 0
    value = None if better == 0 else math.log2(n / (better + added))
    low = -math.log2(stats.beta.ppf(0.975, better + 1, n - better)) if better < n else 0.0
    return interval(value, low, None if value is None else value + 1.0, method=method, n=n)


def test_other_limits_widen_as_a_normal_error_does_or_one_of_few_runs():
    guided = interval(12.0, 10.0, 14.0)
    for level in (0.96, 0.99, 0.999):
        normal = stats.norm.ppf(0.5 + level / 2) / stats.norm.ppf(0.975)
        assert lower_limit(guided, level) == pytest.approx(12.0 - 2.0 * normal)
        few = stats.t.ppf(0.5 + level / 2, 7) / stats.t.ppf(0.975, 7)
        split = interval(12.0, 10.0, 14.0, method="splitting")
        assert lower_limit(split, level) == pytest.approx(12.0 - 2.0 * few)
    # Without a value, from the upper limit.
    bound = interval(None, 10.0, 14.0)
    normal = stats.norm.ppf(0.995) / stats.norm.ppf(0.975)
    assert lower_limit(bound, 0.99) == pytest.approx(14.0 - 4.0 * normal)


def test_limits_that_stay_and_limits_that_cannot_be_widened():
    assert lower_limit(interval(12.0, 12.0, 12.0, confidence=None), 0.999) == 12.0
    nothing_above = interval(None, 10.0, None)
    assert lower_limit(nothing_above, 0.95) == lower_limit(nothing_above, 0.9) == 10.0
    assert lower_limit(nothing_above, 0.951) == -math.inf
    assert lower_limit(interval(12.0, 10.0, 14.0, confidence=0.0), 0.95) == -math.inf


@pytest.mark.parametrize(("better", "n"), [(0, 1000), (3, 500), (40, 50)])
def test_ranks_give_the_exact_limit_at_any_level(better, n):
    for method in ("references", "sampled"):
        estimate = ranked(better, n, method)
        exact = -math.log2(stats.beta.ppf(1 - 0.001 / 2, better + 1, n - better))
        assert lower_limit(estimate, 0.999) == pytest.approx(exact)
    # A limit that is lower already stays: it was widened to the value.
    lowered = interval(estimate.value, 0.0, estimate.high, method="references", n=n)
    assert lower_limit(lowered, 0.999) == 0.0


def test_bits_of_a_probability():
    assert bits(0.0) == bits(-1e-20) == math.inf
    assert bits(0.25) == 2.0
    assert math.copysign(1.0, bits(1.0)) == 1.0


def decides(better, n, limit, chance_level, canaries):
    """Whether a rank is above the limit beyond chance, or within it, by SciPy."""
    low_p = stats.beta.ppf(0.025, better, n - better + 1) if better else 0.0
    high_p = stats.beta.ppf(0.975, better + 1, n - better) if better < n else 1.0
    above = high_p < 2.0**-limit and 2 * canaries * (better + 1) / (n + 1) <= chance_level
    return above or low_p >= 2.0**-limit


@pytest.mark.parametrize(
    ("better", "n", "limit", "canaries"),
    [
        (0, 1000, 10.0, 1),
        (0, 1000, 8.3, 40),
        (5, 1000, 8.0, 3),
        (5, 1000, 7.0, 1),
        (1, 4000, 10.0, 2),
        (2, 40, 5.0, 1),
    ],
)
def test_as_many_references_as_are_advised_decide_and_far_fewer_do_not(better, n, limit, canaries):
    share = better / n
    needed = others_needed(ranked(better, n), limit, 0.95, 0.025, canaries)
    # About: it grows by a quarter at a time, and is rounded up to two digits.
    assert needed > n
    assert decides(math.floor(share * needed), needed, limit, 0.025, canaries)
    assert needed == 2 * n or not decides(
        math.floor(share * needed / 1.4), needed // 1.4, limit, 0.025, canaries
    )


def test_how_many_are_advised_to_the_number():
    # 20 * 1 / 1001 is what chance gives ten canaries that beat all of 1,000 references: just allowed, then just not.
    best = ranked(0, 500)
    for allowed, needed in ((20 / 1001, 1000), (20 / 1001.5, 1300), (19.5 / 1001, 1300), (15 / 1001, 1600)):
        assert others_needed(best, 1.0, 0.95, allowed, 10) == needed
    # Of a share of 1 in 500, by 20 * (count + 1) / (n + 1): 60 / 1251 is too much, and 80 / 1955 is not.
    assert others_needed(ranked(1, 500), 1.0, 0.95, 0.045, 10) == 2000
    # From a single reference: 1 - 0.025^(1/n) is below one half from n = 6 on, and below a quarter from 13 on.
    assert others_needed(ranked(0, 1), 1.0, 0.95, 1.0, 1) == 7  # 2, 3, 4, 5, 7: up by a quarter each time
    assert others_needed(ranked(0, 1), 2.0, 0.95, 1.0, 1) == 15
    # At a limit that is met exactly, the upper limit is within it and the lower one is not above it.
    worst = interval(0.0, 0.0, 1.0, method="references", n=4)
    assert others_needed(worst, bits(clopper_pearson(8, 8, 0.95)[0]), 0.95, 0.025, 1) == 8
    assert others_needed(ranked(0, 500), bits(clopper_pearson(0, 1000, 0.95)[1]), 0.95, 1.0, 1) == 1300


def test_no_more_than_ten_million_are_advised():
    assert others_needed(ranked(0, 5_000_000), 21.0, 0.95, 0.025, 1) == 10_000_000
    assert others_needed(ranked(0, 5_000_001), 21.0, 0.95, 0.025, 1) is None
    # A share that is at the limit is decided by no number.
    assert others_needed(ranked(1, 4, "sampled"), 2.0, 0.95, 0.025, 1) is None
    assert others_needed(interval(12.0, 10.0, 14.0), 10.0, 0.95, 0.025, 1) is None


@pytest.mark.parametrize(
    ("value", "low", "high", "limit", "n", "needed"),
    [
        (0.5, 0.25, 0.875, 0.625, 50, 450),  # 3/8 above the value and 1/8 to go: nine times as many
        (0.5, 0.25, 0.875, 0.375, 50, 200),  # 1/4 below it
        (0.5, 0.4, 0.6, 0.7, 50, 51),  # decided already; one more at least
        (0.5, 0.4, 0.6, 0.7, 5, 6),
        (0.25, 0.0, 0.75, 0.625, 5, 9),  # 8.9, and not fewer
        (0.5, 0.3, 0.7, 0.63, 47, 120),  # 111.2, up to two digits
        (0.5, 0.3, 0.7, 0.5, 50, None),  # at the limit
        (0.5, 0.3, 0.5, 0.6, 50, None),  # no width
        (1e-9, 0.0, 2e-9, 0.0, 50, None),  # as near as numbers go
        (0.25, 0.0, 0.75, 0.5, 2_500_000, 10_000_000),
        (0.25, 0.0, 0.75, 0.5, 2_500_001, None),
        (0.25, 0.0, 0.75, 0.75, 10_000_001, None),
        (None, 0.3, 0.7, 0.6, 50, None),
        (0.5, None, 0.7, 0.6, 50, None),
        (0.5, 0.3, None, 0.6, 50, None),
    ],
)
def test_scores_that_would_decide_a_rate(value, low, high, limit, n, needed):
    assert scores_needed(interval(value, low, high), limit, n) == needed
