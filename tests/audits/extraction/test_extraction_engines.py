"""Extraction on engines: the same bytes from each, for every method and several formats, and whatever is killed."""

import pytest

from coalmine import Canary, CanarySet, Format, extract
from coalmine.audits import verify_extraction
from coalmine.audits.extraction.results import save_verification
from coalmine.engines.engine import open_engine
from models.random_networks import random_model

FORMS = {"f0": Format("pin {digits:4}"), "f1": Format("code {digits:3}")}


@pytest.fixture(scope="module")
def engine():
    with open_engine("processes:2") as opened:
        yield opened


@pytest.fixture(scope="module")
def model():
    return random_model("transformer")


def canaries():
    known = [
        Canary(canary_id=f"{name}-{place}", format_id=name, text=text, repetitions=1, planted=True)
        for name, form in FORMS.items()
        for place, text in enumerate(form.sample(3, seed=1, replace=False))
    ]
    return CanarySet(known, FORMS)


@pytest.mark.parametrize("method", ["search", "brute", "prompt"])
def test_every_method_gives_the_same_bytes_on_every_engine(method, engine, model, tmp_path):
    for place, one in (("here", None), ("there", engine)):
        extract(model, FORMS["f0"], top=5, method=method, engine=one).save(tmp_path / place)
    here, there = ((tmp_path / place / "extraction.json").read_bytes() for place in ("here", "there"))
    assert here == there


def test_several_formats_at_once_give_what_each_gives_alone(engine, model, tmp_path):
    results, extractions = verify_extraction(model, canaries(), top=5, engine=engine)
    assert [one.canary_id for one in results] == [one.canary_id for one in canaries()]
    for name, form in FORMS.items():
        assert extractions[name] == extract(model, form, top=5)
    facts = {"manifest_sha256": canaries().sha256, "model": model.describe()}
    save_verification(tmp_path, results, extractions, **facts)


@pytest.mark.parametrize("second", ["here", "processes"])
def test_a_larger_budget_resumes_on_any_engine(second, engine, model, tmp_path):
    form = Format("pin {digits:6}")
    spent = extract(model, form, top=3, budget=100, resume=tmp_path, engine=engine)
    assert (spent.proven, spent.certificate.expansions) == (False, 100)
    assert [path.name for path in tmp_path.iterdir()] == ["unfinished.units"], (
        "only the search itself is left"
    )
    # The same budget again changes nothing.
    assert extract(model, form, top=3, budget=100, resume=tmp_path) == spent
    more = extract(
        model, form, top=3, budget=300, resume=tmp_path, engine=engine if second == "processes" else None
    )
    assert more.certificate.expansions == 300
    whole = extract(model, form, top=3, resume=tmp_path)
    assert whole.proven
    assert [one.text for one in whole.found] == [one.text for one in extract(model, form, top=3).found]
    assert not list(tmp_path.iterdir())
