"""Extraction: the least surprising members come out, with a proof, whatever the budget, the memory or the method."""

import torch

from coalmine import CanarySet, Format, ScriptedModel, extract
from coalmine.audits import verify_extraction
from models.random_networks import random_model
from oracles import brute_force_bits

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
    assert found.found[0].text == TEXT
    assert found.proven
    # The first digit misleads a model that writes by itself; given the first digits, it completes the rest, as in section 3.
    assert TEXT not in [one.text for one in extract(model, SSN, method="prompt").found]
    completed = extract(model, SSN, method="prompt", given="My social security number is 078")
    assert completed.found[0].text == TEXT
    assert not completed.proven


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


def test_a_larger_budget_goes_on_from_a_smaller_one(tmp_path):
    model = random_model("lstm", dtype=torch.float64)
    whole = extract(model, "{digits:4}", top=5)
    budget, rounds = 30, 0
    while True:
        result = extract(model, "{digits:4}", top=5, budget=budget, resume=tmp_path)
        rounds += 1
        assert result.certificate.expansions <= budget
        if result.proven:
            break
        assert len(list(tmp_path.glob("unfinished.units"))) == 1
        budget += 300
    assert rounds > 1
    assert [one.text for one in result.found] == [one.text for one in whole.found]
    assert not list(tmp_path.iterdir())


def test_verifying_canaries():
    form = Format("pin {digits:4}")
    texts = form.sample(3, seed=1, replace=False)
    canaries = CanarySet.of(form, texts[:2], repetitions=[8, 1], withheld=texts[2:], withheld_repetitions=1)
    model = ScriptedModel("pin " + DIGITS, memory={texts[0]: 0.25}, frequencies={"7": 3})
    results, extractions = verify_extraction(model, canaries, top=5)
    assert [one.canary_id for one in results] == [canary.canary_id for canary in canaries]
    assert [one.extracted for one in results] == [True, False, False]
    assert results[0].place == 1
    assert 0 < results[0].expansions <= extractions["f0"].certificate.expansions
    assert all(one.proven for one in results)


def test_ties_come_in_the_order_of_the_format():
    result = extract(ScriptedModel(DIGITS), "{digits:3}", top=4)
    assert [one.text for one in result.found] == ["000", "001", "002", "003"]
