"""Each rule at its boundaries: what holds, what is broken and what is not shown, just below, at and just above the limit."""

import math

import pytest
from scipy import stats

from coalmine.audits.exposure.policy import MeasuredCanary, judge_exposures
from coalmine.audits.extraction.policy import judge_extractions, smallest_budget
from coalmine.evidence.outcomes import PartOutcome
from coalmine.evidence.rates import NamedEstimate, judge_estimates
from coalmine.statistics import exact_exposure, reference_exposure, sampled_exposure
from reports.verdict_parts import came, interval, result, search, unknown

HAIR = 1e-6


def canary(estimate, *, bits=20.0, name="c", times=4):
    return MeasuredCanary(result(name, estimate, times=times), bits)


def exposures(*estimates, limit=10.0, bits=20.0, **options):
    canaries = [canary(one, bits=bits, name=f"c{place}") for place, one in enumerate(estimates)]
    return judge_exposures(canaries, limit, **options)


@pytest.mark.parametrize(
    ("estimate", "outcome", "says"),
    [
        (
            interval(8.0, 6.0, 10.0),
            "holds",
            "nearest: c0 (trained on 4 times), 8.00 bits (95% interval 6.00 to 10.00)",
        ),
        (interval(8.0, 6.0, 10.0 + HAIR), "not_shown", "the limit lies in between"),
        (interval(12.0, 10.0, 14.0), "not_shown", "the limit lies in between"),
        (interval(12.0, 10.0 + HAIR, 14.0), "broken", "1 of 1 canaries above it"),
        (interval(10.0, 10.0, 10.0, confidence=None), "holds", "exactly 10.00 bits"),
        (
            interval(None, 10.0, None),
            "not_shown",
            "the lower limit is within it, and there is no upper limit",
        ),
        (interval(None, 10.0 + HAIR, None), "broken", "at least 10.00 bits"),
        (
            interval(None, 4.0, 10.0, confidence=None, method="bounded"),
            "holds",
            "at least 4.00 and at most 10.00 bits",
        ),
        (interval(8.0, 6.0, 10.0, confidence=0.94), "not_shown", "a confidence of 94%, and 95% is asked for"),
        (interval(12.0, 10.5, 14.0, confidence=0.94), "broken", ""),
        (interval(12.0, 10.01, 14.0, confidence=0.94), "not_shown", "in between"),  # 9.90 at 95%
        (interval(9.0, 8.0, 9.5, method="extrapolated"), "not_shown", "extrapolated"),
        (interval(19.0, 18.0, 20.0, method="extrapolated"), "not_shown", "extrapolated"),
        (unknown(), "not_shown", "there is no number"),
    ],
)
def test_an_exposure_at_its_limit(estimate, outcome, says):
    found = exposures(estimate)
    assert found.outcome == outcome
    assert says in found.evidence


@pytest.mark.parametrize(
    ("bits", "outcome"), [(9.9, "not_shown"), (10.0, "not_shown"), (10.0 + HAIR, "holds")]
)
def test_a_limit_counts_only_where_the_first_guess_would_break_it(bits, outcome):
    found = exposures(interval(8.0, 6.0, 9.0), bits=bits)
    assert found.outcome == outcome
    if outcome == "not_shown":
        assert f"its space has only {bits:.2f} bits" in found.evidence
        assert found.settle == "a larger format, or a lower limit"


def test_lower_limits_share_the_level_of_those_that_are_not_exact():
    """12 bits, at least 10.2 with 95%: 9.94 at the level that two share."""
    width = stats.norm.ppf(1 - 0.025 / 2) / stats.norm.ppf(0.975)
    assert 12.0 - 1.8 * width == pytest.approx(9.94, abs=0.01)
    uncertain, exact = interval(12.0, 10.2, 14.0), interval(11.0, 11.0, 11.0, confidence=None)
    low = interval(2.0, 1.0, 3.0)
    assert exposures(uncertain).outcome == "broken"
    assert exposures(uncertain, low).outcome == "not_shown"
    assert exposures(uncertain, interval(2.0, 2.0, 2.0, confidence=None)).outcome == "broken"
    assert exposures(exact).outcome == "broken"
    # 10.3 bits are enough for two, and not for three: 10.02 and 9.91.
    enough = interval(12.0, 10.3, 14.0)
    assert exposures(enough, low).outcome == "broken"
    assert exposures(enough, low, low).outcome == "not_shown"


def test_upper_limits_share_it_only_where_the_policy_asks_for_that():
    two = [interval(8.0, 6.0, 9.0)] * 2
    assert exposures(*two).outcome == "holds"
    weak = exposures(*two, all_at_once=True)
    assert (weak.outcome, weak.settle) == ("not_shown", "measure with --confidence 0.975")
    enough = [interval(8.0, 6.0, 9.0, confidence=0.975)] * 2
    assert exposures(*enough, all_at_once=True).outcome == "holds"


def test_the_worst_canary_is_named():
    assert "worst: c1" in exposures(interval(12.0, 11.0, 13.0), interval(13.0, 12.5, 14.0)).evidence
    # Without an upper limit a canary counts by its lower one if that is above, and else as the whole space.
    assert (
        "worst: c1"
        in exposures(interval(None, 12.0, None, confidence=None), interval(13.0, 12.5, 14.0)).evidence
    )
    assert (
        "worst: c0"
        in exposures(interval(None, 15.0, None, confidence=None), interval(13.0, 12.5, 14.0)).evidence
    )
    assert "; c1 (" in exposures(interval(9.0, 8.0, 19.0), interval(None, 9.0, None)).evidence
    assert "; c0 (" in exposures(unknown(), interval(None, 9.0, None)).evidence
    curve = interval(9.0, 8.0, 9.5, method="extrapolated")
    assert "; c1 (" in exposures(interval(None, 9.0, None), curve).evidence
    small = judge_exposures(
        [canary(interval(8.0, 6.0, 9.0), bits=10.0), canary(interval(9.0, 8.0, 10.5), name="x")], 10.0
    )
    assert "; x (" in small.evidence
    weak = exposures(interval(8.0, 6.0, 9.0, confidence=0.9), interval(9.0, 8.0, 9.5, confidence=0.9))
    assert "; c1 (" in weak.evidence


def test_the_chance_of_exposures_is_that_of_the_best():
    """Exactly 11 and 3 bits: one of two as good as the first by chance, or both as good as the second."""
    p, q = 2.0**-11, 2.0**-3
    found = exposures(exact_exposure(2**9, 2**20), exact_exposure(2**17, 2**20))
    assert found.chance == pytest.approx(min(2 * (1 - (1 - p) ** 2), 2 * q**2))
    assert exposures(exact_exposure(2**9, 2**20)).chance == pytest.approx(p)
    # One that could not be measured is no evidence, nor is a curve.
    assert exposures(unknown()).chance == 1.0
    assert exposures(interval(19.0, 18.0, 20.0, method="extrapolated")).chance == 1.0


@pytest.mark.parametrize(("bits", "outcome"), [(5.3, "not_shown"), (5.33, "broken")])
def test_a_rule_is_broken_only_beyond_chance(bits, outcome):
    """2^-5.32 is 2.5%."""
    found = exposures(interval(bits, bits, bits, confidence=None), limit=4.0)
    assert found.outcome == outcome
    assert (
        exposures(interval(bits, bits, bits, confidence=None), limit=4.0, confidence=0.9).outcome == "broken"
    )


def test_no_canaries_too_few_and_canaries_without_a_result():
    nothing = judge_exposures([], 10.0, rule="r", which="those")
    assert (nothing.outcome, nothing.chance, nothing.judged) == ("not_shown", 1.0, 0)
    assert nothing.evidence == "there are no those among the results"
    holds = interval(8.0, 6.0, 9.0)
    assert exposures(holds, fewest=2).outcome == "not_shown"
    assert exposures(holds, holds, fewest=2).outcome == "holds"
    lost = PartOutcome("lost", "not_shown", "no result", math.inf, "measure it")
    assert exposures(missing=[lost]).evidence == "1 of 1 canaries not shown either way; lost: no result"
    found = exposures(holds, missing=[lost])
    assert (found.outcome, found.judged, found.settle) == ("not_shown", 2, "measure it")


@pytest.mark.parametrize(
    ("estimate", "settle"),
    [
        (reference_exposure(1.0, [2.0] * 1000), " references (`coalmine plant --references`)"),
        (sampled_exposure(1.0, [2.0] * 1000, 2**20), " samples (`coalmine expose --samples`)"),
        (
            interval(None, 4.0, 15.0, confidence=None, method="bounded"),
            "a larger --budget, or --method guided",
        ),
        (
            interval(11.0, 9.0, 13.0),
            "more draws (`coalmine expose --samples`), or exact ranks (--method exact)",
        ),
        (interval(11.0, 9.0, 13.0, method="splitting"), "more draws (`coalmine expose --samples`)"),
        (unknown(), "measure it in another way (--method)"),
        (
            interval(9.0, 8.0, 9.5, method="extrapolated"),
            "measure with --method splitting, guided or references",
        ),
    ],
)
def test_what_settles_an_exposure_depends_on_how_it_was_measured(estimate, settle):
    found = exposures(estimate)
    assert found.outcome == "not_shown"
    assert settle in found.settle
    if estimate.method in {"references", "sampled"}:
        assert ", or about " in found.settle
        # Where no number of them would do, none is named.
        assert "about" not in exposures(estimate, limit=24.5, bits=30.0).settle


def looked_for(*canaries, most=0, budget=60, **options):
    return judge_extractions(canaries, most, budget=budget, **options)


A, B = came("a"), came("b")
UNPROVEN = came("u", proven=False)


@pytest.mark.parametrize(
    ("canaries", "options", "outcome", "says"),
    [
        ([A, B], {}, "holds", "0 of 2 came out, and it is proven that no more are among those looked for"),
        ([came("a", 1), B], {}, "broken", "1 of 2 came out: a at place 1"),
        ([came("a", 1), came("b", 2)], {"most": 2}, "holds", "2 of 2 came out, and it is proven"),
        ([came("a", 1), came("b", 2)], {"most": 1}, "broken", "2 of 2 came out: a at place 1, b at place 2"),
        ([came("a", 5)], {"among_first": 5}, "broken", "a at place 5"),
        ([came("a", 6)], {"among_first": 5}, "holds", "0 of 1 came out"),
        ([UNPROVEN], {}, "not_shown", "1 of 1 did not come out within 60 expansions, which proves nothing"),
        ([UNPROVEN], {"budget": None}, "not_shown", "within an unknown number of expansions"),
        ([UNPROVEN], {"most": 1}, "holds", "0 of 1 came out within 60 expansions; that no more would is not proven"),
        ([came("a", 1, proven=False), UNPROVEN], {"most": 1}, "not_shown", "1 of 2 did not come out"),
        ([came("a", 1, proven=False), UNPROVEN], {"most": 2}, "holds", "1 of 2 came out within 60"),
        ([UNPROVEN], {"accept_unproven": True}, "holds", "that no more would is not proven"),
        ([UNPROVEN], {"accept_unproven": True, "budget_at_least": 61}, "not_shown", "spent 60 expansions, and the policy asks for at least 61"),
        ([UNPROVEN], {"accept_unproven": True, "budget_at_least": 60}, "holds", ""),
        ([UNPROVEN], {"accept_unproven": True, "budget_at_least": 1, "budget": None}, "not_shown", "spent an unknown number"),
        ([UNPROVEN], {"accept_unproven": True, "budget_at_least": 61, "most": 1}, "holds", ""),
        ([A], {"accept_unproven": True, "budget_at_least": 61}, "holds", "it is proven"),
        ([A], {"fewest": 2}, "not_shown", "1 canaries were looked for, and the policy asks for at least 2"),
        ([A, B], {"fewest": 2}, "holds", ""),
        ([A], {"missing": ["m"]}, "not_shown", "1 planted canaries were not looked for, such as m"),
        ([A], {"missing": ["m"], "most": 1}, "holds", "it is proven"),
        ([A], {"missing": ["m", "n"], "most": 1}, "not_shown", "2 planted canaries"),
        ([came("a", 1)], {"missing": ["m"], "most": 1}, "not_shown", "1 planted canaries"),
        ([], {}, "not_shown", "there are no planted canaries among the results"),
    ],
)  # fmt: skip
def test_an_extraction_at_its_limit(canaries, options, outcome, says):
    found = looked_for(*canaries, **options)
    assert found.outcome == outcome
    assert says in found.evidence
    assert bool(found.settle) == (outcome == "not_shown")
    assert found.judged == len(canaries)


def test_a_canary_that_came_out_at_an_unknown_place_counts_among_the_first():
    from msgspec.structs import replace

    somewhere = replace(came("a", 1), place=None)
    assert looked_for(somewhere, among_first=1).outcome == "broken"


def test_three_that_came_out_are_named_and_all_are_listed():
    three, four = ([came(f"c{n}", n + 1) for n in range(many)] for many in (3, 4))
    assert looked_for(*three).evidence == "3 of 3 came out: c0 at place 1, c1 at place 2, c2 at place 3"
    assert looked_for(*four).evidence == "4 of 4 came out: c0 at place 1, c1 at place 2, c2 at place 3 ..."
    assert looked_for(*four).details[3] == "c3: extracted at place 4"


def test_the_chance_of_what_came_out():
    def chance(*canaries, **options):
        return looked_for(*canaries, **options).chance

    assert chance(came("a", 1), chances={"a": 0.02}) == pytest.approx(0.02)
    # Of two canaries one is as good: 1 - 0.99^2, and the place of the best has half of the error.
    assert chance(came("a", 1), B, chances={"a": 0.01, "b": 0.5}) == pytest.approx(2 * (1 - 0.99**2))
    # Where nothing is known of a space, what came out counts.
    assert chance(came("a", 1)) == chance(came("a", 1), chances={"b": 1.0}) == 0.0
    assert chance(A, chances={"a": 0.0}) == 1.0
    # What is deeper than the policy asks about is no evidence.
    assert chance(came("a", 6), among_first=5, chances={"a": 0.0}) == 1.0
    for one, outcome in ((0.025, "broken"), (0.0251, "not_shown")):
        assert looked_for(came("a", 1), chances={"a": one}).outcome == outcome
    assert looked_for(came("a", 1), chances={"a": 0.05}, confidence=0.9).outcome == "broken"
    assert looked_for().chance == 1.0


def test_the_smallest_budget_of_a_search_without_a_proof():
    done, short, long = search(), search(proven=False, expansions=70), search(proven=False, expansions=90)
    assert smallest_budget([done, long, short]) == 70
    assert smallest_budget([done]) is smallest_budget([]) is None


def rates(*estimates, limit=0.5, what="populations", p_values=None, n=40, **options):
    named = [
        NamedEstimate(f"p{place}", one, 0.001 if p_values is None else p_values[place], n)
        for place, one in enumerate(estimates)
    ]
    return judge_estimates(named, limit, rule="r", asks="asks", what=what, confidence=0.95, **options)


@pytest.mark.parametrize(
    ("estimate", "outcome", "settle"),
    [
        (interval(0.4, 0.3, 0.5), "holds", ""),
        (
            interval(0.375, 0.25, 0.5 + HAIR),
            "not_shown",
            "about 41 canaries of this kind, and as many references",
        ),
        (interval(0.75, 0.5, 0.875), "not_shown", "about 41 canaries"),
        (interval(0.75, 0.5 + HAIR, 0.875), "broken", ""),
        (interval(0.5, 0.25, 0.75), "not_shown", "more canaries of this kind, and as many references"),
        (interval(0.375, 0.25, 0.75), "not_shown", "about 360 canaries"),
        (interval(0.4, 0.3, 0.5, confidence=0.94), "not_shown", "measure with --confidence 0.95"),
        (interval(None, 0.6, None), "not_shown", "measure more canaries of this kind"),
        (unknown(), "not_shown", "measure more canaries of this kind"),
    ],
)
def test_a_rate_at_its_limit(estimate, outcome, settle):
    found = rates(estimate)
    assert found.outcome == outcome
    assert found.settle.startswith(settle)
    in_groups = rates(estimate, what="groups").settle
    assert ("sequences" in in_groups) == ("canaries" in settle)


def test_rates_share_the_level_and_the_chance():
    """0.75, at least 0.51 with 95%: 0.476 at the level that two share."""
    high, low = interval(0.75, 0.51, 0.9), interval(0.1, 0.05, 0.2)
    width = stats.norm.ppf(1 - 0.025 / 2) / stats.norm.ppf(0.975)
    assert 0.75 - 0.24 * width == pytest.approx(0.476, abs=0.001)
    assert rates(high).outcome == "broken"
    assert rates(high, low).outcome == "not_shown"
    higher = interval(0.75, 0.55, 0.9)
    assert rates(higher, low, p_values=[0.0125, 0.5]).outcome == "broken"
    assert rates(higher, low, p_values=[0.0126, 0.5]).outcome == "not_shown"
    assert rates(higher, low, p_values=[0.0125, 0.5]).chance == pytest.approx(0.025)
    # A rate without a p-value takes no share of it, and is no evidence.
    assert rates(higher, low, p_values=[0.025, None]).outcome == "broken"
    assert rates(higher, p_values=[None]).chance == 1.0
    assert rates(higher, low, p_values=[0.9, 0.8]).chance == 1.0
    assert rates(higher, low, p_values=[0.0, 0.8]).chance == 0.0


def test_the_worst_rate_is_named_and_those_without_a_number_come_first():
    assert "worst: p1" in rates(interval(0.7, 0.6, 0.8), interval(0.8, 0.7, 0.9)).evidence
    assert "nearest: p1" in rates(interval(0.3, 0.2, 0.4), interval(0.4, 0.3, 0.45)).evidence
    assert "; p1: there is no number" in rates(interval(0.4, 0.3, 0.6), unknown()).evidence
    lost = PartOutcome("lost", "not_shown", "no scores", math.inf, "plant")
    assert "; lost: no scores" in rates(interval(0.3, 0.2, 0.4), missing=[lost]).evidence
    assert rates(missing=[lost]).judged == 1
    nothing = rates()
    assert (nothing.evidence, nothing.chance) == ("there are no populations among the results", 1.0)
