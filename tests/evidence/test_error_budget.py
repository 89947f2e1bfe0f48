"""One error budget per report: a model without memorization is hardly ever accused, and one that remembers never goes unreported."""

import math
from pathlib import Path

import msgspec
import pytest

from coalmine import findings_of, membership_of_scores, read_run
from coalmine.evidence.run import Located
from coalmine.randomness import arrays
from coalmine.reports.findings import SEVERITIES
from coalmine.statistics import fit_tail
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
