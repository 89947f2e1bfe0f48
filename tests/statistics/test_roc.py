"""ROC, AUC and TPR at low FPR: against counting pairs, and by simulation."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine.errors import InputError, ModelOutputError, NotMeasurableError
from coalmine.statistics import RateEstimate, area_under_roc, roc_curve, tpr_at_fpr

SCORES = st.lists(st.integers(0, 6), min_size=1, max_size=12)


@given(SCORES, SCORES)
@settings(max_examples=80)
def test_the_area_counts_pairs_and_is_the_area_of_the_curve(ins, outs):
    pairs = np.mean([(a > b) + 0.5 * (a == b) for a in ins for b in outs])
    estimate = area_under_roc(ins, outs)
    if len({*ins, *outs}) == 1:
        assert estimate.status == tpr_at_fpr(ins, outs, 0.5).status == "not_measured"
        return
    assert estimate.value == pytest.approx(pairs)
    assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
    assert estimate.low < estimate.high
    fpr, tpr, _ = roc_curve(ins, outs)
    assert np.trapezoid(tpr, fpr) == pytest.approx(pairs)
    assert (fpr[0], tpr[0], fpr[-1], tpr[-1]) == (0, 0, 1, 1)


def partly_remembered(rng, count):
    """Half of the members are remembered perfectly, and the others not at all: the area varies most."""
    return np.where(rng.random(count) < 0.5, 10.0, rng.random(count))


@pytest.mark.parametrize(
    ("draw_in", "draw_out", "truth", "m", "n"),
    [
        (lambda r, k: r.normal(1, 1, k), lambda r, k: r.normal(0, 1, k), 0.7602, 60, 60),
        (partly_remembered, lambda r, k: r.random(k), 0.75, 20, 500),
        (lambda r, k: r.random(k) + 0.9, lambda r, k: r.random(k), 0.995, 40, 40),
        (lambda r, k: r.integers(0, 2, k), lambda r, k: r.integers(0, 2, k), 0.5, 30, 90),
        (lambda r, k: 2.0 * (r.random(k) < 0.98) - 0.5, lambda r, k: r.random(k), 0.98, 10, 10),
        (lambda r, k: r.standard_cauchy(k) + 6.31, lambda r, k: r.standard_cauchy(k), 0.9022, 5, 5),
    ],
)
def test_the_interval_of_the_area_covers(draw_in, draw_out, truth, m, n):
    covered = 0
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        estimate = area_under_roc(draw_in(rng, m), draw_out(rng, n))
        # No area where all scores are equal, which is no mistake.
        covered += estimate.value is None or estimate.low - 1e-4 <= truth <= estimate.high + 1e-4
    assert covered >= 940  # 95% of 1,000, less two standard errors


@given(SCORES, SCORES, st.sampled_from([0.1, 0.25, 0.5]))
@settings(max_examples=80)
def test_tpr_is_that_of_the_best_threshold_that_keeps_the_fpr(ins, outs, fpr):
    estimate = tpr_at_fpr(ins, outs, fpr)
    if len(outs) >= 1 / fpr and len({*ins, *outs}) == 1:
        assert estimate.status == "not_measured"
        return
    if len(outs) < 1 / fpr:
        assert estimate.status == "not_measured"
        assert estimate.value is estimate.low is estimate.high is None
        assert f"at least {math.ceil(1 / fpr)}" in estimate.statement
        return
    # Thresholds are references, or below all: whoever names one in between looked at the members.
    allowed = [t for t in [-1, *outs] if np.mean(np.array(outs) > t) <= fpr]
    assert estimate.value == pytest.approx(np.mean(np.array(ins) > min(allowed)))


@pytest.mark.parametrize(("fpr", "needed"), [(0.1, 10), (0.01, 100), (0.001, 1000)])
def test_the_number_of_references_that_an_fpr_needs(fpr, needed):
    assert tpr_at_fpr([1.0], np.zeros(needed - 1), fpr).status == "not_measured"
    assert tpr_at_fpr([1.0], np.zeros(needed), fpr).status == "measured"
    assert tpr_at_fpr([0.0], np.zeros(needed), fpr).status == "not_measured"


def test_the_interval_of_the_tpr_covers_at_its_own_threshold():
    covered, truth = 0, None
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        outs = rng.random(200)
        threshold = np.sort(outs)[-11]  # 10 of 200 above
        truth = 1 - max(0.0, threshold - 0.5)  # members are uniform on 0.5 to 1.5
        estimate = tpr_at_fpr(rng.random(50) + 0.5, outs, 0.05)
        covered += estimate.low <= truth <= estimate.high
    assert covered >= 950


def test_perfect_scores_do_not_make_an_interval_vanish():
    for estimate in (area_under_roc([1.0] * 30, [0.0] * 30), tpr_at_fpr([1.0] * 30, [0.0] * 30, 0.1)):
        assert estimate.value == estimate.high == 1.0
        assert estimate.low < 0.9


@pytest.mark.parametrize("measure", [area_under_roc, roc_curve, lambda a, b: tpr_at_fpr(a, b, 0.1)])
@pytest.mark.parametrize(
    ("ins", "outs", "error"),
    [
        ([], [1.0], NotMeasurableError),
        ([1.0], [], NotMeasurableError),
        ([math.nan], [1.0], ModelOutputError),
        ([1.0], [math.inf], ModelOutputError),
    ],
)
def test_bad_scores_are_an_error(measure, ins, outs, error):
    with pytest.raises(error):
        measure(ins, outs)


@pytest.mark.parametrize("fpr", [0.0, 1.0, -0.1, math.nan])
def test_an_fpr_that_is_none(fpr):
    with pytest.raises(InputError):
        tpr_at_fpr([1.0], [0.0], fpr)


@pytest.mark.parametrize("m", [1, 2, 5, 40])
def test_many_references_leave_nearly_the_interval_of_the_counts_alone(m):
    """All in scores above the threshold, or none: with 100,000 references the threshold is all but known."""
    references = np.arange(100_000.0)
    found = tpr_at_fpr(np.full(m, 1e6), references, fpr=0.1)
    assert found.low == pytest.approx(0.025 ** (1 / m), rel=0.02)
    assert found.high == 1.0
    found = tpr_at_fpr(np.full(m, -1.0), references, fpr=0.1)
    assert found.low == 0.0
    assert 1 - found.high == pytest.approx(0.025 ** (1 / m), rel=0.02)


@pytest.mark.parametrize(
    ("method", "fpr"), [("TPR at FPR 1%", 0.01), ("TPR at FPR 0.1 %", 0.001), ("another rate", None)]
)
def test_rates_of_earlier_versions_have_their_false_positive_rate_in_their_name(method, fpr):
    kept = msgspec.to_builtins(tpr_at_fpr([5.0], [1.0, 2.0], fpr=0.5))
    assert kept.pop("fpr") == 0.5
    assert msgspec.convert({**kept, "method": method}, RateEstimate).fpr == fpr
