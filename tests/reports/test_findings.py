"""Findings: they say what is there, nothing that is not, and never call safe what was not looked at."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine import Estimate, findings_of, read_run
from coalmine.audits import audited
from coalmine.reports.conclusion import conclusion_of
from coalmine.reports.findings import SEVERITIES
from coalmine.statistics import exact_exposure, reference_exposures, sampled_exposures
from reports import report_runs as made


def by_code(findings, code):
    return [finding for finding in findings if finding.code == code]


def the(findings, code):
    (one,) = by_code(findings, code)
    return one


def test_a_model_that_remembers_is_found_out(tmp_path):
    made.audited_run(tmp_path)
    findings = findings_of(read_run(tmp_path))
    exposed, extracted = the(findings, "CM101"), the(findings, "CM201")
    assert exposed.severity == extracted.severity == "critical"
    assert set(exposed.subject) == set(extracted.subject) == {"f0-x16-4", "f0-x16-5"}
    assert the(findings, "CM105").status == "clear"
    found = conclusion_of(findings)
    assert found.sentence == "The model memorized 2 of 12 canaries. 2 of 12 canaries can be extracted."


def test_nothing_tested_is_not_safe(tmp_path):
    made.canary_set().save(tmp_path / "canaries.json")
    run = read_run(tmp_path)
    findings = findings_of(run)
    assert audited(run) == ()
    assert {finding.status for finding in findings} == {"not_tested"}
    assert {one.severity for one in findings} == {"info"}
    found = conclusion_of(findings)
    assert found.sentence == "Nothing was tested, so it is not known what the model remembers."
    assert found.tone == "open"
    assert conclusion_of([]).tone == "open"


estimates = st.one_of(
    st.integers(1, 2**20).map(lambda rank: exact_exposure(rank, 2**20)),
    st.just(Estimate.not_measured("guided", "no number")),
    st.lists(st.floats(0, 50), min_size=1, max_size=5).map(
        lambda others: reference_exposures([9.0], others)[0]
    ),
    st.lists(st.floats(0, 50), min_size=1, max_size=5).map(
        lambda others: sampled_exposures([9.0], others, 2**20)[0]
    ),
)


@settings(max_examples=120)
@given(st.lists(st.tuples(estimates, st.sampled_from([0, 1, 4])), max_size=12))
def test_whatever_was_measured_every_canary_is_spoken_of(given_results):
    results = [
        made.exposure_result(f"c{n}", one, times=times) for n, (one, times) in enumerate(given_results)
    ]
    findings = findings_of(made.run_with(Path(), made.exposure_document(results)))
    spoken = [
        name
        for code in ("CM101", "CM102", "CM103", "CM104", "CM911")
        for one in by_code(findings, code)
        for name in one.subject
    ]
    assert sorted(spoken) == sorted(one.canary_id for one in results if one.repetitions)
    clear = {name for one in findings if one.status == "clear" for name in one.subject}
    unmeasured = {
        one.canary_id for one in results if one.estimate.status == "not_measured" and one.repetitions
    }
    assert not clear & unmeasured
    assert [SEVERITIES.index(one.severity) for one in findings] == sorted(
        SEVERITIES.index(one.severity) for one in findings
    )
    conclusion_of(findings)
