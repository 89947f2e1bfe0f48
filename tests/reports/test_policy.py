"""The gate: what is not measured never passes, what is broken is said with its evidence, and a wrong policy is refused."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET

import msgspec
import numpy as np
import pytest

from coalmine import (
    Canary,
    CanarySet,
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
from coalmine.audits.extraction.results import save_verification
from coalmine.audits.recitation.records import Group, ModelFacts, share_estimate
from coalmine.cli.main import app
from coalmine.cli.output import Output
from coalmine.errors import InputError
from coalmine.reports.gate.policy import TEMPLATE, Policy
from coalmine.reports.gate.table import gate_in_words, gate_table, write_junit
from resealing import resealed

# The policy file


def test_the_template_is_a_policy_and_names_every_rule():
    assert parse_policy(TEMPLATE).exposure.at_most == 10.0
    whole = re.sub(r"^#(?=[\[\w])", "", TEMPLATE, flags=re.MULTILINE)
    policy = parse_policy(whole)
    for section in ("exposure", "extraction", "membership", "recitation", "provenance"):
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
        ("[wishes]\nx = 1", "line 1: there is no key 'wishes'"),
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
    model = ScriptedModel(
        "pin 0123456789", memory={texts[0]: 0.5}, frequencies={"1": 9, "2": 8, "3": 7, "4": 6, "5": 5}
    )
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
    required = checked(
        tmp_path, 'require = ["exposure", "extraction", "membership", "recitation", "provenance"]'
    )
    assert list(outcomes(required).values()) == ["holds", *["not_shown"] * 4]


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
