"""Certificates of extraction: they hold the bound that the proof rests on, replay, and are rejected when anything is changed."""

import json

import msgspec
import pytest
import torch

from cli.in_process import run
from coalmine import Format, ScriptedModel, extract, load_model, verify_certificate
from coalmine.audits import read_extraction
from coalmine.errors import InputError
from coalmine.models import from_transformers
from models.random_networks import random_model
from models.tiny_transformers import byte_fallback, rough_llama
from resealing import resealed

FORM = Format("pin {digits:4}")
REPLACE = msgspec.structs.replace


@pytest.fixture(scope="module")
def llama():
    return from_transformers(rough_llama(len(byte_fallback())), byte_fallback())


@pytest.fixture(scope="module")
def honest(llama):
    return extract(llama, FORM, top=5)


def test_a_proven_search_holds_its_bound_and_replays(llama, honest):
    certificate = honest.certificate
    assert certificate.proven
    assert not certificate.exhausted
    assert certificate.best_open_bits >= honest.found[-1].log_perplexity_bits
    replay = verify_certificate(llama, honest)
    assert replay.confirmed, replay.problems
    assert 0 < replay.expansions <= certificate.expansions
    assert replay.problems == ()


@pytest.mark.parametrize("budget", [3, 40])
def test_a_search_that_proved_nothing_yet_replays_as_far_as_it_went(llama, budget):
    result = extract(llama, FORM, top=5, budget=budget)
    assert not result.proven
    replay = verify_certificate(llama, result)
    assert replay.confirmed, replay.problems


@pytest.mark.parametrize("method", ["search", "brute"])
def test_a_space_that_was_looked_at_as_a_whole_says_so(llama, method):
    form = Format("pin {digits:2}")
    result = extract(llama, form, top=100, method=method)
    assert (result.certificate.exhausted, result.certificate.best_open_bits) == (True, None)
    assert verify_certificate(llama, result).confirmed
    more = REPLACE(result, certificate=REPLACE(result.certificate, expansions=500))
    reason = {"search": "the whole tree has 10", "brute": "100 members were to be scored"}[method]
    assert reason in " ".join(verify_certificate(llama, more).problems)


@pytest.mark.parametrize("given", ["", "pin 7"])
def test_models_in_double_precision_and_known_beginnings(given):
    model = random_model("lstm", dtype=torch.float64, seed=2)
    assert verify_certificate(model, extract(model, FORM, top=3, given=given)).confirmed


class Alone(ScriptedModel):
    """A model that cannot be walked."""

    step = None
    mixes_depths = False


def test_a_model_that_is_scored_member_by_member():
    model = Alone("0123456789", frequencies={"3": 5, "7": 2.5})
    result = extract(model, Format("{digits:2}"), top=3)
    assert result.certificate.exhausted
    assert verify_certificate(model, result).confirmed
    more = REPLACE(result, certificate=REPLACE(result.certificate, expansions=101))
    assert "100 members were to be scored" in " ".join(verify_certificate(model, more).problems)


def test_a_member_that_was_left_out_is_missed_where_all_are_scored():
    model = Alone("0123456789", memory={"12": 0.2, "34": 0.1, "56": 0.05, "78": 0.02})
    result = extract(model, Format("{digits:2}"), top=4)
    first, _, third, fourth = result.found
    # The costs are true, the places are numbered, and one that costs less than the last is not there.
    found = tuple(REPLACE(one, place=place) for place, one in enumerate((first, third, fourth), start=1))
    replay = verify_certificate(model, REPLACE(result, found=found, top=3))
    assert [problem for problem in replay.problems if "is missing" in problem]
    assert verify_certificate(model, REPLACE(result, found=result.found[:3], top=3)).confirmed


def swap(found, place, **changes):
    return tuple(REPLACE(one, **changes) if one.place == place else one for one in found)


def tampered(honest):
    found, certificate = honest.found, honest.certificate
    other = next(text for text in FORM if text not in {one.text for one in found})
    bits = certificate.best_open_bits

    def bound(**changes):
        return REPLACE(honest, certificate=REPLACE(certificate, **changes))

    without = tuple(REPLACE(one, place=place) for place, one in enumerate((*found[:1], *found[2:]), start=1))
    return {
        "another member": (REPLACE(honest, found=swap(found, 2, text=other)), "at place 2 costs"),
        "not a member": (
            REPLACE(honest, found=swap(found, 2, text="pin 12x4")),
            "a text that is not a member",
        ),
        "a member twice": (REPLACE(honest, found=swap(found, 2, text=found[0].text)), "found twice"),
        "another cost": (
            REPLACE(honest, found=swap(found, 3, log_perplexity_bits=found[2].log_perplexity_bits + 0.002)),
            "at place 3 costs",
        ),
        "a lower cost": (
            REPLACE(honest, found=swap(found, 5, log_perplexity_bits=found[0].log_perplexity_bits)),
            "not in the order",
        ),
        "a higher bound": (bound(best_open_bits=bits + 0.5), "beyond the bound|too high"),
        "a slightly higher bound": (bound(best_open_bits=bits + 0.01), "beyond the bound"),
        "a bound below the last": (
            bound(best_open_bits=found[-1].log_perplexity_bits - 0.01),
            "does not prove that",
        ),
        "no bound": (bound(best_open_bits=None), "does not prove that"),
        "nothing left": (bound(best_open_bits=None, exhausted=True), "the whole tree has"),
        "a dropped member": (REPLACE(honest, found=without), "does not prove that"),
        "a dropped member, and fewer asked for": (REPLACE(honest, found=without, top=4), "is missing"),
        "another space": (REPLACE(honest, size="1000"), "its format has 10,000"),
        "a bound without end": (bound(best_open_bits=float("inf")), "does not prove that"),
        "a bound that is no number": (bound(best_open_bits=float("nan")), "does not prove that"),
        "a gap although proven": (bound(gap_bits=3.0), "the gap is 3"),
    }  # fmt: skip


def test_what_was_changed_is_rejected_with_the_reason(llama, honest):
    for case, (changed, reason) in tampered(honest).items():
        replay = verify_certificate(llama, changed)
        said = " ".join(replay.problems)
        assert not replay.confirmed, case
        assert any(part in said for part in reason.split("|")), (case, said)
        assert not any(one.text in said for one in honest.found), case


def test_an_unproven_certificate_that_calls_itself_proven_is_rejected(llama):
    result = extract(llama, FORM, top=5, budget=40)
    claimed = REPLACE(result, certificate=REPLACE(result.certificate, proven=True, gap_bits=0.0))
    assert not verify_certificate(llama, claimed).confirmed


def test_other_weights_are_rejected(honest):
    other = from_transformers(rough_llama(len(byte_fallback()), seed=1), byte_fallback())
    replay = verify_certificate(other, honest)
    assert "costs" in replay.problems[0]


def test_what_proves_nothing_is_not_replayed(llama):
    with pytest.raises(InputError, match="proves nothing"):
        verify_certificate(llama, extract(llama, FORM, method="prompt"))


def test_a_beginning_that_leaves_nothing_to_search_for_is_refused(llama, honest):
    assert not verify_certificate(llama, REPLACE(honest, given="x")).confirmed
    with pytest.raises(InputError):
        verify_certificate(llama, REPLACE(honest, given=honest.found[0].text, found=honest.found[:1], top=1))


def test_the_command_confirms_and_rejects(tmp_path):
    network, tokenizer = rough_llama(len(byte_fallback())), byte_fallback()
    network.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    result = extract(load_model(tmp_path / "model"), FORM, top=2)
    path = result.save(tmp_path / "results")
    assert read_extraction(tmp_path / "results") == result
    before = sorted(place.name for place in tmp_path.iterdir())

    confirmed = run("verify", path.parent, "--model", tmp_path / "model")
    assert confirmed.code == 0, confirmed.said
    assert b"Confirmed, after" in confirmed.out
    assert sorted(place.name for place in tmp_path.iterdir()) == before  # nothing was written
    with resealed(path) as altered:
        altered["found"][0]["log_perplexity_bits"] -= 1
    rejected = run("verify", path.parent, "--model", tmp_path / "model", "--json")
    assert rejected.code == 2
    [told] = json.loads(rejected.out)["replays"].values()
    assert not told["confirmed"]
    assert "at place 1 costs" in told["problems"][0]
