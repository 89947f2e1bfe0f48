"""A format without an honest number: its canaries are not measured, with the reason, and those of other formats are."""

import math

import pytest

from coalmine import (
    Canary,
    CanarySet,
    Format,
    ScriptedModel,
    check,
    expose,
    parse_policy,
    read_run,
)
from coalmine.errors import NotMeasurableError

PIN, CODE = Format("pin {digits:3}"), Format("code {digits:2}")
REASON = (
    "the manifest has no references for format code {digits:2}; plant with references, or use another method"
)
MODEL = ScriptedModel("pin code 0123456789", frequencies={"1": 9})


def canaries_of(forms, *, references=("f0",)):
    """Canaries of several formats in turn, each format's first withheld; references for some formats only."""
    drawn = {name: form.sample(3, seed=5, replace=False) for name, form in forms.items()}
    listed = [
        Canary(
            canary_id=f"{name}-{place}",
            format_id=name,
            text=drawn[name][place],
            repetitions=4,
            planted=place > 0,
        )
        for place in range(3)
        for name in forms
    ]
    given = {
        name: [text for text in forms[name].sample(40, seed=6, replace=False) if text not in drawn[name]]
        for name in references
    }
    return CanarySet(listed, forms, references=given)


@pytest.fixture
def canaries():
    return canaries_of({"f0": PIN, "f1": CODE})


def of_format(results, name):
    return [result for result in results if result.format_id == name]


def test_the_other_formats_are_measured_as_they_would_be_alone(canaries):
    results = expose(MODEL, canaries, method="references")
    alone = expose(MODEL, canaries_of({"f0": PIN}), method="references")
    assert of_format(results, "f0") == list(alone)
    assert [result.canary_id for result in results] == [canary.canary_id for canary in canaries]
    for result in of_format(results, "f1"):
        assert result.estimate.status == "not_measured"
        assert result.estimate.statement == REASON
        assert result.exposure is result.rank is None
        assert result.interval == (None, None)
        assert result.most_possible_bits == math.log2(CODE.size)
    assert {one.format_id for one in results.candidates if one.kind != "canary"} == {"f0"}
    assert [facts.format_id for facts in results.formats] == ["f0", "f1"]


def test_where_no_format_can_be_measured_the_first_reason_is_raised():
    with pytest.raises(NotMeasurableError, match="no references for format pin"):
        expose(MODEL, canaries_of({"f0": PIN, "f1": CODE}, references=()), method="references")


@pytest.mark.parametrize(
    ("policy", "rule"),
    [
        ("[exposure]\nat_most = 6.5", "exposure.at_most"),
        ('require = ["exposure"]', "require exposure"),
    ],
)
def test_the_gate_does_not_pass_what_was_not_measured(policy, rule, canaries, tmp_path):
    expose(MODEL, canaries, method="references").save(tmp_path / "references")
    found = check(read_run(tmp_path), parse_policy(policy))
    (one,) = found.rules
    assert (one.rule, one.outcome, found.exit_code) == (rule, "not_shown", 2)
    assert REASON in one.evidence
    # Another method that does measure them settles it, in whatever order the results are read.
    expose(MODEL, canaries, method="exact").save(tmp_path / "exact")
    assert check(read_run(tmp_path), parse_policy(policy)).exit_code == 0
