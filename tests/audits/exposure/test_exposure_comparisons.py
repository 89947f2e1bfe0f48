"""Whatever the method, `expose` scores what membership compares with, once, and what membership says agrees with exposure."""

import math

import numpy as np
import pytest

from coalmine import Canary, CanarySet, Format, ScriptedModel, expose, membership
from coalmine.audits.exposure.estimators import METHODS, estimator_of
from coalmine.audits.membership.populations import load_source, populations

FORM = Format("pin {digits:4}")
REFERENCES = 60


@pytest.fixture(scope="module")
def canaries():
    texts = FORM.sample(8 + REFERENCES, seed=4, replace=False)
    listed = [
        Canary(canary_id=f"c{i}", format_id="f0", text=text, repetitions=4, planted=i % 2 == 0)
        for i, text in enumerate(texts[:8])
    ]
    return CanarySet(listed, {"f0": FORM}, references={"f0": texts[8:]}, withhold=0.5)


def model_of(canaries):
    frequencies = {str(digit): 3 + digit for digit in range(10)}
    return ScriptedModel("pin 0123456789", memory={canaries[0].text: 0.2}, frequencies=frequencies)


def rows(results, kind):
    (found,) = [one for one in results.candidates if one.kind == kind]
    return found


@pytest.mark.parametrize("method", METHODS)
def test_references_and_canaries_are_scored_by_every_method(canaries, method, tmp_path):
    model = model_of(canaries)
    results = expose(model, canaries, method=method, samples=300, budget=20)
    assert len(rows(results, "canary").indices) == 8
    if estimator_of(results[0].method).keeps == "member":
        return  # all members, and the references among them
    references, own = rows(results, "reference"), rows(results, "canary")
    assert [FORM.at(int(index)) for index in references.indices] == list(canaries.references["f0"])
    assert [FORM.at(int(index)) for index in own.indices] == [canary.text for canary in canaries]
    truth = [-math.log2(float(model.probability(text))) for text in canaries.references["f0"]]
    assert references.log_perplexities_bits == pytest.approx(np.array(truth), abs=1e-9)
    assert own.log_perplexities_bits.tolist() == [result.log_perplexity_bits for result in results]
    # From files it is the same, and membership has its comparisons.
    results.save(tmp_path)
    found = membership(tmp_path)
    assert found == membership(results)
    (one,) = found.populations
    assert (one.in_count, one.withheld_count) == (4, 4)
    assert one.out_count >= 4 + REFERENCES


def test_no_canary_is_among_what_canaries_are_compared_with(canaries):
    # Many members share one score, so that only the index tells a canary from others.
    flat = ScriptedModel("pin 0123456789", memory={canaries[0].text: 0.2})
    texts = {canary.text for canary in canaries}
    sampled = FORM.sample_indices(5_000, 0)
    expected = {
        "exact": FORM.size - 8,
        "guided": REFERENCES,
        "sampled": sum(FORM.at(index) not in texts for index in sampled),
    }
    assert expected["sampled"] < 5_000
    for method, others in expected.items():
        (one,), _ = populations(load_source(expose(flat, canaries, method=method, samples=5_000)))
        assert len(one.scores.out_scores) == 4 + others
