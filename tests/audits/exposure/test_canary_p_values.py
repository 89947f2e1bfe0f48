"""The probability of each canary's evidence without memorization, from its exposure and from the searches that found it."""

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
from scipy.stats import binomtest

from coalmine import Estimate, extract, findings_of
from coalmine.audits import VERIFIED
from coalmine.audits.exposure.chance import at_most_share, counted_better, group_test, judge, judged
from coalmine.audits.exposure.single_canaries import canary_suspicions
from coalmine.audits.extraction.extracted_together import came_out
from coalmine.audits.extraction.results import CanaryExtraction, Verified
from coalmine.audits.recitation.findings import share_chance
from coalmine.evidence.run import Located
from coalmine.statistics import exact_exposure, reference_exposure, sampled_exposures
from reports import report_runs as made

FOLDER = Path("extraction")


def looked_for(name, place=None, *, times=4, format_id="f0"):
    return CanaryExtraction(
        canary_id=name,
        repetitions=times,
        extracted=place is not None,
        place=place,
        expansions=None,
        proven=True,
        format_id=format_id,
    )


@pytest.fixture(scope="module")
def search():
    """The five least surprising of 10,000 members."""
    return extract(made.scripted(), made.FORM, top=5)


def run_of(search, *canaries, document=None, searches=1):
    """A run in which so many searches each looked for the canaries."""
    folders = [FOLDER / str(place) for place in range(searches)]
    verified = Verified(manifest_sha256="ab" * 32, model={}, extractions={}, canaries=canaries)
    return made.run_with(
        Path(),
        document,
        extractions=tuple(Located(folder / "extraction-f0.json", search) for folder in folders),
        verifications=tuple(Located(folder / "verified.json", verified) for folder in folders),
    )


def p_values(run):
    return {one.key[0]: one.p_value for one in canary_suspicions(run)}


# One canary


def test_an_exposure_in_the_whole_space_is_as_likely_as_two_to_minus_its_lower_limit():
    one = judge(made.exposure_result("c", exact_exposure(4, 1024)), 10.0)
    assert (one.p_value, one.low, one.high, one.measured_in_space) == (2.0**-8, 8.0, 8.0, True)
    bound = Estimate(
        method="guided", status="lower_bound", value=None, low=6.0, high=None, confidence=0.95, n=9, statement=""
    )  # fmt: skip
    one = judge(made.exposure_result("c", bound), 10.0)
    assert (one.p_value, one.low, one.high) == (2.0**-6, 6.0, 10.0)
    # A limit cannot be above what the space allows.
    wide = msgspec.structs.replace(bound, status="measured", value=8.0, high=14.0)
    assert judge(made.exposure_result("c", wide), 10.0).high == 10.0


def test_a_place_among_others_is_as_likely_as_the_orders_that_have_it():
    references = np.arange(1.0, 100.0)
    for better in (0, 1, 50, 97, 99):
        by_references = reference_exposure(better + 0.5, references)
        one = judge(made.exposure_result("c", by_references), 20.0)
        assert (one.better, one.measured_in_space) == (better, False)
        assert one.p_value == pytest.approx((better + 1) / 100)
        [by_samples] = sampled_exposures([better + 0.5], references, size=2**20)
        assert counted_better(by_samples) == better


def test_what_was_not_measured_or_extrapolated_shows_nothing():
    curve = Estimate(
        method="extrapolated", status="measured", value=19.0, low=18.0, high=20.0, confidence=0.95, n=9, statement=""
    )  # fmt: skip
    for nothing in (Estimate.not_measured("guided", "no"), curve):
        one = judge(made.exposure_result("c", nothing), 20.0)
        assert (one.p_value, one.low, one.high, one.known) == (1.0, 0.0, 20.0, False)
        assert not one.fully_exposed
        assert group_test([one]).p_value == 1.0


def test_the_first_two_guesses_are_fully_exposed():
    exposed = [judge(made.exposure_result("c", exact_exposure(rank, 1024)), 10.0) for rank in (1, 2, 3)]
    assert [one.fully_exposed for one in exposed] == [True, True, False]
    # The best of as many references is not: it says nothing about the other members.
    best = reference_exposure(0.5, np.arange(1.0, 1025.0))
    assert not judge(made.exposure_result("c", best), 10.0).fully_exposed


# What several looks at one canary say


def test_a_place_in_a_search_is_as_likely_as_its_share_of_the_space(search):
    found = p_values(run_of(search, looked_for("first", 1), looked_for("fifth", 5), looked_for("no")))
    assert found == {"first": 1e-4, "fifth": 5e-4, "no": 1.0}
    # Two searches are two chances.
    assert p_values(run_of(search, looked_for("first", 1), searches=2)) == {"first": 2e-4}


def test_withheld_canaries_are_not_suspected(search):
    assert p_values(run_of(search, looked_for("withheld", 1, times=0))) == {}


def test_a_rank_and_the_place_of_a_search_in_the_same_space_are_one_number(search):
    exposed = made.exposure_result("c", exact_exposure(64, 2**20), times=4)
    document = made.exposure_document([exposed])
    assert p_values(run_of(search, looked_for("c", 5), document=document)) == {"c": 2.0**-14}
    assert p_values(run_of(search, looked_for("c"), document=document)) == {"c": 2.0**-14}


def test_a_place_among_references_and_one_in_a_search_are_two_chances(search):
    exposed = made.exposure_result("c", reference_exposure(0.5, np.arange(1.0, 1000.0)), times=4)
    document = made.exposure_document([exposed], method="references")
    # One in a thousand among references, and five in ten thousand by the search: twice the smaller.
    assert p_values(run_of(search, looked_for("c", 5), document=document)) == {"c": pytest.approx(0.001)}
    assert p_values(run_of(search, looked_for("c", 1), document=document)) == {"c": pytest.approx(0.0002)}
    # Where no search looked, the references alone.
    assert p_values(made.run_with(Path(), document)) == {"c": pytest.approx(0.001)}


def test_a_canary_that_was_not_measured_is_suspected_by_its_place_alone(search):
    nothing = made.exposure_result("c", Estimate.not_measured("guided", "no"), times=4)
    run = run_of(search, looked_for("c", 5), document=made.exposure_document([nothing]))
    assert p_values(run) == {"c": 5e-4}
    assert p_values(made.run_with(Path(), made.exposure_document([nothing]))) == {}


# All that came out of a format


def test_as_many_as_come_out_are_binomial(search):
    canaries = [looked_for("a", 1), looked_for("b", 2), looked_for("c"), looked_for("w", 3, times=0)]
    run = run_of(search, *canaries)
    [found] = came_out(run, run.all(VERIFIED)[0])
    assert (found.extracted, found.trained) == (2, 3)
    assert found.expected == pytest.approx(3 * 5 / 10_000)
    assert found.p_value == pytest.approx(binomtest(2, 3, 5 / 10_000, alternative="greater").pvalue)


def test_a_format_without_canaries_or_with_more_found_than_it_has_is_no_test(search):
    for canaries, size in (
        ([looked_for("w", 1, times=0)], "10000"),
        ([looked_for("a", 1, format_id="f1")], "10000"),
        ([looked_for("a", 1)], "4"),
    ):
        run = run_of(msgspec.structs.replace(search, size=size), *canaries)
        assert came_out(run, run.all(VERIFIED)[0]) == []
    run = run_of(msgspec.structs.replace(search, size="5"), looked_for("a", 1))
    assert came_out(run, run.all(VERIFIED)[0])[0].p_value == 1.0


# Shares


def test_none_of_n_leaves_the_share_that_would_show_none_with_one_chance_in_twenty():
    for n in (1, 5, 60):
        assert (1 - at_most_share(n)) ** n == pytest.approx(0.05)


def test_reciting_more_than_a_rate_is_binomial():
    recited = made.recitation((0, 3), of=100).groups[0].recited  # 3 of 200
    assert share_chance(recited, 0.01) == pytest.approx(binomtest(3, 200, 0.01, alternative="greater").pvalue)
    assert share_chance(made.recitation((0, 0), of=100).groups[0].recited, 0.01) == 1.0
    # Sequences of one document count as what they are worth.
    clustered = msgspec.structs.replace(recited, effective_n=100.7)
    assert share_chance(clustered, 0.01) == pytest.approx(
        binomtest(round(0.015 * 100), 100, 0.01, alternative="greater").pvalue
    )


def at_contexts(*contexts, hits=40):
    """A recitation with the same numbers at several contexts."""
    document = made.recitation((hits,), of=100)
    groups = [msgspec.structs.replace(document.groups[0], context=context) for context in contexts]
    return msgspec.structs.replace(document, groups=tuple(groups))


@pytest.mark.parametrize("contexts", [(64, 129, 100), (129, 100, 64)])
def test_of_contexts_that_show_as_much_the_longest_is_named(contexts):
    run = made.run_with(Path(), recitations=(Located(Path("recitation.json"), at_contexts(*contexts)),))
    [found] = [one for one in findings_of(run) if one.code == "CM401"]
    assert "after 129 tokens of context" in found.evidence


def test_every_canary_of_a_document_is_judged_in_its_own_space():
    results = [made.exposure_result(f"c{n}", exact_exposure(1, 2**20)) for n in range(3)]
    assert [one.space_bits for one in judged(made.exposure_document(results))] == [20.0] * 3
    assert math.prod(one.p_value for one in judged(made.exposure_document(results))) == 2.0**-60
