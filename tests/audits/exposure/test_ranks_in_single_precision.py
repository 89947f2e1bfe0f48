"""Every member of a format as a canary of a real Llama in float32: ranks are those of the run's own scores, and of float64."""

import copy

import numpy as np
import pyarrow.parquet as pq
import pytest

from coalmine import CanarySet, Format, expose
from coalmine.audits import read_exposures
from coalmine.errors import ModelOutputError
from coalmine.models import from_transformers
from models.tiny_transformers import byte_fallback, rough_llama

FORM = Format("pin {digits:3}")


@pytest.fixture(scope="module")
def network():
    return rough_llama(len(byte_fallback()), seed=3)


@pytest.fixture(scope="module")
def single(network):
    return from_transformers(network, byte_fallback())


@pytest.fixture(scope="module")
def everyone():
    return CanarySet.of(FORM, list(FORM))


@pytest.fixture(scope="module")
def true_ranks(network, everyone):
    double = from_transformers(copy.deepcopy(network).double(), byte_fallback())
    results = expose(double, everyone, method="exact")
    assert all(one.estimate.low == one.estimate.high for one in results)  # as good as no near-ties in float64
    return np.array([one.rank for one in results])


def exposure_of(rank):
    return np.log2(FORM.size) - np.log2(rank)


def check(results, true_ranks):
    ranks = np.array([one.rank for one in results])
    lows, highs = (np.array([getattr(one.estimate, name) for one in results]) for name in ("low", "high"))
    opened = lows != highs
    assert (ranks == true_ranks)[~opened].all()
    assert (lows <= exposure_of(true_ranks) + 1e-9).all()
    assert (exposure_of(true_ranks) - 1e-9 <= highs).all()
    assert opened.mean() < 0.05
    assert sorted(ranks) == list(range(1, 1001))
    assert {one.estimate.status for one in results} == {"measured"}


def test_exact_ranks_are_those_of_the_scores_in_the_file(single, everyone, true_ranks, tmp_path):
    results = expose(single, everyone, method="exact")
    check(results, true_ranks)
    results.save(tmp_path)
    # Near-ties, of which some canaries have several, do not contradict the scores.
    assert read_exposures(tmp_path).results == results.results
    table = pq.read_table(tmp_path / "scores.parquet").to_pylist()
    costs, again = (
        {int(row["index"]): row["log_perplexity_bits"] for row in table if row["kind"] == kind}
        for kind in ("member", "canary")
    )
    assert again == costs
    every = np.sort(list(costs.values()))
    for canary, result in zip(everyone, results, strict=True):
        assert result.log_perplexity_bits == costs[FORM.index(canary.text)]
        assert result.rank == np.searchsorted(every, result.log_perplexity_bits, side="right")
    resolution = results.formats[0].resolution
    assert 0 < resolution.measured_bits < resolution.at(100.0) < 5e-3 * 100 / 32


@pytest.mark.parametrize("method", ["bounded", "guided"])
def test_ranks_that_are_proven_by_a_search(single, everyone, true_ranks, method):
    check(expose(single, everyone, method=method, batch=100), true_ranks)


@pytest.mark.parametrize("method", ["exact", "bounded", "guided"])
def test_a_walk_that_is_off_by_more_than_rounding_is_refused(network, everyone, method):
    class Off(type(from_transformers(network, byte_fallback()))):
        def step(self, states, parents, tokens, *, columns=None):
            step = super().step(states, parents, tokens, columns=columns)
            return step._replace(log2_probabilities=step.log2_probabilities * (1 + 1e-3))

    model = from_transformers(network, byte_fallback())
    model.__class__ = Off
    with pytest.raises(ModelOutputError, match="differently"):
        expose(model, everyone, method=method)
