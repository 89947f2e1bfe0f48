"""The credible interval of epsilon: against a public tool's value and against drawing from the posterior."""

import math

import numpy as np
import pytest

from coalmine.errors import InputError
from coalmine.statistics import ThresholdCounts, joint_beta_interval
from coalmine.statistics.epsilon.estimates import EpsilonPosterior


def drawn_epsilons(counts, delta, draws=400_000):
    """Epsilon of rates that are drawn from their posterior: the least that allows all four inequalities."""
    rng = np.random.default_rng(0)
    tpr = rng.beta(counts.hits + 0.5, counts.trials - counts.hits + 0.5, draws)
    # Drawn as they are, because 1 minus a number close to 1 has few digits.
    fnr = 1 - tpr
    tnr = rng.beta(counts.others - counts.errors + 0.5, counts.errors + 0.5, draws)
    fpr = 1 - tnr
    ratios = [
        np.maximum(top - delta, 1e-300) / np.maximum(bottom, 1e-300)
        for top, bottom in ((tpr, fpr), (tnr, fnr), (fpr, tpr), (fnr, tnr))
    ]
    return np.log(np.maximum(np.max(ratios, axis=0), 1.0))


def test_the_golden_value():
    counts = ThresholdCounts(hits=487, trials=487, errors=512, others=513)
    estimate = joint_beta_interval(counts, delta=1e-5, confidence=0.9)
    # The tool's figures are 0.145 and 6.399; its integration leaves them 0.0004 of probability from the quantiles, and here are both.
    assert estimate.low == pytest.approx(0.145, abs=0.0015)
    assert estimate.high == pytest.approx(6.399, abs=0.02)
    posterior = EpsilonPosterior(counts, 1e-5)
    assert posterior.probability_of_at_most(0.145) == pytest.approx(0.05, abs=5e-4)
    assert posterior.probability_of_at_most(6.399) == pytest.approx(0.95, abs=5e-4)
    assert "credible" in estimate.method
    assert "not a confidence interval" in estimate.statement


@pytest.mark.parametrize(
    ("counts", "delta"),
    [
        (ThresholdCounts(90, 100, 10, 100), 0.0),
        (ThresholdCounts(50, 100, 50, 100), 0.0),
        (ThresholdCounts(3, 100, 0, 1000), 0.01),
        (ThresholdCounts(0, 5, 0, 5), 0.1),
        (ThresholdCounts(5, 50, 40, 50), 1e-3),
        (ThresholdCounts(600, 1000, 5000, 10_000), 1e-5),
        (ThresholdCounts(10_000, 10_000, 0, 10_000), 1e-5),
    ],
)
def test_the_quantiles_are_those_of_draws_from_the_posterior(counts, delta):
    drawn = drawn_epsilons(counts, delta)
    posterior = EpsilonPosterior(counts, delta)
    for share in (0.025, 0.25, 0.5, 0.75, 0.95):
        quantile = posterior.quantile(share)
        # A quantile may be 0 for a whole range of shares, because an epsilon below 0 is none.
        assert np.mean(drawn <= quantile + 1e-9) >= share - 0.004
        assert np.mean(drawn < quantile - 1e-9) <= share + 0.004


def test_the_posterior_is_a_distribution_and_the_interval_has_its_mass():
    posterior = EpsilonPosterior(ThresholdCounts(80, 100, 30, 120), 1e-4)
    masses = [posterior.probability_of_at_most(epsilon) for epsilon in np.linspace(0, 12, 60)]
    assert masses == sorted(masses)
    assert masses[-1] == pytest.approx(1.0, abs=1e-6)
    estimate = joint_beta_interval(ThresholdCounts(80, 100, 30, 120), delta=1e-4, confidence=0.8)
    mass = posterior.probability_of_at_most(estimate.high) - posterior.probability_of_at_most(estimate.low)
    assert mass == pytest.approx(0.8, abs=1e-4)
    assert estimate.low < estimate.value < estimate.high


@pytest.mark.parametrize("counts", [(5, 4, 0, 3), (-1, 4, 0, 3), (1, 4, 4, 3)])
def test_counts_that_are_none(counts):
    with pytest.raises(InputError):
        joint_beta_interval(ThresholdCounts(*counts))


@pytest.mark.parametrize("delta", [1.0, -0.1, math.nan])
def test_a_delta_that_is_none(delta):
    with pytest.raises(InputError):
        joint_beta_interval(ThresholdCounts(3, 4, 1, 4), delta=delta)
