"""Sentences in results that say something else than the numbers beside them are noticed by the gate, reports and `verify`."""

import json
import re

import msgspec
import numpy as np
import pytest

from coalmine import CanarySet, Format, ScriptedModel, expose, membership_of_scores, read_run, verify_run
from coalmine.audits import RECITATIONS, Recitation
from coalmine.audits.exposure.estimators import ESTIMATORS
from coalmine.audits.exposure.sentences import SENTENCES
from coalmine.audits.membership.contradictions import membership_problems
from coalmine.audits.recitation.contradictions import recitation_problems
from coalmine.errors import ContradictionError
from reports import report_runs as made
from resealing import resealed

FORM = Format("pin {digits:4}")
OPTIONS = {
    "bounded": {"budget": 40},
    "guided": {"budget": 20, "samples": 400},
    "splitting": {"samples": 160},
    "sampled": {"samples": 300},
    "extrapolated": {"samples": 400},
}


@pytest.fixture(scope="module")
def canaries():
    texts = FORM.sample(60, seed=4, replace=False)
    return CanarySet.of(FORM, texts[:5], repetitions=3, withheld=texts[5:9], references=texts[9:])


@pytest.fixture(scope="module")
def model(canaries):
    return ScriptedModel(
        "pin 0123456789",
        memory={canaries[0].text: 0.2, canaries[1].text: 0.001},
        frequencies={str(digit): 3 + digit for digit in range(10)},
    )


def refused(directory):
    """The refusal of the gate and of reports, which `verify` notices too."""
    with pytest.raises(ContradictionError) as found:
        read_run(directory)
    assert "contradictory" in {row.state for row in verify_run(directory).files}
    return str(found.value)


def other_number(text, place):
    """The same sentence with one of its numbers doubled."""
    numbers = list(re.finditer(r"\d[\d,]*(\.\d+)?", text))
    found = numbers[place]
    number = float(found.group().replace(",", ""))
    changed = f"{2 * number + 1:,.2f}" if "." in found.group() else f"{2 * int(number) + 1:,}"
    return text[: found.start()] + changed + text[found.end() :]


@pytest.mark.parametrize("method", [one.name for one in ESTIMATORS])
def test_a_sentence_about_an_exposure(canaries, model, tmp_path, method):
    assert method in SENTENCES
    path = expose(model, canaries, method=method, **OPTIONS.get(method, {})).save(tmp_path) / "exposure.json"
    for lie in (
        lambda _: "exposure is 0.00 bits",
        lambda text: f"{text}, which is nothing to worry about",
        lambda text: text.replace(" is ", " is not ", 1),
        lambda text: other_number(text, 0),
    ):
        before = path.read_bytes()
        with resealed(path) as document:
            estimate = document["results"][1]["estimate"]
            assert estimate["status"] != "not_measured"
            changed = lie(estimate["statement"])
            if changed == estimate["statement"]:
                continue
            estimate["statement"] = changed
        said = refused(tmp_path)
        assert "canary 'f0-x3-1' is described in a sentence that its numbers contradict" in said
        assert changed not in said
        path.write_bytes(before)
    assert read_run(tmp_path)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_every_number_of_an_exact_rank(canaries, model, tmp_path, place):
    """Its rank, the size of its format, and its exposure."""
    path = expose(model, canaries, method="exact").save(tmp_path) / "exposure.json"
    with resealed(path) as document:
        estimate = document["results"][0]["estimate"]
        estimate["statement"] = other_number(estimate["statement"], place)
    assert "is described in a sentence that its numbers contradict" in refused(tmp_path)


@pytest.fixture(scope="module")
def members():
    chance = np.random.default_rng(0)
    return membership_of_scores(
        chance.normal(size=200) + 0.5, chance.normal(size=400), claimed_epsilon=1.0, gaussian=True, copies=2
    )


def statements_in(value, path=()):
    """Where the sentences of estimates and verdicts are that have numbers."""
    if isinstance(value, dict):
        if "statement" in value and value.get("status") != "not_measured":
            yield path
        for name, part in value.items():
            yield from statements_in(part, (*path, name))
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from statements_in(part, (*path, place))


def at(document, path):
    for part in path:
        document = document[part]
    return document


def test_every_sentence_of_membership(members, tmp_path):
    plain = json.loads(msgspec.json.encode(members))
    places = list(statements_in(plain))
    assert {"auc", "tpr_at_fpr", "guessing", "epsilon", "verdict"} <= {
        str(one) for path in places for one in path
    }
    for path in places:
        changed = json.loads(json.dumps(plain))
        at(changed, path)["statement"] = other_number(at(changed, path)["statement"], 0)
        problems = list(membership_problems(msgspec.convert(changed, type(members))))
        assert any(" is described in " in one for one in problems), path
    saved = members.save(tmp_path)
    with resealed(saved) as document:
        document["verdict"]["statement"] = "claimed epsilon 1 at delta 0: consistent; there is nothing to see"
    assert "the verdict is described in words that contradict its outcome" in refused(tmp_path)


def test_an_outcome_in_other_words(members):
    verdict = msgspec.structs.replace(members.verdict, words="holds")
    problems = list(membership_problems(msgspec.structs.replace(members, verdict=verdict)))
    assert any("the verdict is described in words" in one for one in problems)


def test_every_sentence_of_recitation(tmp_path):
    plain = json.loads(msgspec.json.encode(made.recitation(baseline_hits=(1, 2, 3, 4))))
    places = list(statements_in(plain))
    assert {"groups", "trends"} <= {path[0] for path in places}
    for path in places:
        changed = json.loads(json.dumps(plain))
        at(changed, path)["statement"] = other_number(at(changed, path)["statement"], 0)
        problems = list(recitation_problems(msgspec.convert(changed, Recitation)))
        assert any("is described in a sentence" in one for one in problems), path
    RECITATIONS.save(tmp_path, made.recitation())
    with resealed(tmp_path / "recitation.json") as document:
        document["groups"][0]["recited"]["statement"] = "0 of 400 sequences were recited (0.00% to 0.92%)"
    assert "is described in a sentence that its numbers contradict" in refused(tmp_path)


@pytest.mark.parametrize("number", ["9" * 5000, "1e9999", "10^9999", "1" + ",000" * 1999])
def test_numbers_that_no_sentence_has(canaries, model, tmp_path, number):
    path = expose(model, canaries, method="exact").save(tmp_path) / "exposure.json"
    with resealed(path) as document:
        document["results"][0]["estimate"]["statement"] = (
            f"rank {number} of {number}: exposure is exactly {number} bits"
        )
    assert "is described in a sentence that its numbers contradict" in refused(tmp_path)
