"""Trainings compared by canaries that share few references: how often their intervals have the truth, and what they rest on."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from msgspec.structs import replace
from scipy.optimize import brentq
from scipy.stats import beta

from audits.compared_runs import MANY, strategy, strategy_among
from coalmine.audits import compare_runs
from coalmine.audits.comparison.measure import compare
from coalmine.statistics import paired_difference

SPREAD = 0.4
# Five of fifty references are no more surprising than any canary of this training.
REFERENCES, BELOW = 50, 5


def exposure_at(share):
    """The exposure that such canaries exceed with this probability; each is between two references, at an end that a coin decides."""
    ends = (beta(BELOW, REFERENCES - BELOW + 1), beta(BELOW + 1, REFERENCES - BELOW))
    return -math.log2(brentq(lambda p: sum(end.cdf(p) for end in ends) / 2 - share, 1e-6, 1 - 1e-6))


def test_the_limits_and_the_p_value_are_those_of_a_place_among_references():
    few = strategy_among("few", np.full(12, BELOW - 0.5), np.arange(float(REFERENCES)))
    other = exposure_at(0.98)  # one in fifty that the difference is no more than nothing
    known = strategy("known", [other] * 12, template="pin {digits:9}")
    found = compare([few, known])
    # All canaries are at one place, so that all of the interval is the error of references.
    median, [pair] = found.runs[0].exposure, found.pairs
    assert median.value == pytest.approx(math.log2((REFERENCES + 1) / (BELOW + 1)), abs=0.2)
    for estimate, shift in ((median, 0.0), (pair.exposure.estimate, other)):
        assert estimate.low == pytest.approx(exposure_at(0.975) - shift, abs=0.06)
        assert estimate.high == pytest.approx(exposure_at(0.025) - shift, abs=0.06)
    assert pair.exposure.p_value == pytest.approx(2 * 0.02, rel=0.15)
    [turned] = compare([known, few]).pairs
    assert turned.exposure.estimate.low == pytest.approx(-pair.exposure.estimate.high, abs=0.06)


def drawn(chance, *, references, canaries, better, correlation):
    """Scores of canaries, and of references, under two models; a canary is `better` standard deviations less surprising."""
    mix = np.linalg.cholesky([[1.0, correlation], [correlation, 1.0]]).T
    others = chance.standard_normal((references, 2)) @ mix
    own = SPREAD * (chance.standard_normal((canaries, 2)) @ mix) - np.array(better)
    return own, others


def true_exposure(better):
    """The mean and the median over all canaries among all references, by a sum over a fine grid."""
    normal = NormalDist()
    scores = [SPREAD * normal.inv_cdf((place + 0.5) / 2_000) - better for place in range(2_000)]
    bits = [-math.log2(normal.cdf(score)) for score in scores]
    return float(np.mean(bits)), float(np.median(bits))


def coverage(trials, *, seed=0, apart=False, **setting):
    """Of the differences and medians that could be measured, the shares whose intervals have the truth, and that are significant.

    The first is that of intervals without the error of references.
    """
    chance = np.random.default_rng(seed)
    (first, middle), (second, _) = (true_exposure(better) for better in setting["better"])
    truth, tried, hits = first - second, 0, np.zeros(4)
    while tried < trials:
        own, others = drawn(chance, **setting)
        indices = [chance.integers(MANY, size=len(others)) for _ in "ab"] if apart else (None, None)
        runs = [
            strategy_among(name, own[:, side], others[:, side], indices=indices[side])
            for side, name in enumerate("ab")
        ]
        bits = [[result.exposure for result in run.exposure.results] for run in runs]
        if None in bits[0] + bits[1]:
            continue
        tried += 1
        found = compare(runs)
        [pair] = found.pairs
        alone = paired_difference(*bits)
        significant = pair.exposure.p_value <= 1 - 0.95
        intervals = (alone.estimate, truth), (pair.exposure.estimate, truth), (found.runs[0].exposure, middle)
        hits += [*(one.low <= number <= one.high for one, number in intervals), significant]
        check(alone, pair.exposure, significant)
    return hits / trials


def check(alone, widened, significant):
    """What holds for every difference: never narrower, never a smaller p-value, and the p-value and the interval agree."""
    assert widened.estimate.low <= alone.estimate.low <= alone.estimate.high <= widened.estimate.high
    assert widened.p_value >= alone.p_value
    assert significant == (not widened.estimate.low <= 0 <= widened.estimate.high)
    assert widened.estimate.value == alone.estimate.value


def two_runs(references=30, *, correlation=0.9, seed=3, **options):
    own, others = drawn(
        np.random.default_rng(seed),
        references=references,
        canaries=12,
        better=(0.8, 0.0),
        correlation=correlation,
    )
    return [strategy_among(name, own[:, side], others[:, side], **options) for side, name in enumerate("ab")]


def width(runs):
    [pair] = compare(runs).pairs
    return pair.exposure.estimate.high - pair.exposure.estimate.low


def test_intervals_have_the_error_of_few_references():
    before, after, median, _ = coverage(60, references=30, canaries=12, better=(0.8, 0.0), correlation=0.9)
    assert before < 0.75
    assert after >= 0.93
    assert median >= 0.93


def test_runs_with_other_references_have_it_too():
    before, after, _, significant = coverage(
        40, apart=True, references=30, canaries=6, better=(0.5, 0.5), correlation=0.0
    )
    assert before < after
    assert after >= 0.93
    assert significant <= 0.07


def test_the_error_that_two_runs_share_cancels_and_is_not_measured_without_scores():
    shared = two_runs()
    apart = [two_runs()[0], two_runs(indices=np.arange(1000, 1030))[1]]
    assert width(shared) < width(apart)
    found = compare([two_runs()[0]._replace(others={}), shared[1]])
    assert found.pairs[0].exposure is None
    assert found.runs[0].exposure.status == "not_measured"
    assert width(two_runs(method="sampled")) > 0


def test_the_scores_of_references_are_read_from_the_results(tmp_path):
    runs = two_runs()
    for run in runs:
        exposures = replace(run.exposure, model={"name": run.name})
        exposures.beside(list(run.others.values()))
        exposures.save(tmp_path / run.name)
    paths = [tmp_path / run.name for run in runs]
    assert compare_runs(paths).pairs == compare(runs).pairs
