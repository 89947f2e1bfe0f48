"""How single outcomes become one, share the error of a policy, and are put into words."""

import math

import msgspec
import pytest

from coalmine.audits import RuleOutcome, not_shown
from coalmine.evidence.outcomes import (
    PartOutcome,
    error_level,
    interval_words,
    together,
    too_weak,
    within,
    within_budget,
)
from coalmine.reports.gate.table import gate_in_words, write_junit
from reports.verdict_parts import interval


def joined(*judged, chance=0.001, level=0.025, **options):
    return together("r", "asks", judged, what="canaries", chance=chance, level=level, **options)


HOLDS, NEARER = PartOutcome("a", "holds", "3 bits", 3.0), PartOutcome("b", "holds", "5 bits", 5.0)
OPEN, WORSE_OPEN = (
    PartOutcome("c", "not_shown", "6 bits", 6.0, "more of c"),
    PartOutcome("d", "not_shown", "8 bits", 8.0, "more of d"),
)
BROKEN, WORSE = PartOutcome("e", "broken", "11 bits", 11.0), PartOutcome("f", "broken", "12 bits", 12.0)


def test_all_must_hold_and_the_nearest_to_the_limit_is_named():
    found = joined(HOLDS, NEARER, HOLDS)
    assert (found.outcome, found.words, found.judged, found.settle) == ("holds", "holds", 3, "")
    assert found.evidence == "3 of 3 canaries within it; nearest: b, 5 bits"
    assert found.details == ()


def test_one_that_is_open_keeps_a_rule_open_and_the_worst_says_what_settles_it():
    found = joined(HOLDS, OPEN, WORSE_OPEN, OPEN)
    assert (found.outcome, found.words, found.settle) == ("not_shown", "not shown", "more of d")
    assert found.evidence == "3 of 4 canaries not shown either way; d: 8 bits"
    assert found.details == ("c: 6 bits", "d: 8 bits", "c: 6 bits")


def test_one_that_is_broken_breaks_a_rule():
    found = joined(BROKEN, WORSE, HOLDS, warnings=["beware"])
    assert (found.outcome, found.words, found.judged) == ("broken", "broken", 3)
    assert found.evidence == "2 of 3 canaries above it; worst: f, 12 bits"
    assert found.details == ("e: 11 bits", "f: 12 bits")
    assert found.warnings == ("beware",)
    assert joined(WORSE, BROKEN, OPEN).evidence.endswith("worst: f, 12 bits; 1 more are not shown either way")


@pytest.mark.parametrize(
    ("judged", "fewest", "outcome"), [(0, 1, "not_shown"), (1, 2, "not_shown"), (2, 2, "holds")]
)
def test_too_few_do_not_hold(judged, fewest, outcome):
    found = joined(*[HOLDS] * judged, fewest=fewest)
    assert found.outcome == outcome
    if outcome == "not_shown":
        assert found.evidence == f"{judged} canaries were judged, and the policy asks for at least {fewest}"
        assert found.settle == f"plant at least {fewest} canaries of this kind"
    # Without a number in the policy, one is enough and none is not.
    assert joined(HOLDS).outcome == "holds"
    assert joined().outcome == "not_shown"


@pytest.mark.parametrize(
    ("chance", "broken"),
    [
        (0.0, True),
        (0.0249, True),
        (0.025, True),
        (0.025 * (1 + 1e-9), True),
        (0.02501, False),
        (0.04, False),
        (1.0, False),
    ],
)
def test_what_chance_explains_breaks_nothing(chance, broken):
    found = joined(BROKEN, chance=chance)
    assert found.outcome == ("broken" if broken else "not_shown")
    assert found.chance == chance
    if not broken:
        said = {0.02501: "2.5%", 0.04: "4%", 1.0: "all"}[chance]
        assert found.words == "not shown"
        assert f"in up to {said} of runs, and this rule allows 2.5%" in found.evidence
        assert "another --seed" in found.settle
    # It does not touch the other outcomes, and a rule about results being there has no chance.
    assert joined(HOLDS, chance=chance).outcome == "holds"
    assert within(msgspec.structs.replace(found, outcome="broken", chance=None), 0.025).outcome == "broken"


def rule(outcome, chance):
    return RuleOutcome(
        rule=str(chance), asks="", outcome=outcome, words="", evidence="", judged=1, chance=chance
    )


@pytest.mark.parametrize(
    ("rules", "outcomes"),
    [
        ([("broken", 0.025)], ["broken"]),
        # A rule that holds takes its share, as Holm's procedure asks: it could have been broken.
        ([("broken", 0.02), ("holds", 0.9)], ["not_shown", "holds"]),
        ([("broken", 0.0125), ("holds", 0.001)], ["broken", "holds"]),
        # One that is shown leaves its share to the other.
        ([("broken", 0.025), ("broken", 0.0125)], ["broken", "broken"]),
        ([("broken", 0.0251), ("broken", 0.0)], ["not_shown", "broken"]),
        ([("broken", 0.0126), ("broken", 0.0126)], ["not_shown", "not_shown"]),
        # Whether results are there takes no share.
        ([("not_shown", None), ("broken", 0.025), ("holds", None)], ["not_shown", "broken", "holds"]),
    ],
)
def test_rules_share_the_error_by_holms_procedure(rules, outcomes):
    assert [one.outcome for one in within_budget([rule(*one) for one in rules], 0.025)] == outcomes


def test_the_levels():
    assert error_level(0.95) == pytest.approx(0.025)
    assert error_level(0.9) == pytest.approx(0.05)
    nothing = not_shown("r", "asks", "why")
    assert (nothing.judged, nothing.chance, nothing.outcome, nothing.words) == (
        0,
        None,
        "not_shown",
        "not shown",
    )


@pytest.mark.parametrize(
    ("confidence", "weak"),
    [(None, False), (0.95, False), (0.95 - 1e-9, False), (0.95 - 3e-9, True), (0.94, True), (0.99, False)],
)
def test_an_interval_counts_from_the_confidence_that_is_asked_for(confidence, weak):
    assert too_weak(interval(1.0, 0.0, 2.0, confidence=confidence), 0.95) == weak


@pytest.mark.parametrize(
    ("estimate", "unit", "words"),
    [
        (interval(1.0, 0.1234, 2.3412), "bits", "1.00 bits (95% interval 0.12 to 2.35)"),
        (interval(0.5, 0.12341, 0.98761), "", "0.5000 (95% interval 0.1234 to 0.9877)"),
        (interval(1.0, 0.1234, 2.3412, confidence=None), "bits", "1.00 bits (0.12 to 2.35)"),
        (interval(3.0, 3.0, 3.0, confidence=None), "bits", "exactly 3.00 bits"),
        (interval(None, 4.648, 19.662, confidence=None), "bits", "at least 4.64 and at most 19.67 bits"),
        (interval(None, 4.648, 19.662), "bits", "at least 4.64 bits"),
        (interval(None, 4.648, None, confidence=None), "bits", "at least 4.64 bits"),
    ],
)
def test_intervals_are_rounded_outwards(estimate, unit, words):
    assert interval_words(estimate, unit) == words


def verdict_words(*outcomes, settle=""):
    from coalmine.reports.gate.checking import EXIT_CODES, GateResult
    from coalmine.reports.gate.policy import Policy

    rules = tuple(
        msgspec.structs.replace(rule(one, 0.5), rule=f"r{place}", settle=settle)
        for place, one in enumerate(outcomes)
    )
    worst = next(one for one in ("broken", "not_shown", "holds") if one in outcomes)
    result = GateResult(run="run", outcome=worst, exit_code=EXIT_CODES[worst], rules=rules, policy=Policy())
    return result, gate_in_words(result)


def test_the_verdict_in_a_sentence(tmp_path):
    assert verdict_words("holds", "holds")[1] == ["The policy holds: 2 of 2 rules."]
    assert verdict_words("broken", "holds")[1] == ["The policy is BROKEN: 1 of 2 rules."]
    both = verdict_words("broken", "not_shown", "not_shown")[1]
    assert both == ["The policy is BROKEN: 1 of 3 rules. Besides, 2 are not shown either way."]
    # What would settle a rule is said of those that are open, where there is something to say.
    open_one = verdict_words("holds", "not_shown", settle="measure again")[1]
    assert open_one == [
        "What would settle r1: measure again.",
        "The policy is NOT SHOWN to hold, and not shown to be broken: 1 of 2 rules.",
    ]
    result, said = verdict_words("broken", "not_shown", settle="")
    assert said == ["The policy is BROKEN: 1 of 2 rules. Besides, 1 is not shown either way."]
    write_junit(result, tmp_path / "junit.xml")
    assert "what would settle it" not in (tmp_path / "junit.xml").read_text()


def test_infinite_limits_are_the_worst():
    assert joined(OPEN, PartOutcome("g", "not_shown", "no number", math.inf), WORSE_OPEN).evidence.endswith(
        "g: no number"
    )
