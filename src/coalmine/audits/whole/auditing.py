"""`audit`: everything that can be tested of a model with its training data, within a time, on one page."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from coalmine.audits.exposure.results import EXPOSURES
from coalmine.audits.extraction.results import VERIFIED
from coalmine.audits.membership.records import MEMBERSHIPS
from coalmine.audits.provenance.records import PROVENANCES
from coalmine.audits.recitation.records import RECITATIONS
from coalmine.audits.runs import read_runs
from coalmine.audits.whole import canaries, texts
from coalmine.audits.whole.records import REVIEWS, Review, ReviewOptions, StepRecord
from coalmine.audits.whole.running import AuditRun, AuditStep
from coalmine.audits.whole.subject import (
    Inputs,
    ModelOrPlace,
    Models,
    Speeds,
    Subject,
    Timing,
    gather,
    load_models,
    read_inputs,
)
from coalmine.corpus.files.documents import Fields
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.corpus.secrets.results import SCANS
from coalmine.engines.engine import Engine, open_engine
from coalmine.engines.scheduling import PooledEngine
from coalmine.errors import InputError
from coalmine.models.options import LoadOptions
from coalmine.progress import Progress, Silent
from coalmine.reports.page.html import report_page
from coalmine.storage.directories import sole_use
from coalmine.storage.files import check_places, no_empty_directory, write_bytes

# What an audit does, in the order in which it does it. A further step is a row.
STEPS = (
    # First, since the secrets are planned by what it finds.
    AuditStep(
        name=canaries.SCAN_FOLDER,
        title="Scan for secrets",
        audits=(),
        share=0.5,
        files=(SCANS.file,),
        plan=canaries.plan_scan,
        run=canaries.run_scan,
        asked=canaries.scanned,
    ),
    AuditStep(
        name="secrets",
        title="Secrets in the training data",
        audits=("secrets",),
        share=4.0,
        files=(f"exposure/{EXPOSURES.file}", f"extraction/{VERIFIED.file}"),
        obstacles=(canaries.no_secrets, canaries.no_probabilities),
        plan=canaries.plan_secrets,
        run=canaries.run_secrets,
    ),
    AuditStep(
        name="recitation",
        title="Recitation of training text",
        audits=("recitation",),
        share=3.0,
        files=(RECITATIONS.file,),
        obstacles=(texts.no_sequences,),
        plan=texts.plan_recitation,
        run=texts.run_recitation,
        asked=texts.recited,
    ),
    AuditStep(
        name="documents",
        title="Membership of training documents",
        audits=("provenance",),
        share=2.0,
        files=(PROVENANCES.file,),
        obstacles=(texts.no_held_out, texts.no_view),
        plan=lambda subject, seconds: texts.plan_comparison(subject, "document", seconds),
        run=lambda subject, *asked: texts.run_comparison(subject, "document", *asked),
    ),
    AuditStep(
        name="users",
        title="Provenance of users",
        audits=("provenance",),
        share=2.0,
        files=(PROVENANCES.file,),
        obstacles=(texts.no_users, texts.no_view),
        plan=lambda subject, seconds: texts.plan_comparison(subject, "user", seconds),
        run=lambda subject, *asked: texts.run_comparison(subject, "user", *asked),
    ),
    AuditStep(
        name=canaries.EXPOSURE_FOLDER,
        title="Exposure of canaries",
        audits=("exposure",),
        share=3.0,
        files=(EXPOSURES.file,),
        obstacles=(canaries.no_canaries, canaries.no_probabilities, canaries.no_frame),
        plan=lambda subject, seconds: canaries.exposing(subject, canaries.planted(subject), seconds),
        run=lambda subject, *asked: canaries.expose_these(subject, canaries.planted(subject), *asked),
    ),
    AuditStep(
        name="canaries-extraction",
        title="Extraction of canaries",
        audits=("extraction",),
        share=2.0,
        files=(VERIFIED.file,),
        obstacles=(canaries.no_canaries, canaries.no_search),
        plan=lambda subject, seconds: canaries.searching(subject, canaries.planted(subject), seconds),
        run=lambda subject, *asked: canaries.search_these(subject, canaries.planted(subject), *asked),
    ),
    AuditStep(
        name="canaries-membership",
        title="Membership of canaries",
        audits=("membership",),
        share=0.1,
        files=(MEMBERSHIPS.file,),
        obstacles=(canaries.no_canaries, canaries.no_probabilities),
        plan=canaries.plan_membership,
        run=canaries.run_membership,
    ),
)
REPORT_FILE = "report.html"
# How much faster several workers are than one, for each of them: they share the memory of one machine.
WORTH_OF_A_WORKER = 0.7
# What may be given later, and what messages call it.
_ADDED = {"held_out": "held-out text", "canaries": "canaries"}


def audit(
    model: ModelOrPlace,
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    options: ReviewOptions | None = None,
    *,
    held_out: str | os.PathLike[str] | None = None,
    reference: ModelOrPlace | None = None,
    canaries: CanarySet | str | os.PathLike[str] | None = None,
    fields: Fields | None = None,
    index: str | os.PathLike[str] | None = None,
    loading: LoadOptions | None = None,
    engine: Engine | str | None = None,
    progress: Progress | None = None,
    record: Callable[[Review], None] | None = None,
    timing: Timing | None = None,
    **changes: Any,
) -> Review:
    """Test what a model remembers of its training data, as far as the inputs and the time allow, and write one report page.

    The fields of `ReviewOptions` can be given as keywords, such as `minutes=5`. The same call resumes a run that was stopped: the speeds
    that it measured and the settings of steps that were begun are kept in review.json, and steps that have their results are not repeated.

    >>> audit("model/", "train.txt", "audit/", held_out="held-out.txt", minutes=5)  # doctest: +SKIP

    Args:
        model: the model, or where it is, as `load_model` takes it.
        data: its training data.
        out: a directory for all results and report.html.
        options: how long it may take.
        held_out: text like the training data that the model was not trained on.
        reference: a model without this training data. For an adapter in a directory, its base is taken.
        canaries: what was planted in the training data; without it, the canaries.json beside the data is taken if it is about that file.
        fields: which fields of `data` and `held_out` hold the text, and whose it is.
        index: an index of `data` in the model's tokens, if there is one already.
        loading: how models are loaded, where their places are given.
        engine: where the models are asked, such as "processes:4"; without it, in this process.
        progress: is told about each step, and how much time is left.
        record: is called with the review before the page is written.
        timing: how time and speeds are measured.
        changes: fields of `ReviewOptions`.
    """
    given = ReviewOptions.of(options, changes)
    given.check()
    folder, timing, progress = Path(out), timing or Timing(), progress or Silent()
    began = timing.clock()
    with contextlib.ExitStack() as held:
        held.enter_context(no_empty_directory(folder))
        inputs = read_inputs(data, held_out, canaries, fields, index)
        check_places(folder, REVIEWS.file, REPORT_FILE)
        models = load_models(model, reference, folder, loading)
        held.enter_context(sole_use(folder))
        opened = held.enter_context(open_engine(engine))
        review = _begun(folder, models, inputs, given)
        spent = review.prepared_seconds + sum(one.seconds or 0.0 for one in review.steps)
        subject, review = _subject(review, models, inputs, folder, opened, timing, progress)
        prepared = review.prepared_seconds + timing.clock() - began
        review = AuditRun(
            review=msgspec.structs.replace(review, prepared_seconds=round(prepared, 1)),
            steps=STEPS,
            subject=subject,
            engine=opened,
            progress=progress,
            clock=timing.clock,
            began=began - spent,
            save=lambda found: REVIEWS.save(folder, found),
        ).finished()
        if record is not None:
            record(review)
        write_bytes(folder / REPORT_FILE, report_page(read_runs(folder)).encode())
    return review


def _begun(folder: Path, models: Models, inputs: Inputs, options: ReviewOptions) -> Review:
    """The review with the steps that were begun, if the directory has one, which must be of the same model and data."""
    new = Review(
        model=models.model.describe(),
        reference=None if models.reference is None else models.reference.describe(),
        data_sha256=inputs.hashes,
        minutes=options.minutes,
        settings={"seed": options.seed, "fields": dict(inputs.fields.named())},
        steps=tuple(
            StepRecord(name=one.name, title=one.title, audits=one.audits, status="planned") for one in STEPS
        ),
    )
    path = folder / REVIEWS.file
    if not path.is_file():
        for step in STEPS:
            if (folder / step.name).exists() and step.audits:
                raise InputError(
                    f"{folder} has results of something else ({step.name}), and no {REVIEWS.file} of an audit; choose another directory"
                )
        return new
    found = REVIEWS.load(path)
    other = _difference(found, new)
    if other is not None:
        raise InputError(
            f"{folder} holds an audit of something else ({other} differs); choose another directory, or remove it"
        )
    begun = {one.name: one for one in found.steps if one.status == "running" or one.seconds is not None}
    return msgspec.structs.replace(
        new,
        minutes=max(found.minutes, new.minutes),
        speeds=found.speeds,
        prepared_seconds=found.prepared_seconds,
        steps=tuple(begun.get(one.name, one) for one in new.steps),
    )


def _difference(found: Review, new: Review) -> str | None:
    """What an earlier audit was of that this one is not; held-out text, canaries and fields may be added."""
    if found.model != new.model:
        return "the model"
    if found.reference != new.reference:
        return "the reference model"
    if found.data_sha256.get("data") != new.data_sha256.get("data"):
        return "the training data"
    for role, what in _ADDED.items():
        if role in found.data_sha256 and found.data_sha256[role] != new.data_sha256.get(role):
            return f"the {what}"
    if found.settings.get("seed") != new.settings.get("seed"):
        return "the seed"
    fields, asked = found.settings.get("fields", {}), new.settings.get("fields", {})
    return "a field" if any(asked.get(role) != name for role, name in fields.items()) else None


def _subject(
    review: Review,
    models: Models,
    inputs: Inputs,
    folder: Path,
    engine: Engine,
    timing: Timing,
    progress: Progress,
) -> tuple[Subject, Review]:
    """What the audit is about, and the review with the speeds that were measured of it."""
    began, seed = timing.clock(), review.settings["seed"]
    gathered = gather(inputs.data, inputs.held_out, inputs.fields, seed, progress)
    reading = timing.clock() - began
    speeds = dict(review.speeds)
    if not speeds:
        texts = [user.texts[0] for user in gathered.training.sample]
        progress.start("Measuring the speed of the model", None)
        for role, one in models._asdict().items():
            if one is not None:
                measured = timing.measure(one, texts)
                speeds |= {f"{role} {name}": value for name, value in measured._asdict().items()}
        progress.finish()
    workers = WORTH_OF_A_WORKER * engine.pool.workers if isinstance(engine, PooledEngine) else 1.0

    def of(role: str) -> Speeds:
        each = (speeds.get(f"{role} {name}") for name in Speeds._fields)
        return Speeds(*(one and one * max(1.0, workers) for one in each))

    subject = Subject(
        model=models.model,
        reference=models.reference,
        inputs=inputs,
        gathered=gathered,
        speeds=of("model"),
        reference_speeds=of("reference"),
        # The held-out text was read too, and takes as long for as much.
        reading_seconds=reading * gathered.training.characters / gathered.characters,
        folder=folder,
        seed=seed,
    )
    return subject, msgspec.structs.replace(review, speeds=speeds, warnings=gathered.warnings)
