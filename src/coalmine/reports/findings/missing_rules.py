"""What was not tested? A finding for each audit that is not there."""

from __future__ import annotations

from coalmine.evidence.catalog import finding
from coalmine.evidence.findings import Finding
from coalmine.reports.runs.reading import Audit, Run

_CODES: dict[Audit, tuple[str, str]] = {
    "exposure": ("CM901", "There is no exposure.json, so it is not known whether any canary was memorized."),
    "extraction": (
        "CM902",
        "There is no verified.json or extraction.json, so it is not known whether secrets come out.",
    ),
    "membership": (
        "CM903",
        "There is no membership.json, so it is not known how well members can be told from others.",
    ),
    "recitation": (
        "CM904",
        "There is no recitation.json, so it is not known how much training text is recited.",
    ),
    "provenance": ("CM905", "Whose data the model was trained on was not looked at."),
    "watching": ("CM906", "There is no record of exposure while the model was trained."),
}


def missing_findings(run: Run) -> list[Finding]:
    """One finding for each audit that was not run, and for each control that was left out."""
    found = [finding(_CODES[audit][0], "info", "not_tested", _CODES[audit][1]) for audit in run.not_tested]
    if all(one.document.verdict is None for one in run.memberships):
        found.append(
            finding("CM907", "info", "not_tested", "No claimed epsilon was given, so none was judged.")
        )
    if run.exposure is not None and all(result.planted for result in run.exposure.results):
        evidence = "Every canary was planted: nothing shows what the measurement gives without memorization."
        found.append(finding("CM908", "info", "not_tested", evidence))
    if any(all(model.role != "baseline" for model in one.document.models) for one in run.recitations):
        evidence = "No model without this training data was asked, so easy text counts as recited."
        found.append(finding("CM909", "info", "not_tested", evidence))
    return found
