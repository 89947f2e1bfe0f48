"""Exposure of canaries: ranks against brute force, identity and order, and what cannot be measured."""

import math
import stat

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine import CanarySet, Format, ScriptedModel, expose
from coalmine.audits import read_exposures
from coalmine.audits.exposure.estimators import ESTIMATORS, METHODS
from models.random_networks import ARCHITECTURES, random_model
from oracles import brute_force_ranks, exact_ranks

DIGITS = "0123456789"


def canaries_of(form, *, planted=4, references=20, seed=1):
    return CanarySet.of(form, form.sample(planted, seed, replace=False), references=references, seed=seed)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_exact_ranks_equal_brute_force(architecture):
    # Double precision, so that both ways of computing agree on which of two members comes first.
    model = random_model(architecture, dtype=torch.float64)
    form = Format("the pin is {digits:3}")
    canaries = canaries_of(form, planted=10)
    results = expose(model, canaries, method="exact")
    assert [result.rank for result in results] == brute_force_ranks(model, form, [c.text for c in canaries])


@settings(max_examples=30)
@given(
    memory=st.dictionaries(st.integers(0, 99), st.integers(1, 5), max_size=5),
    frequencies=st.fixed_dictionaries({digit: st.integers(1, 3) for digit in DIGITS}),
    seed=st.integers(0, 1000),
)
def test_ties_count_as_the_definition_says(memory, frequencies, seed):
    weights = {f"n{index:02}": weight / 64 for index, weight in memory.items()}
    model = ScriptedModel("n" + DIGITS, memory=weights, frequencies=frequencies)
    form = Format("n{digits:2}")
    canaries = canaries_of(form, planted=5, seed=seed)
    ranks = [result.rank for result in expose(model, canaries, method="exact")]
    assert ranks == exact_ranks(model, form, [canary.text for canary in canaries])


def test_order_and_identity_are_kept():
    first, second = Format("a{digits:2}"), Format("b{digits:2}")
    one, two = canaries_of(first), canaries_of(second)
    renamed = [
        canary.__class__(
            canary_id=f"{letter}{place}", format_id=letter, text=canary.text, repetitions=1, planted=True
        )
        for letter, group in (("x", one), ("y", two))
        for place, canary in enumerate(group)
    ]
    mixed = [renamed[place] for place in (5, 0, 7, 2, 1, 6, 4, 3)]
    both = CanarySet(mixed, {"x": first, "y": second})
    model = ScriptedModel("ab" + DIGITS, frequencies={"7": 5, "1": 2})
    results = expose(model, both, method="exact")
    assert [result.canary_id for result in results] == [canary.canary_id for canary in mixed]
    for result, canary in zip(results, mixed, strict=True):
        assert result.rank == exact_ranks(model, both.format_of(canary), [canary.text])[0]


@pytest.mark.parametrize("method", ["sampled", "references"])
def test_estimates_agree_with_the_exact_exposure(method):
    model, canaries = random_model("lstm"), canaries_of(Format("{digits:5}"), planted=30, references=2000)
    exact = expose(model, canaries, method="exact")
    estimated = expose(model, canaries, method=method, samples=4000)
    pairs = zip(exact, estimated, strict=True)
    inside = [one.interval[0] <= truth.exposure <= one.interval[1] for truth, one in pairs]
    assert np.mean(inside) >= 0.85


@pytest.mark.parametrize("one", ESTIMATORS, ids=lambda one: one.name)
def test_an_estimator_keeps_to_its_record(one):
    canaries = CanarySet.of("pin {digits:3}", ["pin 490", "pin 117", "pin 555"], references=30, seed=1)
    model = ScriptedModel("pin 0123456789", memory={"pin 490": 0.2}, frequencies={"1": 4, "5": 9})
    found = expose(model, canaries, method=one.name, samples=400, budget=3)
    kinds = {rows.kind for rows in found.candidates}
    assert kinds - {"reference", "canary"} == {one.keeps} - {None, "reference"}
    if one.among_others:
        assert found[0].estimate.n == (30 if one.among == "references" else 400)
    assert one.is_evidence == (not found.tail_fits)


@pytest.mark.parametrize("method", METHODS)
def test_no_limit_is_above_what_is_possible(method):
    """Of canaries at ranks 1 to 4 in a space of a hundred, which so few references or samples hardly bound."""
    model = ScriptedModel("pin 0123456789", memory={f"pin 4{digit}": 0.1 / (1 + digit) for digit in range(4)})
    canaries = CanarySet.of("pin {digits:2}", [f"pin 4{digit}" for digit in range(4)], references=90)
    for one in expose(model, canaries, method=method, samples=500):
        limits = [limit for limit in (*one.interval, one.exposure) if limit is not None]
        assert max(limits) <= one.most_possible_bits == math.log2(100)


def test_results_on_disk(tmp_path):
    form = Format("{digits:3}")
    canaries = canaries_of(form)
    model = ScriptedModel(DIGITS, memory={canaries[0].text: 0.25}, frequencies={"3": 2})
    expose(model, canaries).save(tmp_path / "one")
    expose(model, canaries).save(tmp_path / "two")
    for name in ("exposure.json", "scores.parquet"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
        assert stat.S_IMODE((tmp_path / "one" / name).stat().st_mode) == 0o600
    document = read_exposures(tmp_path / "one")
    assert [result.canary_id for result in document.results] == [canary.canary_id for canary in canaries]
    assert canaries[0].text not in (tmp_path / "one" / "exposure.json").read_text()
    table = pq.read_table(tmp_path / "one" / "scores.parquet")
    assert table.num_rows == 1000 + 4  # all members, and again the canaries
    place = table.column("index").to_pylist().index(str(form.index(canaries[0].text)))
    bits = table.column("log_perplexity_bits").to_pylist()[place]
    assert bits == pytest.approx(model.log_perplexity_bits(canaries[0].text))
