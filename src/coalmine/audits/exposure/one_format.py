"""The canaries of one format and one model, while they are measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure.choice import SCORE, chosen
from coalmine.audits.exposure.comparisons import Comparisons
from coalmine.audits.exposure.estimators import AUTO, Estimator, automatic, estimator_of
from coalmine.audits.exposure.options import ExposureOptions
from coalmine.audits.exposure.question import FormatQuestion, Measured
from coalmine.audits.exposure.results import Choice, ExposureResult, FormatFacts
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.engines.courses import SURVIVED, Course, CourseStep, one_result
from coalmine.engines.units import Unit
from coalmine.errors import CoalmineError, NotMeasurableError
from coalmine.models.protocols import Model, PairModel, TextScorer
from coalmine.records import Canary, Estimate
from coalmine.search.walks.members import MOST_SHARED, Members
from coalmine.search.walks.works import ScoreTexts, scored_from

SHARED = "other members of its format have the same tokens, so the model cannot tell them apart, and they count as no more surprising"


class OneFormat:
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
    ) -> None:
        self.model, self.chosen, self.format_id, self.options = model, chosen, format_id, options
        self.format = chosen.formats[format_id]
        self.canaries = [canary for canary in chosen if canary.format_id == format_id]
        self.estimator = None if options.method == AUTO else estimator_of(options.method)
        self.why: str | None = None
        self.comparisons: Comparisons | None = None
        self.choice: Choice | None = None
        self.problem: CoalmineError | None = None
        self._own: NDArray[np.float64] | None = None  # NaN for a canary that the model gives no number for
        self._problems: dict[int, CoalmineError] = {}  # of these canaries, by their places
        self._shared: list[float] = []  # log2 of how many members have the tokens of each

    def course(self) -> Course[None]:
        """Measure, or note why not."""
        try:
            self.measured = yield from self._measure()
        except SURVIVED as problem:
            self.problem = problem
            self.measured = Measured(estimates=self._unmeasured(problem))
        self.candidates = [] if self.measured.candidates is None else [self.measured.candidates]
        if self.comparisons is not None:
            self.candidates += self.comparisons.rows(self.measured)
        if self._problems:
            known = [place for place in range(len(self.canaries)) if place not in self._problems]
            if self.problem is None and known:
                self.measured = self.measured.among(known, self._unmeasured(None))
        if any(self._shared):
            self.measured = self.measured._replace(estimates=self._with_shared(self.measured.estimates))

    def _with_shared(self, estimates: list[Estimate]) -> list[Estimate]:
        """The same with a warning where other members have the tokens of a canary."""
        return [
            msgspec.structs.replace(one, warnings=(*one.warnings, SHARED))
            if shared and one.status != "not_measured"
            else one
            for one, shared in zip(estimates, self._shared, strict=True)
        ]

    def _unmeasured(self, problem: CoalmineError | None) -> list[Estimate]:
        """An estimate without a number for each canary, with its own reason, or that of the format."""
        reasons = (self._problems.get(place, problem) for place in range(len(self.canaries)))
        return [Estimate.not_measured(self._method, str(reason)) for reason in reasons]

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
        if canary.kind is msgspec.UNSET or bits is None or candidates is None:
            return msgspec.UNSET
        scores = candidates.log_perplexities_bits
        if candidates.kind == "reference":
            scores = np.append(scores, bits)
        elif candidates.kind != "member" or len(scores) != self.format.size:
            return msgspec.UNSET
        first, *others = np.sort(scores)
        return round(float(-first - np.logaddexp2.reduce(-np.array(others))), 6) if others else msgspec.UNSET

    def proven_bits(self) -> dict[str, float]:
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
            one.canary_id: max(0.0, size_bits - one.log_perplexity_bits)
            for one in self.results()
            if one.estimate.status != "not_measured" and estimator_of(one.method).among_others
        }

    @property
    def _method(self) -> str:
        return AUTO if self.estimator is None else self.estimator.name

    def _measure(self) -> Course[Measured]:
        """An estimate for each canary; a NotMeasurableError where there is no honest number for this format."""
        asked, format_id = self.options, self.format_id
        names, texts = (tuple(getattr(one, name) for one in self.canaries) for name in ("canary_id", "text"))
        sources = self.chosen.source_formats.get(format_id)
        members = Members(
            self.model, self.format, sources=sources, batch=asked.batch, memory_bytes=asked.memory
        )
        unit = Unit(texts, size=len(texts))
        step = CourseStep(ScoreTexts(members), [unit], "Scoring canaries", len(texts))
        scored = scored_from((yield from one_result(step)))
        self._own, self._problems = scored.bits, scored.problems
        self._shared = members.shared_bits(texts)
        if isinstance(self.model, TextScorer) and len(set(scored.bits.tolist())) == 1:
            unit = Unit(members.examples(8))
            others = scored_from(
                (yield from one_result(CourseStep(ScoreTexts(members), [unit], "Scoring members")))
            )
            if len({*scored.bits.tolist(), *others.bits.tolist()}) == 1 and self.format.size > 1:
                self._shared = [math.log2(self.format.size)] * len(texts)
        most = MOST_SHARED * math.log2(self.format.size)
        alike = {place for place, bits in enumerate(self._shared) if bits > most}
        self._problems |= {
            place: NotMeasurableError(members.alike) for place in alike - self._problems.keys()
        }
        if len(alike) == len(names):
            return Measured(estimates=self._unmeasured(None))
        known = [place for place in range(len(names)) if place not in self._problems]
        if self._problems and not known:
            raise self._problems[0]  # there is nothing to rank
        estimator = yield from self._taken(members)
        samples = estimator.samples if asked.samples is None else asked.samples
        question = FormatQuestion(
            members=members,
            format_id=format_id,
            references=self.chosen.references.get(format_id, ()),
            canary_ids=[names[place] for place in known],
            canary_texts=tuple(texts[place] for place in known),
            canary_scores=self._own[known],
            options=msgspec.structs.replace(
                asked, method=estimator.name, samples=samples, budget=self._budget(estimator)
            ),
        )
        self.comparisons = Comparisons(question) if asked.comparisons else None
        if self.comparisons is not None:
            yield from self.comparisons.score_before(estimator)
        return (yield from estimator.measure(question))

    def _budget(self, estimator: Estimator) -> int:
        """The expansions that proofs may take: as asked, or all, where `auto` takes proofs for what would rank all members."""
        steps = (
            None if self.choice is None or estimator.automatic != "text after holes" else self.choice.steps
        )
        return self.options.budget if steps is None else max(self.options.budget, steps)

    def _taken(self, members: Members) -> Course[Estimator]:
        """The estimator for this format: as asked, or by `auto`, which texts that nobody drew from a format leave no choice."""
        asked = self.options
        if self.format_id in self.chosen.listed:
            if self.estimator is not None and self.estimator.needs != "references":
                raise NotMeasurableError(
                    f"the method {self.estimator.name} ranks among all members of a format, and these canaries are a list of texts without "
                    "one; use the method references, or import them with --format"
                )
            self.estimator = self.estimator or automatic("texts")
            self.why = (
                "its members are not equally likely, so it is compared with others like it"
                if self.chosen.natural
                else "the canaries are a list of texts without a format"
            )
        elif self.estimator is None:
            first = SCORE.samples if asked.samples is None else asked.samples
            seconds = 60 * asked.minutes
            most = float(np.nanmax(self._own)) if self._own is not None else math.inf
            self.choice = yield from chosen(
                members, seconds=seconds, first_members=first, budget=asked.budget, most_bits=most
            )
            self.estimator, self.why = estimator_of(self.choice.method), self.choice.why
        return self.estimator
