"""`audit`: everything that can be tested of a model with its training data, within a time, on one page."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from coalmine.audits.runs import read_runs
from coalmine.audits.steps.results import REVIEWS, Review
from coalmine.corpus.files.documents import Fields
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.engines.engine import Engine, open_engine
from coalmine.engines.scheduling import PooledEngine
from coalmine.models.options import LoadOptions
from coalmine.progress import Progress, Silent
from coalmine.reports.page.html import report_page
from coalmine.review.costs import Costs, Timing
from coalmine.review.inputs import Inputs, ModelOrPlace, Models, load_models, read_inputs
from coalmine.review.options import ReviewOptions
from coalmine.review.planning import PLANNED_SHARE, STEPS, make_plan, plan_steps
from coalmine.review.resuming import continued, earlier_review
from coalmine.review.running import run_steps
from coalmine.review.samples import gather
from coalmine.review.step import ReviewStep
from coalmine.review.subject import Subject
from coalmine.storage.files import check_places, no_empty_directory, write_bytes
from coalmine.storage.unfinished import sole_use

REPORT_FILE = "report.html"
# How much faster several workers are than one, for each of them: they share the memory of one machine.
WORTH_OF_A_WORKER = 0.7


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

    The fields of `ReviewOptions` can be given as keywords, such as `minutes=5`. The plan is made once, by the measured costs of the
    model, and kept in review.json; the same call resumes a run that was stopped, and does not repeat steps that have their results.

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
        timing: how time and costs are measured.
        changes: fields of `ReviewOptions`.
    """
    given = ReviewOptions.of(options, changes)
    given.check()
    folder, clock = Path(out), (timing or Timing()).clock
    began = clock()
    with contextlib.ExitStack() as held:
        held.enter_context(no_empty_directory(folder))
        inputs = read_inputs(data, held_out, canaries, fields, index)
        check_places(folder, REVIEWS.file, REPORT_FILE)
        models = load_models(model, reference, folder, loading)
        held.enter_context(sole_use(folder))
        opened = held.enter_context(open_engine(engine))
        run = _OneAudit(
            models, inputs, folder, given, timing or Timing(), opened, progress or Silent(), began
        )
        review = run.finished(STEPS)
        if record is not None:
            record(review)
        write_bytes(folder / REPORT_FILE, report_page(read_runs(folder)).encode())
    return review


class _OneAudit:
    """One audit, from its inputs to its last step."""

    def __init__(
        self,
        models: Models,
        inputs: Inputs,
        folder: Path,
        options: ReviewOptions,
        timing: Timing,
        engine: Engine,
        progress: Progress,
        began: float,
    ) -> None:
        self._models, self._inputs, self._folder, self._options = models, inputs, folder, options
        self._timing, self._engine, self._progress, self._began = timing, engine, progress, began

    def finished(self, steps: Sequence[ReviewStep]) -> Review:
        """The review once every step is over."""
        new = self._new_review()
        earlier = earlier_review(self._folder, new, steps)
        subject = self._subject(new, earlier)
        if earlier is None:
            review = self._planned(self._with_first_steps(new, subject, steps), subject, steps)
        else:
            review = continued(earlier, new, subject, steps)
            # What an earlier run spent is spent.
            spent = review.prepared_seconds + sum(one.seconds or 0.0 for one in review.steps)
            self._began = self._timing.clock() - spent
        self._save(review)
        review = self._run(review, subject, steps, self._save)
        review = msgspec.structs.replace(review, finished=True)
        self._save(review)
        return review

    def _run(
        self, review: Review, subject: Subject, steps: Sequence[ReviewStep], save: Callable[[Review], None]
    ) -> Review:
        return run_steps(
            review,
            steps,
            subject,
            engine=self._engine,
            progress=self._progress,
            clock=self._timing.clock,
            began=self._began,
            save=save,
        )

    def _with_first_steps(self, new: Review, subject: Subject, steps: Sequence[ReviewStep]) -> Review:
        """The review once those steps are over that the others are planned by."""
        first = [step for step in steps if step.comes_first]
        usable = PLANNED_SHARE * 60 * new.minutes
        new = msgspec.structs.replace(new, steps=plan_steps(first, subject, usable))
        # Nothing is saved before there is a plan: until then, a run that is stopped begins again.
        return self._run(new, subject, first, lambda _: None)

    def _new_review(self) -> Review:
        model, reference = self._models
        fields = dict(self._inputs.fields.named())
        return Review(
            model=model.describe(),
            reference=None if reference is None else reference.describe(),
            data_sha256=self._inputs.hashes,
            minutes=self._options.minutes,
            settings={"seed": self._options.seed, "fields": fields},
        )

    def _subject(self, new: Review, earlier: Review | None) -> Subject:
        inputs, (model, reference) = self._inputs, self._models
        clock = self._timing.clock
        began = clock()
        gathered = gather(inputs.data, inputs.held_out, inputs.fields, self._options.seed, self._progress)
        reading = clock() - began
        if earlier is None:
            sample = gathered.training.sample
            self._progress.start("Measuring the speed of the model", None)
            costs = self._timing.measure(model, sample)
            others = None if reference is None else self._timing.measure(reference, sample)
            self._progress.finish()
        else:
            costs, others = (_costs_of(earlier, role) for role in ("model", "reference"))
        return Subject(
            model=model,
            reference=reference,
            data=inputs.data,
            held_out=inputs.held_out,
            fields=inputs.fields,
            canaries=inputs.canaries,
            index=inputs.index,
            gathered=gathered,
            costs=costs,
            reference_costs=None if reference is None else others,
            # The held-out text was read too, and takes as long for as much.
            reading_seconds=reading * gathered.training.characters / gathered.characters,
            workers=_workers(self._engine),
            hashes=new.data_sha256,
            folder=self._folder,
            seed=self._options.seed,
        )

    def _planned(self, new: Review, subject: Subject, steps: Sequence[ReviewStep]) -> Review:
        spent = self._timing.clock() - self._began
        later = [step for step in steps if not step.comes_first]
        found = make_plan(later, subject, new.minutes, spent)
        before = sum(one.seconds or 0.0 for one in new.steps)
        return msgspec.structs.replace(
            new,
            costs=_named_costs(subject),
            prepared_seconds=round(spent - before, 1),
            steps=(*new.steps, *found),
            warnings=subject.gathered.warnings,
        )

    def _save(self, review: Review) -> None:
        REVIEWS.save(self._folder, review)


def _workers(engine: Engine) -> float:
    return max(1.0, WORTH_OF_A_WORKER * engine.pool.workers) if isinstance(engine, PooledEngine) else 1.0


def _named_costs(subject: Subject) -> dict[str, float | None]:
    every = {"model": subject.costs, "reference": subject.reference_costs}
    return {
        f"{role} {name}": value
        for role, costs in every.items()
        if costs is not None
        for name, value in msgspec.structs.asdict(costs).items()
    }


def _costs_of(review: Review, role: str) -> Costs:
    return Costs(**{name: review.costs.get(f"{role} {name}") for name in Costs.__struct_fields__})
