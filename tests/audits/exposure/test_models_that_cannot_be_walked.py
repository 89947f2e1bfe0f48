"""Models that score, or only write: audits measure what they can, agree with a walk where one is possible, and say what they cannot."""

import pytest
import torch

from coalmine import Canary, CanarySet, Format, expose, extract
from coalmine.errors import NotMeasurableError
from models.random_networks import random_model
from oracles import brute_force_bits

PIN = Format("pin {digits:3}")


class OnlySome:
    """A model of which only some methods are there."""

    def __init__(self, model, *offered):
        for name in ("name", "tokenizer", "context", "resolution_bits", "describe", *offered):
            setattr(self, name, getattr(model, name))


@pytest.fixture(scope="module")
def model():
    return random_model("lstm", dtype=torch.float64)


@pytest.fixture(scope="module")
def canaries():
    texts = PIN.sample(6, seed=1, replace=False)
    drawn = [
        Canary(canary_id=f"c{i}", format_id="f0", text=text, repetitions=1, planted=i < 3)
        for i, text in enumerate(texts[:4])
    ]
    return CanarySet(drawn, {"f0": PIN}, references={"f0": texts[4:]})


def test_ranks_are_those_of_a_walk(model, canaries):
    scorer = OnlySome(model, "score")
    walked, scored = expose(model, canaries), expose(scorer, canaries)
    assert [one.rank for one in scored] == [one.rank for one in walked]
    assert {one.method for one in scored} == {"exact"}
    assert "incremental decoding" in scored.formats[0].why
    costs = sorted(brute_force_bits(model, member) for member in PIN)
    assert costs == pytest.approx(sorted(scored.candidates[0].log_perplexities_bits))


def test_a_space_too_large_to_score_each_is_split_and_never_extrapolated(model):
    form = Format("pin {digits:7}")
    results = expose(OnlySome(model, "score"), CanarySet.of(form, ["pin 4921000"]), samples=64)
    assert {one.method for one in results} == {"splitting"}
    assert "too many to rank them all" in results.formats[0].why


@pytest.mark.parametrize("method", ["bounded", "guided"])
def test_methods_that_walk_say_that_they_cannot(method, model, canaries):
    with pytest.raises(NotMeasurableError, match="does not support incremental decoding"):
        expose(OnlySome(model, "score"), canaries, method=method)


def test_a_model_that_only_writes_is_prompted(model):
    writer = OnlySome(model, "generate")
    written = extract(writer, PIN, method="prompt")
    assert not written.proven
    with pytest.raises(NotMeasurableError, match="the prompt method"):
        extract(writer, PIN)
    with pytest.raises(NotMeasurableError, match="does not give the probability"):
        expose(writer, CanarySet([], {"f0": PIN}))
