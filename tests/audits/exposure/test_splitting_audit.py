"""Exposure by splitting, from a model that only scores: against ranks by counting, and for a canary that nothing leads to."""

import math

import numpy as np
import pytest

from coalmine import CanarySet, Format, expose
from coalmine.models import CharacterTokenizer, SequenceScore

FIVE = Format("{digits:5}")
RANKS = (1, 5, 50, 1_000, 20_000, 70_000)


class OnlyScores:
    """A model of texts from a table of costs."""

    name, context, resolution_bits = "table", (), 1e-9
    tokenizer = CharacterTokenizer("0123456789")

    def __init__(self, costs):
        self.costs = costs

    def describe(self):
        return {"adapter": "table"}

    def score(self, sequences, *, ranks=False):
        raise NotImplementedError

    def score_text(self, texts):
        return [
            SequenceScore(np.array([-cost]), np.zeros(1, dtype=bool), None)
            for cost in self.costs[[int(text) for text in texts]].tolist()
        ]


@pytest.fixture(scope="module")
def costs():
    """Each digit has a cost, neighboring digits interact, and the rest is noise: smooth, but not too much so."""
    generator = np.random.default_rng(0)
    digits = np.arange(100_000)[:, None] // 10 ** np.arange(4, -1, -1) % 10
    single, pairs = generator.normal(0, 1.5, (5, 10)), generator.normal(0, 1, (4, 10, 10))
    total = sum(single[place, digits[:, place]] for place in range(5))
    total += sum(pairs[place, digits[:, place], digits[:, place + 1]] for place in range(4))
    return 30 + total + generator.normal(0, 0.5, 100_000)


def canaries_of(costs):
    order = np.argsort(costs)
    return CanarySet.of(FIVE, [FIVE.at(int(order[rank - 1])) for rank in RANKS])


def test_intervals_hold_the_true_exposures_from_the_first_rank_to_the_last(costs):
    found = [
        expose(OnlyScores(costs), canaries_of(costs), method="splitting", samples=480, seed=seed)
        for seed in range(4)
    ]
    truth = math.log2(FIVE.size) - np.log2(RANKS)
    held = np.array(
        [
            [
                one.interval[0] - 1e-9 <= bits <= one.interval[1] + 1e-9
                for one, bits in zip(run, truth, strict=True)
            ]
            for run in found
        ]
    )
    assert held.mean() >= 0.9, held
    for run in found:
        assert {one.method for one in run} == {"splitting"}
        assert [one.exposure for one in run[3:]] == pytest.approx(truth[3:].tolist(), abs=1.0)
        # Beyond what as many uniform draws could show, and from a small part of the space.
        assert run[0].interval[0] > 10
        assert run[0].estimate.n < 25_000


def test_a_canary_that_nothing_leads_to_has_a_bound_and_no_value(costs):
    lonely = costs.copy()
    lonely[31_415] = 1.0
    (result,) = expose(OnlyScores(lonely), CanarySet.of(FIVE, ["31415"]), method="splitting", samples=480)
    assert result.estimate.status == "lower_bound"
    assert result.exposure is None
    assert 8 < result.interval[0] <= result.interval[1] == math.log2(FIVE.size)
