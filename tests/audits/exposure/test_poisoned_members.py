"""A model that gives no number for some members: their canaries are not measured, and all others are, as far as can be known."""

import math

import numpy as np
import pytest

from audits.poisoned_model import PoisonedModel
from coalmine import (
    Canary,
    CanarySet,
    Format,
    ScriptedModel,
    check,
    expose,
    membership,
    parse_policy,
    read_run,
)
from coalmine.audits import read_exposures

PIN = Format("pin {digits:3}")
CHARACTERS = "pin 0123456789"
TEXTS = ["pin 123", "pin 457", "pin 901", "pin 002"]
LIKELY = {"1": 9, "4": 3}
CANARIES = CanarySet(
    [
        Canary(canary_id=f"c{place}", format_id="f0", text=text, repetitions=4, planted=place < 3)
        for place, text in enumerate(TEXTS)
    ],
    {"f0": PIN},
    references={"f0": [text for text in PIN.sample(60, seed=6, replace=False) if text not in TEXTS]},
)
WHOLE = ScriptedModel(CHARACTERS, frequencies=LIKELY)
# Ten members without a number, one of which is a canary; and a thousandth of the space, which is none.
BELOW_A_CANARY, ELSEWHERE = "pin 45", "pin 666"


def poisoned(poison, value=np.nan):
    return PoisonedModel(CHARACTERS, poison, frequencies=LIKELY, value=value)


@pytest.fixture(scope="module")
def truth():
    return expose(WHOLE, CANARIES, method="exact")


@pytest.mark.parametrize("method", ["exact", "bounded", "guided", "sampled", "references", "splitting"])
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_a_canary_without_a_number_does_not_stop_the_others(method, value, truth, tmp_path):
    found = expose(poisoned(BELOW_A_CANARY, value), CANARIES, method=method, samples=600)
    lost = found[1]
    assert (lost.canary_id, lost.estimate.status, lost.known_log_perplexity_bits) == (
        "c1",
        "not_measured",
        None,
    )
    assert " as the log-perplexity of a text; no conclusion" in lost.estimate.statement
    for one, exact in zip(found, truth, strict=True):
        if one is not lost:
            low, high = one.interval
            assert one.estimate.status != "not_measured"
            assert one.log_perplexity_bits == exact.log_perplexity_bits
            assert low <= exact.exposure + 1e-9
            assert high is None or high >= exact.exposure - 1e-9
    found.save(tmp_path)
    assert (
        read_exposures(tmp_path).results == found.results
    )  # and nothing in it contradicts the scores beside it


@pytest.mark.parametrize("method", ["exact", "bounded"])
def test_a_rank_has_bounds_where_members_have_no_number(method, truth):
    found = expose(poisoned(ELSEWHERE), CANARIES, method=method)
    for one, exact in zip(found, truth, strict=True):
        assert (one.method, one.rank, one.exposure) == ("bounded", None, None)
        counted = exact.rank - (
            1 if exact.log_perplexity_bits + 1e-9 >= WHOLE.log_perplexity_bits(ELSEWHERE) else 0
        )
        assert one.interval == pytest.approx((math.log2(1000 / (counted + 1)), math.log2(1000 / counted)))
        assert one.estimate.warnings == (
            "no number by this model for 1 of the members, which may be more or less surprising than the canary",
        )


def test_the_gate_says_what_is_missing_and_membership_goes_on(tmp_path):
    CANARIES.save(tmp_path / "canaries.json")
    expose(poisoned(BELOW_A_CANARY), CANARIES).save(tmp_path / "exposure")
    run = read_run(tmp_path)
    judged = check(
        run, parse_policy("min_canaries = 1\nrequire = ['exposure']\n[exposure]\nat_most = 60.0\n")
    )
    assert judged.exit_code != 0
    outcomes = " ".join(one.evidence for one in judged.rules)
    assert "c1" in outcomes
    found = membership(tmp_path / "exposure")
    assert [one.in_count for one in found.populations] == [2]
    assert any("1 of 4 canaries of format" in one for one in found.warnings)
