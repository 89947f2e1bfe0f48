"""What the gate computes itself: limits at another level, how much more measuring would decide, and what is missing."""

import math
from pathlib import Path
from statistics import NormalDist

import msgspec
import numpy as np
import pytest
from scipy.stats import t as student

from coalmine import Estimate, check, expose, parse_policy, read_run
from coalmine.audits import EXPOSURES, RuleOutcome
from coalmine.audits.exposure.coverage import without_exposure
from coalmine.audits.exposure.policy import judge_exposures, lower_limit, others_needed
from coalmine.audits.extraction.policy import judge_extractions
from coalmine.audits.extraction.results import CanaryExtraction
from coalmine.audits.membership.policy import judge_epsilon
from coalmine.evidence.limits import scores_needed
from coalmine.evidence.rates import NamedEstimate, judge_estimates
from coalmine.evidence.run import Located
from coalmine.reports.gate.checking import required_audits
from coalmine.reports.gate.table import gate_in_words
from coalmine.statistics import bounded_exposure, exact_exposure, reference_exposure, reference_exposures
from reports import report_runs as made
from reports.test_policy_limits import measured


def estimate(low, value, high, *, method="guided", confidence=0.95, n=100):
    status = "lower_bound" if value is None else "measured"
    return Estimate(
        method=method, status=status, value=value, low=low, high=high, confidence=confidence, n=n, statement="as given"
    )  # fmt: skip


# Limits at another level


def test_a_limit_at_a_higher_level_is_that_of_a_normal_error_or_of_few_runs():
    normal, few = NormalDist().inv_cdf, student(7).ppf
    found = lower_limit(estimate(10.0, 12.0, 13.0), 0.999)
    assert found == pytest.approx(12.0 - 2.0 * normal(0.9995) / normal(0.975))
    found = lower_limit(estimate(10.0, 12.0, 13.0, method="splitting"), 0.999)
    assert found == pytest.approx(12.0 - 2.0 * few(0.9995) / few(0.975))
    # Without a value, the error is measured from the upper limit: more than it can be.
    found = lower_limit(estimate(10.0, None, 13.0), 0.999)
    assert found == pytest.approx(13.0 - 3.0 * normal(0.9995) / normal(0.975))


def test_a_limit_at_a_level_that_it_has_stays_and_one_that_is_not_there_is_none():
    assert lower_limit(estimate(10.0, 12.0, 13.0), 0.95) == 10.0
    assert lower_limit(estimate(10.0, 12.0, 13.0), 0.5) == 10.0
    assert lower_limit(estimate(10.0, 12.0, 13.0, confidence=None), 0.999) == 10.0
    assert lower_limit(estimate(10.0, None, None), 0.999) == -math.inf
    assert lower_limit(estimate(None, 12.0, 13.0), 0.5) == -math.inf


# How much more measuring would decide


def best_of(n, canaries=1):
    """The judgment of a canary that beats n references, beside others in the middle."""
    first, *rest = reference_exposures([0.5, *[n / 2] * (canaries - 1)], np.arange(1.0, n + 1))
    return judge_exposures([measured(first), *(measured(one) for one in rest)], 10.0).outcome


@pytest.mark.parametrize("canaries", [1, 40])
def test_as_many_references_as_are_advised_decide_and_half_as_many_do_not(canaries):
    level = 1 - 0.05 / canaries
    found = others_needed(
        reference_exposure(0.5, np.arange(1.0, 101.0)), 10.0, level, chance_level=0.025, canaries=canaries
    )
    assert best_of(found, canaries) == "broken"
    assert best_of(found // 2, canaries) == "not_shown"
    assert found == int(float(f"{found:.1e}"))  # two digits, because it is a guess


def test_as_many_as_are_advised_show_that_an_exposure_is_within_the_limit():
    def share_of(n):
        """15 in 10,000 references are no more surprising: 9.38 bits, which is within 10."""
        return reference_exposure(0.0015 * n + 0.5, np.arange(1.0, n + 1))

    found = others_needed(share_of(2_000), 10.0, 0.95, 0.025, 1)
    assert judge_exposures([measured(share_of(found))], 10.0).outcome == "holds"
    assert judge_exposures([measured(share_of(found // 2))], 10.0).outcome == "not_shown"


def test_nothing_is_advised_where_it_would_not_help():
    # The share is that of the limit itself.
    at_the_limit = reference_exposure(4.5, np.arange(1.0, 4097.0))
    assert others_needed(at_the_limit, 10.0, 0.95, 0.025, 1) is None
    assert others_needed(exact_exposure(5, 1024), 10.0, 0.95, 0.025, 1) is None
    # A single reference is a beginning, too.
    one = others_needed(reference_exposure(0.5, np.array([1.0])), 10.0, 0.95, 0.025, 1)
    assert best_of(one) == "broken"


@pytest.mark.parametrize(
    ("given", "limit", "expected"),
    [
        # Half of an interval shrinks with the root of the number of scores, and must come down to the distance.
        ((0.25, 0.50, 0.75), 0.625, 400),
        ((0.50, 0.75, 0.875), 0.625, 400),
        ((0.40, 0.50, 0.60), 0.61, 110),  # decided already; one more, rounded up to two digits
        ((0.40, 0.50, 0.60), 0.50, None),
        ((0.50, 0.50, 0.50), 0.55, None),
        ((0.40, 0.50, 0.60), 0.50001, None),  # more than ten million
        ((None, 0.50, 0.60), 0.55, None),
    ],
)
def test_scores_that_would_decide(given, limit, expected):
    assert scores_needed(estimate(*given), limit, 100) == expected


def test_what_to_measure_depends_on_how_it_was_measured():
    def advice(one):
        return judge_exposures([measured(one, 29.9)], 10.0).settle

    assert "--budget" in advice(bounded_exposure(1_200, 40_000_000, 10**9))
    assert "more draws" in advice(estimate(8.0, 10.0, 12.0))
    assert "`coalmine expose --samples`" in advice(estimate(8.0, 10.0, 12.0, method="sampled"))
    assert "`coalmine plant --references`" in advice(reference_exposure(0.5, np.arange(1.0, 101.0)))


# Limits are met exactly


def test_a_lower_limit_at_the_limit_does_not_break_a_rule_and_an_upper_one_keeps_it():
    assert judge_exposures([measured(estimate(10.0, 12.0, 13.0))], 10.0).outcome == "not_shown"
    assert judge_exposures([measured(estimate(10.001, 12.0, 13.0))], 10.0).outcome == "broken"
    assert judge_exposures([measured(estimate(8.0, 9.0, 10.0))], 10.0).outcome == "holds"
    # In a space of ten bits the first guess has ten, which is within the limit: nothing could break it.
    assert "would not break" in judge_exposures([measured(exact_exposure(1, 1024), 10.0)], 10.0).evidence
    assert judge_exposures([measured(exact_exposure(1, 1024), 10.01)], 10.0).outcome == "holds"


def test_rates_share_their_level_and_their_chance():
    def found(*given, limit=0.5):
        rates = [NamedEstimate(str(place), one, p, 100) for place, (one, p) in enumerate(given)]
        return judge_estimates(rates, limit, rule="r", asks="a", what="populations", confidence=0.95)

    above = estimate(0.55, 0.7, 0.85)
    assert found((above, 0.02)).outcome == "broken"
    # Of three, one must be above its limit at 98.3%, and three times less likely by chance.
    calm = (estimate(0.2, 0.3, 0.4), 0.9)
    assert found((above, 0.02), calm, calm).chance == pytest.approx(0.06)
    assert found((estimate(0.501, 0.7, 0.85), 1e-9), calm, calm).outcome == "not_shown"
    assert found((estimate(0.501, 0.7, 0.85), 1e-9)).outcome == "broken"
    assert found((estimate(0.5, 0.7, 0.85), 1e-9)).outcome == "not_shown"
    assert found((estimate(0.3, 0.4, 0.5), 0.9)).outcome == "holds"
    weak = found((estimate(0.3, 0.4, 0.5, confidence=0.9), 0.9))
    assert (weak.outcome, weak.settle) == ("not_shown", "measure with --confidence 0.95")
    assert found((estimate(0.3, 0.4, None), 0.9)).outcome == "not_shown"


# What is not there


def test_where_nothing_was_judged_chance_explains_everything():
    asked = {"rule": "r", "asks": "a", "confidence": 0.95}
    for found in (
        judge_exposures([], 10.0),
        judge_extractions([], 0, budget=None),
        judge_estimates([], 0.5, what="groups", **asked),
        judge_epsilon([], 1.0, **asked),
    ):
        assert (found.outcome, found.chance, found.judged) == ("not_shown", 1.0, 0)


def looked_for(name, place=None, *, proven=True):
    return CanaryExtraction(
        canary_id=name, repetitions=4, extracted=place is not None, place=place, expansions=None, proven=proven
    )  # fmt: skip


@pytest.mark.parametrize(
    ("most", "missing", "options", "expected"),
    [
        (0, ["c"], {}, "not_shown"),  # it may have come out
        (1, ["c"], {}, "holds"),  # and is one at most
        (1, ["c", "d"], {}, "not_shown"),
        (0, ["c"], {"accept_unproven": True}, "not_shown"),
        (0, [], {}, "holds"),
    ],
)
def test_planted_canaries_that_were_not_looked_for_count_as_out(most, missing, options, expected):
    found = judge_extractions([looked_for("a"), looked_for("b")], most, budget=60, missing=missing, **options)
    assert found.outcome == expected


def test_what_came_out_breaks_a_rule_only_beyond_chance():
    canaries = [looked_for("a", 3), looked_for("b")]
    assert judge_extractions(canaries, 0, budget=9).outcome == "broken"
    # Half of the error is for the best one, and it is the best of two.
    assert judge_extractions(canaries, 0, budget=9, chances={"a": 0.006}).outcome == "broken"
    assert judge_extractions(canaries, 0, budget=9, chances={"a": 0.0065}).outcome == "not_shown"
    assert "a at place 3" in judge_extractions(canaries, 0, budget=9).evidence


@pytest.fixture(scope="module")
def partly_measured(tmp_path_factory):
    """A manifest with canaries of 1 and 16 copies, and the exposures of those of one copy alone."""
    canaries = made.canary_set(repetitions=(1, 16), each=3)
    folder = tmp_path_factory.mktemp("partly")
    expose(made.scripted(), canaries).save(folder)
    document = read_run(folder).first(EXPOSURES)
    kept = tuple(one for one in document.results if one.repetitions <= 1)
    return canaries, msgspec.structs.replace(document, results=kept)


def test_canaries_without_a_result_are_missing_from_the_rules_about_them(partly_measured, tmp_path):
    canaries, document = partly_measured
    run = made.run_with(tmp_path, document, manifests=(Located(tmp_path / "canaries.json", canaries),))
    assert len(without_exposure(run)) == len(without_exposure(run, exactly=16)) == 3
    assert len(without_exposure(run, 16)) == 3
    assert without_exposure(run, 15) == without_exposure(run, exactly=1) == []
    found = check(run, parse_policy("[exposure.by_repetitions]\n1 = 12\n16 = 12"))
    assert [one.outcome for one in found.rules] == ["holds", "not_shown"]
    assert "no result covers it" in found.rules[1].evidence


def test_results_of_other_weights_are_told_from_results_that_are_not_there(partly_measured, tmp_path):
    run = made.run_with(tmp_path, partly_measured[1])
    policy = parse_policy('require = ["exposure", "membership"]')
    stale, absent = required_audits(run, policy, "the results are of other weights")
    assert (stale.evidence, stale.settle) == ("the results are of other weights", "measure this model again")
    assert absent.evidence == "there is no result of this audit"
    assert "coalmine membership" in absent.settle


def test_only_what_is_not_shown_is_said_to_be_settled_and_only_where_something_would():
    def rule(name, outcome, settle):
        return RuleOutcome(
            rule=name, asks="", outcome=outcome, words="", evidence="", judged=1, settle=settle
        )

    rules = (rule("a", "not_shown", "more"), rule("b", "not_shown", ""), rule("c", "broken", "less"))
    found = check(made.run_with(Path()), parse_policy("[exposure]\nat_most = 1"))
    lines = gate_in_words(msgspec.structs.replace(found, rules=rules))
    assert [line for line in lines if "settle" in line] == ["What would settle a: more."]
