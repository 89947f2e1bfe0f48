"""What membership tells reports: the tests of each population, their severity, and what keeps them from being clear."""

import pytest

from coalmine import check, findings_of, parse_policy
from coalmine.audits.membership.report import measures
from reports import verdict_parts as made

SHOWN, CHANCE = 1e-9, 0.9


def run_of(*populations, **parts):
    return made.run_of(memberships=[made.memberships(*populations, **parts)])


def the(run, key):
    (one,) = [one for one in findings_of(run) if one.key == key]
    return one


def test_every_population_has_three_tests_and_a_claim_one():
    rates = (
        made.rate(0.3, 0.2, 0.4, at="10%"),
        made.rate(0.2, 0.1, 0.3),
        made.rate(None, None, None, at="0.1%", measured=False),
    )
    first = made.population(p_value=0.1, rates=rates, rate_p_values=(0.2, 0.3, None), epsilon_p_value=0.4)
    pooled = made.population("all", pooled=True, p_value=0.0, epsilon_p_value=0.0)
    run = run_of(first, pooled, verdict=made.verdict("violated", p_value=0.6))
    tests = {one.key: one.p_value for one in measures(run) if one.is_test and one.p_value is not None}
    assert tests == {
        "membership.auc": 0.1,
        "membership.tpr": 0.3,
        "membership.epsilon": 0.4,
        "membership.claim": 0.6,
    }


@pytest.mark.parametrize(
    ("auc", "p_value", "status", "severity"),
    [
        (made.area(0.85, 0.8, 0.9), SHOWN, "found", "high"),
        (made.area(0.85, 0.8, 0.899), SHOWN, "found", "medium"),
        (made.area(0.65, 0.6, 0.699), SHOWN, "found", "low"),
        (made.area(0.65, 0.6, 0.7), 0.0251, "not_measured", "info"),
        (made.area(0.55, 0.5, 0.6), CHANCE, "clear", "pass"),
        (made.area(0.55, 0.5, 0.601), CHANCE, "not_measured", "info"),
        # Members score lower than non-members: half of the error of the interval is on that side.
        (made.area(0.1, 0.0, 0.49), 1.0, "not_measured", "info"),
        (made.unknown("AUC"), CHANCE, "not_measured", "info"),
    ],
)
def test_the_area(auc, p_value, status, severity):
    one = the(run_of(made.population(auc=auc, p_value=p_value)), "membership.auc")
    assert (one.status, one.severity) == (status, severity)


@pytest.mark.parametrize(
    ("low", "p_value", "status", "severity"),
    [
        (8.0, SHOWN, "found", "high"),
        (1.0, SHOWN, "found", "medium"),
        (0.99, SHOWN, "found", "low"),
        (8.0, CHANCE, "not_measured", "info"),
        (8.0, None, "not_measured", "info"),
    ],
)
def test_a_bound_on_epsilon(low, p_value, status, severity):
    one = the(
        run_of(made.population(epsilon=(low, low), epsilon_p_value=p_value, ceiling=9.876)),
        "membership.epsilon",
    )
    assert (one.status, one.severity) == (status, severity)
    assert "the most this many scores could prove is 9.87" in one.evidence


@pytest.mark.parametrize(
    ("verdict", "severity", "status"),
    [
        (made.verdict("violated", p_value=0.0125, power=None), "critical", "found"),
        (made.verdict("violated", p_value=0.0126, power=None), "info", "not_measured"),
        (made.verdict("consistent"), "pass", "clear"),
        (made.verdict("too little power"), "info", "not_measured"),
    ],
)
def test_a_claim_shares_the_error_and_breaks_every_policy(verdict, severity, status):
    run = run_of(made.population(p_value=CHANCE), verdict=verdict)
    assert (the(run, "membership.claim").severity, the(run, "membership.claim").status) == (severity, status)
    rules = {
        one.rule: one.outcome for one in check(run, parse_policy("[membership]\nauc_at_most = 0.9")).rules
    }
    assert rules["membership.claim"] == {"found": "broken", "clear": "holds"}.get(
        status, "not_shown" if verdict.outcome == "violated" else "holds"
    )


def test_scores_without_an_answer_do_not_make_a_claim_consistent():
    run = run_of(made.population(auc=made.unknown("AUC"), p_value=1.0), verdict=made.verdict("consistent"))
    assert the(run, "membership.claim").status == "not_measured"


def outcome(policy, *populations, **parts):
    (rule, *_) = check(run_of(*populations, **parts), parse_policy(f"[membership]\n{policy}")).rules
    return rule.outcome


def test_rules_are_judged_for_each_population():
    calm, sharp = made.population(auc=made.area(0.55, 0.5, 0.59)), made.area(0.8, 0.75, 0.85)
    assert outcome("auc_at_most = 0.6", calm) == "holds"
    assert (
        outcome("auc_at_most = 0.6", calm, made.population("two", copies=2, auc=sharp, p_value=SHOWN))
        == "broken"
    )
    assert (
        outcome("auc_at_most = 0.6\nup_to_repetitions = 1", calm, made.population("two", copies=2, auc=sharp))
        == "holds"
    )
    assert outcome("epsilon_at_most = 1.0", made.population(epsilon=(0.5, 0.5), ceiling=3.0)) == "holds"
    assert outcome("epsilon_at_most = 5.0", made.population(epsilon=(0.5, 0.5), ceiling=3.0)) == "not_shown"
    assert (
        outcome("epsilon_at_most = 1.0", made.population(epsilon=(1.5, 1.5), epsilon_p_value=SHOWN))
        == "broken"
    )
