"""Canaries, and secrets that were in the data all along: how exposed they are, whether they come out, and what that says of membership."""

from __future__ import annotations

import contextlib
import math
from functools import lru_cache
from pathlib import Path
from typing import Any

from coalmine.audits.exposure.measuring import expose
from coalmine.audits.exposure.options import ExposureOptions
from coalmine.audits.exposure.results import EXPOSURES, duration
from coalmine.audits.exposure.splitting import expected_scores
from coalmine.audits.extraction.measuring import SCORED_UP_TO, verify_extraction
from coalmine.audits.extraction.options import ExtractionOptions
from coalmine.audits.extraction.results import VERIFIED, save_verification
from coalmine.audits.framing import frame_obstacle, framed
from coalmine.audits.membership.measure import membership
from coalmine.audits.membership.records import MEMBERSHIPS
from coalmine.audits.provenance.views import encoded
from coalmine.audits.whole.running import Sized, StepRun, TooLong
from coalmine.audits.whole.subject import LINE, Subject
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.corpus.secrets.natural import NaturalOptions
from coalmine.corpus.secrets.results import SCANS
from coalmine.corpus.secrets.scanned import canaries_of_scan
from coalmine.corpus.secrets.scanning import scan
from coalmine.engines.ledger import Ledger
from coalmine.errors import NotMeasurableError
from coalmine.formats.format import Format
from coalmine.models.protocols import Generator, PairModel, Scorer, Stepper
from coalmine.storage.files import make_directory, together

EXPOSURE_FOLDER = "canaries-exposure"
SCAN_FOLDER = "scan"
# Characters that are scanned per second.
SCANNED = 5e6
# The most secrets that are measured, and the fewest that it is done for.
MOST, FEWEST = 200, 5
# How much of the time is for exposures at least; the rest is for searches.
EXPOSING = 0.6
# What `expose` and `extract` do where time allows: expansions and draws per format, draws without decoding, and expansions of a search.
FULL_DRAWS, FULL_SAMPLES, FULL_SEARCH = 50_000, 1_600, 1_000_000
# The least that says anything: a share of these draws, and expansions of a search.
LEAST_SHARE, LEAST_SEARCH = 0.05, 2_000
# Exact ranks may be tried first; each format takes a little besides; and comparing scores, prompting, in seconds.
TRYING, EACH, JUDGING, PROMPTING = 1.5, 0.1, 3.0, 2.0


def no_canaries(subject: Subject) -> str | None:
    """Canaries must be planted."""
    given = subject.inputs.canaries is not None
    return None if given else "no manifest of planted canaries was given (--canaries)"


def no_probabilities(subject: Subject) -> str | None:
    """The model must score texts."""
    scores = isinstance(subject.model, Scorer) and subject.speeds.lines
    return None if scores else "the model does not give the probability of a text"


def no_frame(subject: Subject) -> str | None:
    """The model must read canaries as the turns that they are."""
    return frame_obstacle(subject.model, planted(subject))


def no_search(subject: Subject) -> str | None:
    """The formats must be such that the model can be searched for them."""
    return search_obstacle(subject, planted(subject))


def planted(subject: Subject) -> CanarySet:
    """The canaries of a step that does not apply without them."""
    canaries = subject.inputs.canaries
    if canaries is None:
        raise NotMeasurableError("no manifest of planted canaries was given")
    return canaries


def plan_membership(subject: Subject, seconds: float) -> Sized | TooLong:
    """The model is not asked again."""
    del subject
    return Sized({}, JUDGING, "the scores of the exposures") if seconds >= JUDGING else TooLong(JUDGING)


def run_membership(subject: Subject, settings: dict[str, Any], running: StepRun) -> None:
    """Compare the scores that the exposures left."""
    del settings
    exposures = subject.folder / EXPOSURE_FOLDER
    if not (exposures / EXPOSURES.file).is_file():
        raise NotMeasurableError(
            "the exposure of canaries was not measured, and membership is about its scores"
        )
    found = membership(exposures, seed=subject.seed)
    with together():
        found.save(running.folder)


def exposing(subject: Subject, canaries: CanarySet, seconds: float) -> Sized | TooLong:
    """Exposures of these canaries with as many draws as fit; the rank among references where few draws would.

    Of secrets fewer can be taken instead, so that they are ranked among references only by models that cannot be walked.
    """
    what = f"canaries: {len(canaries):,}"
    stepper, formats = isinstance(subject.model, Stepper), canaries.formats.values()
    full = EACH * len(formats) + TRYING * sum(_drawing(subject, form) for form in formats)
    share = min(1.0, seconds / full)
    if share >= LEAST_SHARE and (stepper or not canaries.natural):
        settings: dict[str, Any] = {"method": "auto", "minutes": max(1e-3, seconds / 60 / 3)}
        if share < 1:
            samples = int(FULL_DRAWS * share) if stepper else max(200, int(FULL_SAMPLES * share))
            settings |= {"budget": int(FULL_DRAWS * share), "samples": samples}
        cut = "" if share == 1 else f"{100 * share:.0f}% of the usual draws were made, to fit into the time"
        return Sized(settings, full * share, what, cut)
    if not any(canaries.references.values()) or (stepper and canaries.natural):
        return TooLong(1.01 * LEAST_SHARE * full)
    # A text that is shorter than a line takes about as long as one.
    took = subject.scoring(sum(max(LINE, len(text)) for _, _, text in canaries.named_texts()))
    return Sized({"method": "references"}, took, what) if took <= seconds else TooLong(took)


def _drawing(subject: Subject, form: Format) -> float:
    """The seconds of measuring in one format with all draws."""
    if not (isinstance(subject.model, Stepper) and subject.speeds.steps):
        return min(form.size, expected_scores(math.log2(max(2, form.size)))) * subject.scoring(LINE)
    if form.size <= FULL_DRAWS:
        return form.size / subject.speeds.steps
    # Each draw takes a step for each token that members do not share.
    whole, shared = (encoded(subject.model.tokenizer, text) or [] for text in (form.at(0), form.prefix))
    return FULL_DRAWS * (1 + max(1, len(whole) - len(shared))) / subject.speeds.steps


def expose_these(subject: Subject, canaries: CanarySet, settings: dict[str, Any], running: StepRun) -> None:
    """Measure exposures, and write them with the manifest beside them."""
    ledger = Ledger(running.folder)
    results = expose(
        subject.model,
        canaries,
        ExposureOptions(seed=subject.seed, **settings),
        engine=running.engine,
        resume=ledger,
        progress=running.progress,
    )
    make_directory(running.folder)
    canaries.save(running.folder)
    results.save(running.folder)
    ledger.forget()


def _method(subject: Subject, canaries: CanarySet) -> str | None:
    """How these formats can be searched."""
    model, forms = subject.model, canaries.formats.values()
    if isinstance(model, Stepper) and subject.speeds.steps:
        return "search"
    if no_probabilities(subject) is None and all(form.size <= SCORED_UP_TO for form in forms):
        return "brute"
    return "prompt" if isinstance(model, Generator) and all(form.prefix for form in forms) else None


def search_obstacle(subject: Subject, canaries: CanarySet) -> str | None:
    """Why formats cannot be searched for what comes out, if so."""
    if canaries.listed:
        return "the canaries are a list of texts without a format, so there is nothing to search"
    if _method(subject, canaries) is not None:
        return frame_obstacle(subject.model, canaries)
    if isinstance(subject.model, PairModel):
        return "a model of pairs can be searched for formats of up to a million members only"
    return "the model does not support incremental decoding and writes no text, so that a large format cannot be searched"


def searching(subject: Subject, canaries: CanarySet, seconds: float) -> Sized | TooLong:
    """Searches of these formats, by decoding with the largest budget that fits."""
    method, sizes = _method(subject, canaries), [form.size for form in canaries.formats.values()]
    settings: dict[str, Any] = {"method": method}
    cut = ""
    if method == "search":
        # A search of a small format ends when all of it is seen.
        budget, rate = FULL_SEARCH, subject.speeds.steps or 1.0

        def takes() -> float:
            return sum(min(2 * size, budget) for size in sizes) / rate

        while takes() > seconds and budget > LEAST_SEARCH:
            budget = max(LEAST_SEARCH, budget * 4 // 5)
        settings["budget"], took = budget, takes()
        if budget < FULL_SEARCH:
            cut = f"each search may end after {budget:,} expansions, to fit into the time"
    else:
        took = PROMPTING * len(sizes) if method == "prompt" else sum(sizes) * subject.scoring(LINE)
    return TooLong(took) if took > seconds else Sized(settings, took, f"formats: {len(sizes):,}", cut)


def search_these(subject: Subject, canaries: CanarySet, settings: dict[str, Any], running: StepRun) -> None:
    """Search the formats, and write which canaries come out."""
    ledger = Ledger(running.folder)
    found, extractions = verify_extraction(
        subject.model,
        canaries,
        ExtractionOptions(**settings),
        engine=running.engine,
        resume=ledger,
        progress=running.progress,
    )
    model = framed(subject.model, canaries, writes=True).describe()
    folder = make_directory(running.folder)
    save_verification(folder, found, extractions, manifest_sha256=canaries.sha256, model=model)
    ledger.forget()


def plan_scan(subject: Subject, seconds: float) -> Sized | TooLong:
    """All of the training data, or nothing."""
    # It is read twice: the second time to count what is repeated, and for the text before each secret.
    training = subject.gathered.training
    took = 1.0 + 2 * subject.reading_seconds + training.characters / SCANNED
    return TooLong(took) if took > seconds else Sized({}, took, f"{training.documents:,} documents")


def run_scan(subject: Subject, settings: dict[str, Any], running: StepRun) -> None:
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
        searched = _search(subject, secrets.first(number, searchable=True), 1e9)
        kept = min(searched.seconds, (1 - EXPOSING) * seconds) if isinstance(searched, Sized) else 0.0
        exposed = exposing(subject, secrets.first(number), seconds - kept)
        if isinstance(exposed, Sized) or number <= FEWEST:
            break
        number = max(FEWEST, number * 4 // 5)
    if isinstance(exposed, TooLong):
        return TooLong(exposed.seconds / EXPOSING)
    size = f"secrets: {number:,}" + ("" if number == total else f" of {total:,}")
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
    found = searching(subject, secrets, seconds)
    return found if isinstance(found, Sized) else f"that would take about {duration(found.seconds)}"


def run_secrets(subject: Subject, settings: dict[str, Any], running: StepRun) -> None:
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
            membership(exposure, seed=subject.seed).save(members)
    if "search" in settings and not (extraction / VERIFIED.file).is_file():
        search_these(subject, chosen, settings["search"], running._replace(folder=extraction))
