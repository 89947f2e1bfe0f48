"""One error budget per report: a model without memorization is hardly ever accused, and one that remembers never goes unreported."""

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from coalmine import expose, findings_of, membership, membership_of_scores, read_run
from coalmine.evidence.run import Located
from coalmine.randomness import arrays
from coalmine.reports.conclusion import conclusion_of
from coalmine.reports.findings import SEVERITIES
from coalmine.statistics import fit_tail, reference_exposures
from reports import report_runs as made

ACCUSING = SEVERITIES[: SEVERITIES.index("info")]


def accuses(findings):
    return [one for one in findings if one.severity in ACCUSING and not one.code.startswith("CM5")]


def by_code(findings, code):
    return [one for one in findings if one.code == code]


@pytest.fixture(scope="module")
def innocent_memberships():
    """The membership results of scores that tell nothing; making them is what takes time, so there are only a few."""
    generator = arrays(0, "budget", "memberships")
    return [membership_of_scores(*generator.normal(size=(2, 40))) for _ in range(10)]


@pytest.mark.parametrize("references", [None, 300])
def test_whole_reports_without_memorization_accuse_in_few_runs(references, innocent_memberships):
    generator = arrays(0, "budget", "level", references or 0)
    reports, accused = 250, 0
    for _ in range(reports):
        document = made.guessed_document(generator, times=(1, 4, 16), references=references)
        chosen = generator.choice(len(innocent_memberships), 2, replace=False)
        memberships = tuple(Located(Path(f"{n}.json"), innocent_memberships[n]) for n in chosen)
        run = made.run_with(Path(), document, memberships=memberships)
        accused += bool(accuses(findings_of(run)))
    assert accused <= reports * 0.05 + 2 * math.sqrt(reports * 0.05 * 0.95)


@pytest.mark.parametrize("remembered", [4, 8])
def test_a_few_of_many_that_beat_every_reference_are_seen(tmp_path, remembered):
    generator = arrays(1, "budget", remembered)
    scores = np.concatenate([np.full(remembered, -100.0), generator.normal(size=60 - remembered)])
    estimates = reference_exposures(scores, generator.normal(size=1000))
    results = [made.exposure_result(f"c{n}", one, times=4) for n, one in enumerate(estimates)]
    findings = findings_of(made.run_with(tmp_path, made.exposure_document(results, method="references")))
    assert findings[0].severity == "high"


def test_an_extrapolated_exposure_is_never_evidence(tmp_path):
    generator = arrays(4, "budget")
    fit = fit_tail(generator.normal(60, 5, 2000), seed=0)
    assert not fit.warnings
    for scores in ([5.0] * 6, [60.0] * 6):
        results = [
            made.exposure_result(f"c{n}", one, times=4) for n, one in enumerate(fit.estimates(scores, 2**30))
        ]
        document = msgspec.structs.replace(
            made.exposure_document(results, size=2**30, method="extrapolated"), tail_fits={"f0": fit}
        )
        findings = findings_of(made.run_with(tmp_path, document))
        assert not accuses(findings)
        assert not [one for one in findings if one.status == "clear"]
        assert len(by_code(findings, "CM911")[0].subject) == 6


def test_what_came_out_by_chance_accuses_nobody(tmp_path):
    """Ten of ten members of a tiny format come out of any model."""
    canaries = made.canary_set()
    canaries.save(tmp_path / "canaries.json")
    made.save_verified(tmp_path / "extraction", made.scripted(), canaries, top=2000)
    findings = findings_of(read_run(tmp_path))
    assert {one.severity for one in by_code(findings, "CM201")} <= {"info"}
    assert {one.severity for one in by_code(findings, "CM105")} <= {"info"}
    assert not accuses(findings)


def test_no_sentence_contradicts_another(tmp_path):
    """One canary of twelve is the model's first guess: nothing may say that there is no evidence, of it or of its population."""
    canaries = made.canary_set(repetitions=(1,), each=12, withheld=12, references=400)
    planted = [canary for canary in canaries if canary.planted]
    model = made.scripted(planted[:1], share=0.5)
    canaries.save(tmp_path / "canaries.json")
    expose(model, canaries).save(tmp_path / "exposure")
    made.save_verified(tmp_path / "extraction", model, canaries)
    membership(tmp_path / "exposure").save(tmp_path / "membership")
    findings = findings_of(read_run(tmp_path))
    assert by_code(findings, "CM101")[0].subject == (planted[0].canary_id,)
    assert not [one for one in findings if one.code.startswith("CM3") and one.status == "clear"]
    found = conclusion_of(findings)
    assert "no evidence" not in found.sentence
    assert found.sentence.startswith("The model memorized 1 of 12 canaries")
