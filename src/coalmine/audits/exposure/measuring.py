"""Exposure of canaries, as the Secret Sharer defines it, measured by the estimator that the caller names or by the best that applies.

The Secret Sharer: Evaluating and Testing Unintended Memorization in Neural Networks, Carlini, Liu, Erlingsson, Kos and Song, 2019,
arXiv:1802.08232.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from coalmine.audits.exposure.candidate_scores import CandidateScores
from coalmine.audits.exposure.choice import SCORE, chosen_method
from coalmine.audits.exposure.context_check import context_warnings
from coalmine.audits.exposure.estimators import AUTO, Estimator, automatic, estimator_of
from coalmine.audits.exposure.options import ExposureOptions
from coalmine.audits.exposure.question import FormatQuestion, Measured, warned
from coalmine.audits.exposure.ranked import KEEP_UP_TO
from coalmine.audits.exposure.results import NOT_IN_TURNS, Choice, ExposureResult, Exposures, FormatFacts
from coalmine.audits.framing import converses, framed
from coalmine.corpus.planting.manifest import CanarySet, as_canary_set
from coalmine.engines.courses import SURVIVED, Course, CourseStep, one_result, run_courses
from coalmine.engines.engine import Engine, open_engine
from coalmine.engines.ledger import Ledger, Resume
from coalmine.engines.units import Unit
from coalmine.errors import CoalmineError, InputError, ModelError, NotMeasurableError
from coalmine.formats.naming import format_name
from coalmine.models.protocols import Model, PairModel, Scorer, TextScorer
from coalmine.progress import Progress
from coalmine.records import Canary, Estimate
from coalmine.search.walks.members import MOST_SHARED, Members
from coalmine.search.walks.scoring import Scored
from coalmine.search.walks.works import ScoreTexts, score_in_batches, scored_from
from coalmine.storage.files import to_json

# What decides the units of a run; a run of another version is another run.
KEPT = "exposure/5"
SHARED = "other members of its format have the same tokens, so the model cannot tell them apart, and they count as no more surprising"
# Problems with the references alone are no reason to measure nothing.
_ALSO_OF_MODEL: tuple[type[CoalmineError], ...] = (*SURVIVED, ModelError)


def expose(
    model: Model,
    canaries: CanarySet | str | os.PathLike[str],
    options: ExposureOptions | None = None,
    *,
    engine: Engine | str | None = None,
    resume: Resume = None,
    progress: Progress | None = None,
    **changes: Any,
) -> Exposures:
    """The exposure of every canary, in the order of the manifest, each with its interval (bits).

    The fields of `ExposureOptions` can be given as keywords, such as `method="exact"`, instead of a record or on top of one; it lists
    the methods. A canary that the model gives no number for is "not_measured", with the reason, and so are those of a format for which
    there is no honest number; all others are still measured. An error is raised only where no format can be measured, or where the model
    answers the same question in two ways. Where the model leaves a
    choice of context, some canaries are also scored in the others, and a warning says if that matters. Canaries of chat data are scored
    as the turns that they are, after the header that the model's chat template writes.

    The work runs on `engine`, "here" or for example "processes:8", with the same results. With `resume`, a directory, a run that is
    stopped keeps there what it has done, and the same call resumes it. What was kept is removed when all formats are measured; a
    `Ledger` in place of the directory leaves it to the caller, once the results are saved.

    >>> from coalmine import CanarySet, ScriptedModel
    >>> model = ScriptedModel("pin 0123456789", memory={"pin 49": 0.25})
    >>> canaries = CanarySet.of("pin {digits:2}", ["pin 49"])
    >>> round(expose(model, canaries, method="exact")[0].exposure, 2)  # bits: the least surprising of 100
    6.64
    """
    (found,) = expose_models(
        [model], canaries, options, engine=engine, resume=resume, progress=progress, **changes
    )
    return found


def expose_models(
    models: Sequence[Model],
    canaries: CanarySet | str | os.PathLike[str],
    options: ExposureOptions | None = None,
    *,
    engine: Engine | str | None = None,
    resume: Resume = None,
    progress: Progress | None = None,
    **changes: Any,
) -> list[Exposures]:
    """The exposures of the same canaries in several models, in their order, measured at the same time on one engine.

    Everything else is as in `expose`; a NotMeasurableError is raised only where no format can be measured in any of the models.

    >>> from coalmine import CanarySet, ScriptedModel
    >>> models = [ScriptedModel("pin 0123456789", memory={"pin 49": share}) for share in (0.25, 0.125)]
    >>> found = expose_models(models, CanarySet.of("pin {digits:2}", ["pin 49"]))
    >>> [round(one[0].log_perplexity_bits, 1) for one in found]
    [2.0, 3.0]
    """
    asked = ExposureOptions.of(options, changes)
    asked.check()
    for model in models:
        _check_model(model)
    chosen = as_canary_set(canaries)
    models = [framed(model, chosen) for model in models]
    ledger = resume if isinstance(resume, Ledger) else Ledger(resume)
    facts = [KEPT, [model.describe() for model in models], chosen.sha256, asked.deciding()]
    ledger.begin(hashlib.sha256(to_json(facts)).hexdigest())
    present = {canary.format_id for canary in chosen}
    of_format = msgspec.structs.replace(asked, minutes=asked.minutes / max(1, len(present)))
    parts = [
        [OneFormat(model, chosen, name, of_format) for name in chosen.formats if name in present]
        for model in models
    ]
    courses: list[Course[Any]] = [one.course() for some in parts for one in some]
    if asked.comparisons:
        courses += [context_warnings(model, chosen) for model in models]
    with open_engine(engine) as opened:
        ended = run_courses(opened, courses, ledger=ledger, progress=progress)
    problems = [one.problem for some in parts for one in some]
    # Of texts without a format the scores alone are worth having: membership compares them.
    if problems and problems[0] is not None and None not in problems and not chosen.listed:
        ledger.forget()  # the same questions would end in the same way
        raise problems[0]
    contexts: list[list[str]] = ended[len(problems) :] if asked.comparisons else [[] for _ in models]
    found = [
        _together(model, chosen, asked, some, warnings)
        for model, some, warnings in zip(models, parts, contexts, strict=True)
    ]
    if ledger is not resume:
        ledger.forget()
    return found


def _check_model(model: Model) -> None:
    if not isinstance(model, Model):
        raise InputError(f"expose needs a model, got {type(model).__name__}; load one with load_model(path)")
    if not isinstance(model, Scorer):
        lacking = model.describe().get("why")
        why = f" ({lacking})" if lacking else ""
        raise NotMeasurableError(
            f"exposure is not applicable to {model.name!r}: it does not give the probability of a text{why}; look at what it writes with "
            "`coalmine extract --method prompt`, or audit the model itself"
        )


def _together(
    model: Model, chosen: CanarySet, asked: ExposureOptions, parts: Sequence[OneFormat], contexts: list[str]
) -> Exposures:
    """The results of all formats, in the order of the manifest."""
    warnings, description = (
        [warning for part in parts for warning in part.warnings] + contexts,
        model.describe(),
    )
    if chosen.corpus_sha256 is not None and description.get("trained_on_sha256") not in {
        None,
        chosen.corpus_sha256,
    }:
        warnings.append(
            "the model was trained on other data than the corpus of this manifest: how often it was trained on a "
            f"{'secret' if chosen.natural else 'canary'} is what the manifest says, and may not be so"
        )
    if chosen.scanned is not None and chosen.scanned.conversations is True and converses(model):
        warnings.append(NOT_IN_TURNS)
    results = {result.canary_id: result for part in parts for result in part.results()}
    proven = {name: bits for part in parts for name, bits in part.proven_bits(results).items()}
    found = Exposures(
        warnings=tuple(warnings),
        results=tuple(results[canary.canary_id] for canary in chosen),
        formats=tuple(part.facts() for part in parts),
        tail_fits={part.format_id: part.measured.fit for part in parts if part.measured.fit is not None},
        proven_bits=proven or UNSET,
        seed=asked.seed,
        confidence=asked.confidence,
        model=description,
        manifest_sha256=chosen.sha256,
        expansions=sum(part.measured.expansions for part in parts),
        inclusion=None if chosen.withhold is None else 1.0 - chosen.withhold,
    )
    choices = {part.format_id: part.choice for part in parts if part.choice is not None}
    return found.beside([rows for part in parts for rows in part.candidates], choices)


class OneFormat:
    """The canaries of one format and one model, while they are measured.

    Attributes:
        estimator: the one that was taken, or that was asked for; None where `auto` did not come so far.
        why: the reason for taking it; None where the user asked for it.
        measured: an estimate for each canary, once it has run.
        candidates: what goes into scores.parquet.
        problem: why there is no honest number for this format; None where there is.
    """

    def __init__(self, model: Model, chosen: CanarySet, format_id: str, options: ExposureOptions) -> None:
        self.model, self.chosen, self.format_id, self.options = model, chosen, format_id, options
        self.format = chosen.formats[format_id]
        self.canaries = [canary for canary in chosen if canary.format_id == format_id]
        self.estimator = None if options.method == AUTO else estimator_of(options.method)
        self.why: str | None = None
        self.choice: Choice | None = None
        self.problem: CoalmineError | None = None
        self.measured = Measured([])
        self.candidates: list[CandidateScores] = []
        self.warnings: list[str] = []
        self._own: NDArray[np.float64] | None = None  # NaN for a canary that the model gives no number for
        self._problems: dict[int, CoalmineError] = {}  # of these canaries, by their places

    @property
    def method(self) -> str:
        """The name of the estimator, as far as it is known."""
        return AUTO if self.estimator is None else self.estimator.name

    def course(self) -> Course[None]:
        """Measure, or note why not."""
        texts = tuple(canary.text for canary in self.canaries)
        sources, asked = self.chosen.source_formats.get(self.format_id), self.options
        shared = [0.0] * len(texts)
        try:
            members = Members(
                self.model, self.format, sources=sources, batch=asked.batch, memory_bytes=asked.memory
            )
            scored = yield from _scored(members, texts, "Scoring canaries")
            self._own, self._problems = scored.bits, scored.problems
            shared = yield from self._shared_bits(members, texts, scored)
            self.measured = yield from self._measure(members, scored.bits, shared)
        except SURVIVED as problem:
            self.problem = problem
            self.measured = Measured(self._unmeasured(problem))
        if any(shared):
            estimates = zip(self.measured.estimates, shared, strict=True)
            self.measured = self.measured._replace(
                estimates=[
                    warned(one, SHARED) if bits and one.status != "not_measured" else one
                    for one, bits in estimates
                ]
            )

    def _shared_bits(self, members: Members, texts: Sequence[str], scored: Scored) -> Course[list[float]]:
        """For each canary log2 of how many members have its tokens; those that share too much have a problem."""
        shared, size_bits = members.shared_bits(texts), math.log2(self.format.size)
        costs = set(scored.bits.tolist())
        if isinstance(self.model, TextScorer) and len(costs) == 1:
            others = yield from _scored(members, members.examples(8), "Scoring members")
            if len({*costs, *others.bits.tolist()}) == 1 and self.format.size > 1:
                shared = [size_bits] * len(texts)
        for place, bits in enumerate(shared):
            if bits > MOST_SHARED * size_bits:
                self._problems.setdefault(place, NotMeasurableError(members.alike))
        return shared

    def _measure(
        self, members: Members, own: NDArray[np.float64], shared: Sequence[float]
    ) -> Course[Measured]:
        """An estimate for each canary; a NotMeasurableError where there is no honest number for this format."""
        asked, canaries = self.options, self.canaries
        if all(bits > MOST_SHARED * math.log2(self.format.size) for bits in shared):
            return Measured(self._unmeasured(None))
        known = [place for place in range(len(canaries)) if place not in self._problems]
        if not known:
            raise self._problems[0]  # there is nothing to rank
        self.estimator = yield from self._taken(members, float(np.nanmax(own)))
        # The expansions that proofs may take: as asked, or all, where `auto` takes proofs for what would rank all members.
        steps = 0
        if self.choice is not None and self.estimator.automatic == "text after holes":
            steps = self.choice.steps or 0
        question = FormatQuestion(
            members=members,
            format_id=self.format_id,
            references=self.chosen.references.get(self.format_id, ()),
            canary_ids=[canaries[place].canary_id for place in known],
            canary_texts=tuple(canaries[place].text for place in known),
            canary_scores=own[known],
            options=msgspec.structs.replace(
                asked,
                method=self.estimator.name,
                samples=self.estimator.samples if asked.samples is None else asked.samples,
                budget=max(asked.budget, steps),
            ),
        )
        references = None
        if asked.comparisons:
            references = yield from self._references(question, self.estimator)
            self.candidates = self._compared(question, Measured([]), references)
        measured = yield from self.estimator.measure(question)
        self.candidates = [] if measured.candidates is None else [measured.candidates]
        if asked.comparisons:
            self.candidates += self._compared(question, measured, references)
        return measured.among(known, self._unmeasured(None)) if self._problems else measured

    def _unmeasured(self, problem: CoalmineError | None) -> list[Estimate]:
        """An estimate without a number for each canary, with its own reason, or that of the format."""
        reasons = (self._problems.get(place, problem) for place in range(len(self.canaries)))
        return [Estimate.not_measured(self.method, str(reason)) for reason in reasons]

    def _references(self, question: FormatQuestion, estimator: Estimator) -> Course[CandidateScores | None]:
        """The references with their scores, for membership; None where the estimator scores them itself, alone or among all members."""
        texts = question.references
        kept = estimator.keeps == "member" and self.format.size <= KEEP_UP_TO
        if estimator.keeps == "reference" or kept or not texts:
            return None
        try:
            scored = yield from score_in_batches(
                question.members, texts, f"Scoring {len(texts):,} references", survives=_ALSO_OF_MODEL
            )
        except _ALSO_OF_MODEL as problem:
            self._lack(len(texts), problem)
            return None
        known = [place for place in range(len(texts)) if place not in scored.problems]
        if scored.problems:
            self._lack(len(scored.problems), scored.problems[min(scored.problems)])
        places = question.places([texts[place] for place in known])
        return CandidateScores(self.format_id, "reference", places, scored.bits[known])

    def _compared(
        self, question: FormatQuestion, measured: Measured, references: CandidateScores | None
    ) -> list[CandidateScores]:
        """What membership compares, whatever the method: references, which may be among all members, and the canaries."""
        every = measured.candidates
        if references is None and every is not None and every.kind == "member" and question.references:
            wanted = question.places(question.references)
            order = np.argsort(every.indices, kind="stable")
            rows = order[np.minimum(np.searchsorted(every.indices[order], wanted), len(order) - 1)]
            there = every.indices[rows] == wanted
            if not there.all():
                self._lack(int((~there).sum()), "the model gave no number for them")
            bits = every.log_perplexities_bits[rows[there]]
            references = CandidateScores(self.format_id, "reference", wanted[there], bits)
        own = question.canary_scores if measured.own is None else measured.own
        canaries = CandidateScores(self.format_id, "canary", question.places(question.canary_texts), own)
        return [canaries] if references is None else [references, canaries]

    def _lack(self, number: int, problem: object) -> None:
        """Warn that references have no score."""
        every = len(self.chosen.references.get(self.format_id, ()))
        self.warnings.append(
            f"{number:,} of {every:,} references of {format_name(self.format.template)} could not be scored, so membership has fewer "
            f"comparisons ({problem})"
        )

    def facts(self) -> FormatFacts:
        """How the format was measured."""
        return FormatFacts.of(self.format_id, self.format, self.method, self.why, self.measured.resolution)

    def results(self) -> list[ExposureResult]:
        """What was found for each canary."""
        none: Sequence[None] = [None] * len(self.canaries)
        scores = self._own if self.measured.own is None else self.measured.own
        own = none if scores is None else [None if np.isnan(bits) else bits for bits in scores.tolist()]
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
                most_possible_bits=math.log2(self.format.size),
                estimate=estimate,
                kind=canary.kind,
                user=canary.user,
                lead_bits=self._lead_bits(canary, bits),
            )
            for canary, bits, rank, estimate in columns
        ]

    def _lead_bits(self, canary: Canary, bits: float | None) -> float | msgspec.UnsetType:
        """How far the most probable of a secret and all that it was ranked among is ahead of the others together."""
        candidates = self.measured.candidates
        if canary.kind is UNSET or bits is None or candidates is None:
            return UNSET
        scores = candidates.log_perplexities_bits
        if candidates.kind == "reference":
            scores = np.append(scores, bits)
        elif candidates.kind != "member" or len(scores) != self.format.size:
            return UNSET
        first, *others = np.sort(scores)
        return round(float(-first - np.logaddexp2.reduce(-np.array(others))), 6) if others else UNSET

    def proven_bits(self, results: Mapping[str, ExposureResult]) -> dict[str, float]:
        """The exposure that its probability alone proves of each canary; members must share a distribution, and none begin another."""
        automaton, size_bits = self.format.automaton, math.log2(self.format.size)
        if (
            self.chosen.natural
            or self.format_id in self.chosen.listed
            or isinstance(self.model, PairModel)
            or any(automaton.edges(state) for state in automaton.accepting)
        ):
            return {}
        return {
            canary.canary_id: max(0.0, size_bits - one.log_perplexity_bits)
            for canary in self.canaries
            if (one := results[canary.canary_id]).estimate.status != "not_measured"
            and estimator_of(one.method).among_others
        }

    def _taken(self, members: Members, most_bits: float) -> Course[Estimator]:
        """The estimator for this format: as asked, or by `auto`, which texts that nobody drew from a format leave no choice."""
        asked = self.options
        if self.format_id in self.chosen.listed:
            if self.estimator is not None and self.estimator.needs != "references":
                raise NotMeasurableError(
                    f"the method {self.estimator.name} ranks among all members of a format, and these canaries are a list of texts without "
                    "one; use the method references, or import them with --format"
                )
            self.why = (
                "its members are not equally likely, so it is compared with others like it"
                if self.chosen.natural
                else "the canaries are a list of texts without a format"
            )
            return self.estimator or automatic("texts")
        if self.estimator is not None:
            return self.estimator
        self.choice = yield from chosen_method(
            members,
            seconds=60 * asked.minutes,
            first_members=SCORE.samples if asked.samples is None else asked.samples,
            budget=asked.budget,
            most_bits=most_bits,
        )
        self.why = self.choice.why
        return estimator_of(self.choice.method)


def _scored(members: Members, texts: Sequence[str], task: str) -> Course[Scored]:
    """The log-perplexities of a few texts, as one unit."""
    unit = Unit(tuple(texts), size=len(texts))
    found = yield from one_result(CourseStep(ScoreTexts(members), [unit], task, len(texts)))
    return scored_from(found)
