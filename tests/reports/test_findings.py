"""Findings: they say what is there, nothing that is not, and never call safe what was not looked at."""

import re
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine import Estimate, expose, findings_of, read_run, read_runs
from coalmine.audits import EXPOSURES, VERIFIED, audited
from coalmine.audits.exposure.chance import group_test, judged
from coalmine.audits.extraction.results import read_verified
from coalmine.errors import InputError
from coalmine.randomness import arrays
from coalmine.records.documents import write_sealed
from coalmine.reports.conclusion import conclusion_of
from coalmine.reports.findings import SEVERITIES
from coalmine.statistics import exact_exposure, reference_exposures, sampled_exposures
from coalmine.training.record import TRAININGS
from reports import report_runs as made

ROOT = Path(__file__).parents[2]


def by_code(findings, code):
    return [finding for finding in findings if finding.code == code]


def the(findings, code):
    (one,) = by_code(findings, code)
    return one


def not_measured(method="guided"):
    return Estimate.not_measured(method, "no number")


@pytest.fixture(scope="module")
def remembering(tmp_path_factory):
    directory = tmp_path_factory.mktemp("remembering")
    made.audited_run(directory)
    return read_run(directory)


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory):
    directory = tmp_path_factory.mktemp("forgetful")
    made.audited_run(directory, remembered=0)
    return read_run(directory)


def test_a_model_that_remembers_is_found_out(remembering):
    findings = findings_of(remembering)
    exposed, extracted = the(findings, "CM101"), the(findings, "CM201")
    # An id such as f0-x16-0 means nothing to a reader who does not know what f0 is.
    assert (
        "f0-x16-4 of my pin is {digits:4}, trained on 16 times: exposure 12.29 of at most 13.29 bits"
        in exposed.evidence
    )
    assert exposed.severity == extracted.severity == "critical"
    assert set(exposed.subject) == set(extracted.subject) == {"f0-x16-4", "f0-x16-5"}
    assert exposed.evidence.startswith(
        "2 of 12 canaries that were trained on are memorized, and 2 of them are among"
    )
    assert the(findings, "CM105").status == "clear"
    found = conclusion_of(findings)
    assert found.sentence == "The model memorized 2 of 12 canaries. 2 of 12 canaries can be extracted."
    assert [answer.answer for answer in found.answers] == [
        "Yes: 2 of 12",
        "Yes: 2 of 12",
        "Do not release it",
    ]


def test_a_model_without_memory_is_not_accused(forgetful):
    findings = findings_of(forgetful)
    codes = {finding.code for finding in findings if finding.status == "found"}
    assert not codes & {"CM101", "CM102", "CM103", "CM105", "CM201", "CM301", "CM304"}
    assert the(findings, "CM104").status == "clear"
    assert the(findings, "CM202").status == "clear"
    assert conclusion_of(findings).tone == "good"


def test_nothing_tested_is_not_safe(tmp_path):
    made.canary_set().save(tmp_path / "canaries.json")
    run = read_run(tmp_path)
    findings = findings_of(run)
    assert audited(run) == ()
    assert {finding.status for finding in findings} == {"not_tested"}
    assert {"missing.exposure", "missing.extraction", "missing.membership", "missing.recitation"} <= {
        one.key for one in findings
    }
    assert {one.severity for one in findings} == {"info"}
    found = conclusion_of(findings)
    assert found.sentence == "Nothing was tested, so it is not known what the model remembers."
    assert found.tone == "open"
    assert conclusion_of([]).tone == "open"


@pytest.mark.parametrize("references", [None, 300])
def test_memoryless_models_are_accused_in_few_runs(references):
    generator = arrays(0, "findings", "level", references or 0)
    audits, accused, together, controls = 400, 0, 0, 0
    for _ in range(audits):
        document = made.guessed_document(generator, references=references)
        found = {one.code for one in findings_of(made.run_with(Path(), document)) if one.status == "found"}
        accused += bool(found & {"CM101", "CM102"})
        together += "CM103" in found
        controls += "CM105" in found
    # Three standard deviations above the level of 5 %.
    most = audits * 0.05 + 3 * np.sqrt(audits * 0.05 * 0.95)
    assert max(accused, together, controls) <= most


@pytest.mark.parametrize("references", [None, 100])
def test_the_chance_of_a_group_is_a_chance(references):
    generator = arrays(1, "findings", "group", references or 0)
    chances = [
        group_test(
            judged(made.guessed_document(generator, times=(4,), each=7, withheld=0, references=references))
        ).p_value
        for _ in range(1_000)
    ]
    for level in (0.01, 0.05, 0.2, 0.5):
        share = np.mean(np.array(chances) <= level)
        assert share <= level + 3.5 * np.sqrt(level * (1 - level) / len(chances))


def test_beating_few_samples_is_not_measured_and_not_clear(tmp_path):
    estimates = sampled_exposures([1.0] * 3, np.arange(2.0, 6.0), size=2**20)
    results = [made.exposure_result(f"c{n}", one) for n, one in enumerate(estimates)]
    findings = findings_of(made.run_with(tmp_path, made.exposure_document(results, method="sampled")))
    assert len(the(findings, "CM104").subject) == 3
    assert (
        "3 of 3 canaries have intervals that are too wide to tell chance from memorization"
        in the(findings, "CM104").evidence
    )
    assert not [one for one in findings if one.status == "clear"]
    assert conclusion_of(findings).answers[0].answer == "Cannot be said"


estimates = st.one_of(
    st.integers(1, 2**20).map(lambda rank: exact_exposure(rank, 2**20)),
    st.just(not_measured()),
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


def test_withheld_canaries_that_look_memorized_spoil_everything(tmp_path):
    document = made.guessed_document(arrays(0, "control"), withheld=6)
    leaked = made.exposure_result("leaked", exact_exposure(1, 2**20), times=0)
    findings = findings_of(made.run_with(tmp_path, made.with_result(document, leaked)))
    assert the(findings, "CM105").severity == "high"
    assert conclusion_of(findings).sentence.startswith("The measurement cannot be trusted")


@pytest.mark.parametrize(
    "name",
    [
        "exposure/exposure.json",
        "extraction/verified.json",
        "canaries.json",
        "training.json",
        "recitation.json",
    ],
)
@pytest.mark.parametrize("content", [b"", b'{"schema": "coalmine.unknown/9"}', b"\xff\xfe"])
def test_a_damaged_file_is_named(tmp_path, name, content):
    made.canary_set().save(tmp_path / "canaries.json")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=re.escape(Path(name).name)):
        read_run(tmp_path)


def test_a_file_that_two_paths_lead_to_counts_once(tmp_path, monkeypatch):
    made.audited_run(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    run = read_run("run", tmp_path / "run" / "extraction", "run/../run")
    assert (len(run.all(VERIFIED)), len(run.all(EXPOSURES))) == (1, 2)


def test_no_result_is_left_out_because_another_came_first(tmp_path):
    canaries = made.audited_run(tmp_path, remembered=0)
    assert not by_code(findings_of(read_run(tmp_path)), "CM201")
    planted = [canary for canary in canaries if canary.planted]
    made.save_verified(tmp_path / "extraction-later", made.scripted(planted[-1:]), canaries)
    # The same model, as far as its description goes.
    later = tmp_path / "extraction-later" / "verified.json"
    first = read_run(tmp_path / "exposure").first(EXPOSURES)
    (later.parent / "extraction-f0.json").unlink()
    write_sealed(later, msgspec.structs.replace(read_verified(later), model=first.model))
    assert the(findings_of(read_run(tmp_path)), "CM201").status == "found"


def test_nothing_to_read_is_an_error(tmp_path):
    for paths in ([], [tmp_path], [tmp_path / "nowhere"]):
        with pytest.raises(InputError):
            read_run(*paths)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(InputError, match="not a result"):
        read_run(tmp_path / "notes.txt")


def test_results_of_two_models_are_two_runs(tmp_path):
    canaries = made.canary_set()
    for name in ("one", "two"):
        expose(made.scripted(), canaries).save(tmp_path / name / "exposure")
        made.save_training(tmp_path / name)
        made.name_weights(tmp_path / name / "exposure", name)
    canaries.save(tmp_path / "canaries.json")
    runs = read_runs(tmp_path)
    assert [run.name for run in runs] == ["one", "two"]
    assert [len(run.all(TRAININGS)) for run in runs] == [1, 1]
    assert all(run.canaries is not None for run in runs)
    assert read_run(tmp_path / "one").name == "one"
    with pytest.raises(InputError, match="2 models \\(one, two\\)"):
        read_run(tmp_path)
