"""Limits on exposure and extraction: when a rule about single canaries holds, is broken, or is not shown either way."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine import (
    Estimate,
    ExposureResult,
)
from coalmine.audits.exposure.policy import MeasuredCanary, judge_exposures
from coalmine.audits.extraction.policy import judge_extractions
from coalmine.audits.extraction.results import CanaryExtraction
from coalmine.statistics import bounded_exposure, exact_exposure, reference_exposure, sampled_exposures


def measured(estimate, size_bits=20.0, repetitions=4, canary_id="c"):
    result = ExposureResult(
        canary_id=canary_id,
        format_id="f0",
        repetitions=repetitions,
        planted=True,
        method=estimate.method,
        known_log_perplexity_bits=10.0,
        rank=None,
        most_possible_bits=size_bits,
        estimate=estimate,
    )
    return MeasuredCanary(result, size_bits)


def outcome(estimate, limit, size_bits=20.0, **options):
    return judge_exposures([measured(estimate, size_bits)], limit, **options).outcome


# Exposure


def test_the_upper_limit_decides_and_not_the_point():
    between = Estimate(
        method="guided", status="measured", value=8.0, low=6.0, high=11.0, confidence=0.95, n=9, statement=""
    )
    assert outcome(between, 11.0) == "holds"
    assert outcome(between, 10.0) == "not_shown"  # the point is below, the upper limit is not
    assert outcome(between, 7.0) == "not_shown"  # the point is above, the lower limit is not
    assert outcome(between, 5.0) == "broken"


def test_a_bound_from_below_holds_only_where_nothing_more_is_possible():
    # The best of 100 references: whatever the canary's exposure is, log2 100 says nothing about it.
    best = reference_exposure(1.0, np.arange(2.0, 102.0))
    assert best.status == "lower_bound"
    assert outcome(best, 10.0) == "not_shown"
    assert outcome(best, 6.7) == "not_shown"
    assert outcome(best, best.low - 0.1) == "broken"


def test_a_limit_that_nothing_can_break_is_not_passed():
    found = judge_exposures([measured(exact_exposure(1, 1000), math.log2(1000))], 10.0)
    assert found.outcome == "not_shown"
    assert "would not break this rule" in found.evidence
    assert "a lower limit" in found.settle


def test_proven_bounds_decide_where_they_can():
    open_rank = bounded_exposure(1_200, 40_000_000, 10**9)  # 4.64 to 19.67 bits, proven
    assert outcome(open_rank, 19.7, size_bits=29.9) == "holds"
    assert outcome(open_rank, 10.0, size_bits=29.9) == "not_shown"
    # Above it for certain, but one canary in 25 has as much by chance.
    assert outcome(open_rank, 4.0, size_bits=29.9) == "not_shown"
    assert outcome(bounded_exposure(1_200, 4_000_000, 10**9), 4.0, size_bits=29.9) == "broken"


def test_a_result_that_was_not_shown_or_is_too_weak_never_holds():
    nothing = Estimate.not_measured("x", "no")
    assert outcome(nothing, 100.0) == "not_shown"
    weak = Estimate(
        method="guided", status="measured", value=1.0, low=0.5, high=2.0, confidence=0.8, n=9, statement=""
    )
    found = judge_exposures([measured(weak)], 10.0)
    assert found.outcome == "not_shown"
    assert "--confidence 0.95" in found.settle
    assert judge_exposures([measured(weak)], 10.0, confidence=0.8).outcome == "holds"


def test_an_extrapolated_curve_neither_satisfies_nor_breaks_a_rule():
    for value in (1.0, 15.0):
        curve = Estimate(
            method="extrapolated",
            status="measured",
            value=value,
            low=value - 0.5,
            high=value + 0.5,
            confidence=0.95,
            n=9,
            statement="",
        )
        found = judge_exposures([measured(curve)], 10.0)
        assert found.outcome == "not_shown"
        assert "extrapolated" in found.evidence
        assert "splitting" in found.settle


def test_no_canary_or_too_few_never_hold():
    assert judge_exposures([], 10.0).outcome == "not_shown"
    assert outcome(exact_exposure(512, 1024), 5.0, fewest=2) == "not_shown"


numbers = st.floats(0, 30, allow_nan=False)


@st.composite
def estimates(draw):
    low, value, high = sorted(draw(st.tuples(numbers, numbers, numbers)))
    status = draw(st.sampled_from(["measured", "lower_bound", "not_measured"]))
    known = status == "measured"
    return Estimate(
        method=draw(st.sampled_from(["guided", "references"])),
        status=status,
        value=value if known else None,
        low=None if status == "not_measured" else low,
        high=high if known else None,
        confidence=draw(st.sampled_from([None, 0.9, 0.95])),
        n=3,
        statement="as drawn",
    )


@given(st.lists(estimates(), min_size=1, max_size=6), numbers, st.floats(0, 10))
def test_a_rule_that_holds_is_supported_by_every_canary_and_keeps_holding_for_a_looser_limit(
    drawn, limit, more
):
    canaries = [measured(one, canary_id=str(place)) for place, one in enumerate(drawn)]
    found = judge_exposures(canaries, limit)
    if found.outcome == "holds":
        for one in drawn:
            assert one.high is not None
            assert one.high <= limit < 20.0
            assert one.status != "not_measured"
        # From the size of the space on, nothing could break it.
        assert (judge_exposures(canaries, limit + more).outcome == "holds") == (limit + more < 20.0)
    if found.outcome == "broken":
        assert any((one.low or 0) > limit for one in drawn)
        assert found.chance <= 0.025
        assert judge_exposures(canaries, limit / 2).outcome == "broken"


def test_how_often_a_canary_that_is_above_the_limit_passes():
    """However many canaries there are, one that is above passes with probability (1 - confidence) / 2 at most."""
    chance = np.random.default_rng(0)
    size, limit, passes, trials = 2**20, 5.0, 0, 400
    for _ in range(trials):
        sample = chance.random(400)  # the share of members below a score is the score itself
        above, below = 2.0**-5.02, 2.0**-1.0
        estimates = sampled_exposures([above, *[below] * 9], sample, size, 0.9)
        canaries = [measured(one) for one in estimates]
        passes += judge_exposures(canaries, limit, confidence=0.9).outcome == "holds"
    assert passes / trials < 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)


def test_all_at_once_asks_for_more_confidence_unless_numbers_are_exact():
    def canaries(confidence):
        return [
            measured(one) for one in sampled_exposures([0.4] * 4, np.linspace(0, 1, 200), 2**20, confidence)
        ]

    assert judge_exposures(canaries(0.95), 5.0).outcome == "holds"
    weak = judge_exposures(canaries(0.95), 5.0, all_at_once=True)
    assert weak.outcome == "not_shown"
    assert "--confidence 0.9875" in weak.settle
    assert judge_exposures(canaries(0.9875), 5.0, all_at_once=True).outcome == "holds"
    exact = [measured(exact_exposure(512, 1024))] * 9
    assert judge_exposures(exact, 5.0, all_at_once=True).outcome == "holds"


# Extraction


def came(name, place=None, *, proven=True, repetitions=4):
    return CanaryExtraction(
        canary_id=name,
        repetitions=repetitions,
        extracted=place is not None,
        place=place,
        expansions=None,
        proven=proven,
    )


@pytest.mark.parametrize(
    ("canaries", "most", "options", "expected"),
    [
        ([came("a"), came("b")], 0, {}, "holds"),
        ([came("a", 1), came("b")], 0, {}, "broken"),
        ([came("a", 1), came("b")], 1, {}, "holds"),
        ([came("a", 1, proven=False), came("b", proven=False)], 0, {}, "broken"),
        ([came("a", proven=False)], 0, {}, "not_shown"),
        ([came("a", proven=False)], 0, {"accept_unproven": True}, "holds"),
        ([came("a", proven=False)], 0, {"accept_unproven": True, "budget_at_least": 100}, "not_shown"),
        ([came("a", proven=False)], 0, {"accept_unproven": True, "budget_at_least": 50}, "holds"),
        ([came("a", proven=False)], 1, {}, "holds"),  # whatever became of it, it is only one
        ([came("a", 7)], 0, {"among_first": 5}, "holds"),
        ([came("a", 5)], 0, {"among_first": 5}, "broken"),
        ([came("a")], 0, {"fewest": 2}, "not_shown"),
        ([], 0, {}, "not_shown"),
    ],
)
def test_extraction_counts_what_is_proven(canaries, most, options, expected):
    assert judge_extractions(canaries, most, budget=60, **options).outcome == expected
