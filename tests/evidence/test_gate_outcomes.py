"""The three outcomes of a rule: shown to hold, shown to be broken beyond chance, and not shown either way with what would settle it."""

import math
import shutil
from pathlib import Path

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
    membership,
    parse_policy,
    read_run,
)
from coalmine.audits import EXPOSURES
from coalmine.audits.exposure.policy import judge_exposures, lower_limit, others_needed
from coalmine.randomness import arrays
from coalmine.records.documents import write_sealed
from coalmine.reports.gate.policy import TEMPLATE
from coalmine.reports.gate.table import gate_in_words
from coalmine.statistics import exact_exposure, reference_exposure, reference_exposures
from reports import report_runs as made
from reports.test_policy import checked, outcomes
from reports.test_policy_limits import measured

DEFAULT = parse_policy(TEMPLATE)


def gate(document, policy=DEFAULT):
    return check(made.run_with(Path(), document), policy)


@pytest.mark.parametrize("references", [None, 1000])
def test_the_default_policy_is_hardly_ever_broken_without_memorization(references):
    """About 100 canaries: an upper limit above the limit is not a broken rule."""
    generator = arrays(0, "gate", references or 0)
    found = [
        gate(
            made.guessed_document(generator, times=(1, 4), each=50, withheld=0, references=references)
        ).outcome
        for _ in range(60)
    ]
    assert found.count("broken") <= 60 * 0.025 + 3 * math.sqrt(60 * 0.025)
    assert found.count("holds") >= 20


def test_strong_memorization_breaks_the_default_policy():
    results = [made.exposure_result(f"c{n}", exact_exposure(1 + n // 30, 2**20), times=4) for n in range(60)]
    assert gate(made.exposure_document(results)).exit_code == 1


def test_exactly_above_the_limit_is_not_broken_where_chance_explains_it():
    """11.2 bits exactly, a limit of 10 and 100 canaries: one run in 24 has such a canary without memorization."""
    size = 2**20
    ranks = [round(size / 2**11.2), *np.linspace(size / 90, size, 99).astype(int).tolist()]
    canaries = [measured(exact_exposure(rank, size), canary_id=f"c{n}") for n, rank in enumerate(ranks)]
    found = judge_exposures(canaries, 10.0)
    assert found.outcome == "not_shown"
    assert "c0 (trained on 4 times), exactly 11.20 bits" in found.evidence
    assert "chance gives as much in up to 8.3% of runs" in found.evidence
    assert "another --seed" in found.settle
    # A canary of 20 bits among as many others is no chance.
    assert judge_exposures([measured(exact_exposure(1, size)), *canaries[1:]], 10.0).outcome == "broken"
    # And neither are four of 11.2.
    assert judge_exposures([canaries[0]] * 4 + canaries[1:], 10.0).outcome == "broken"


def test_references_that_cannot_decide_say_how_many_would():
    best = reference_exposure(1.0, np.arange(2.0, 1002.0))
    found = judge_exposures([measured(best)], 10.0)
    assert found.outcome == "not_shown"
    needed = others_needed(best, 10.0, 0.95, 0.025, 1)
    assert f"about {needed:,} references" in found.settle
    enough = reference_exposure(1.0, np.arange(2.0, needed + 2.0))
    assert judge_exposures([measured(enough)], 10.0).outcome == "broken"
    between = reference_exposure(3.5, np.arange(1.0, 1001.0))
    assert judge_exposures([measured(between)], 10.0).outcome == "not_shown"
    more = others_needed(between, 10.0, 0.95, 0.025, 1)
    assert more is not None
    later = reference_exposure(more * 0.0035, np.arange(1.0, more + 1.0))
    assert judge_exposures([measured(later)], 10.0).outcome == "holds"


def test_many_that_beat_all_references_break_a_rule_that_one_could_not():
    refs = np.arange(2.0, 1002.0)
    one, *others = reference_exposures([1.0, *np.linspace(20.0, 1000.0, 59)], refs)
    assert (
        judge_exposures([measured(one), *(measured(other) for other in others)], 6.0).outcome == "not_shown"
    )
    fifty = [*[measured(one)] * 50, *(measured(other) for other in others[:10])]
    assert judge_exposures(fifty, 6.0).outcome == "broken"


def test_lower_limits_share_their_level():
    best = reference_exposure(1.0, np.arange(2.0, 1002.0))
    assert lower_limit(best, 0.95) == best.low
    assert lower_limit(best, 1 - 0.05 / 60) == pytest.approx(-math.log2(1 - (0.025 / 60) ** (1 / 1000)))
    guided = msgspec.structs.replace(
        best, method="guided", status="measured", value=12.0, low=10.0, high=14.0
    )
    assert 8.0 < lower_limit(guided, 1 - 0.05 / 60) < 10.0
    exact = exact_exposure(1, 1024)
    assert lower_limit(exact, 0.999999) == 10.0


def test_rules_share_the_error_of_a_policy(tmp_path):
    """One canary with a chance of 1.6% breaks a policy of one rule, and does not break one of three such rules."""
    results = [made.exposure_result("c", exact_exposure(2**14, 2**20), times=1)]
    run = made.run_with(tmp_path, made.exposure_document(results))
    assert check(run, parse_policy("[exposure]\nat_most = 5")).outcome == "broken"
    several = check(run, parse_policy("[exposure]\nat_most = 5\n[exposure.by_repetitions]\n1 = 5\n2 = 5\n"))
    assert several.outcome == "not_shown"


def test_an_extrapolated_secret_does_not_pass_the_default_policy(tmp_path):
    """The same fully exposed secret: exactly measured it breaks the policy, extrapolated it shows nothing."""
    canaries = made.canary_set(repetitions=(16,), each=1, withheld=0)
    model = made.scripted(list(canaries), share=0.5)
    expose(model, canaries, method="extrapolated", samples=2000).save(tmp_path / "curve")
    assert check(read_run(tmp_path), DEFAULT).exit_code == 2
    assert outcomes(check(read_run(tmp_path), DEFAULT)) == {
        "require exposure": "not_shown",
        "exposure.at_most": "not_shown",
    }
    expose(model, canaries).save(tmp_path / "exact")
    assert check(read_run(tmp_path), DEFAULT).exit_code == 1


@pytest.fixture(scope="module")
def half_measured(tmp_path_factory):
    """Two formats, of which one has neither references nor withheld canaries: nothing to compare its canaries with."""
    folder = tmp_path_factory.mktemp("formats")
    forms = {"f0": Format("my pin is {digits:4}"), "f1": Format("my pin is not {digits:4}")}
    listed = []
    for name, form in forms.items():
        for place, text in enumerate(form.sample(30, seed=3, replace=False)):
            planted = name == "f1" or place % 2 == 0
            listed.append(
                Canary(canary_id=f"{name}-{place}", format_id=name, text=text, repetitions=1, planted=planted)
            )
    references = {"f0": forms["f0"].sample(300, seed=9, replace=False)}
    canaries = CanarySet(listed, forms, references=references, withhold=0.5)
    model = ScriptedModel("my pin is not 0123456789", frequencies=made.FREQUENCIES)
    canaries.save(folder / "canaries.json")
    expose(model, canaries, method="guided", samples=500).save(folder / "exposure")
    membership(folder / "exposure").save(folder / "membership")
    return folder


def test_a_format_that_was_not_measured_never_passes(half_measured):
    rules = (
        'require = ["membership"]\n[membership]\nauc_at_most = 0.9\ntpr_at_fpr_1_percent_at_most = 0.9\n'
        "no_epsilon_shown_above = 0.1"
    )
    found = checked(half_measured, rules)
    assert set(outcomes(found).values()) == {"not_shown"}
    told = [one for one in found.rules if "my pin is not {digits:4}" in f"{one.evidence} {one.details}"]
    assert {one.rule for one in told} >= {"require membership", "membership.auc_at_most"}
    assert "What would settle membership.auc_at_most" in "\n".join(gate_in_words(found))


def test_canaries_of_the_manifest_without_a_result_are_not_shown(half_measured, tmp_path):
    shutil.copytree(half_measured, tmp_path / "run")
    document = read_run(half_measured).first(EXPOSURES)
    kept = [one for one in document.results if one.format_id == "f0"]
    formats = [one for one in document.formats if one.format_id == "f0"]
    part = msgspec.structs.replace(document, results=tuple(kept), formats=tuple(formats))
    write_sealed(tmp_path / "run" / "exposure" / "exposure.json", part)
    (tmp_path / "run" / "exposure" / "scores.parquet").unlink()  # it has scores of the other format
    found = checked(tmp_path / "run", 'require = ["exposure"]\n[exposure]\nat_most = 12')
    assert set(outcomes(found).values()) == {"not_shown"}
    assert all("my pin is not {digits:4}" in one.evidence for one in found.rules)


def test_the_schema_says_that_outcomes_changed(half_measured):
    assert checked(half_measured, "[exposure]\nat_most = 12").schema == "coalmine.check/2"
