"""`audit`: everything that can be tested of a model with its training data, within a time, on one page."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from coalmine.audits.registry import read_runs
from coalmine.audits.whole.records import REVIEWS, Review, ReviewOptions, Speeds, StepRecord
from coalmine.audits.whole.steps import STEPS, AuditStep, Plan, StepRun
from coalmine.audits.whole.subject import (
    ModelOrPlace,
    Subject,
    gather,
    load_models,
    measure,
    read_inputs,
)
from coalmine.corpus.files.documents import Fields
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.engines.engine import Engine, open_engine
from coalmine.errors import InputError, MissingExtraError, ModelError, ModelOutputError, NotMeasurableError
from coalmine.models.options import LoadOptions
from coalmine.progress import Progress, Silent, duration
from coalmine.reports.page.html import report_page
from coalmine.storage.directories import sole_use
from coalmine.storage.files import check_places, no_empty_directory, write_bytes

REPORT_FILE = "report.html"
# What is planned with, of all that is given: a step may take longer than the speeds say, and the report takes a while too.
PLANNED_SHARE = 0.8
# What is left of the time for the report, in seconds; and the least that a step may take, whatever is left.
REPORTING, LEAST = 10.0, 3.0
# What ends a step and not the audit: the others may still have an answer.
_NO_ANSWER = (NotMeasurableError, ModelError, ModelOutputError, MissingExtraError)
Clock = Callable[[], float]
clock: Clock = time.monotonic


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
        changes: fields of `ReviewOptions`.
    """
    given = ReviewOptions.of(options, changes)
    folder, progress, began = Path(out), progress or Silent(), clock()
    training, other = Path(data), None if held_out is None else Path(held_out)
    fields = fields or Fields()
    with contextlib.ExitStack() as held:
        held.enter_context(no_empty_directory(folder))
        planted, hashes = read_inputs(training, other, canaries)
        check_places(folder, REVIEWS.file, REPORT_FILE)
        asked, compared = load_models(model, reference, folder, loading)
        held.enter_context(sole_use(folder))
        running = held.enter_context(open_engine(engine))
        review = _begun(
            folder,
            Review(
                model=asked.describe(),
                reference=None if compared is None else compared.describe(),
                data_sha256=hashes,
                minutes=given.minutes,
                settings={"seed": given.seed}
                | {f"field {role}": name for role, name in fields.named().items()},
                steps=tuple(StepRecord(name=one.name, title=one.title, audits=one.audits) for one in STEPS),
            ),
        )
        spent = review.prepared_seconds + sum(one.seconds or 0.0 for one in review.steps)
        sample, apart, warnings = gather(training, other, fields, given.seed, progress)
        if not review.speeds:
            progress.start("Measuring the speed of the model", None)
            texts = [user.texts[0] for user in sample.sample]
            models = {"model": asked, "reference": compared}
            speeds = {role: measure(one, texts) for role, one in models.items() if one is not None}
            review = msgspec.structs.replace(review, speeds=speeds)
            progress.finish()
        review = msgspec.structs.replace(
            review,
            warnings=warnings,
            prepared_seconds=round(review.prepared_seconds + clock() - began, 1),
        )
        subject = Subject(
            model=asked,
            reference=compared,
            data=training,
            hashes=hashes,
            canaries=planted,
            fields=fields,
            index=None if index is None else Path(index),
            training=sample,
            held_out=apart,
            speeds=review.speeds["model"],
            reference_speeds=review.speeds.get("reference", Speeds()),
            folder=folder,
            seed=given.seed,
        )
        review = run_steps(
            review,
            STEPS,
            subject,
            engine=running,
            progress=progress,
            began=began - spent,
            save=lambda found: REVIEWS.save(folder, found),
        )
        if record is not None:
            record(review)
        write_bytes(folder / REPORT_FILE, report_page(read_runs(folder)).encode())
    return review


def _begun(folder: Path, new: Review) -> Review:
    """The review with the steps that were begun, if the directory has one, which must be of the same model and data."""
    path = folder / REVIEWS.file
    if not path.is_file():
        if any((folder / one.name).exists() for one in new.steps):
            raise InputError(
                f"{folder} has results of something else, and no {REVIEWS.file} of an audit; choose another directory"
            )
        return new
    found = REVIEWS.load(path)
    # Held-out text, canaries and fields may be added.
    before, now = (
        {"model": one.model, "reference": one.reference or "none", **one.data_sha256, **one.settings}
        for one in (found, new)
    )
    other = next((what for what, value in before.items() if now.get(what) != value), None)
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


def run_steps(
    review: Review,
    steps: Sequence[AuditStep],
    subject: Subject,
    *,
    engine: Engine,
    progress: Progress,
    began: float,
    save: Callable[[Review], object],
) -> Review:
    """The review once all steps are over; each is planned when it begins, and each change of the review is saved before it is acted on.

    `began` is when the clock was where no time was spent; what an earlier run spent counts too.
    """

    def put(record: StepRecord) -> None:
        nonlocal review
        changed = tuple(record if one.name == record.name else one for one in review.steps)
        review = msgspec.structs.replace(review, steps=changed)
        save(review)

    for place, step in enumerate(steps):
        left = began + PLANNED_SHARE * 60 * review.minutes - clock()
        record = review.step(step.name)
        if record.status == "done" or (record.seconds is not None and left <= 0):
            continue
        if record.status != "running" and record.seconds is None:
            waiting = [one for one in steps[place + 1 :] if review.step(one.name).status == "planned"]
            later = sum(one.share for one in waiting if isinstance(_plan(one, subject, 0.0), Plan))
            record = _planned(step, record, subject, left, step.share / (step.share + later))
            if record.status != "planned":
                put(record)
                continue
        put(msgspec.structs.replace(record, status="running", why=""))
        step_began = clock()
        # Where no time is left, a step may still take the least.
        end = max(began + 60 * review.minutes - REPORTING, step_began + LEAST)
        shown = _InTime(progress, step.title, end)
        status, why = _ran(step, subject, record, StepRun(subject.folder / step.name, engine, shown))
        seconds = round((record.seconds or 0.0) + clock() - step_began, 1)
        put(msgspec.structs.replace(record, status=status, why=why, seconds=seconds))
    return review


def _plan(step: AuditStep, subject: Subject, seconds: float) -> Plan | str:
    """What a step asks in so many seconds, or why it does not apply."""
    try:
        return step.plan(subject, seconds)
    except NotMeasurableError as problem:
        return str(problem)


def _planned(step: AuditStep, record: StepRecord, subject: Subject, left: float, share: float) -> StepRecord:
    """A step with its share of what is left, or with the least that says anything where that fits."""
    plan = _plan(step, subject, max(left * share, LEAST))
    if isinstance(plan, str):
        return msgspec.structs.replace(record, status="not_applicable", why=plan)
    found: dict[str, Any] = {"expected_seconds": round(plan.seconds, 1)}
    if plan.seconds > max(left, LEAST):
        there = f"{duration(left)} are left" if left >= 1 else "no time is left"
        why = f"it would take about {duration(max(1.0, plan.seconds))}, and {there} for it"
        found |= {"status": "no_time", "why": why}
    else:
        cut = "" if plan.part >= 1 else f"{100 * plan.part:.0f}% of it was asked, to fit into the time"
        found |= {"status": "planned", "size": plan.size, "cut": cut, "settings": plan.settings}
    return msgspec.structs.replace(record, **found)


def _ran(step: AuditStep, subject: Subject, record: StepRecord, running: StepRun) -> tuple[Any, str]:
    """What became of a step, and why it has no results if so."""
    try:
        step.run(subject, record.settings, running)
    except OutOfTime:
        return "no_time", (
            f"the time was up before it was finished (planned: {duration(record.expected_seconds)}); run the same command with more "
            "--minutes to resume it"
        )
    except _NO_ANSWER as problem:
        return "not_applicable", problem.shown()
    return "done", ""


class OutOfTime(KeyboardInterrupt):
    """The time of an audit is up in the middle of a step. It stops the work as Ctrl-C does, which keeps what was done."""


class _InTime:
    """Shows the tasks of one step with its title and the time that is left, and ends it when there is none."""

    def __init__(self, shown: Progress, title: str, end: float) -> None:
        self._shown, self._title, self._end, self.finish = shown, title, end, shown.finish

    def start(self, task: str, total: int | None) -> None:
        """A task begins."""
        self._shown.start(f"{self._title} ({duration(self._left())} left): {task}", total)

    def advance(self, amount: int = 1, note: str = "") -> None:
        """More is done."""
        self._shown.advance(amount, note)
        self._left()

    def _left(self) -> float:
        left = self._end - clock()
        if left <= 0:
            raise OutOfTime
        return left
