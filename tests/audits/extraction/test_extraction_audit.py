"""Extraction: the least surprising members come out, with a proof, whatever the budget, the memory or the method."""

import pytest
import torch

from audits.poisoned_model import PoisonedModel
from coalmine import (
    Canary,
    CanarySet,
    Format,
    ScriptedModel,
    check,
    extract,
    findings_of,
    parse_policy,
    read_run,
)
from coalmine.audits import verify_extraction
from coalmine.audits.extraction.results import read_verified, save_verification
from coalmine.engines.engine import open_engine
from coalmine.errors import NoNumberError
from models.random_networks import random_model
from oracles import brute_force_bits

PIN = Format("pin {digits:4}")
DIGITS = "0123456789"
SSN = Format("My social security number is {ssn}")
TEXT = "My social security number is 078-05-1120"
CHARACTERS = "".join(sorted(set(TEXT + DIGITS)))


def test_search_and_brute_force_agree_with_the_oracle():
    model = random_model("lstm", dtype=torch.float64)
    form = Format("pin {digits:3}")
    costs = {member: brute_force_bits(model, member) for member in form}
    expected = sorted(costs, key=costs.__getitem__)[:7]
    for method in ("search", "brute"):
        result = extract(model, form, top=7, method=method)
        assert [one.text for one in result.found] == expected
        assert [one.place for one in result.found] == list(range(1, 8))
        assert result.proven


def test_the_papers_social_security_number():
    model = ScriptedModel(CHARACTERS, memory={TEXT: 0.001, "My social security number is 5": 0.01})
    found = extract(model, SSN, top=1)
    assert (found.found[0].text, found.proven) == (TEXT, True)
    # The first digit misleads a model that writes by itself; given the first digits, it completes the rest, as in section 3.
    assert TEXT not in [one.text for one in extract(model, SSN, method="prompt").found]
    completed = extract(model, SSN, method="prompt", given="My social security number is 078")
    assert (completed.found[0].text, completed.proven) == (TEXT, False)


def test_given_restricts_every_method():
    model = ScriptedModel(DIGITS, memory={"1234": 0.5, "1999": 0.25})
    for method in ("search", "brute"):
        result = extract(model, "{digits:4}", given="19", top=3, method=method)
        assert result.found[0].text == "1999"
        assert all(one.text.startswith("19") for one in result.found)


def test_a_budget_that_ends_gives_the_best_so_far_and_the_gap():
    model = random_model("gru", dtype=torch.float64)
    form = Format("{digits:3}")
    truth = min(brute_force_bits(model, member) for member in form)
    result = extract(model, form, top=1, budget=12)
    assert not result.proven
    assert result.certificate.expansions <= 12
    if result.found:
        best = result.found[0].log_perplexity_bits
        assert best - result.certificate.gap_bits - 1e-9 <= truth <= best + 1e-9
    else:
        assert result.certificate.gap_bits is None
        assert result.certificate.best_open_bits <= truth


def test_ties_come_in_the_order_of_the_format():
    result = extract(ScriptedModel(DIGITS), "{digits:3}", top=4)
    assert [one.text for one in result.found] == ["000", "001", "002", "003"]


@pytest.fixture(scope="module")
def engine():
    with open_engine("processes:2") as opened:
        yield opened


@pytest.fixture(scope="module")
def transformer():
    return random_model("transformer")


@pytest.mark.parametrize("method", ["search", "brute", "prompt"])
def test_every_method_gives_the_same_bytes_on_every_engine(method, engine, transformer, tmp_path):
    for place, one in (("here", None), ("there", engine)):
        extract(transformer, PIN, top=5, method=method, engine=one).save(tmp_path / place)
    here, there = ((tmp_path / place / "extraction.json").read_bytes() for place in ("here", "there"))
    assert here == there


@pytest.mark.parametrize("second", ["here", "processes"])
def test_a_larger_budget_resumes_on_any_engine(second, engine, transformer, tmp_path):
    form = Format("pin {digits:6}")
    spent = extract(transformer, form, top=3, budget=100, resume=tmp_path, engine=engine)
    assert (spent.proven, spent.certificate.expansions) == (False, 100)
    assert [path.name for path in tmp_path.iterdir()] == ["unfinished.units"], (
        "only the search itself is left"
    )
    # The same budget again changes nothing.
    assert extract(transformer, form, top=3, budget=100, resume=tmp_path) == spent
    more = extract(
        transformer,
        form,
        top=3,
        budget=300,
        resume=tmp_path,
        engine=engine if second == "processes" else None,
    )
    assert more.certificate.expansions == 300
    whole = extract(transformer, form, top=3, resume=tmp_path)
    assert whole.proven
    assert [one.text for one in whole.found] == [one.text for one in extract(transformer, form, top=3).found]
    assert not list(tmp_path.iterdir())


CODES = CanarySet(
    [
        Canary(canary_id=name, format_id=format_id, text=text, repetitions=4, planted=True)
        for name, format_id, text in (("a", "f0", "pin 12"), ("b", "f1", "code 34"), ("c", "f1", "code 99"))
    ],
    {"f0": Format("pin {digits:2}"), "f1": Format("code {digits:2}")},
)


@pytest.mark.parametrize("method", ["search", "brute"])
def test_a_format_that_cannot_be_searched_does_not_stop_others_and_is_not_called_safe(method, tmp_path):
    CODES.save(tmp_path / "canaries.json")
    whole = ScriptedModel("pin code 0123456789", memory={"code 34": 0.25})
    for model in (whole, PoisonedModel("pin code 0123456789", "pin 5", memory={"code 34": 0.25})):
        results, extractions = verify_extraction(model, CODES, method=method, top=1)
        facts = {"manifest_sha256": CODES.sha256, "model": model.describe()}
        save_verification(tmp_path, results, extractions, **facts)
    assert extractions == {"f1": verify_extraction(whole, CODES, method=method, top=1)[1]["f1"]}
    assert [(one.extracted, one.proven) for one in results] == [(False, False), (True, True), (False, True)]
    assert [one.problem is None for one in results] == [False, True, True]
    # Nothing is left of the earlier run.
    assert sorted(path.name for path in tmp_path.glob("extraction-*")) == ["extraction-f1.json"]
    assert list(read_verified(tmp_path).canaries) == results
    run = read_run(tmp_path)
    judged = check(run, parse_policy("min_canaries = 1\n[extraction]\nat_most_extracted = 1\n"))
    assert [rule.outcome for rule in judged.rules] == ["not_shown"]
    (unknown,) = [one for one in findings_of(run) if one.key == "extraction.canary" and one.subject == ("a",)]
    assert (unknown.code, unknown.status) == ("CM203", "not_measured")


def test_where_no_format_can_be_searched_it_is_one_sentence():
    with pytest.raises(NoNumberError, match="not finite"):
        extract(PoisonedModel("pin 0123456789", "pin 5"), "pin {digits:2}")
