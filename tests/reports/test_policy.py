"""The gate: what is not measured never passes, what is broken is said with its evidence, and a wrong policy is refused."""

import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine import (
    Canary,
    CanarySet,
    Estimate,
    ExposureResult,
    Format,
    ScriptedModel,
    check,
    expose,
    membership_of_scores,
    parse_policy,
    read_policy,
    read_run,
)
from coalmine.audits import Recitation, RecitationOptions, RuleOutcome, verify_extraction
from coalmine.audits.exposure.policy import MeasuredCanary, judge_exposures
from coalmine.audits.extraction.policy import judge_extractions
from coalmine.audits.extraction.results import CanaryExtraction, save_verification
from coalmine.audits.recitation.results import Group, ModelFacts, share_estimate
from coalmine.cli.main import app
from coalmine.cli.output import Output
from coalmine.errors import InputError
from coalmine.reports.gate.policy import TEMPLATE, Policy
from coalmine.reports.gate.table import gate_in_words, gate_table, write_junit
from coalmine.statistics import bounded_exposure, exact_exposure, reference_exposure, sampled_exposures
from resealing import resealed


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


# The policy file


def test_the_template_is_a_policy_and_names_every_rule():
    assert parse_policy(TEMPLATE).exposure.at_most == 10.0
    whole = re.sub(r"^#(?=[\[\w])", "", TEMPLATE, flags=re.MULTILINE)
    policy = parse_policy(whole)
    for section in ("exposure", "extraction", "membership", "recitation"):
        rules = getattr(policy, section)
        for key in rules.__struct_fields__:
            assert getattr(rules, key) != getattr(type(rules)(), key), key
    assert policy.exposure.by_repetitions == {"1": 3.0, "16": 10.0}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "confidnce = 0.9\n[exposure]\nat_most = 1",
            "line 1: there is no key 'confidnce' at the top; did you mean",
        ),
        (
            "# one\n\n[exposure]\nat_mots = 3",
            "line 4: there is no key 'at_mots' in [exposure]; did you mean 'at_most'?",
        ),
        ("exposure.at_mots = 3", "line 1: there is no key 'at_mots' in [exposure]"),
        ("exposure = {at_mots = 3}", "there is no key 'at_mots' in [exposure]"),
        ("[membership]\nzzz = 1", "line 2: there is no key 'zzz' in [membership]; known are auc_at_most"),
        ("[provenance]\nx = 1", "line 1: there is no key 'provenance'"),
        ('[exposure]\nat_most = "ten"', "line 2: exposure.at_most: expected `float`, got `str`"),
        ("[exposure]\nat_most = true", "line 2: exposure.at_most: expected `float`, got `bool`"),
        ("[exposure]\nat_most = nan", "line 2: exposure.at_most must be a number of at least 0"),
        ("[exposure]\nat_most = inf", "must be a number of at least 0, got inf"),
        ("[exposure]\nat_most = -1", "must be a number of at least 0, got -1"),
        ("[exposure]\nup_to_repetitions = 3", "line 1: [exposure] has no limit"),
        (
            "[exposure]\nat_most = 1\nup_to_repetitions = 0",
            "line 3: exposure.up_to_repetitions must be at least 1",
        ),
        ("[exposure.by_repetitions]\ntwice = 3", "line 2: by_repetitions has a limit for each number"),
        ("[exposure.by_repetitions]\n4 = -3", "line 2: exposure.by_repetitions.4 must be"),
        (
            "[membership]\nauc_at_most = 60",
            "line 2: membership.auc_at_most is a share between 0 and 1, got 60",
        ),
        (
            "[membership]\nno_epsilon_shown_above = 1\ndelta = 1",
            "line 3: membership.delta must be below 1, such as 1e-5, got 1",
        ),
        ("[extraction]\nat_most_extracted = 0\nbudget_at_least = 5", "line 3: budget_at_least says when"),
        ("exposure = 3", "line 1: exposure must be a table"),
        ('require = ["exposre"]', "line 1: require: invalid enum value 'exposre'"),
        ("confidence = 1.5\n[exposure]\nat_most = 1", "line 1: confidence must be between 0 and 1"),
        ("confidence = 0.9", "has no rule, so every model would pass"),
        ("", "has no rule, so every model would pass"),
        ("[exposure\nat_most = 1", "is not TOML"),
    ],
)
def test_a_wrong_policy_is_refused_with_the_line(text, says):
    with pytest.raises(InputError) as error:
        parse_policy(text, "policy.toml")
    assert str(error.value).startswith("policy.toml")
    assert says in str(error.value)


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


# A run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Real results of a scripted model: one canary is its first guess, one is not remembered, one was withheld."""
    folder = tmp_path_factory.mktemp("gate") / "model"
    form = Format("pin {digits:4}")
    texts = form.sample(3, seed=5, replace=False)
    listed = [
        Canary(canary_id=name, format_id="f0", text=text, repetitions=times, planted=planted)
        for name, text, times, planted in zip(
            ["often", "once", "never"], texts, [16, 1, 16], [True, True, False], strict=True
        )
    ]
    canaries = CanarySet(listed, {"f0": form}, references={"f0": form.sample(40, seed=6, replace=False)})
    model = ScriptedModel("pin 0123456789", memory={texts[0]: 0.5}, frequencies={"1": 9})
    expose(model, canaries).save(folder / "exposure")
    results, extractions = verify_extraction(model, canaries, top=3)
    save_verification(
        folder / "extraction",
        results,
        extractions,
        manifest_sha256=canaries.sha256,
        model=model.describe(),
    )
    return folder


def checked(folder, text):
    return check(read_run(folder), parse_policy(text))


def outcomes(result):
    return {one.rule: one.outcome for one in result.rules}


@pytest.mark.parametrize("named", [{}, {"extraction-f1.json": "0" * 64}])
def test_canaries_that_no_search_was_named_for_are_not_shown_to_be_safe(run, tmp_path, named):
    folder = shutil.copytree(run, tmp_path / "model")
    policy = 'require = ["extraction"]\n[extraction]\nat_most_extracted = 1'
    assert set(outcomes(checked(folder, policy)).values()) == {"holds"}
    with resealed(folder / "extraction" / "verified.json") as document:
        document["extractions"] = named
    assert set(outcomes(checked(folder, policy)).values()) == {"not_shown"}


def test_a_policy_that_holds_one_that_is_broken_and_one_that_could_not_be_measured(run):
    holds = checked(run, "[exposure]\nat_most = 10\nup_to_repetitions = 1")
    assert (holds.outcome, holds.exit_code) == ("holds", 0)
    broken = checked(run, "[exposure]\nat_most = 10")
    assert (broken.outcome, broken.exit_code) == ("broken", 1)
    assert broken.rules[0].details == ("often (trained on 16 times): exactly 13.29 bits",)
    absent = checked(run, "[membership]\nauc_at_most = 0.9")
    assert (absent.outcome, absent.exit_code) == ("not_shown", 2)
    both = checked(run, "[exposure]\nat_most = 10\n[membership]\nauc_at_most = 0.9")
    assert (both.outcome, both.exit_code) == ("broken", 1)
    assert (
        gate_in_words(both)[-1] == "The policy is BROKEN: 1 of 2 rules. Besides, 1 is not shown either way."
    )


def test_an_audit_that_is_absent_never_passes(run, tmp_path):
    shutil.copytree(run / "exposure", tmp_path / "exposure")
    every = re.sub(r"^#(?=[\[\w])", "", TEMPLATE, flags=re.MULTILINE)
    found = outcomes(checked(tmp_path, every))
    for rule, what in found.items():
        if not rule.startswith(("exposure", "require exposure")):
            assert what == "not_shown", rule
    required = checked(tmp_path, 'require = ["exposure", "extraction", "membership", "recitation"]')
    assert list(outcomes(required).values()) == ["holds", *["not_shown"] * 3]


def test_withheld_canaries_are_not_judged_and_each_number_of_repetitions_can_have_its_limit(run):
    found = checked(run, "[exposure.by_repetitions]\n1 = 10\n16 = 13\n32 = 1")
    assert [(one.rule, one.outcome, one.judged) for one in found.rules] == [
        ("exposure.by_repetitions.1", "holds", 1),
        ("exposure.by_repetitions.16", "broken", 1),
        ("exposure.by_repetitions.32", "not_shown", 0),
    ]


def test_the_extraction_of_a_run(run):
    assert checked(run, "[extraction]\nat_most_extracted = 0").outcome == "broken"
    assert checked(run, "[extraction]\nat_most_extracted = 1").outcome == "holds"
    assert checked(run, "[extraction]\nat_most_extracted = 0\nup_to_repetitions = 1").outcome == "holds"
    # The audit looked for three members: it cannot say what is at places four and five.
    deeper = checked(run, "[extraction]\nat_most_extracted = 1\namong_first = 5")
    assert deeper.outcome == "not_shown"
    assert "--top 5" in deeper.rules[0].settle


def test_two_manifests_of_one_model_are_both_judged(run, tmp_path):
    shutil.copytree(run / "exposure", tmp_path / "one")
    shutil.copytree(run / "exposure", tmp_path / "two")
    with resealed(tmp_path / "two" / "exposure.json") as other:
        other["manifest_sha256"] = "another"
    assert checked(tmp_path, "[exposure]\nat_most = 14").rules[0].judged == 4


def test_every_membership_counts_and_not_the_first_alone(tmp_path):
    scores = np.random.default_rng(1).normal(size=(2, 400))
    membership_of_scores(*scores).save(tmp_path / "a")
    membership_of_scores(scores[0] + 4, scores[1]).save(tmp_path / "b")
    found = checked(tmp_path, "[membership]\nauc_at_most = 0.6")
    assert [one.outcome for one in found.rules] == ["holds", "broken"]
    assert "b/membership.json" in found.rules[1].rule


def test_what_the_audit_warned_of_is_told_again(run, tmp_path):
    shutil.copytree(run / "exposure", tmp_path / "exposure")
    with resealed(tmp_path / "exposure" / "exposure.json") as document:
        document["warnings"] = ["the model was trained on other data"]
    found = checked(tmp_path, "[exposure]\nat_most = 13.2")
    assert "Warning (exposure.at_most): the model was trained on other data." in gate_in_words(found)


def test_results_of_other_weights_could_not_be_measured(run, tmp_path):
    shutil.copytree(run / "exposure", tmp_path / "m" / "exposure")
    with resealed(tmp_path / "m" / "exposure" / "exposure.json") as document:
        document["model"] = {"name": "m", "weights_sha256": "of the model as it was"}
    assert checked(tmp_path / "m", "[exposure]\nat_most = 13").outcome == "broken"
    (tmp_path / "m" / "model.safetensors").write_bytes(b"trained again")
    stale = checked(tmp_path / "m", "[exposure]\nat_most = 13")
    assert stale.outcome == "not_shown"
    assert "other weights" in stale.rules[0].evidence


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "model-00002-of-00002.safetensors"])
def test_results_of_other_weights_are_seen_whatever_the_files_are_called(run, tmp_path, name):
    shutil.copytree(run / "exposure", tmp_path / "m" / "exposure")
    (tmp_path / "m" / name).write_bytes(b"as it was")
    digest = hashlib.sha256(b"as it was").hexdigest()
    with resealed(tmp_path / "m" / "exposure" / "exposure.json") as document:
        document["model"] = {"name": "m", "weights_sha256": ["of another file", digest]}
    assert checked(tmp_path / "m", "[exposure]\nat_most = 13").outcome == "broken"
    (tmp_path / "m" / name).write_bytes(b"trained again")
    assert checked(tmp_path / "m", "[exposure]\nat_most = 13").outcome == "not_shown"


def test_membership_rules(tmp_path):
    chance = np.random.default_rng(1)
    scores = chance.normal(size=(2, 400))
    membership_of_scores(*scores, delta=1e-5).save(tmp_path / "nothing")
    membership_of_scores(scores[0] + 4, scores[1], delta=1e-5).save(tmp_path / "much")
    rules = "[membership]\nauc_at_most = 0.6\ntpr_at_fpr_1_percent_at_most = 0.1\nno_epsilon_shown_above = 1.0\ndelta = 1e-5"
    calm = checked(tmp_path / "nothing", rules)
    assert [one.outcome for one in calm.rules] == ["holds"] * 3
    assert calm.rules[2].words == "no violation shown"
    assert "does not prove privacy" in calm.rules[2].evidence
    assert [one.outcome for one in checked(tmp_path / "much", rules).rules] == ["broken"] * 3
    # A bound at a smaller delta does not refute a claim at a larger one.
    larger = checked(tmp_path / "much", "[membership]\nno_epsilon_shown_above = 1.0\ndelta = 1e-2")
    assert larger.outcome == "not_shown"


def test_an_audit_that_could_not_have_shown_a_violation_shows_none(tmp_path):
    few = np.arange(5.0)
    membership_of_scores(few + 100, few).save(tmp_path)
    found = checked(tmp_path, "[membership]\nno_epsilon_shown_above = 6.0")
    assert found.outcome == "not_shown"
    assert "whatever the model remembers" in found.rules[0].evidence


@pytest.mark.parametrize(
    ("shift", "count", "expected"), [(0.0, 300, "holds"), (4.0, 300, "broken"), (0.0, 4, "not_shown")]
)
def test_the_verdict_of_the_audit_goes_before_its_bounds(tmp_path, shift, count, expected):
    scores = np.random.default_rng(2).normal(size=(2, count))
    membership_of_scores(scores[0] + shift, scores[1], claimed_epsilon=0.5).save(tmp_path)
    found = checked(tmp_path, "[membership]\nno_epsilon_shown_above = 0.5")
    assert found.outcome == expected
    assert "claimed epsilon 0.5" in found.rules[0].evidence


def recitation(hits, n, confidence=0.95):
    def group(model, context, hits):
        return Group(
            model=model,
            context=context,
            copies=(1, 1),
            mean_copies=1.0,
            recited=share_estimate(hits, n, "were recited", confidence),
        )

    return Recitation(
        index={},
        models=(
            ModelFacts(name="m", role="asked", parameters=None, description={"name": "m"}),
            ModelFacts(name="base", role="baseline", parameters=None, description={"name": "base"}),
        ),
        settings=RecitationOptions(
            suffix=50,
            contexts=(50,),
            lengths=(100,),
            sample="uniform",
            per_bucket=n,
            max_sequences=None,
            temperature=1.0,
            top_k=None,
            tries=(),
            chance=0.5,
            greedy_only=True,
            beam=None,
            anywhere=False,
            near=None,
            hidden_share=None,
            confidence=confidence,
            seed=0,
        ),
        sequences=n,
        questions=n,
        groups=(group("m", 50, hits), group("base", 50, n)),
        trends=(),
        exclusive=(),
        examples=(),
        revealed=False,
    )


def test_recitation_is_judged_by_its_upper_limit_and_not_by_the_baseline(tmp_path):
    recitation(0, 1000).save(tmp_path)  # none of 1,000: at most 0.37 %
    assert checked(tmp_path, "[recitation]\nrate_at_most = 0.004").outcome == "holds"
    assert checked(tmp_path, "[recitation]\nrate_at_most = 0.003").outcome == "not_shown"
    recitation(20, 1000).save(tmp_path)
    assert checked(tmp_path, "[recitation]\nrate_at_most = 0.003").outcome == "broken"
    recitation(0, 0).save(tmp_path)
    assert checked(tmp_path, "[recitation]\nrate_at_most = 0.5").outcome == "not_shown"


def test_junit_has_failures_and_errors_and_hostile_names_are_inert(run, tmp_path):
    result = checked(
        run, "[exposure]\nat_most = 10\n[membership]\nauc_at_most = 0.9\n[extraction]\nat_most_extracted = 1"
    )
    result = msgspec.structs.replace(result, run='evil\x1b[2J\x00"<>&\ud800')
    write_junit(result, tmp_path / "junit.xml")
    [suite] = ET.parse(tmp_path / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    kinds = {case.get("name"): [child.tag for child in case] for case in suite}
    assert kinds == {
        "exposure.at_most": ["failure"],
        "extraction.at_most_extracted": ["system-out"],
        "membership.auc_at_most": ["error"],
    }
    assert "often (trained on 16 times): exactly 13.29 bits" in suite[0][0].text


# The command


def test_the_command_from_a_first_policy_to_an_exit_code(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def in_process(*arguments):
        code = app([str(one) for one in arguments], standalone_mode=False)
        return code, capsys.readouterr().out

    code, shown = in_process("policy", "init")
    assert not code
    assert "coalmine check RUN --policy policy.toml" in shown
    assert read_policy("policy.toml") == parse_policy(TEMPLATE)
    assert not in_process("policy", "init")[0], "a policy that nobody has edited may be written again"
    with (tmp_path / "policy.toml").open("a") as policy:
        policy.write("# ours\n")
    with pytest.raises(InputError, match="--overwrite"):
        in_process("policy", "init")
    (tmp_path / "loose.toml").write_text("[exposure]\nat_most = 13.2\nup_to_repetitions = 1\n")
    code, shown = in_process("check", run, "--policy", "loose.toml", "--junit", "j.xml")
    assert code == 0
    assert "The policy holds: 1 of 1 rules." in shown
    assert (tmp_path / "j.xml").exists()
    (tmp_path / "absent.toml").write_text("[recitation]\nrate_at_most = 0.5\n")
    code, shown = in_process("check", run, "--policy", "absent.toml")
    assert code == 2
    assert "NOT SHOWN to hold" in shown
    assert "What would settle recitation.rate_at_most: run `coalmine recite`." in shown


def test_the_process_ends_with_the_exit_code(run, tmp_path):
    (tmp_path / "policy.toml").write_text("[exposure]\nat_most = 10\n")
    process = subprocess.run(
        [sys.executable, "-m", "coalmine", "check", str(run), "--policy", "policy.toml", "--json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert process.returncode == 1, process.stderr
    document = json.loads(process.stdout)
    assert document["outcome"] == "broken"
    assert document["rules"][0]["rule"] == "exposure.at_most"


def test_the_policy_is_a_record_that_equals_itself():
    assert msgspec.json.decode(msgspec.json.encode(Policy()), type=Policy) == Policy()


def test_names_of_files_are_text_to_the_terminal(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    app(["policy", "init", "[/red][bold].toml"], standalone_mode=False)
    assert "Wrote [/red][bold].toml." in capsys.readouterr().out
    outcome = RuleOutcome(
        rule="membership.auc_at_most ([/red]/membership.json)",
        asks="",
        outcome="holds",
        words="holds",
        evidence="",
        judged=1,
        warnings=("[/red]",),
    )
    found = msgspec.structs.replace(
        check(read_run(run), parse_policy("[exposure]\nat_most = 10")), rules=(outcome,)
    )
    Output(json=False, quiet=False).say(gate_table(found), *gate_in_words(found))
    assert "Warning (membership.auc_at_most ([/red]/membership.json)): [/red]." in capsys.readouterr().out
