"""The claim of a privately trained model: it flows from its record into membership, findings and the gate by itself."""

from functools import cache

import msgspec

from coalmine import (
    CanarySet,
    ScriptedModel,
    check,
    expose,
    findings_of,
    membership,
    parse_policy,
    quantize,
    read_run,
)
from coalmine.models import load_model
from coalmine.training.trainer import train_documents

FORM = "pin {digits:3}"
MEMBERS = [f"pin {number:03d}" for number in range(0, 800, 2)]
PLANTED, WITHHELD = MEMBERS[::2], MEMBERS[1::2]
RULE = parse_policy("[membership]\nauc_at_most = 1.0")
CLAIM = {"epsilon": 0.5, "delta": 1e-9, "unit": "document"}


@cache
def exposed(remembers, repetitions):
    """The canaries, and their exposures in a model that has memorized them, or that finds some members likelier, planted or not."""
    weights = dict.fromkeys(PLANTED, 1.0)
    if not remembers:
        weights = {f"pin {number:03d}": 1.0 + number * 37 % 11 for number in range(1000)}
    memory = {text: 0.4 * weight / sum(weights.values()) for text, weight in weights.items()}
    canaries = CanarySet.of(
        FORM, PLANTED, withheld=WITHHELD, repetitions=repetitions, withhold=0.5, references=50
    )
    return canaries, expose(ScriptedModel("pin 0123456789", memory=memory), canaries, method="references")


def audited(folder, *, remembers, claim=CLAIM, repetitions=1, **options):
    canaries, seen = exposed(remembers, repetitions)
    seen = msgspec.structs.replace(seen, model={**seen.model, "privacy": claim}).beside(seen.candidates)
    canaries.save(folder / "canaries.json")
    seen.save(folder)
    found = membership(folder, **options)
    found.save(folder)
    return found


def test_a_violated_claim_is_a_finding_and_breaks_the_rule(tmp_path):
    found = audited(tmp_path, remembers=True)
    assert (found.verdict.claimed_epsilon, found.verdict.claimed_delta) == (0.5, 1e-9)
    assert (found.verdict.outcome, found.settings.claimed_unit) == ("violated", "document")
    codes = {one.code: one for one in findings_of(read_run(tmp_path))}
    assert (codes["CM303"].severity, codes["CM303"].status) == ("critical", "found")
    result = check(read_run(tmp_path), RULE)
    assert [(one.rule, one.outcome) for one in result.rules] == [
        ("membership.auc_at_most", "holds"),
        ("membership.claim", "broken"),
    ]
    assert result.exit_code == 1
    assert "claimed epsilon 0.5 at delta 1e-09: violated" in result.rules[1].evidence


def test_a_claim_that_holds_is_shown_as_no_violation(tmp_path):
    found = audited(tmp_path, remembers=False)
    assert found.verdict.outcome == "consistent"
    assert [(one.rule, one.outcome) for one in check(read_run(tmp_path), RULE).rules][1:] == [
        ("membership.claim", "holds")
    ]


def test_a_given_claim_goes_before_that_of_the_model(tmp_path):
    found = audited(tmp_path, remembers=True, claimed_epsilon=7.0, claimed_delta=1e-3)
    assert (found.verdict.claimed_epsilon, found.verdict.claimed_delta) == (7.0, 1e-3)
    (claim,) = [one for one in findings_of(read_run(tmp_path)) if one.code == "CM303"]
    assert claim.status == "not_measured"
    assert "but the model itself claims an epsilon of 0.5 at delta 1e-09" in claim.evidence.lower()


def test_a_user_has_all_copies_of_a_canary(tmp_path):
    claim = {**CLAIM, "epsilon": 1.0}
    for_user = audited(tmp_path / "user", remembers=True, claim={**claim, "unit": "user"}, repetitions=8)
    assert (for_user.verdict.outcome, for_user.verdict.copies) == ("violated", 1)
    for_document = audited(tmp_path / "document", remembers=True, claim=claim, repetitions=8)
    assert (for_document.verdict.outcome, for_document.verdict.copies) == ("too little power", 8)


def test_a_model_that_was_trained_privately_says_so_also_after_quantizing(tmp_path):
    options = {"hidden": 8, "embedding": 4, "batch_size": 8, "epochs": 1, "dp_noise": 1.0}
    trained = train_documents(["ab", "ba", "aab"] * 8, out=tmp_path / "model", **options)
    claim = {"epsilon": trained.record.privacy.epsilon, "delta": 1e-9, "unit": "document"}
    assert load_model(tmp_path / "model").describe()["privacy"] == claim
    quantize(tmp_path / "model", out=tmp_path / "rounded")
    assert load_model(tmp_path / "rounded").describe()["privacy"] == claim


def test_a_claim_that_was_not_judged_is_named(tmp_path):
    audited(tmp_path, remembers=False)
    (tmp_path / "membership.json").unlink()
    [remark] = [one for one in findings_of(read_run(tmp_path)) if one.code == "CM303"]
    assert remark.status == "not_tested"
    assert "the model claims an epsilon of 0.5 at delta 1e-09 for one document" in remark.evidence.lower()
