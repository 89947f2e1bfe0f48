"""Canaries: how exposed they are, whether they can be extracted, and what that means for membership."""

from __future__ import annotations

import math
from typing import Any

from coalmine.audits.exposure.measuring import expose
from coalmine.audits.exposure.options import ExposureOptions
from coalmine.audits.exposure.results import EXPOSURES
from coalmine.audits.exposure.splitting import expected_scores
from coalmine.audits.extraction.measuring import SCORED_UP_TO, verify_extraction
from coalmine.audits.extraction.options import ExtractionOptions
from coalmine.audits.extraction.results import VERIFIED, save_verification
from coalmine.audits.framing import frame_obstacle, framed
from coalmine.audits.membership.measuring import membership
from coalmine.audits.membership.results import MEMBERSHIPS
from coalmine.audits.provenance.views import encoded
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.engines.ledger import Ledger
from coalmine.errors import NotMeasurableError
from coalmine.formats.format import Format
from coalmine.models.protocols import Generator, PairModel, Scorer, Stepper, TextScorer
from coalmine.review.step import ReviewStep, Sized, TooLong
from coalmine.review.subject import StepRun, Subject
from coalmine.storage.files import make_directory, together

EXPOSURE_FOLDER = "canaries-exposure"
_NO_MANIFEST = "no manifest of planted canaries was given (--canaries)"
# What `expose` and `extract` do where time allows: expansions per format, and draws.
FULL_BUDGET, FULL_SAMPLES, FULL_SEARCH = 50_000, 50_000, 1_000_000
# What membership takes, in seconds; the model is not asked again.
JUDGING = 3.0
# The least that says anything.
LEAST_SHARE, LEAST_SEARCH = 0.04, 2_000


def exposure_seconds(subject: Subject, canaries: CanarySet) -> float | None:
    """What measuring these canaries takes with all draws, by the costs of the model; None where it cannot be asked."""
    costs = subject.costs
    each = costs.stepping if isinstance(subject.model, Stepper) else costs.scoring
    if not each:
        return None
    return sum(_questions(subject, form) for form in canaries.formats.values()) / each / subject.workers


def _questions(subject: Subject, form: Format) -> float:
    """How many steps, or scores, one format takes."""
    if not isinstance(subject.model, Stepper):
        return min(form.size, expected_scores(math.log2(max(2, form.size))))
    if form.size <= FULL_BUDGET:
        return form.size
    return FULL_BUDGET + FULL_SAMPLES * _depth(subject, form)


def _depth(subject: Subject, form: Format) -> int:
    """The tokens of a member that are not in what all members share."""
    if isinstance(subject.model, TextScorer):
        return form.max_length - len(form.prefix)
    whole, before = (encoded(subject.model.tokenizer, text) or [] for text in (form.at(0), form.prefix))
    return max(1, len(whole) - len(before))


class ExposureStep(ReviewStep):
    """The exposure of each canary."""

    name = EXPOSURE_FOLDER
    title = "Exposure of canaries"
    audits = ("exposure",)
    share = 3.0
    files = (EXPOSURES.file,)

    def obstacle(self, subject: Subject) -> str | None:
        """No canaries, or a model without probabilities."""
        if subject.canaries is None:
            return _NO_MANIFEST
        if not isinstance(subject.model, Scorer) or exposure_seconds(subject, subject.canaries) is None:
            return "the model does not give the probability of a text"
        return frame_obstacle(subject.model, subject.canaries)

    def plan(self, subject: Subject, seconds: float) -> Sized | TooLong:
        """All canaries, with as many draws as fit."""
        if subject.canaries is None:
            return TooLong(seconds)
        return exposure_plan(subject, subject.canaries, seconds, f"canaries: {len(subject.canaries):,}")

    def run(self, subject: Subject, settings: dict[str, Any], running: StepRun) -> None:
        """Measure, with the manifest beside the results."""
        if subject.canaries is not None:
            run_exposure(subject, subject.canaries, settings, running)


def exposure_plan(subject: Subject, canaries: CanarySet, seconds: float, what: str) -> Sized | TooLong:
    """Exposures of these canaries with as many draws as fit; the rank among references where few draws would."""
    full = exposure_seconds(subject, canaries) or 0.0
    # Twice: exact ranks may be tried first.
    share = min(1.0, seconds / (1.5 * full)) if full else 1.0
    if share >= LEAST_SHARE:
        settings: dict[str, Any] = {"method": "auto", "minutes": max(1e-3, seconds / 60 / 3)}
        if share < 1:
            settings |= {"budget": int(FULL_BUDGET * share), "samples": int(FULL_SAMPLES * share)}
            if not isinstance(subject.model, Stepper):
                settings["samples"] = max(200, int(1_600 * share))
        cut = "" if share == 1 else f"{100 * share:.0f}% of the usual draws were made, to fit into the time"
        return Sized(settings, min(seconds, 1.5 * full), what, cut)
    references = sum(len(these) for these in canaries.references.values())
    if references and subject.costs.scoring:
        took = (references + len(canaries)) / subject.costs.scoring / subject.workers
        if took <= seconds:
            cut = "canaries were ranked among the references of the manifest only, to fit into the time"
            return Sized({"method": "references"}, took, what, cut)
    return TooLong(1.5 * full * LEAST_SHARE)


def run_exposure(subject: Subject, canaries: CanarySet, settings: dict[str, Any], running: StepRun) -> None:
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


class ExtractionStep(ReviewStep):
    """Whether canaries come out."""

    name = "canaries-extraction"
    title = "Extraction of canaries"
    audits = ("extraction",)
    share = 2.0
    files = (VERIFIED.file,)

    def obstacle(self, subject: Subject) -> str | None:
        """No canaries, no formats to search, or a model that cannot be searched."""
        return _NO_MANIFEST if subject.canaries is None else extraction_obstacle(subject, subject.canaries)

    def plan(self, subject: Subject, seconds: float) -> Sized | TooLong:
        """Every format, with as many expansions as fit."""
        if subject.canaries is None:
            return TooLong(seconds)
        what = f"formats: {len(subject.canaries.formats):,}"
        return extraction_plan(subject, subject.canaries, seconds, what)

    def run(self, subject: Subject, settings: dict[str, Any], running: StepRun) -> None:
        """Search."""
        if subject.canaries is not None:
            run_extraction(subject, subject.canaries, settings, running)


def extraction_obstacle(subject: Subject, canaries: CanarySet) -> str | None:
    """Why formats cannot be searched for what comes out, if so."""
    if canaries.listed:
        return "the canaries are a list of texts without a format, so there is nothing to search"
    if _method(subject, canaries) is not None:
        return frame_obstacle(subject.model, canaries)
    model = subject.model
    if isinstance(model, PairModel):
        return "a model of pairs can be searched for formats of up to a million members only"
    return "the model does not support incremental decoding and writes no text, so that a large format cannot be searched"


def _method(subject: Subject, canaries: CanarySet) -> str | None:
    model = subject.model
    if isinstance(model, Stepper) and subject.costs.stepping:
        return "search"
    small = all(form.size <= SCORED_UP_TO for form in canaries.formats.values())
    if small and isinstance(model, Scorer) and subject.costs.scoring:
        return "brute"
    if isinstance(model, Generator) and all(form.prefix for form in canaries.formats.values()):
        return "prompt"
    return None


def extraction_plan(subject: Subject, canaries: CanarySet, seconds: float, what: str) -> Sized | TooLong:
    """Searches of these formats with as many expansions as fit."""
    method, costs, number = _method(subject, canaries), subject.costs, len(canaries.formats)
    if method == "search":
        return _search_plan(subject, canaries, seconds, what)
    if method == "brute":
        took = sum(form.size for form in canaries.formats.values()) / (costs.scoring or 1.0) / subject.workers
        return TooLong(took) if took > seconds else Sized({"method": "brute"}, took, what)
    took = number * 2.0
    return TooLong(took) if took > seconds else Sized({"method": "prompt"}, took, f"{what}, by prompts")


def _search_plan(subject: Subject, canaries: CanarySet, seconds: float, what: str) -> Sized | TooLong:
    """Searches with the largest budget that fits; a search of a small format ends when all of it is seen."""
    rate = (subject.costs.stepping or 1.0) * subject.workers
    sizes = [form.size for form in canaries.formats.values()]

    def takes(budget: int) -> float:
        return sum(min(2 * size, budget) for size in sizes) / rate

    if takes(LEAST_SEARCH) > seconds:
        return TooLong(takes(LEAST_SEARCH))
    budget = FULL_SEARCH
    while takes(budget) > seconds:
        budget = max(LEAST_SEARCH, budget * 4 // 5)
    cut = (
        ""
        if budget == FULL_SEARCH
        else f"each search may end after {budget:,} expansions, to fit into the time"
    )
    return Sized({"method": "search", "budget": budget}, takes(budget), what, cut)


def run_extraction(subject: Subject, canaries: CanarySet, settings: dict[str, Any], running: StepRun) -> None:
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
    save_verification(
        make_directory(running.folder), found, extractions, manifest_sha256=canaries.sha256, model=model
    )
    ledger.forget()


class MembershipStep(ReviewStep):
    """What the exposures of canaries say about membership and epsilon."""

    name = "canaries-membership"
    title = "Membership of canaries"
    audits = ("membership",)
    share = 0.1
    files = (MEMBERSHIPS.file,)

    def obstacle(self, subject: Subject) -> str | None:
        """No canaries, or nothing that they can be compared with."""
        if subject.canaries is None:
            return _NO_MANIFEST
        if not isinstance(subject.model, Scorer):
            return "the model does not give the probability of a text"
        return None

    def plan(self, subject: Subject, seconds: float) -> Sized | TooLong:
        """The model is not asked again."""
        del subject
        took = JUDGING
        return Sized({}, took, "the scores of the exposures") if seconds >= took else TooLong(took)

    def run(self, subject: Subject, settings: dict[str, Any], running: StepRun) -> None:
        """Compare the scores that the exposures left."""
        del settings
        exposures = subject.folder / EXPOSURE_FOLDER
        if not (exposures / EXPOSURES.file).is_file():
            raise NotMeasurableError(
                "the exposure of canaries was not measured, and membership is about its scores"
            )
        found = membership(exposures, canaries=subject.canaries, seed=subject.seed)
        with together():
            found.save(running.folder)
