"""Exposures whose numbers cannot be true together are noticed, and those of every method, in spaces of every size, are not."""

import copy
import json
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine import CanarySet, Estimate, ExposureResult, Format, ScriptedModel, expose
from coalmine.audits import Exposures, read_exposures
from coalmine.audits.exposure.contradictions import exposure_problems, manifest_problems
from coalmine.audits.exposure.estimators import ESTIMATORS
from coalmine.audits.exposure.results import FormatFacts
from coalmine.errors import ContradictionError
from coalmine.statistics import (
    bounded_exposure,
    exact_exposure,
    exposure_bits,
    fit_tail,
    guided_exposures,
    reference_exposures,
    sampled_exposures,
)
from resealing import resealed

FORM = Format("pin {digits:4}")
# Of each method, options with which some ranks stay open.
OPTIONS = {
    "exact": {},
    "bounded": {"budget": 40},
    "guided": {"budget": 20, "samples": 400},
    "splitting": {"samples": 160},
    "sampled": {"samples": 300},
    "extrapolated": {"samples": 400},
    "references": {},
}


@pytest.fixture(scope="module")
def canaries():
    texts = FORM.sample(60, seed=4, replace=False)
    return CanarySet.of(FORM, texts[:5], repetitions=3, withheld=texts[5:9], references=texts[9:])


@pytest.fixture(scope="module")
def documents(canaries):
    model = ScriptedModel(
        "pin 0123456789",
        memory={canaries[0].text: 0.2, canaries[1].text: 0.001},
        frequencies={str(digit): 3 + digit for digit in range(10)},
    )
    return {
        method: json.loads(msgspec.json.encode(expose(model, canaries, method=method, **options)))
        for method, options in OPTIONS.items()
    }


def problems_of(document):
    try:
        return list(exposure_problems(msgspec.convert(document, Exposures)))
    except (msgspec.ValidationError, ContradictionError) as refused:
        return [str(refused)]


def test_every_method_is_known():
    assert set(OPTIONS) == {one.name for one in ESTIMATORS}


@pytest.mark.parametrize("method", OPTIONS)
def test_what_a_method_finds_is_without_contradiction(documents, canaries, method):
    assert problems_of(documents[method]) == []
    document = msgspec.convert(documents[method], Exposures)
    assert list(manifest_problems(document, canaries)) == []


def change_estimate(**changes):
    return lambda document, place: document["results"][place]["estimate"].update(changes)


def change_result(**changes):
    return lambda document, place: document["results"][place].update(changes)


def change_format(**changes):
    return lambda document, _: document["formats"][0].update(changes)


def higher(name):
    def change(document, place):
        estimate = document["results"][place]["estimate"]
        estimate[name] = (estimate[name] or 0.0) + 50.0

    return change


WRONG_FOR_ALL = {
    "value": higher("value"),
    "low": higher("low"),
    "negative low": change_estimate(low=-1.0),
    "high below low": change_estimate(high=-0.5),
    "confidence of 1": change_estimate(confidence=1.0),
    "another confidence": change_estimate(confidence=0.5),
    "n": change_estimate(n=-1),
    "effective n": change_estimate(effective_n=-2.0),
    "value of nothing": change_estimate(status="not_measured"),
    "method": change_estimate(method="exactly"),
    "method of the result": change_result(method="guess"),
    "no value": change_estimate(status="measured", value=None),
    "bound without limit": change_estimate(status="lower_bound", value=None, low=None),
    "rank 0": change_result(rank=0),
    "rank beyond all": change_result(rank=10_001),
    "negative copies": change_result(repetitions=-1),
    "no copies meant": change_result(planned_repetitions=0),
    "no log-perplexity": change_result(log_perplexity_bits=None),
    "negative log-perplexity": change_result(log_perplexity_bits=-4.0),
    "most possible": change_result(most_possible_bits=99.0),
    "format": change_result(format_id="f9"),
    "another canary's name": change_result(canary_id="f0-x3-1"),
    "size": change_format(size="9999"),
    "size in words": change_format(size="ten thousand"),
    "size in other digits": change_format(size="٣"),
    "size with a zero": change_format(size="010000"),
    "size too long": change_format(size="1" * 5000),
    "size bits": change_format(size_bits=3.0),
    "unknown method": change_format(method="guess"),
    "confidence of all": lambda document, _: document.update(confidence=0.0),
    "inclusion": lambda document, _: document.update(inclusion=1.5),
    "expansions": lambda document, _: document.update(expansions=-1),
    "two formats": lambda document, _: document["formats"].append(document["formats"][0]),
    "another method's curve": lambda document, _: document["tail_fits"].update(f9=CURVE),
}
CURVE = {
    "curve": {"location": 0.0, "scale": 1.0, "shape": 0.0},
    "ks_statistic": 0.1,
    "ks_p_value": 0.5,
    "n_fit": 8,
    "n_test": 2,
    "refits": [],
}


@pytest.mark.parametrize("wrong", WRONG_FOR_ALL)
@pytest.mark.parametrize("method", OPTIONS)
def test_what_no_method_finds_is_noticed(documents, method, wrong):
    changed = copy.deepcopy(documents[method])
    WRONG_FOR_ALL[wrong](changed, 2)
    assert problems_of(changed)


@pytest.mark.parametrize("place", range(9))
@pytest.mark.parametrize("method", ["exact", "bounded", "references"])
def test_rank_size_and_value_agree(documents, method, place):
    """The rank, or the value, of any canary that has both is moved by the least that there is."""
    result = documents[method]["results"][place]
    if result["rank"] is None:
        assert result["estimate"]["value"] is None
        return
    for rank in (result["rank"] - 1, result["rank"] + 1):
        changed = copy.deepcopy(documents[method])
        changed["results"][place]["rank"] = rank
        # Among n references, ranks n and n + 1 are both an exposure of 0.
        both_last = method == "references" and {rank, result["rank"]} == {51, 52}
        assert bool(problems_of(changed)) != both_last
    value = result["estimate"]["value"]
    for other in (value or 0.0) + 1e-6, (value or 0.0) - 1e-6:
        changed = copy.deepcopy(documents[method])
        changed["results"][place]["estimate"] |= {"value": other, "low": other, "high": other}
        assert problems_of(changed)


def test_a_proven_rank_lies_between_the_limits_of_draws(documents):
    changed = copy.deepcopy(documents["guided"])
    for place, result in enumerate(changed["results"]):
        if result["estimate"]["method"] == "guided" and result["estimate"]["high"] < 13:
            changed["results"][place]["rank"] = 1
            break
    assert any("has rank 1 of 10,000" in problem for problem in problems_of(changed))


def test_a_value_that_no_sample_gives(documents):
    changed = copy.deepcopy(documents["sampled"])
    (estimate, *_) = [one["estimate"] for one in changed["results"] if one["estimate"]["value"]]
    estimate["value"] += 1e-3
    estimate["high"] = max(estimate["high"], estimate["value"])
    assert any("not a share of 300 samples" in problem for problem in problems_of(changed))


def test_the_file_is_refused_by_name(canaries, tmp_path):
    model = ScriptedModel("pin 0123456789", memory={canaries[0].text: 0.5})
    expose(model, canaries).save(tmp_path)
    assert read_exposures(tmp_path).results[0].rank == 1
    with resealed(tmp_path / "exposure.json") as document:
        document["results"][0]["estimate"] |= {"value": 3.29, "low": 3.29, "high": 3.29}
    with pytest.raises(ContradictionError) as refused:
        read_exposures(tmp_path)
    assert str(refused.value) == (
        f"{tmp_path / 'exposure.json'} contradicts itself: canary 'f0-x3-0' has rank 1 of 10,000, which is an exposure of 13.29 bits, "
        "and the value 3.29; make the result of `coalmine expose` again"
    )


def test_what_the_manifest_says_otherwise(documents, canaries):
    for change in (
        change_result(repetitions=4),
        change_result(planted=False),
        change_result(planned_repetitions=4),
        change_result(canary_id="stranger"),
        change_format(template="pin {digits:3}"),
        change_format(size="1000", size_bits=math.log2(1000)),
    ):
        changed = copy.deepcopy(documents["references"])
        change(changed, 2)
        assert list(manifest_problems(msgspec.convert(changed, Exposures), canaries))


# Numbers of any size


def document_of(method, estimates, size, ranks=None, fits=None):
    """A document with these estimates, as `expose` makes one of them."""
    results = [
        ExposureResult(
            canary_id=f"c{place}",
            format_id="f0",
            repetitions=1,
            planted=True,
            planned_repetitions=1,
            method=estimate.method,
            known_log_perplexity_bits=3.0,
            rank=None if ranks is None else ranks[place],
            most_possible_bits=math.log2(size),
            estimate=estimate,
        )
        for place, estimate in enumerate(estimates)
    ]
    facts = FormatFacts(
        format_id="f0", template="", size=str(size), size_bits=math.log2(size), method=method, why=""
    )
    document = Exposures(
        seed=0,
        confidence=0.95,
        manifest_sha256="",
        model={},
        formats=(facts,),
        expansions=0,
        tail_fits=fits or {},
        results=tuple(results),
    )
    # As it is read back: floats as they are written.
    return msgspec.json.decode(msgspec.json.encode(document), type=Exposures)


def ranks_in(size):
    return st.integers(1, size) | st.integers(max(1, size - 3), size) | st.integers(1, min(size, 3))


@st.composite
def sizes_and_ranks(draw):
    size = draw(st.integers(1, 10**4) | st.integers(1, 10**40) | st.integers(1, 2**1100))
    return size, sorted(draw(st.lists(ranks_in(size), min_size=3, max_size=3)))


@given(sizes_and_ranks())
def test_ranks_in_spaces_of_any_size(given_ranks):
    size, (least, rank, most) = given_ranks
    exact = exact_exposure(rank, size, least=least, most=most)
    assert list(exposure_problems(document_of("exact", [exact], size, [rank]))) == []
    for known in (rank, None if least < most else rank):
        bounded = bounded_exposure(least, most, size, rank=known)
        assert list(exposure_problems(document_of("guided", [bounded], size, [known]))) == []
    # By a little more than rounding.
    wrong = msgspec.structs.replace(exact, value=exact.value + 1e-5, high=exact.high + 1e-5)
    assert list(exposure_problems(document_of("exact", [wrong], size, [rank])))


@settings(max_examples=60)
@given(sizes_and_ranks(), st.integers(0, 5), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_estimates_in_spaces_of_any_size(given_ranks, reached, drawn, seed):
    size, (known, _, most) = given_ranks
    generator = np.random.default_rng(seed)
    scores = generator.normal(30, 4, drawn).round(1)
    canary = [float(np.sort(scores)[min(reached, drawn - 1)]) - 0.05, -5.0, 90.0]
    sampled = sampled_exposures(canary, scores, size)
    assert list(exposure_problems(document_of("sampled", sampled, size))) == []
    counts = [int((scores <= one).sum()) for one in canary]
    among = reference_exposures(canary, scores, size=size)
    ranks = [count + 1 for count in counts]
    assert list(exposure_problems(document_of("references", among, size, ranks))) == []
    limit = math.log2(size) + 4
    guided = guided_exposures(
        canary,
        scores,
        generator.uniform(0, limit, drawn),
        log2_most_weight=[limit] * 3,
        known=[known] * 3,
        most_rank=[most] * 3,
        size=size,
    )
    proven = [known if known == most else None] * 3
    assert list(exposure_problems(document_of("guided", guided, size, proven))) == []
    assert all(exposure_bits(most, size) <= one.low + 1e-9 for one in guided)


def test_a_curve_that_leaves_its_space_is_cut_off_there():
    scores = np.random.default_rng(0).normal(30, 4, 500)
    fit = fit_tail(scores, seed=0, bootstraps=40)
    estimates = fit.estimates([2.0, 30.0, 60.0], 1000)
    assert estimates[0].value == math.log2(1000)
    document = document_of("extrapolated", estimates, 1000, fits={"f0": fit})
    assert list(exposure_problems(document)) == []
    nothing = Estimate.not_measured("auto", "no method is known")
    assert list(exposure_problems(document_of("auto", [nothing], 1000))) == []


@pytest.mark.parametrize("method", ["exact", "references"])
def test_a_more_surprising_canary_has_no_better_rank(documents, method):
    """Each canary by itself is without contradiction, and its checksum could be made anew."""
    document = copy.deepcopy(documents[method])
    ranked = [one for one in document["results"] if one["estimate"]["value"] is not None]
    ranked.sort(key=lambda one: one["rank"])
    best, worst = ranked[0], ranked[-1]
    assert best["rank"] < worst["rank"]
    best["rank"], worst["rank"] = worst["rank"], best["rank"]
    best["estimate"], worst["estimate"] = worst["estimate"], best["estimate"]
    (problem,) = problems_of(document)
    assert f"is more surprising than canary {best['canary_id']!r}, and has rank " in problem
    # Within what the model resolves, the order of two log-perplexities is not known.
    best["log_perplexity_bits"] = worst["log_perplexity_bits"] - 1e-7
    others = {one["canary_id"] for one in ranked[1:-1]}
    document["results"] = [one for one in document["results"] if one["canary_id"] not in others]
    assert problems_of(document) == []


def test_ranks_among_all_members_are_equal_where_log_perplexities_are(documents):
    for name, said in (
        ("log_perplexity_bits", "are equally surprising, and have ranks "),
        ("rank", "and both have rank "),
    ):
        document = copy.deepcopy(documents["exact"])
        ranked = sorted(document["results"], key=lambda one: one["rank"])
        first, second = ranked[:2]
        assert first["rank"] < second["rank"]
        second[name] = first[name]
        if name == "rank":
            second["estimate"] = first["estimate"]
        document["results"] = [first, second]
        (problem,) = problems_of(document)
        assert said in problem
