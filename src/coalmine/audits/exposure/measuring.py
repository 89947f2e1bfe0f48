"""Exposure of canaries, as the Secret Sharer defines it, measured by the estimator that the caller names or by the best that applies.

The Secret Sharer: Evaluating and Testing Unintended Memorization in Neural Networks, Carlini, Liu, Erlingsson, Kos and Song, 2019,
arXiv:1802.08232.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure.choice import SCORE, choose
from coalmine.audits.exposure.comparisons import Comparisons
from coalmine.audits.exposure.context_check import context_warnings
from coalmine.audits.exposure.estimators import (
    AUTO,
    ESTIMATORS,
    Estimator,
    automatic,
    estimator_of,
)
from coalmine.audits.exposure.options import ExposureOptions
from coalmine.audits.exposure.question import Measured, Question
from coalmine.audits.exposure.results import (
    Choice,
    ExposureResult,
    Exposures,
    FormatFacts,
)
from coalmine.corpus.planting.manifest import CanarySet, as_canary_set
from coalmine.errors import InputError, NotMeasurableError
from coalmine.models.protocols import Model, Scorer
from coalmine.progress import Progress, Silent
from coalmine.records import Estimate
from coalmine.search.walks.members import Members
from coalmine.search.walks.resuming import Resume, ResumeDirectory, ResumeFile
from coalmine.storage.files import to_json

# What is kept of an unfinished search; another version of it is of another search.
KEPT = "counts/3"
_OTHER_DATA = (
    "the model was trained on other data than the corpus of this manifest: how often it was trained on a canary is what the manifest "
    "says, and may not be so"
)


def expose(
    model: Model,
    canaries: CanarySet | str | os.PathLike[str],
    options: ExposureOptions | None = None,
    *,
    resume: Resume = None,
    progress: Progress | None = None,
    **changes: Any,
) -> Exposures:
    """The exposure of every canary, in the order of the manifest, each with its interval (bits).

    The fields of `ExposureOptions` can be given as keywords, such as `method="exact"`, instead of a record or on top of one. `method`
    is one of

    - "exact": the rank among all of R; where the model supports incremental decoding, shared prefixes are read once;
    - "bounded": the same rank, without the members that cost more than the canary; after `budget` expansions it gives the
      bounds that are proven by then;
    - "guided": an unbiased estimate from `samples` members (50,000) drawn where the model expects them, for every rank;
    - "splitting": an unbiased estimate from scores alone, for every rank: eight runs, which begin with `samples` members (1,600) of R
      drawn uniformly, go down to the canary level by level;
    - "sampled": `samples` members (10,000) of R drawn uniformly; exposure beyond what they can show is given as a lower bound;
    - "extrapolated": a skew-normal curve through such a sample, with a test of the fit on samples it has not seen;
    - "references": the rank among the manifest's references;
    - "auto": exact where that takes no more than `minutes` at the speed of this model, which is measured, or no more than an
      estimate would; else bounded, and guided for what that leaves open. For a model that does not support incremental decoding
      (a masked model, an endpoint, pairs with a source each): exact under the same condition, else splitting.

    Where there is no honest number for the canaries of one format, they are "not_measured", with the reason, and those of other
    formats are still measured; a NotMeasurableError is raised only where no format can be measured. Where the model leaves a
    choice of context, some canaries are also scored in the others, and a warning says if that matters.

    With `resume`, a directory, a search that is stopped keeps there what it has proven, and the same call resumes it. What was kept is
    removed when all formats are measured; a `ResumeDirectory` in place of the directory leaves it to the caller, once the
    results are saved.

    >>> from coalmine import CanarySet, ScriptedModel
    >>> model = ScriptedModel("pin 0123456789", memory={"pin 49": 0.25})
    >>> canaries = CanarySet.of("pin {digits:2}", ["pin 49"])
    >>> round(expose(model, canaries, method="exact")[0].exposure, 2)  # bits: the least surprising of 100
    6.64
    """
    asked = ExposureOptions.of(options, changes)
    asked.check()
    if not isinstance(model, Model):
        raise InputError(f"expose needs a model, got {type(model).__name__}; load one with load_model(path)")
    if not isinstance(model, Scorer):
        raise NotMeasurableError(
            f"exposure is not applicable to {model.name!r}: it does not give the probability of a text"
        )
    chosen = as_canary_set(canaries)
    unfinished = resume if isinstance(resume, ResumeDirectory) else ResumeDirectory(resume)
    present = {canary.format_id for canary in chosen}
    of_format = msgspec.structs.replace(asked, minutes=asked.minutes / max(1, len(present)))
    parts = [
        _OneFormat(model, chosen, format_id, of_format, unfinished, progress or Silent())
        for format_id in chosen.formats
        if format_id in present
    ]
    for part in parts:
        part.run()
    problems = [part.problem for part in parts if part.problem is not None]
    # Of texts without a format the scores alone are worth having: membership compares them.
    if problems and len(problems) == len(parts) and not chosen.listed:
        unfinished.forget()  # the same questions would end in the same way
        raise problems[0]
    found = _together(model, chosen, asked, parts)
    if unfinished is not resume:
        unfinished.forget()
    return found


def _together(
    model: Model, chosen: CanarySet, asked: ExposureOptions, parts: Sequence[_OneFormat]
) -> Exposures:
    """The results of all formats, in the order of the manifest."""
    by_canary = {result.canary_id: result for part in parts for result in part.results()}
    warnings = [warning for part in parts for warning in part.warnings()]
    if asked.comparisons:
        warnings += context_warnings(model, chosen)
    trained_on = model.describe().get("trained_on_sha256")
    if chosen.corpus is not None and trained_on not in {None, chosen.corpus.sha256_after}:
        warnings.append(_OTHER_DATA)
    found = Exposures(
        warnings=tuple(warnings),
        results=tuple(by_canary[canary.canary_id] for canary in chosen),
        formats=tuple(part.facts() for part in parts),
        tail_fits={part.format_id: part.measured.fit for part in parts if part.measured.fit is not None},
        seed=asked.seed,
        confidence=asked.confidence,
        model=model.describe(),
        manifest_sha256=chosen.sha256,
        expansions=sum(part.measured.expansions for part in parts),
        inclusion=None if chosen.withhold is None else 1.0 - chosen.withhold,
    )
    return found.beside(
        [rows for part in parts for rows in part.candidates],
        {part.format_id: part.choice for part in parts if part.choice is not None},
    )


class _OneFormat:
    """The canaries of one format, while they are measured.

    Attributes:
        estimator: the one that was taken, or that was asked for; None where `auto` did not come so far.
        why: the reason for taking it; None where the user asked for it.
        comparisons: what membership compares with; None where the canaries could not be scored, or it was not asked for.
        measured: an estimate for each canary, once it has run.
        candidates: what goes into scores.parquet.
        problem: why there is no honest number for this format; None where there is.
    """

    def __init__(
        self,
        model: Model,
        chosen: CanarySet,
        format_id: str,
        options: ExposureOptions,
        unfinished: ResumeDirectory,
        progress: Progress,
    ) -> None:
        self.model, self.chosen, self.format_id = model, chosen, format_id
        self.options, self.unfinished, self.progress = options, unfinished, progress
        self.format = chosen.formats[format_id]
        self.canaries = [canary for canary in chosen if canary.format_id == format_id]
        self.estimator = None if options.method == AUTO else estimator_of(options.method)
        self.why: str | None = None
        self.comparisons: Comparisons | None = None
        self.choice: Choice | None = None
        self.problem: NotMeasurableError | None = None
        self._own: NDArray[np.float64] | None = None

    def run(self) -> None:
        """Measure, or note why not."""
        try:
            self.measured = self._measure()
        except NotMeasurableError as problem:
            self.problem = problem
            estimate = Estimate.not_measured(self._method, str(problem))
            self.measured = Measured(estimates=[estimate] * len(self.canaries))
        self.candidates = [] if self.measured.candidates is None else [self.measured.candidates]
        if self.comparisons is not None:
            self.candidates += self.comparisons.rows(self.measured)

    def facts(self) -> FormatFacts:
        """How the format was measured."""
        return FormatFacts.of(self.format_id, self.format, self._method, self.why, self.measured.resolution)

    def warnings(self) -> Sequence[str]:
        """What readers of the results should know."""
        return () if self.comparisons is None else self.comparisons.warnings

    def results(self) -> list[ExposureResult]:
        """What was found for each canary."""
        none: Sequence[None] = [None] * len(self.canaries)
        scores = self._own if self.measured.own is None else self.measured.own
        own = none if scores is None else scores.tolist()
        columns = zip(self.canaries, own, self.measured.ranks or none, self.measured.estimates, strict=True)
        return [
            ExposureResult(
                canary_id=canary.canary_id,
                format_id=canary.format_id,
                repetitions=canary.times_trained_on,
                planted=canary.planted,
                planned_repetitions=canary.repetitions,
                method=estimate.method,
                known_log_perplexity_bits=bits,
                rank=rank,
                most_possible_bits=math.log2(
                    estimate.n
                    if estimate.n and estimator_of(estimate.method).among == "references"
                    else self.format.size
                ),
                estimate=estimate,
            )
            for canary, bits, rank, estimate in columns
        ]

    @property
    def _method(self) -> str:
        return AUTO if self.estimator is None else self.estimator.name

    def _measure(self) -> Measured:
        """An estimate for each canary; a NotMeasurableError where there is no honest number for this format."""
        asked, format_id = self.options, self.format_id
        names, texts = ([getattr(one, name) for one in self.canaries] for name in ("canary_id", "text"))
        sources = self.chosen.source_formats.get(format_id)
        members = Members(
            self.model, self.format, sources=sources, batch=asked.batch, memory_bytes=asked.memory
        )
        self._own = members.score(texts, names)
        estimator = self._taken(members)
        question = Question(
            members=members,
            format_id=format_id,
            references=self.chosen.references.get(format_id, ()),
            canary_ids=names,
            canary_texts=tuple(texts),
            canary_scores=self._own,
            options=self._resolved(estimator),
            resume=self._resume(estimator),
            progress=self.progress,
        )
        question.resume.load()  # refused before any work where it is of another search, or no file
        comparisons = Comparisons(question, self._common(), self.unfinished) if asked.comparisons else None
        try:
            # Before the method, so that a stop during the method, which may take long, loses none of them.
            if comparisons is not None:
                comparisons.score_before(estimator)
            measured = estimator.measure(question)
        except NotMeasurableError:
            question.resume.remove()  # the same question would end in the same way
            raise
        finally:
            self.comparisons = comparisons
        self.unfinished.is_over(question.resume)
        return measured

    def _taken(self, members: Members) -> Estimator:
        """The estimator for this format: as asked, or by `auto`, which texts that nobody drew from a format leave no choice."""
        if self.format_id in self.chosen.listed:
            if self.estimator is not None and self.estimator.needs != "references":
                raise NotMeasurableError(
                    f"the method {self.estimator.name} ranks among all members of a format, and these canaries are a list of texts without "
                    "one; use the method references, or import them with --format"
                )
            self.estimator = self.estimator or automatic("texts")
            self.why = "the canaries are a list of texts without a format"
        elif self.estimator is None:
            self.choice = self._chosen(members)
            self.estimator, self.why = estimator_of(self.choice.method), self.choice.why
        return self.estimator

    def _chosen(self, members: Members) -> Choice:
        """What the clock says, unless a method that was stopped is to be resumed: it was chosen by another look at the clock."""
        asked = self.options
        stopped = (one for one in ESTIMATORS if one.resumable and self._resume(one).is_there())
        return choose(
            members,
            seconds=60 * asked.minutes,
            first_members=self._resolved(SCORE).samples or 0,
            budget=asked.budget,
            resumed=next(stopped, None),
        )

    def _resolved(self, estimator: Estimator) -> ExposureOptions:
        """The options with what was left open: the estimator, and its own number of samples."""
        samples = estimator.samples if self.options.samples is None else self.options.samples
        return msgspec.structs.replace(self.options, method=estimator.name, samples=samples)

    def _common(self) -> list[Any]:
        """What scores depend on, whatever the method."""
        return [KEPT, self.model.describe(), self.chosen.sha256]

    def _resume(self, estimator: Estimator) -> ResumeFile:
        """What was kept of an unfinished search that has all in common with this one that decides its course."""
        facts = [*self._common(), self.format_id, self._resolved(estimator).deciding()]
        return self.unfinished.file(self.format_id, hashlib.sha256(to_json(facts)).hexdigest())
