"""One error budget per report: a model without memorization is hardly ever accused, and one that remembers never goes unreported."""

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from coalmine import expose, findings_of, membership, membership_of_scores, read_run
from coalmine.audits import verify_extraction
from coalmine.audits.extraction.results import save_verification
from coalmine.evidence.run import Located
from coalmine.randomness import arrays
from coalmine.reports.conclusion import conclusion_of
from coalmine.reports.findings import SEVERITIES
from coalmine.statistics import exact_exposure, fit_tail, reference_exposures
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


def test_more_canaries_came_out_than_chance_explains(tmp_path):
    """Each of 12 canaries may be among the first 60 of 10,000 by chance, and four of them are not."""
    canaries = made.canary_set()
    results, extractions = verify_extraction(made.scripted(), canaries, top=60)
    planted = [one.canary_id for one in results if one.repetitions > 0]
    out = dict(zip(planted[:4], extractions["f0"].found[46:50], strict=True))
    changed = [
        msgspec.structs.replace(
            one, extracted=True, place=out[one.canary_id].place, expansions=out[one.canary_id].expansions
        )
        if one.canary_id in out
        else msgspec.structs.replace(one, extracted=False, place=None, expansions=None)
        for one in results
    ]
    save_verification(
        tmp_path / "extraction",
        changed,
        extractions,
        manifest_sha256=canaries.sha256,
        model=made.scripted().describe(),
    )
    findings = findings_of(read_run(tmp_path))
    (found,) = by_code(findings, "CM201")
    assert found.severity == "high"
    assert "4 of 12 came out" in found.evidence
    assert set(found.subject) == set(planted[:4])


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


def test_exposures_do_not_clear_what_membership_shows(tmp_path):
    """Exposures that show little, and scores of the same population that show much."""
    results = [made.exposure_result(f"c{n}", exact_exposure(2**18, 2**20), times=4) for n in range(6)]
    generator = arrays(8, "budget")
    found = membership_of_scores(generator.normal(size=300) + 3, generator.normal(size=300), copies=4)
    names = tuple(f"c{n}" for n in range(6))
    one = msgspec.structs.replace(found.populations[0], format_id="f0", canary_ids=names)
    found = msgspec.structs.replace(found, populations=(one,))
    run = made.run_with(
        tmp_path, made.exposure_document(results), memberships=(Located(tmp_path / "m.json", found),)
    )
    findings = findings_of(run)
    assert by_code(findings, "CM301")[0].status == "found"
    assert [one.status for one in by_code(findings, "CM104")] == ["not_measured"]
    assert conclusion_of(findings).tone in {"bad", "warn"}
