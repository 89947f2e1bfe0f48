"""Extractions, membership, recitation and trainings whose numbers cannot be true together are noticed; real ones are not."""

import copy
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from coalmine import (
    CanarySet,
    Extraction,
    Format,
    ScriptedModel,
    expose,
    extract,
    membership,
    membership_of_scores,
    read_run,
    verify_run,
)
from coalmine.audits import Membership, Recitation, verify_extraction
from coalmine.audits.extraction.contradictions import (
    extraction_problems,
    search_problems,
    verified_manifest_problems,
    verified_problems,
)
from coalmine.audits.extraction.results import Verified, read_verified, save_verification
from coalmine.audits.membership.contradictions import membership_manifest_problems, membership_problems
from coalmine.audits.recitation.contradictions import recitation_problems
from coalmine.errors import AlteredError, ContradictionError
from reports import report_runs as made
from resealing import resealed

FORM = Format("pin {digits:4}")
MODEL = ScriptedModel("pin 0123456789", frequencies={str(digit): 3 + digit for digit in range(10)})


def plain(document):
    return json.loads(msgspec.json.encode(document))


def edited(document, path, value):
    """The same with something else at a path such as "populations.0.auc.value"."""
    changed = copy.deepcopy(document)
    place = changed
    *folders, last = path.split(".")
    for name in folders:
        place = place[int(name) if name.isdecimal() else name]
    place[int(last) if last.isdecimal() else last] = value
    return changed


def problems_of(problems, document, kind):
    try:
        return list(problems(msgspec.convert(document, kind)))
    except (msgspec.ValidationError, ContradictionError) as refused:
        return [str(refused)]


# Extraction


@pytest.fixture(scope="module")
def extraction():
    return plain(extract(MODEL, FORM, top=5))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"top": 10_000},
        {"method": "brute"},
        {"budget": 3},
        {"method": "beam", "width": 3},
        {"method": "greedy"},
        {"given": "pin 99"},
    ],
)
def test_what_a_search_finds_is_without_contradiction(options):
    assert list(extraction_problems(extract(MODEL, FORM, **options))) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("size", "3"),
        ("size", "-1"),
        ("top", 4),
        ("found.1.place", 3),
        ("found.1.log_perplexity_bits", 0.5),
        ("found.1.log_perplexity_bits", None),
        ("found.1.log_perplexity_bits", -7.0),
        ("found.4.expansions", 10**6),
        ("found.0.expansions", -1),
        ("found", []),
        ("method", "beam"),
        ("certificate.proven", False),
        ("certificate.expansions", -1),
        ("certificate.gap_bits", 1.0),
        ("certificate.best_open_bits", None),
        ("certificate.best_open_bits", 1.0),
        ("certificate.exhausted", True),
    ],
)
def test_an_extraction_that_cannot_be(extraction, path, value):
    assert problems_of(extraction_problems, edited(extraction, path, value), Extraction), path


@pytest.mark.parametrize(
    ("name", "value"), [("proven", True), ("exhausted", True), ("best_open_bits", 3.0), ("gap_bits", 1.0)]
)
def test_what_proves_nothing_cannot_say_that_it_does(name, value):
    greedy = extract(MODEL, FORM, method="greedy")
    certificate = msgspec.structs.replace(greedy.certificate, **{name: value})
    problems = extraction_problems(msgspec.structs.replace(greedy, certificate=certificate))
    assert any("by greedy, which proves nothing" in one for one in problems)


def test_a_gap_that_is_not_the_difference():
    open_search = extract(MODEL, FORM, top=60, budget=120)
    assert not open_search.proven
    assert open_search.certificate.gap_bits > 0
    wrong = msgspec.structs.replace(open_search.certificate, gap_bits=open_search.certificate.gap_bits / 2)
    assert list(extraction_problems(msgspec.structs.replace(open_search, certificate=wrong)))


@pytest.fixture(scope="module")
def canaries():
    texts = FORM.sample(40, seed=1, replace=False)
    first = extract(MODEL, FORM, top=2).found
    planted = [first[1].text, *[text for text in texts[:3] if text != first[1].text]]
    return CanarySet.of(FORM, planted, repetitions=2, withheld=texts[10:14], references=texts[14:])


@pytest.fixture
def verified(canaries, tmp_path):
    results, extractions = verify_extraction(MODEL, canaries, top=3)
    save_verification(tmp_path, results, extractions, manifest_sha256=canaries.sha256, model=MODEL.describe())
    return tmp_path / "verified.json"


def test_what_is_said_of_canaries_that_came_out(verified, canaries):
    document = read_verified(verified)
    assert document.canaries[0].place == 2
    extraction = extract(MODEL, FORM, top=3)
    assert list(verified_problems(document)) == []
    assert list(search_problems(document, "f0", extraction)) == []
    assert list(verified_manifest_problems(document, canaries)) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("canaries.0.extracted", False),
        ("canaries.0.place", None),
        ("canaries.0.place", 0),
        ("canaries.0.place", 1),
        ("canaries.0.place", 4),
        ("canaries.0.expansions", None),
        ("canaries.0.expansions", 10**6),
        ("canaries.1.extracted", True),
        ("canaries.1.proven", False),
        ("canaries.1.repetitions", -1),
        ("canaries.1.canary_id", "f0-x2-0"),
    ],
)
def test_canaries_that_cannot_have_come_out_so(verified, path, value):
    with resealed(verified) as document:
        document.update(edited(document, path, value))
    if path == "canaries.0.place" and value == 1:  # another member that was found as early
        return
    with pytest.raises(ContradictionError, match=r"verified\.json contradicts itself: "):
        read_verified(verified)


@pytest.mark.parametrize(
    ("path", "value"),
    [("canaries.0.repetitions", 3), ("canaries.0.format_id", "f1"), ("canaries.0.canary_id", "stranger")],
)
def test_canaries_that_the_manifest_does_not_have(verified, canaries, path, value):
    document = msgspec.convert(edited(json.loads(verified.read_bytes()), path, value), Verified)
    assert list(verified_manifest_problems(document, canaries))


@pytest.mark.parametrize("change", ["hidden", "elsewhere", "another search"])
def test_texts_that_were_found_and_are_canaries(verified, canaries, change):
    canaries.save(verified.parent)
    assert verify_run(verified.parent).sound
    with resealed(verified.parent / "extraction-f0.json") as extraction:
        one, other = extraction["found"][1:]
        other["expansions"] = one["expansions"]
        if change == "elsewhere":
            one["text"], other["text"] = other["text"], one["text"]
        if change == "another search":
            extraction["format_template"] = "pin {re:[0-9]{4}}"
    if change == "hidden":
        with resealed(verified) as document:
            document["canaries"][0].update(extracted=False, place=None, expansions=None)
    read_verified(verified)  # only the manifest knows the texts
    with pytest.raises(
        ContradictionError, match=r"verified\.json contradicts the manifest that it was made with: "
    ):
        read_run(verified.parent)
    states = {Path(row.path).name: row.state for row in verify_run(verified.parent).files}
    assert states["verified.json"] == "contradictory"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("found.2.text", "pin 12345", "it found a text that is not a member of its format"),
        ("format_template", "pin {digits:3}", "its size is 10,000, and its format has 1,000 members"),
        ("format_template", "pin {digits:", "its format does not compile"),
        ("size", "100000", "its size is 100,000, and its format has 10,000 members"),
        ("size", "9999", "its size is 9,999, and its format has 10,000 members"),
        ("given", "pin 0", "it found a text that does not begin with what was given"),
    ],
)
def test_texts_and_sizes_of_another_format_without_a_manifest(tmp_path, path, value, said):
    saved = extract(MODEL, FORM, top=5).save(tmp_path)
    read_run(tmp_path)
    with resealed(saved) as document:
        document.update(edited(document, path, value))
    with pytest.raises(ContradictionError, match=r"extraction\.json contradicts itself: ") as refused:
        read_run(tmp_path)
    assert said in str(refused.value)
    assert value not in str(refused.value)
    (row,) = verify_run(tmp_path).files
    assert row.state == "contradictory"


def test_a_format_with_a_word_list_is_known_to_its_manifest_only(tmp_path):
    words = ("0", "12", "345")
    form = Format("pin {word:2}", words=words)
    model = ScriptedModel("pin 0123456789")
    saved = extract(model, form, top=3).save(tmp_path)
    assert read_run(tmp_path)
    with resealed(saved) as document:
        document["found"][0]["text"] = "pin 9 9"
    assert read_run(tmp_path)  # without the words, nobody knows


def test_an_extraction_that_was_exchanged_is_refused(verified):
    extract(MODEL, FORM, top=3, budget=4).save(verified.parent, "extraction-f0.json")
    with pytest.raises(
        AlteredError, match=r"extraction-f0\.json is not what was written with verified\.json"
    ):
        read_verified(verified)


# Membership


@pytest.fixture(scope="module")
def members(canaries):
    options = {"claimed_epsilon": 1.0, "gaussian": True}
    model = ScriptedModel("pin 0123456789", memory={canaries[0].text: 0.1})
    plain_scores = expose(MODEL, canaries, method="references")
    return membership(expose(model, canaries, method="references"), reference=plain_scores, **options)


def test_membership_is_without_contradiction(members, canaries):
    assert list(membership_problems(members)) == []
    assert list(membership_manifest_problems(members, canaries)) == []
    generator = np.random.default_rng(0)
    for ins, outs, shift, options in (
        (1, 1, 0.0, {}),
        (1, 500, 9.0, {}),
        (300, 4, 9.0, {"copies": 4}),
        (60, 2_000, 1.0, {"delta": 0.0, "claimed_epsilon": 0.0}),
        (400, 400, 50.0, {"runs": "many", "gaussian": True, "claimed_epsilon": 3.0, "copies": 2}),
        (50, 50, 0.0, {"inclusion": 0.2, "confidence": 0.6}),
    ):
        found = membership_of_scores(
            (generator.normal(size=ins) + shift).round(1), generator.normal(size=outs).round(1), **options
        )
        assert list(membership_problems(found)) == [], options


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("confidence", 1.0),
        ("delta", -0.1),
        ("inclusion", 2.0),
        ("populations.0.copies", 0),
        ("populations.0.in_count", 0),
        ("populations.0.out_count", 0),
        ("populations.0.in_count", 10**5000 // 10**800),
        ("populations.0.withheld_count", 10_000),
        ("populations.0.auc.value", 1.5),
        ("populations.0.auc.low", 0.99999),
        ("populations.0.auc.low", 0.0),
        ("populations.0.auc.high", 1.0),
        ("populations.0.auc.n", 3),
        ("populations.0.auc.confidence", 0.5),
        ("populations.0.tpr_at_fpr.0.value", 0.123456),
        ("populations.0.tpr_at_fpr.0.high", -0.5),
        ("populations.0.tpr_p_values", [0.5]),
        ("populations.0.tpr_p_values.0", 1.5),
        ("populations.0.epsilon_ceiling", -1.0),
        ("populations.0.epsilon.1.canary.low", -0.5),
        ("populations.0.best.canary.low", 50.0),
        ("populations.0.epsilon_p_value", -0.5),
        ("populations.0.guessing.p_value", 7.0),
        ("populations.0.guessing.share_in_upper_quarter", 1.2),
        ("populations.0.guessing.median.value", 40.0),
        ("populations.0.guessing.median.n", 99),
        ("populations.0.guessing.mean_bits", -1.0),
        ("populations.0.guessing.guessing_median_bits", 4.9),
        ("populations.0.verdict.p_value", 1.1),
        ("populations.0.verdict.power", -0.1),
        ("calibration.0.gain_bits", 33.0),
        ("calibration.0.population", "strangers"),
        ("verdict.alternative_epsilon", 0.5),
    ],
)
def test_membership_that_cannot_be(members, path, value):
    assert problems_of(membership_problems, edited(plain(members), path, value), Membership), path


def test_populations_that_the_manifest_does_not_have(members, canaries):
    for path, value in (
        ("populations.0.in_count", 3),
        ("populations.0.template", "pin {digits:3}"),
        ("populations.0.format_id", "f1"),
        (
            "populations.0.proven",
            [{"canary_id": "f0-x2-4", "rank": 1, "at_least_bits": 9.0, "p_value": 0.01}],
        ),
    ):
        changed = msgspec.convert(edited(plain(members), path, value), Membership)
        assert list(membership_manifest_problems(changed, canaries)), path


# Recitation


@pytest.fixture(scope="module")
def recitation():
    return plain(made.recitation(baseline_hits=(1, 2, 3, 4)))


def test_recitation_is_without_contradiction(recitation):
    assert list(recitation_problems(msgspec.convert(recitation, Recitation))) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("questions", 7),
        ("sequences", -1),
        ("sequences", 399),
        ("settings.confidence", 0.0),
        ("models.1.name", "asked"),
        ("groups.0.model", "stranger"),
        ("groups.0.recited.value", 0.5),
        ("groups.0.recited.value", 0.27501),
        ("groups.0.recited.n", 401),
        ("groups.0.recited.low", 0.9),
        ("groups.0.recited.low", 0.27),
        ("groups.0.recited.high", 0.28),
        ("groups.0.recited.effective_n", 401.0),
        ("groups.0.recited.effective_n", 300.0),
        ("groups.0.recited.effective_n", 0.5),
        ("groups.1.recited.value", 0.06),
        ("groups.1.recited.high", 1.5),
        ("groups.1.recited.confidence", 0.9),
        ("groups.1.copies", [3, 1]),
        ("groups.1.copies", [0, 1]),
        ("groups.1.mean_copies", 50.0),
        ("groups.1.clusters", 0),
        ("groups.1.clusters", 101),
        ("groups.1.recited_in_corpus", [0.5, 0.6]),
        ("groups.1.near", {"n": 7}),
        ("exclusive", [{"model": "asked", "context": 50, "recited": 9, "of": 400, "not_recited_by": {}}]),
        (
            "exclusive",
            [{"model": "asked", "context": 50, "recited": 110, "of": 400, "not_recited_by": {"other": 111}}],
        ),
        ("trends.0.trend.p_value", 2.0),
        ("trends.0.trend.slope.low", 99.0),
        ("examples.0.recited_by", ["stranger"]),
    ],
)
def test_recitation_that_cannot_be(recitation, path, value):
    if path.endswith("near"):
        value = {**recitation["groups"][1]["recited"], **value}
    assert problems_of(recitation_problems, edited(recitation, path, value), Recitation), path
