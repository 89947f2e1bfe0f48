"""Canaries that never reached the loss, or another number of times: what the report, its verdict and the gate make of them."""

from pathlib import Path

import msgspec
import pytest

from coalmine import check, findings_of, parse_policy
from coalmine.corpus import Survival, read_survival
from coalmine.corpus.survival.results import SURVIVALS, CanarySurvival
from coalmine.errors import AlteredError, ContradictionError
from coalmine.evidence.run import Located
from coalmine.reports.conclusion import conclusion_of
from reports import verdict_parts as made
from resealing import resealed

NAMES = [f"c{number}" for number in range(24)]
MANIFEST = made.manifest_of(*((name, "f0", 4, True, None) for name in NAMES), ("w", "f0", 4, False, None))


def survival(manifest=MANIFEST, **reached):
    """What a check found: all copies of all canaries, but for those that are named with the number that reached the loss."""
    entries = [
        CanarySurvival(
            canary_id=one.canary_id, repetitions=4 * one.planted, reached=reached.get(one.canary_id, 4 * one.planted), masked=0, split=0,
            at_row_start=0, other_tokens=0, altered=False,
        )
        for one in manifest
    ]  # fmt: skip
    return Survival(
        canaries=entries, rows=9, tokens=99, tokens_in_loss=90, warnings=[], manifest_sha256=manifest.sha256, trainer="SFTTrainer of trl 1.16.0",
    )  # fmt: skip


def run_with(*checks, manifest=MANIFEST):
    """A model that remembers nothing, by 24 canaries of 20 bits."""
    calm = made.interval(1.0, 1.0, 1.0, confidence=None, method="exact")
    results = [made.result(name, calm) for name in NAMES]
    document = made.document(results, manifest=manifest.sha256)
    return made.run_of(document, manifests=[manifest], survivals=list(checks))


def found(run, key):
    return [one for one in findings_of(run) if one.key == f"survival.{key}"]


def test_canaries_that_never_reached_the_loss_are_found_and_nothing_reads_as_safe():
    [one] = found(run_with(survival(c3=0, c4=0)), "never")
    assert (one.severity, one.status, one.subject) == ("high", "found", ("c3", "c4"))
    assert "2 of 24 planted canaries never reached the loss" in one.evidence
    bad, good = run_with(survival(c3=0)), run_with(survival())
    assert conclusion_of(findings_of(good)).answers[0].tone == "good"
    assert conclusion_of(findings_of(bad)).answers[0].tone == "open"
    assert "But some canaries never reached the loss" in conclusion_of(findings_of(bad)).sentence
    assert conclusion_of(findings_of(bad)).answers[-1].answer == "Mend the measurement"


def test_the_check_of_the_training_outranks_rehearsals():
    run = run_with()
    rehearsal = Located(Path("planted/survival.json"), survival(c3=0))
    own = Located(Path("model-audit/survival/survival.json"), survival())
    assert found(run.with_all(SURVIVALS, (rehearsal,)), "never")[0].status == "found"
    both = run.with_all(SURVIVALS, (rehearsal, own))
    [one] = found(both, "never")
    assert (one.severity, one.status) == ("pass", "clear")
    assert "with 96 of 96 copies" in one.evidence
    assert check(both, parse_policy("[exposure]\nat_most = 10")).outcome == "holds"


def test_another_number_of_copies_is_found_by_itself():
    run = run_with(survival(c0=3, c1=6, w=1))
    [one] = found(run, "copies")
    assert (one.severity, one.status, one.subject) == ("medium", "found", ("c0", "c1", "w"))
    assert found(run, "never")[0].status == "clear"


def test_a_training_that_ends_early_is_not_clear():
    run = run_with(msgspec.structs.replace(survival(), rows_unread=7))
    [one] = found(run, "never")
    assert (one.severity, one.status) == ("high", "found")
    assert "ends before it reads 7 of them" in one.evidence
    assert conclusion_of(findings_of(run)).answers[0].tone == "open"
    result = check(run, parse_policy("[exposure]\nat_most = 10"))
    assert result.outcome == "not_shown"
    assert "the training ends before it reads 7 of them" in result.rules[0].evidence


def test_canaries_that_were_trained_on_without_their_header_are_found_and_nothing_reads_as_safe():
    record = survival(c5=0)
    # c0: all copies elsewhere; c1: only some; c5: none reached the loss.
    counts = {"c0": 4, "c1": 3}
    moved = [
        msgspec.structs.replace(one, other_header=counts.get(one.canary_id, 0)) for one in record.canaries
    ]
    [one] = found(run_with(msgspec.structs.replace(record, canaries=moved)), "elsewhere")
    assert (one.severity, one.status, one.subject) == ("high", "found", ("c0",))
    whole = [msgspec.structs.replace(one, other_header=one.reached) for one in survival().canaries]
    run = run_with(msgspec.structs.replace(survival(), canaries=whole))
    assert conclusion_of(findings_of(run)).answers[0].tone == "open"
    assert "But canaries were trained on without the header" in conclusion_of(findings_of(run)).sentence
    result = check(run, parse_policy("[exposure]\nat_most = 10"))
    assert result.outcome == "not_shown"
    assert "24 of 24 planted canaries reached the loss" in result.rules[0].evidence
    assert not found(run_with(survival()), "elsewhere")


def test_a_check_of_other_canaries_says_nothing():
    other = made.manifest_of(*((name, "f1", 4, True, None) for name in NAMES))
    run = run_with(survival(other, c3=0))
    [one] = found(run, "never")
    assert (one.severity, one.status) == ("info", "not_measured")
    assert check(run, parse_policy("[exposure]\nat_most = 10")).outcome == "holds"


def test_the_file_is_read_back_and_checked(tmp_path):
    record = survival(c3=0)
    path = record.save(tmp_path)
    assert path.name == "survival.json"
    assert read_survival(tmp_path) == record
    with resealed(path) as document:
        document["canaries"][3]["masked"] = -3
    with pytest.raises(ContradictionError, match="contradicts itself"):
        read_survival(path)
    path.write_bytes(path.read_bytes().replace(b'"rows": 9', b'"rows": 8'))
    with pytest.raises(AlteredError):
        read_survival(path)
