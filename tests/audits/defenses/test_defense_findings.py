"""What a bench shows: claims that are contradicted, defenses that help and those that do not, its rows, its figure and its gate."""

import msgspec
import pytest

from audits.defenses.benches import bench, model
from coalmine import check, findings_of, parse_policy, read_run
from coalmine.audits import BENCHES

POLICY = parse_policy("[exposure]\nat_most = 20")
HIGH = [8.0 + 0.25 * place for place in range(16)]
LOW = [1.0 + 0.1 * place for place in range(16)]


def both(defense, exposures, **changes):
    return [model(defense, seed, exposures, **changes) for seed in (0, 1)]


@pytest.fixture
def made():
    return bench(
        [
            *both("none", HIGH, loss=2.0, extracted=["f0-x4-8", "f0-x4-9"]),
            *both("dropout=0.2", [one - 0.01 * (-1) ** place for place, one in enumerate(HIGH)], loss=2.1),
            *both("dedup", LOW, loss=2.3),
        ],
        ["dropout=0.2", "dedup"],
    )


def saved(folder, one):
    BENCHES.save(folder, one)
    return read_run(folder)


def by_code(run):
    return {one.key: one for one in findings_of(run) if one.code.startswith("CM8")}


def test_rows_have_the_medians_and_differences(made):
    none, _, dedup = made.rows
    assert (none.exposure.value, none.extracted, none.searched) == (9.875, 4, 32)
    assert none.by_copies["1"].value == 8.875
    assert dedup.difference.estimate.value == pytest.approx(sum(LOW) / 16 - sum(HIGH) / 16)
    assert (none.loss, dedup.loss) == (2.0, 2.3)


def test_what_helps_and_what_is_not_shown_to(made, tmp_path):
    found = by_code(saved(tmp_path, made))
    assert found["defenses.lower"].subject == ("dedup",)
    assert "2.300 bits per character" in found["defenses.lower"].evidence
    assert found["defenses.not_lower"].subject == ("dropout=0.2",)
    assert "defenses.claim" not in found
    assert "defenses.missing" not in found


def test_a_violated_claim_is_critical_and_a_kept_one_is_clear(tmp_path):
    private = both("dedup", LOW, epsilon=0.5, proven=2.0, separated=True)
    kept = both("dropout=0.2", LOW, epsilon=8.0)
    found = findings_of(
        saved(tmp_path, bench([*both("none", HIGH), *kept, *private], ["dropout=0.2", "dedup"]))
    )
    violated, clear = (one for one in found if one.code == "CM801")
    assert (violated.severity, violated.subject) == ("critical", ("dedup",))
    assert "claims an epsilon of 0.5" in violated.evidence
    assert "≥ 2.00" in violated.evidence
    assert clear.subject == ("dropout=0.2",)
    assert clear.severity in {"pass", "info"}
    assert found[0] is violated


def test_what_is_missing_is_said(tmp_path):
    half = bench(both("none", HIGH), ["dedup"], finished=False)
    found = by_code(saved(tmp_path, half))
    assert found["defenses.missing"].status == "not_measured"
    assert "2 of 4 models" in found["defenses.missing"].evidence
    assert half.row("dedup").exposure.status == "not_measured"


def test_a_canary_that_was_not_measured_is_never_left_out_of_a_difference():
    unknown = msgspec.structs.replace(
        model("dedup", 0, LOW), exposures=((0.0, 13.3), *((one, one) for one in LOW[1:]))
    )
    one = bench([model("none", 0, HIGH), unknown], ["dedup"])
    assert one.row("dedup").difference is None
    assert one.row("dedup").exposure.low >= min(LOW)


def test_the_gate_fails_where_a_claim_is_violated(tmp_path):
    models = [*both("none", HIGH), *both("dedup", LOW, epsilon=0.5, proven=2.0, separated=True)]
    run = saved(tmp_path, bench(models, ["dedup"]))
    outcomes = [(one.rule, one.outcome) for one in check(run, POLICY).rules]
    assert ("defenses.claim", "broken") in outcomes
