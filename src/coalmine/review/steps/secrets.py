"""Secrets that the scan found: how exposed they are, and whether they come out; the most sensitive and most repeated first."""

from __future__ import annotations

import contextlib
from functools import cache
from pathlib import Path
from typing import Any

from coalmine.audits.exposure.results import EXPOSURES, duration
from coalmine.audits.extraction.results import VERIFIED
from coalmine.audits.membership.measuring import membership
from coalmine.audits.membership.results import MEMBERSHIPS
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.corpus.secrets.natural import NaturalOptions
from coalmine.corpus.secrets.results import SCANS
from coalmine.corpus.secrets.scanned import canaries_of_scan
from coalmine.errors import NotMeasurableError
from coalmine.models.protocols import Scorer, Stepper
from coalmine.review.step import ReviewStep, Sized, TooLong
from coalmine.review.steps.canaries import (
    exposure_seconds,
    extraction_obstacle,
    extraction_plan,
    run_exposure,
    run_extraction,
)
from coalmine.review.steps.scan import ScanStep
from coalmine.review.subject import StepRun, Subject
from coalmine.storage.files import together

# The most secrets that are measured, and the fewest that a step is run for.
MOST, FEWEST = 200, 5
# How much of the time is for exposures; the rest is for searches.
EXPOSING = 0.6
# The shares of the usual draws that are tried, so that more secrets fit; with fewer, intervals say little.
SHARES = (1.0, 0.5, 0.25, 0.1)
# What one more secret takes besides its questions, in seconds.
EACH = 0.1
# What `expose` draws, and may expand, where time allows.
FULL_BUDGET, FULL_SAMPLES = 50_000, 50_000
_NONE = "the scan found no secret that a model can be asked about"


@cache
def _found(scan: Path, data: Path, seed: int) -> CanarySet:
    return canaries_of_scan(scan, data, NaturalOptions(most=MOST, seed=seed)).canaries


def secrets_of(subject: Subject) -> CanarySet | None:
    """The secrets of the training data as canaries, the most urgent first; None where nothing was scanned."""
    scan = subject.folder / ScanStep.name
    return _found(scan, subject.data, subject.seed) if (scan / SCANS.file).is_file() else None


class SecretsStep(ReviewStep):
    """The exposure of secrets that are already in the training data, and whether they can be extracted."""

    name = "secrets"
    title = "Secrets in the training data"
    audits = ("secrets",)
    share = 4.0
    files = (f"exposure/{EXPOSURES.file}", f"extraction/{VERIFIED.file}")

    def obstacle(self, subject: Subject) -> str | None:
        """No secrets, or a model without probabilities."""
        secrets = secrets_of(subject)
        if secrets is None:
            return "the training data was not scanned for secrets"
        if not len(secrets):
            return _NONE
        if not isinstance(subject.model, Scorer) or exposure_seconds(subject, secrets.first(1)) is None:
            return "the model does not give the probability of a text"
        return None

    def plan(self, subject: Subject, seconds: float) -> Sized | TooLong:
        """As many secrets as fit, and a search for each with what is left."""
        secrets = secrets_of(subject)
        if secrets is None:
            return TooLong(seconds)
        plan = _walked if isinstance(subject.model, Stepper) else _among_references
        exposed = plan(subject, secrets, EXPOSING * seconds)
        if isinstance(exposed, TooLong):
            return TooLong(exposed.seconds / EXPOSING)
        search = _search(subject, secrets, exposed.settings["number"], seconds - exposed.seconds)
        if isinstance(search, str):
            return exposed._replace(cut="; ".join(one for one in (exposed.cut, search) if one))
        return Sized(
            {**exposed.settings, "search": search.settings},
            exposed.seconds + search.seconds,
            exposed.size,
            "; ".join(one for one in (exposed.cut, search.cut) if one),
        )

    def run(self, subject: Subject, settings: dict[str, Any], running: StepRun) -> None:
        """Measure and search, each with its files in a folder of its own."""
        secrets = secrets_of(subject)
        if secrets is None:
            return
        chosen = secrets.first(settings["number"])
        asked = {name: value for name, value in settings.items() if name not in {"number", "search"}}
        exposure, extraction = (running.folder / name for name in ("exposure", "extraction"))
        if not (exposure / EXPOSURES.file).is_file():
            run_exposure(subject, chosen, asked, running._replace(folder=exposure))
        if not (running.folder / "membership" / MEMBERSHIPS.file).is_file():
            # Where no secret has a score to compare, the exposures say why.
            with contextlib.suppress(NotMeasurableError), together():
                membership(exposure, canaries=chosen, seed=subject.seed).save(running.folder / "membership")
        if "search" in settings and not (extraction / VERIFIED.file).is_file():
            run_extraction(subject, chosen, settings["search"], running._replace(folder=extraction))


def _walked(subject: Subject, secrets: CanarySet, seconds: float) -> Sized | TooLong:
    """For a model that supports incremental decoding: fewer draws before there are fewer secrets."""
    total, fewest = len(secrets), min(FEWEST, len(secrets))

    def takes(number: int, share: float) -> float:
        return share * (exposure_seconds(subject, secrets.first(number)) or 0.0) + EACH * number

    number, share = total, next((one for one in SHARES if takes(total, one) <= seconds), SHARES[-1])
    while number > fewest and takes(number, share) > seconds:
        number = max(fewest, number * 4 // 5)
    if takes(number, share) > seconds:
        return TooLong(takes(fewest, SHARES[-1]))
    settings: dict[str, Any] = {"number": number, "method": "auto", "minutes": max(1e-3, seconds / 60 / 3)}
    if share < 1:
        settings |= {"budget": int(FULL_BUDGET * share), "samples": int(FULL_SAMPLES * share)}
    return Sized(settings, takes(number, share), _words(number, total), _cut(number, total, share))


def _among_references(subject: Subject, secrets: CanarySet, seconds: float) -> Sized | TooLong:
    """For a model that can only score: the rank of each secret among its references."""
    texts = 1 + max(map(len, secrets.references.values()))
    each, total = texts / (subject.costs.scoring or 1.0) / subject.workers, len(secrets)
    number = min(total, int(seconds / each))
    if number < min(FEWEST, total):
        return TooLong(min(FEWEST, total) * each)
    settings = {"number": number, "method": "references"}
    return Sized(settings, number * each, _words(number, total), _cut(number, total, 1.0))


def _search(subject: Subject, secrets: CanarySet, number: int, seconds: float) -> Sized | str:
    """The searches for these secrets, or why there are none."""
    chosen = secrets.first(number, searchable=True)
    if not len(chosen):
        return (
            "whether they come out was not tested, because their kinds have no members that could be searched"
        )
    why = extraction_obstacle(subject, chosen)
    if why is None:
        found = extraction_plan(subject, chosen, seconds, "")
        if isinstance(found, Sized):
            return found
        why = f"that would take about {duration(found.seconds)}"
    return f"whether they come out was not tested: {why}"


def _words(number: int, total: int) -> str:
    return f"secrets: {number:,}" if number == total else f"secrets: {number:,} of {total:,}"


def _cut(number: int, total: int, share: float) -> str:
    if number < total:
        return f"the {number:,} most sensitive and most repeated of {total:,} secrets were taken, to fit into the time"
    return "" if share == 1 else f"{100 * share:.0f}% of the usual draws were made, to fit into the time"
