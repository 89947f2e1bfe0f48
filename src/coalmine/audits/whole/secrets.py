"""Secrets that are in the training data: which there are, how exposed they are, and whether they come out."""

from __future__ import annotations

import contextlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from coalmine.audits.exposure.results import EXPOSURES, duration
from coalmine.audits.extraction.results import VERIFIED
from coalmine.audits.membership.measuring import membership
from coalmine.audits.membership.results import MEMBERSHIPS
from coalmine.audits.whole.canaries import (
    expose_these,
    exposing,
    search_obstacle,
    search_these,
    searching,
)
from coalmine.audits.whole.step import Running, Sized, Subject, TooLong
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.corpus.secrets.natural import NaturalOptions
from coalmine.corpus.secrets.results import SCANS
from coalmine.corpus.secrets.scanned import canaries_of_scan
from coalmine.corpus.secrets.scanning import scan
from coalmine.errors import NotMeasurableError
from coalmine.storage.files import together

SCAN_FOLDER = "scan"
# Characters that are scanned per second.
SCANNED = 5e6
# The most secrets that are measured, and the fewest that it is done for.
MOST, FEWEST = 200, 5
# How much of the time is for exposures; the rest is for searches.
EXPOSING = 0.6


def plan_scan(subject: Subject, seconds: float) -> Sized | TooLong:
    """All of the training data, or nothing."""
    # It is read twice: the second time to count what is repeated, and for the text before each secret.
    training = subject.gathered.training
    took = 1.0 + 2 * subject.reading_seconds + training.characters / SCANNED
    return TooLong(took) if took > seconds else Sized({}, took, f"{training.documents:,} documents")


def run_scan(subject: Subject, settings: dict[str, Any], running: Running) -> None:
    """Look for all kinds of secrets."""
    del settings
    scan(subject.inputs.data, running.folder, fields=subject.inputs.fields, progress=running.progress)


def scanned(folder: Path, settings: dict[str, Any]) -> tuple[str, str]:
    """What a scan found."""
    del settings
    found = SCANS.load(folder)
    kinds = ", ".join(f"{one.kind} {one.secrets:,}" for one in found.kinds if one.secrets)
    there = f"{found.secrets:,} {'secret' if found.secrets == 1 else 'secrets'}"
    return f"{there} in {found.documents:,} documents" + (f": {kinds}" if kinds else ""), ""


@lru_cache(1)
def _found(scan: Path, data: Path, seed: int) -> CanarySet:
    return canaries_of_scan(scan, data, NaturalOptions(most=MOST, seed=seed)).canaries


def _secrets(subject: Subject) -> CanarySet:
    """The secrets of the training data as canaries, the most urgent first."""
    return _found(subject.folder / SCAN_FOLDER, subject.inputs.data, subject.seed)


def no_secrets(subject: Subject) -> str | None:
    """The scan must have found some."""
    if not (subject.folder / SCAN_FOLDER / SCANS.file).is_file():
        return "the training data was not scanned for secrets"
    return None if len(_secrets(subject)) else "the scan found no secret that a model can be asked about"


def plan_secrets(subject: Subject, seconds: float) -> Sized | TooLong:
    """As many secrets as fit, and a search for each with what is left; fewer draws before there are fewer secrets."""
    secrets = _secrets(subject)
    total = number = len(secrets)
    while True:
        size = f"secrets: {number:,}" + ("" if number == total else f" of {total:,}")
        exposed = exposing(subject, secrets.first(number), EXPOSING * seconds, size)
        if isinstance(exposed, Sized) or number <= FEWEST:
            break
        number = max(FEWEST, number * 4 // 5)
    if isinstance(exposed, TooLong):
        return TooLong(exposed.seconds / EXPOSING)
    cuts, settings, took = [exposed.cut], {**exposed.settings, "number": number}, exposed.seconds
    if number < total:
        cuts = [
            f"the {number:,} most sensitive and most repeated of {total:,} secrets were taken, to fit into the time"
        ]
    search = _search(subject, secrets.first(number, searchable=True), seconds - took)
    if isinstance(search, Sized):
        settings["search"], took = search.settings, took + search.seconds
        cuts.append(search.cut)
    else:
        cuts.append(f"whether they come out was not tested: {search}")
    return Sized(settings, took, size, "; ".join(filter(None, cuts)))


def _search(subject: Subject, secrets: CanarySet, seconds: float) -> Sized | str:
    """The searches for these secrets, or why there are none."""
    if not len(secrets):
        return "their kinds have no members that could be searched"
    why = search_obstacle(subject, secrets)
    if why is not None:
        return why
    found = searching(subject, secrets, seconds, "")
    return found if isinstance(found, Sized) else f"that would take about {duration(found.seconds)}"


def run_secrets(subject: Subject, settings: dict[str, Any], running: Running) -> None:
    """Measure and search, each with its files in a folder of its own."""
    chosen = _secrets(subject).first(settings["number"])
    asked = {name: value for name, value in settings.items() if name not in {"number", "search"}}
    exposure, members, extraction = (
        running.folder / name for name in ("exposure", "membership", "extraction")
    )
    if not (exposure / EXPOSURES.file).is_file():
        expose_these(subject, chosen, asked, running._replace(folder=exposure))
    if not (members / MEMBERSHIPS.file).is_file():
        # Where no secret has a score to compare, the exposures say why.
        with contextlib.suppress(NotMeasurableError), together():
            membership(exposure, canaries=chosen, seed=subject.seed).save(members)
    if "search" in settings and not (extraction / VERIFIED.file).is_file():
        search_these(subject, chosen, settings["search"], running._replace(folder=extraction))
