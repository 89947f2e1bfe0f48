"""The gate: each rule where its measures hold, are broken, open, absent, stale or doubted; policies; and what chance may break."""

import dataclasses
import shutil
from xml.etree import ElementTree as ET

import pytest
from scipy import stats

from coalmine import check, parse_policy, read_run
from coalmine.audits import Measure, Rule
from coalmine.errors import InputError
from coalmine.randomness import arrays
from coalmine.reports import gate
from coalmine.reports.gate import Policy, judge_rule, rules, template, write_junit
from coalmine.statistics import clopper_pearson, exact_exposure
from reports import report_runs as made
from reports.verdict_parts import interval, unknown
from resealing import resealed

HAIR = 1e-6
RULE = Rule(key="toys.at_most", of="toys", says="at most {limit:g}", example=10.0, settle="play more")


def outcome(*measures, rule=RULE, limit=10.0, **terms):
    return judge_rule(rule, limit, measures, Policy(**terms))


def measure(estimate, name="duck", **parts):
    return Measure(key="toys", name=name, estimate=estimate, **{"p_value": 1e-9, "about": (name,), **parts})


@pytest.mark.parametrize(
    ("estimate", "expected", "says"),
    [
        (interval(8.0, 6.0, 10.0), "holds", "as made"),
        (interval(8.0, 6.0, 10.0 + HAIR), "not_shown", "the limit lies in between"),
        (interval(12.0, 10.0 + HAIR, 14.0), "broken", "as made"),
        (interval(12.0, 10.0, 14.0), "not_shown", "the limit lies in between"),
        (interval(10.0, 10.0, 10.0, confidence=None), "holds", "as made"),
        (interval(None, 10.0, None), "not_shown", "there is no upper limit"),
        (interval(None, 10.0 + HAIR, None), "broken", "as made"),
        (interval(8.0, 6.0, 10.0, confidence=0.94), "not_shown", "a confidence of 94%, and 95% is asked for"),
        # At 95% the lower limit is 10.46, and 9.90.
        (interval(12.0, 10.5, 14.0, confidence=0.94), "broken", "as made"),
        (interval(12.0, 10.01, 14.0, confidence=0.94), "not_shown", ""),
        (unknown(), "not_shown", "there is no number"),
    ],
)
def test_a_measure_at_its_limit(estimate, expected, says):
    found = outcome(measure(estimate))
    assert found.outcome == expected
    assert says in found.evidence
    assert bool(found.settle) == (expected == "not_shown")


def test_lower_limits_share_the_level_of_those_that_are_not_exact():
    """12 bits, at least 10.2 with 95%: 9.94 at the level that two share."""
    width = stats.norm.ppf(1 - 0.025 / 2) / stats.norm.ppf(0.975)
    assert 12.0 - 1.8 * width == pytest.approx(9.94, abs=0.01)
    uncertain, low = measure(interval(12.0, 10.2, 14.0)), measure(interval(2.0, 1.0, 3.0))
    exact = measure(interval(2.0, 2.0, 2.0, confidence=None))
    assert outcome(uncertain).outcome == "broken"
    assert outcome(uncertain, low).outcome == "not_shown"
    assert outcome(uncertain, exact).outcome == "broken"
    # A limit that is exact at every level stays where it is.
    own = dataclasses.replace(uncertain, lower=lambda _: 10.2)
    assert outcome(own, low, low).outcome == "broken"


def test_a_rule_is_broken_only_beyond_chance():
    above = interval(12.0, 11.0, 13.0)
    for p_value, expected in ((0.025, "broken"), (0.0251, "not_shown")):
        assert outcome(measure(above, p_value=p_value)).outcome == expected
    # Two share the error.
    assert outcome(measure(above, p_value=0.013), measure(above, p_value=1.0)).outcome == "not_shown"
    assert outcome(measure(above, p_value=0.013), confidence=0.9).outcome == "broken"


@pytest.mark.parametrize(
    ("parts", "rule", "terms", "expected"),
    [
        ({"doubt": "the sign is wrong"}, RULE, {}, "not_shown"),
        ({"ceiling": 10.0}, RULE, {}, "not_shown"),
        ({"ceiling": 10.1}, RULE, {}, "holds"),
        ({}, dataclasses.replace(RULE, doubt=lambda *_: "pushed away"), {}, "not_shown"),
        ({}, dataclasses.replace(RULE, about_canaries=True), {"min_canaries": 2}, "not_shown"),
        ({"n": 2}, dataclasses.replace(RULE, about_canaries=True), {"min_canaries": 2}, "holds"),
        ({}, RULE, {"min_canaries": 2}, "holds"),
    ],
)
def test_what_keeps_a_rule_from_holding(parts, rule, terms, expected):
    assert outcome(measure(interval(8.0, 6.0, 9.0), **parts), rule=rule, **terms).outcome == expected


def test_a_bound_from_below_holds_where_it_could_have_shown_a_violation():
    rule = dataclasses.replace(RULE, by_violation=True)
    assert outcome(measure(interval(None, 3.0, None), ceiling=20.0), rule=rule).outcome == "holds"
    assert outcome(measure(interval(None, 3.0, None), ceiling=9.0), rule=rule).outcome == "not_shown"
    assert outcome(measure(interval(None, 11.0, None), ceiling=20.0), rule=rule).outcome == "broken"
    # Of two bounds above the limit, at a level that two cannot share, nothing is shown: they do not hold.
    two = [measure(interval(None, 11.0, None), name, ceiling=20.0) for name in ("duck", "ball")]
    assert outcome(*two, rule=rule).outcome == "not_shown"


@pytest.mark.parametrize(
    ("out", "unproven", "limit", "expected"),
    [
        (0, 0, 0, "holds"),
        (1, 0, 0, "broken"),
        (1, 0, 1, "holds"),
        (0, 1, 0, "not_shown"),
        (0, 1, 1, "holds"),
        (1, 1, 1, "not_shown"),
    ],
)
def test_a_number_of_things_counts_what_is_certain_and_what_is_possible(out, unproven, limit, expected):
    rule = dataclasses.replace(RULE, in_all=True)
    exactly = [
        measure(interval(float(n < out), float(n < out), float(n < out), confidence=None)) for n in range(3)
    ]
    open_ones = [measure(interval(None, 0.0, 1.0, confidence=None)) for _ in range(unproven)]
    assert outcome(*exactly, *open_ones, rule=rule, limit=limit).outcome == expected
    assert outcome(*exactly, measure(unknown()), rule=rule, limit=out).outcome == "not_shown"
    # A search that is gone is not one thing more, but all of them.
    assert outcome(*exactly, measure(unknown(), about=()), rule=rule, limit=9).outcome == "not_shown"


def test_without_memorization_a_rule_is_called_broken_in_few_runs():
    """A limit below what guessing gives is broken by chance alone, and then not more often than allowed."""
    generator = arrays(0, "gate", "innocent")
    broken = 0
    for _ in range(600):
        ranks = generator.integers(1, 2**20, 12)
        own = [
            measure(exact_exposure(int(rank), 2**20), str(rank), p_value=float(rank / 2**20))
            for rank in ranks
        ]
        broken += outcome(*own, limit=2.0).outcome == "broken"
    assert clopper_pearson(broken, 600, 0.99)[0] <= 0.025
    assert broken > 0


# Whole runs


def outcomes(run, policy):
    return {one.rule: one for one in check(run, parse_policy(policy)).rules}


EVERY = (
    "[exposure]\nat_most = 12\n[extraction]\nat_most_extracted = 0\n"
    "[membership]\nauc_at_most = 0.99\ntpr_at_fpr_1_percent_at_most = 0.9\nepsilon_at_most = 8.0\n"
)


def test_every_rule_is_judged_by_the_measures_of_its_audit(tmp_path):
    made.audited_run(tmp_path / "remembers")
    found = outcomes(read_run(tmp_path / "remembers"), EVERY)
    assert found["exposure.at_most"].outcome == found["extraction.at_most_extracted"].outcome == "broken"
    made.audited_run(tmp_path / "forgets", remembered=0)
    found = outcomes(
        read_run(tmp_path / "forgets"), f'require = ["exposure", "extraction", "membership"]\n{EVERY}'
    )
    assert {name: one.outcome for name, one in found.items() if "epsilon" not in name} == dict.fromkeys(
        [name for name in found if "epsilon" not in name], "holds"
    )


def test_a_rule_without_results_or_with_those_of_other_weights_is_not_shown(tmp_path):
    made.canary_set().save(tmp_path / "canaries.json")
    for name, one in outcomes(read_run(tmp_path), f'require = ["membership"]\n{EVERY}').items():
        assert (one.outcome, one.evidence) == ("not_shown", "there is no result of this audit"), name
        assert one.settle.startswith("run `coalmine ")
    made.audited_run(tmp_path / "run", remembered=0)
    for name in ("extraction", "membership", "references"):
        shutil.rmtree(tmp_path / "run" / name, ignore_errors=True)
    with resealed(tmp_path / "run" / "exposure" / "exposure.json") as document:
        document["model"]["weights_sha256"] = "9" * 64
    made.save_training(tmp_path / "run")
    stale = outcomes(read_run(tmp_path / "run" / "exposure", tmp_path / "run"), "[exposure]\nat_most = 12")[
        "exposure.at_most"
    ]
    assert (stale.outcome, stale.settle) == ("not_shown", "measure this model again")
    assert "the results are of other weights than those recorded" in stale.evidence


def test_the_outcome_of_a_policy_is_that_of_its_worst_rule_and_an_exit_code(tmp_path):
    made.audited_run(tmp_path / "run")
    result = check(read_run(tmp_path / "run"), parse_policy(EVERY))
    assert (result.outcome, result.exit_code) == ("broken", 1)
    assert gate.gate_lines(result)[-1].startswith("The policy is BROKEN: 2 of ")
    write_junit(result, tmp_path / "junit.xml")
    suite = ET.parse(tmp_path / "junit.xml").getroot()[0]
    assert (int(suite.get("failures")), len(suite)) == (result.counted("broken"), len(result.rules))
    assert len(suite.findall("testcase/failure")) == 2


# Policies


def test_the_template_has_every_rule_and_is_a_policy():
    text = template()
    assert parse_policy(text).limits == {"exposure.at_most": 10.0}
    everything = "\n".join(
        line[1:] if line.startswith("#") and not line.startswith("# ") else line for line in text.splitlines()
    )
    policy = parse_policy(everything)
    assert set(policy.limits) == set(rules())
    assert policy.up_to["exposure"] == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no rule, so every model would pass"),
        ("[exposure]\natmost = 3", "there is no key 'exposure.atmost'; known are exposure.at_most"),
        ("[exposure]\nat_most = -1", "exposure.at_most must be a number of at least 0, such as 10.0, got -1"),
        ("[exposure]\nat_most = nan", "got nan"),
        ("[membership]\nauc_at_most = 60", "at most 1, such as 0.6, got 60"),
        ("require = ['exposures']", "require names 'exposures', which is not an audit"),
    ],
)
def test_a_policy_is_read_strictly(text, message):
    with pytest.raises(InputError) as refused:
        parse_policy(text)
    assert message in str(refused.value)
