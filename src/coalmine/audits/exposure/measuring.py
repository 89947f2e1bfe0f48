"""How exposed is each canary? The question of the Secret Sharer, answered by the estimator that the caller names."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure.choice import choose
from coalmine.audits.exposure.context_check import context_warnings
from coalmine.audits.exposure.methods import MEASURES, Measured, Question
from coalmine.audits.exposure.references import Comparisons
from coalmine.audits.exposure.results import Choice, ExposureResult, Exposures, FormatFacts
from coalmine.audits.exposure.splitting import FIRST_MEMBERS
from coalmine.corpus.planting.manifest import CanarySet, as_canary_set
from coalmine.errors import InputError, NotMeasurableError
from coalmine.models.protocols import Model, Scorer
from coalmine.progress import Progress, Silent
from coalmine.records import Estimate
from coalmine.search.walks.frontier import BATCH, MEMORY_BYTES
from coalmine.search.walks.members import Members
from coalmine.search.walks.resuming import Resume, ResumeFile, Unfinished
from coalmine.storage.files import to_json

__all__ = ["METHODS", "ExposureResult", "Exposures", "expose"]

METHODS = ("auto", *MEASURES)
ASKED_FOR = "asked for"
# What is kept of an unfinished search; another version of it is of another search.
KEPT = "counts/2"
# What `auto` may spend on exact ranks. Guided draws come within a tenth of a bit in less, so it is seldom worth waiting longer for.
MINUTES = 2.0
# Members drawn where the caller does not say how many. Guided draws share most of their prefixes, so they are cheaper, and past
# the first proofs they narrow an interval more than further proofs do: see docs/explanation/methods.md.
SAMPLES, GUIDED_SAMPLES = 10_000, 50_000


def expose(
    model: Model,
    canaries: CanarySet | str | os.PathLike[str],
    *,
    method: str = "auto",
    samples: int | None = None,
    budget: int = 50_000,
    minutes: float = MINUTES,
    memory: int = MEMORY_BYTES,
    confidence: float = 0.95,
    seed: int = 0,
    batch: int = BATCH,
    comparisons: bool = True,
    resume: Resume = None,
    progress: Progress | None = None,
) -> Exposures:
    """The exposure of every canary, in the order of the manifest, each with its interval (bits).

    `method` is one of

    - "exact": the rank among all of R; where the model can be walked, the states of shared prefixes are computed once;
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
    formats are measured all the same; a NotMeasurableError is raised only where no format can be measured.

    With `comparisons`, whatever the method, the manifest's references are scored beside the canaries, planted and withheld, so
    that `membership` has what it compares them with. Where the model leaves a choice of context, some are also scored in the
    others, and a warning says if that matters.

    `minutes` is for all formats together; it does not limit the methods other than exact, nor one that was asked for by name.
    `memory` bounds the states that a search holds, in bytes. With `resume`, a directory, a search that is stopped keeps there
    what it has proven, and the same call goes on from it. What was kept is removed when all formats are measured; an `Unfinished` in
    place of the directory leaves it to the caller, once the results are saved.
    """
    _check_arguments(
        method,
        confidence,
        minutes,
        {
            "samples": SAMPLES if samples is None else samples,
            "budget": budget,
            "memory": memory,
            "batch": batch,
        },
    )
    if not isinstance(model, Model):
        raise InputError(f"expose needs a model, got {type(model).__name__}; load one with load_model(path)")
    if not isinstance(model, Scorer):
        raise NotMeasurableError(
            f"exposure is not applicable to {model.name!r}: it does not give the probability of a text"
        )
    chosen = as_canary_set(canaries)
    by_canary: dict[str, ExposureResult] = {}
    formats, candidates, fits, expansions = [], [], {}, 0
    choices: dict[str, Choice] = {}
    problems: list[NotMeasurableError] = []
    warnings: list[str] = []
    asked_about = {canary.format_id for canary in chosen}
    unfinished = resume if isinstance(resume, Unfinished) else Unfinished(resume)
    share = minutes / max(1, len(asked_about))
    options = _Options(
        method,
        samples,
        budget,
        share,
        memory,
        confidence,
        seed,
        batch,
        unfinished,
        progress or Silent(),
        comparisons,
    )
    for format_id in chosen.formats:
        if format_id not in asked_about:
            continue
        group = _Group(model, chosen, format_id, options)
        try:
            measured = group.measure()
        except NotMeasurableError as problem:
            problems.append(problem)
            measured = group.not_measured(problem)
        by_canary.update(group.results(measured))
        formats.append(FormatFacts.of(format_id, group.format, group.method, group.why, measured.resolution))
        candidates += [] if measured.candidates is None else [measured.candidates]
        if group.comparisons is not None:
            candidates += group.comparisons.rows(measured)
            warnings += group.comparisons.warnings
        expansions += measured.expansions
        if group.choice is not None:
            choices[format_id] = group.choice
        if measured.fit is not None:
            fits[format_id] = measured.fit
    # Of texts without a format the scores alone are worth having: membership compares them.
    if problems and len(problems) == len(formats) and not chosen.listed:
        unfinished.forget()  # the same questions would end in the same way
        raise problems[0]
    if comparisons:
        warnings += context_warnings(model, chosen)
    if chosen.corpus is not None and model.describe().get("trained_on_sha256") not in {
        None,
        chosen.corpus.sha256_after,
    }:
        warnings.append(
            "the model was trained on other data than the corpus of this manifest: how often it was trained on a canary is "
            "what the manifest says, and may not be so"
        )
    if unfinished is not resume:
        unfinished.forget()
    return Exposures(
        warnings=warnings,
        results=[by_canary[canary.canary_id] for canary in chosen],
        formats=formats,
        candidates=candidates,
        fits=fits,
        seed=seed,
        confidence=confidence,
        model=model.describe(),
        manifest_sha256=chosen.sha256,
        expansions=expansions,
        choices=choices,
        inclusion=None if chosen.withhold is None else 1.0 - chosen.withhold,
    )


def _check_arguments(method: str, confidence: float, minutes: float, counts: dict[str, int]) -> None:
    if method not in METHODS:
        raise InputError(f"unknown method {method!r}: known are {', '.join(METHODS)}")
    for name, count in counts.items():
        if not isinstance(count, int) or count < 1:
            raise InputError(f"{name} must be a whole number of at least 1, got {count}")
    if not minutes > 0:
        raise InputError(f"minutes must be more than 0, got {minutes}; give for example 2")
    if not 0 < confidence < 1:
        raise InputError(f"confidence must be between 0 and 1, such as 0.95, got {confidence}")


def _listed_method(method: str) -> tuple[str, str]:
    """The method for texts that nobody drew from a format."""
    if method not in {"auto", "references"}:
        raise NotMeasurableError(
            f"the method {method} ranks among all members of a format, and these canaries are a list of texts without one; use the "
            "method references, or import them with --format"
        )
    return "references", "the canaries are a list of texts without a format"


class _Options(NamedTuple):
    """How all formats of a run are to be measured."""

    method: str
    samples: int | None
    budget: int
    minutes: float
    memory: int
    confidence: float
    seed: int
    batch: int
    unfinished: Unfinished
    progress: Progress
    comparisons: bool


class _Group:
    """The canaries of one format, while they are measured.

    Attributes:
        method: the one that was taken, or that was asked for where it did not come so far.
        why: the reason for taking it.
        comparisons: what membership compares with; None where the canaries could not be scored, or it was not asked for.
    """

    def __init__(self, model: Model, chosen: CanarySet, format_id: str, options: _Options) -> None:
        self.model, self.chosen, self.format_id, self.options = model, chosen, format_id, options
        self.format = chosen.formats[format_id]
        self.canaries = [canary for canary in chosen if canary.format_id == format_id]
        self.method, self.why = options.method, ASKED_FOR
        self.comparisons: Comparisons | None = None
        self.choice: Choice | None = None
        self._own: NDArray[np.float64] | None = None

    def measure(self) -> Measured:
        """An estimate for each canary; a NotMeasurableError where there is no honest number for this format."""
        asked, format_id = self.options, self.format_id
        names, texts = ([getattr(one, name) for one in self.canaries] for name in ("canary_id", "text"))
        sources = self.chosen.source_formats.get(format_id)
        members = Members(
            self.model, self.format, sources=sources, batch=asked.batch, memory_bytes=asked.memory
        )
        self._own = members.score(texts, names)
        if format_id in self.chosen.listed:
            self.method, self.why = _listed_method(asked.method)
        elif asked.method == "auto":
            self.choice = self._chosen(members)
            self.method, self.why = self.choice.method, self.choice.why
        question = Question(
            members=members,
            format_id=format_id,
            references=self.chosen.references.get(format_id, ()),
            canary_ids=names,
            canary_texts=tuple(texts),
            canary_scores=self._own,
            samples=self._samples(self.method),
            budget=asked.budget,
            memory_bytes=asked.memory,
            confidence=asked.confidence,
            seed=asked.seed,
            resume=self._resume(self.method),
            progress=asked.progress,
        )
        question.resume.load()  # refused before any work where it is of another search, or no file
        comparisons = (
            Comparisons(question, self._facts(self.method)[:3], asked.unfinished)
            if asked.comparisons
            else None
        )
        try:
            # Before the method, so that a stop during the method, which may take long, loses none of them.
            if comparisons is not None:
                comparisons.score_before(self.method)
            measured = MEASURES[self.method](question)
        except NotMeasurableError:
            question.resume.remove()  # the same question would end in the same way
            raise
        finally:
            self.comparisons = comparisons
        asked.unfinished.is_over(question.resume)
        return measured

    def _chosen(self, members: Members) -> Choice:
        """What the clock says, unless a method that was stopped is to go on: it was chosen by another look at the clock."""
        asked = self.options
        stopped = (name for name in ("exact", "guided", "splitting") if self._resume(name).is_there())
        return choose(
            members,
            seconds=60 * asked.minutes,
            first_members=FIRST_MEMBERS if asked.samples is None else asked.samples,
            budget=asked.budget,
            resumed=next(stopped, None),
        )

    def _samples(self, method: str) -> int:
        usual = {"guided": GUIDED_SAMPLES, "splitting": FIRST_MEMBERS}.get(method, SAMPLES)
        return usual if self.options.samples is None else self.options.samples

    def _facts(self, method: str) -> list[Any]:
        """What an unfinished search must have in common with this one to be resumed; the first three are for all methods."""
        asked = self.options
        common = [KEPT, self.model.describe(), self.chosen.sha256]
        return [*common, self.format_id, method, asked.budget, self._samples(method), asked.seed]

    def _resume(self, method: str) -> ResumeFile:
        fingerprint = hashlib.sha256(to_json(self._facts(method))).hexdigest()
        return self.options.unfinished.file(self.format_id, fingerprint)

    def not_measured(self, problem: NotMeasurableError) -> Measured:
        """The reason, in place of every number."""
        estimate = Estimate.not_measured(self.method, str(problem))
        return Measured(estimates=[estimate] * len(self.canaries))

    def results(self, measured: Measured) -> dict[str, ExposureResult]:
        """What was found, by canary."""
        size = self.format.size
        none: Sequence[None] = [None] * len(self.canaries)
        scores = self._own if measured.own is None else measured.own
        own = none if scores is None else scores.tolist()
        columns = zip(self.canaries, own, measured.ranks or none, measured.estimates, strict=True)
        return {
            canary.canary_id: ExposureResult(
                canary_id=canary.canary_id,
                format_id=canary.format_id,
                repetitions=canary.times_trained_on,
                planted=canary.planted,
                planned_repetitions=canary.repetitions,
                method=estimate.method,
                known_log_perplexity_bits=bits,
                rank=rank,
                most_possible_bits=math.log2(
                    estimate.n if estimate.method == "references" and estimate.n else size
                ),
                estimate=estimate,
            )
            for canary, bits, rank, estimate in columns
        }
