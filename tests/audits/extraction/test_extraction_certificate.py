"""Certificates of extraction: they hold the bound that the proof rests on, replay, and are rejected when anything is changed."""

import json

import msgspec
import pytest

from cli.in_process import run
from coalmine import Format, extract, load_model, verify_certificate
from coalmine.audits import read_extraction
from coalmine.models import from_transformers
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


def test_a_search_that_proved_nothing_yet_replays_as_far_as_it_went(llama):
    result = extract(llama, FORM, top=5, budget=40)
    assert not result.proven
    replay = verify_certificate(llama, result)
    assert replay.confirmed, replay.problems


def test_a_space_that_was_looked_at_as_a_whole_says_so(llama):
    result = extract(llama, Format("pin {digits:2}"), top=100)
    assert (result.certificate.exhausted, result.certificate.best_open_bits) == (True, None)
    assert verify_certificate(llama, result).confirmed
    more = REPLACE(result, certificate=REPLACE(result.certificate, expansions=500))
    assert "the whole tree has 10" in " ".join(verify_certificate(llama, more).problems)


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
        "a higher bound": (bound(best_open_bits=bits + 0.5), "beyond the bound|too high"),
        "nothing left": (bound(best_open_bits=None, exhausted=True), "the whole tree has"),
        "a dropped member": (REPLACE(honest, found=without), "does not prove that"),
        "a dropped member, and fewer asked for": (REPLACE(honest, found=without, top=4), "is missing"),
    }


def test_what_was_changed_is_rejected_with_the_reason(llama, honest):
    for case, (changed, reason) in tampered(honest).items():
        replay = verify_certificate(llama, changed)
        said = " ".join(replay.problems)
        assert not replay.confirmed, case
        assert any(part in said for part in reason.split("|")), (case, said)
        assert not any(one.text in said for one in honest.found), case


def test_other_weights_are_rejected(honest):
    other = from_transformers(rough_llama(len(byte_fallback()), seed=1), byte_fallback())
    replay = verify_certificate(other, honest)
    assert "costs" in replay.problems[0]


def test_the_command_confirms_and_rejects(tmp_path):
    network, tokenizer = rough_llama(len(byte_fallback())), byte_fallback()
    network.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    result = extract(load_model(tmp_path / "model"), FORM, top=2)
    path = result.save(tmp_path / "results")
    assert read_extraction(tmp_path / "results") == result
    confirmed = run("verify", path.parent, "--model", tmp_path / "model")
    assert confirmed.code == 0, confirmed.said
    assert b"Confirmed, after" in confirmed.out
    with resealed(path) as altered:
        altered["found"][0]["log_perplexity_bits"] -= 1
    rejected = run("verify", path.parent, "--model", tmp_path / "model", "--json")
    assert rejected.code == 2
    [told] = json.loads(rejected.out)["replays"].values()
    assert "at place 1 costs" in told["problems"][0]
