"""Exposure of canaries, as the Secret Sharer defines it, measured by the estimator that the caller names or by the best that applies.

The Secret Sharer: Evaluating and Testing Unintended Memorization in Neural Networks, Carlini, Liu, Erlingsson, Kos and Song, 2019,
arXiv:1802.08232.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from coalmine.audits.exposure.estimators import (
    AUTO,
    BOUNDED,
    EXACT,
    GUIDED,
    REFERENCES,
    SPLITTING,
    Estimator,
    ExposureOptions,
    estimator_of,
)
from coalmine.audits.exposure.ranked import (
    KEEP_UP_TO,
    SCORED_UP_TO,
    FormatQuestion,
    Measured,
    score_others,
    warned,
)
from coalmine.audits.exposure.results import (
    ASKED_FOR,
    NOT_IN_TURNS,
    OTHER_DATA,
    CandidateScores,
    ExposureResult,
    Exposures,
    FormatFacts,
)
from coalmine.audits.exposure.splitting import expected_scores
from coalmine.audits.framing import converses, framed
from coalmine.corpus.planting.manifest import CanarySet, as_canary_set
from coalmine.engines.courses import SURVIVED, Course, CourseStep, one_result, run_courses
from coalmine.engines.engine import Engine, open_engine
from coalmine.engines.ledger import Ledger, Resume
from coalmine.engines.units import Arrays, Running, Unit
from coalmine.errors import CoalmineError, InputError, ModelError, NoNumberError, NotMeasurableError
from coalmine.formats.format import Format
from coalmine.formats.naming import format_name
from coalmine.models.contexts import Context
from coalmine.models.protocols import ContextualModel, Model, PairModel, Scorer, TextScorer
from coalmine.progress import Progress, duration
from coalmine.records import Canary, Estimate
from coalmine.search.walks.enumeration import enumerate_members, walked_costs
from coalmine.search.walks.frontier import Frontier
from coalmine.search.walks.members import MOST_SHARED, Members
from coalmine.search.walks.scoring import Scored
from coalmine.search.walks.works import MembersWork, ScoreTexts, scored_from
from coalmine.statistics.roc import paired_areas
from coalmine.storage.files import to_json

# What decides the units of a run; a run of another version is another run.
KEPT = "exposure/6"
SHARED = "other members of its format have the same tokens, so the model cannot tell them apart, and they count as no more surprising"
# Problems with the references alone are no reason to measure nothing.
_ALSO_OF_MODEL: tuple[type[CoalmineError], ...] = (*SURVIVED, ModelError)
# How long the model is timed before its speed is trusted.
PROBE_SECONDS = 0.5
# Rows per batch while timing: a slow model would take minutes for a few batches of the usual size.
PROBE_ROWS, PROBE_TEXTS = 256, 64
# Few models take more steps than this per second; a space that would take too long even then is not worth a probe.
FASTEST = 500_000
# From so many steps on, and where at most this share of the members can rank before a canary, which a few of them show, it is worth
# leaving out the text after the holes of all others, and with it their scores.
WORTH_PROVING, MOST_READ, ENDINGS_DRAWN = 4096, 0.5, 100
# Texts that are scored again in each other context: at most this many planted canaries, and this many others.
TEXTS = 60
# A context matters if canaries stand out with at least this AUC in one, and the AUCs differ by at least this much and by two
# standard errors.
STANDS_OUT, LARGE_DIFFERENCE = 0.7, 0.02


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
    answers the same question in two ways. Where the model leaves a choice of context, some canaries are also scored in the others, and a
    warning says if that matters. Canaries of chat data are scored as the turns that they are.

    The work runs on `engine`, "here" or for example "processes:8", with the same results. With `resume`, a directory, a run that is
    stopped keeps there what it has done, and the same call resumes it. What was kept is removed when all formats are measured; a
    `Ledger` in place of the directory leaves it to the caller, once the results are saved.

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
        lacking = model.describe().get("why")
        why = f" ({lacking})" if lacking else ""
        raise NotMeasurableError(
            f"exposure is not applicable to {model.name!r}: it does not give the probability of a text{why}; look at what it writes with "
            "`coalmine extract --method prompt`, or audit the model itself"
        )
    chosen = as_canary_set(canaries)
    model = framed(model, chosen)
    ledger = resume if isinstance(resume, Ledger) else Ledger(resume)
    facts = [KEPT, model.describe(), chosen.sha256, asked.deciding()]
    ledger.begin(hashlib.sha256(to_json(facts)).hexdigest())
    present = {canary.format_id for canary in chosen}
    of_format = msgspec.structs.replace(asked, minutes=asked.minutes / max(1, len(present)))
    parts = [OneFormat(model, chosen, name, of_format) for name in chosen.formats if name in present]
    warnings: list[str] = []
    check_contents = getattr(model, "check_contents", None)
    if check_contents is not None and (shared := check_contents([one.text for one in chosen])):
        warnings.append(
            f"the last token of {shared} of {len(chosen)} canaries is one with what the chat template writes after them, and is scored as "
            "it is without that; end the format with a letter or a digit, or use a template that ends turns with a special token"
        )
    courses: list[Course[None]] = [part.course() for part in parts]
    if asked.comparisons:
        courses.append(context_check(model, chosen, warnings))
    with open_engine(engine) as opened:
        run_courses(opened, courses, ledger=ledger, progress=progress)
    problems = [part.problem for part in parts]
    # Of texts without a format the scores alone are worth having: membership compares them.
    if problems and problems[0] is not None and None not in problems and not chosen.listed:
        ledger.forget()  # the same questions would end in the same way
        raise problems[0]
    if ledger is not resume:
        ledger.forget()
    warnings = [warning for part in parts for warning in part.warnings] + warnings
    corpus, trained_on = chosen.corpus_sha256, model.describe().get("trained_on_sha256")
    if None not in {corpus, trained_on} and corpus != trained_on:
        warnings.append(
            f"{OTHER_DATA} than the corpus of this manifest, so how often it saw each text may differ"
        )
    if chosen.scanned is not None and chosen.scanned.conversations is True and converses(model):
        warnings.append(NOT_IN_TURNS)
    results = {result.canary_id: result for part in parts for result in part.results()}
    found = Exposures(
        warnings=tuple(warnings),
        results=tuple(results[canary.canary_id] for canary in chosen),
        formats=tuple(part.facts() for part in parts),
        tail_fits={part.format_id: part.measured.fit for part in parts if part.measured.fit is not None},
        seed=asked.seed,
        confidence=asked.confidence,
        model=model.describe(),
        manifest_sha256=chosen.sha256,
        expansions=sum(part.measured.expansions for part in parts),
        inclusion=None if chosen.withhold is None else 1.0 - chosen.withhold,
    )
    return found.beside([rows for part in parts for rows in part.candidates])


class OneFormat:
    """The canaries of one format, while they are measured.

    Attributes:
        estimator: the one that was taken, or that was asked for; None where `auto` did not come so far.
        known: the places of the canaries that `measured` is about; `problems` has why others have no number.
        candidates: what goes into scores.parquet.
        problem: why there is no honest number for this format; None where there is.
    """

    def __init__(self, model: Model, chosen: CanarySet, format_id: str, options: ExposureOptions) -> None:
        self.model, self.chosen, self.format_id, self.options = model, chosen, format_id, options
        self.format = chosen.formats[format_id]
        self.canaries = [canary for canary in chosen if canary.format_id == format_id]
        self.references = chosen.references.get(format_id, ())
        self.estimator = None if options.method == AUTO else estimator_of(options.method)
        self.why = ASKED_FOR
        self.scores = np.full(len(self.canaries), np.nan)
        self.shared = [0.0] * len(self.canaries)
        self.problems: dict[int, CoalmineError] = {}
        self.problem: CoalmineError | None = None
        self.known: list[int] = []
        self.measured = Measured([])
        self.candidates: list[CandidateScores] = []
        self.warnings: list[str] = []

    def course(self) -> Course[None]:
        """Measure, or note why not."""
        try:
            members = Members(
                self.model,
                self.format,
                sources=self.chosen.source_formats.get(self.format_id),
                batch=self.options.batch,
                memory_bytes=self.options.memory,
            )
            yield from self._score(members)
            if self.known:
                yield from self._measure(members)
        except SURVIVED as problem:
            self.problem = problem

    def _score(self, members: Members) -> Course[None]:
        """Score the canaries; those that share their tokens with too many members have a problem."""
        texts = [canary.text for canary in self.canaries]
        scored = yield from _scored(members, texts, "Scoring canaries")
        # What workers send cannot be written to.
        self.scores, self.problems = scored.bits.copy(), scored.problems
        self.shared, size_bits = members.shared_bits(texts), math.log2(self.format.size)
        costs = set(scored.bits.tolist())
        if isinstance(self.model, TextScorer) and len(costs) == 1:
            others = yield from _scored(members, members.examples(8), "Scoring members")
            if len({*costs, *others.bits.tolist()}) == 1 and self.format.size > 1:
                self.shared = [size_bits] * len(texts)
        alike = [place for place, bits in enumerate(self.shared) if bits > MOST_SHARED * size_bits]
        for place in alike:
            self.problems.setdefault(place, NotMeasurableError(members.alike))
        self.known = [place for place in range(len(texts)) if place not in self.problems]
        if not self.known and len(alike) < len(texts):
            raise self.problems[0]  # there is nothing to rank

    def _measure(self, members: Members) -> Course[None]:
        """Measure those that are known; a NotMeasurableError where there is no honest number for this format."""
        asked, own = self.options, self.scores[self.known]
        # The expansions that proofs may take: as asked, or all, where `auto` takes proofs for what would rank all members.
        self.estimator, budget = yield from self._taken(members, float(own.max()))
        samples = self.estimator.samples if asked.samples is None else asked.samples
        question = FormatQuestion(
            members=members,
            format_id=self.format_id,
            references=self.references,
            canary_ids=[self.canaries[place].canary_id for place in self.known],
            canary_texts=tuple(self.canaries[place].text for place in self.known),
            canary_scores=own,
            options=msgspec.structs.replace(
                asked, method=self.estimator.name, samples=samples, budget=budget
            ),
        )
        if asked.comparisons:
            # Where nothing can be measured, the scores alone are still there for membership.
            own_scores = CandidateScores(
                self.format_id, "canary", question.places(question.canary_texts), own
            )
            self.candidates = [*(yield from self._references(question, self.estimator)), own_scores]
        self.measured = yield from self.estimator.measure(question)
        if self.measured.own is not None:
            self.scores[self.known] = self.measured.own
            own[:] = self.measured.own  # as they were compared with the others
        if self.measured.candidates is not None:
            self.candidates.insert(0, self.measured.candidates)

    def _taken(self, members: Members, most_bits: float) -> Course[tuple[Estimator, int]]:
        """The estimator for this format, with its budget: as asked, or by `auto`, which texts without a format leave no choice."""
        asked = self.options
        if self.format_id in self.chosen.listed:
            if self.estimator is not None and self.estimator.among != "references":
                raise NotMeasurableError(
                    f"the method {self.estimator.name} needs a format, and these canaries are a list of texts without one; use references"
                )
            self.why = "its texts are not equally likely members of a format"
            return REFERENCES, asked.budget
        if self.estimator is not None:
            return self.estimator, asked.budget
        first = SPLITTING.samples if asked.samples is None else asked.samples
        unit = Unit((60 * asked.minutes, asked.budget, first, most_bits))
        step = CourseStep(Choosing(members), [unit], "Measuring the speed of the model", 1)
        found = yield from one_result(step)
        choice = msgspec.msgpack.decode(found["choice"].tobytes(), type=Choice)
        self.why = choice.why
        return estimator_of(choice.method), max(asked.budget, choice.steps)

    def _references(self, question: FormatQuestion, estimator: Estimator) -> Course[list[CandidateScores]]:
        """The references with their scores, for membership; none where the estimator keeps scores of them or of all."""
        texts = self.references
        kept = estimator.keeps == "member" and self.format.size <= KEEP_UP_TO
        if estimator.keeps == "reference" or kept or not texts:
            return []
        found: list[CandidateScores] = []
        missing, why = len(texts), ""
        try:
            found = [(yield from score_others(question, texts, "reference", _ALSO_OF_MODEL))]
            missing -= len(found[0].indices)
        except _ALSO_OF_MODEL as problem:
            why = f" ({problem})"
        if missing:
            self.warnings.append(
                f"{missing:,} of {len(texts):,} references of {format_name(self.format.template)} could not be scored, so membership "
                f"has fewer comparisons{why}"
            )
        return found

    def facts(self) -> FormatFacts:
        """How the format was measured."""
        automaton = self.format.automaton
        begins_another = any(automaton.edges(state) for state in automaton.accepting)
        return FormatFacts(
            format_id=self.format_id,
            template=self.format.template,
            size=str(self.format.size),
            size_bits=math.log2(self.format.size),
            method=AUTO if self.estimator is None else self.estimator.name,
            why=self.why,
            resolution=self.measured.resolution,
            is_distribution=not (
                self.chosen.natural
                or self.format_id in self.chosen.listed
                or isinstance(self.model, PairModel)
                or begins_another
            ),
        )

    def results(self) -> list[ExposureResult]:
        """What was found for each canary."""
        measured, method = self.measured, AUTO if self.estimator is None else self.estimator.name
        found = []
        estimates = dict(zip(self.known, measured.estimates, strict=False))
        ranks = dict(zip(self.known, measured.ranks or (), strict=False))
        for place, canary in enumerate(self.canaries):
            why = str(self.problems.get(place, self.problem))
            estimate = estimates.get(place) or Estimate.not_measured(method, why)
            if self.shared[place] and estimate.status != "not_measured":
                estimate = warned(estimate, SHARED)
            bits = None if np.isnan(self.scores[place]) else float(self.scores[place])
            found.append(
                ExposureResult(
                    canary_id=canary.canary_id,
                    format_id=canary.format_id,
                    repetitions=canary.times_trained_on,
                    planted=canary.planted,
                    planned_repetitions=canary.repetitions,
                    method=estimate.method,
                    known_log_perplexity_bits=bits,
                    rank=ranks.get(place),
                    most_possible_bits=math.log2(self.format.size),
                    estimate=estimate,
                    kind=canary.kind,
                    user=canary.user,
                    lead_bits=self._lead_bits(canary, bits),
                )
            )
        return found

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


def _scored(members: Members, texts: Sequence[str], task: str) -> Course[Scored]:
    """The log-perplexities of a few texts, as one unit."""
    unit = Unit(tuple(texts), size=len(texts))
    found = yield from one_result(CourseStep(ScoreTexts(members), [unit], task, len(texts)))
    return scored_from(found)


class Choice(NamedTuple):
    """The method that was taken, why, and how many expansions it needs to prove all ranks where it was taken for that."""

    method: str
    why: str
    steps: int = 0


class Choosing(MembersWork):
    """The choice for one format, as a unit of work: a run that was stopped chooses as before, whatever the clock says now."""

    name = "choose/3"

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Choose with what `choose` is given."""
        del running
        return {"choice": np.frombuffer(msgspec.msgpack.encode(choose(self.members, *unit.inputs)), np.uint8)}


def choose(
    members: Members,
    seconds: float,
    budget: int,
    first_members: int = SPLITTING.samples,
    most_bits: float = math.inf,
    clock: Callable[[], float] | None = None,
) -> Choice:
    """The method for one format that may take about `seconds`, where guided draws would cost `budget` expansions or more.

    No canary costs more than `most_bits`. Where an estimate would cost the model as much work as the exact rank, exact is taken without
    looking at the clock.
    """
    size, obstacle = members.format.size, members.obstacle
    why = "" if obstacle is None else f" ({obstacle})"
    if obstacle is None:
        frontier = members.frontier("exact", "use another method", batch=PROBE_ROWS, leave_out=True)
        steps, cheap, estimator = frontier.tree.inner_nodes, budget, GUIDED
        most, warm_up = seconds * FASTEST, PROBE_ROWS // 2
        done = _walked(frontier)
    else:
        steps, cheap, estimator = size, expected_scores(math.log2(size), first_members), SPLITTING
        most, warm_up, done = SCORED_UP_TO, 1, _asked(members)
    if steps <= cheap:
        why = f"the space has {size:,} members, few enough to rank them all{why}"
    elif steps > most:
        return Choice(estimator.name, f"{size:,} members are too many to rank them all{why}")
    elif steps <= seconds * _rate(done, warm_up, clock or time.perf_counter):
        why = f"all {size:,} members can be ranked within the {duration(seconds)} allowed{why}"
    else:
        allowed = duration(seconds)
        return Choice(
            estimator.name, f"ranking all {size:,} members would take more than the {allowed} allowed{why}"
        )
    if obstacle is None and (read := _read(members, frontier, most_bits)) <= MOST_READ:
        share = f"about {read:.0%}" if read else f"fewer than {1 / ENDINGS_DRAWN:.0%}"
        why = f"{share} of all {size:,} members can rank before a canary, so the text after the holes of the others is not read"
        return Choice(BOUNDED.name, why, steps)
    return Choice(EXACT.name, why)


def _read(members: Members, frontier: Frontier, most_bits: float) -> float:
    """The share of members whose text after the holes is worth reading; all where that is no large part of the work.

    A member that costs more than every canary before that text ranks after them all, whatever follows.
    """
    tree = frontier.tree
    if tree.inner_nodes < WORTH_PROVING or tree.endings <= tree.inner_nodes / 2 or math.isinf(most_bits):
        return 1.0
    drawn = members.format.sample(ENDINGS_DRAWN, seed=0)
    try:
        before = walked_costs(frontier, [tree.index_of(text) for text in drawn], endings=False)
    except NoNumberError:
        return 1.0
    return float(np.mean(before <= most_bits))


def _walked(frontier: Frontier) -> Iterator[int]:
    for _ in enumerate_members(frontier):
        yield frontier.expansions


def _asked(members: Members) -> Iterator[int]:
    for done in range(0, min(members.format.size, 64 * PROBE_TEXTS), PROBE_TEXTS):
        members.score_each([members.format.at(done + place) for place in range(PROBE_TEXTS)])
        yield done + PROBE_TEXTS


def _rate(steps_done: Iterator[int], warm_up: int, clock: Callable[[], float]) -> float:
    """Steps per second, once the first ones are done: those load, compile and run in small batches."""
    began, first, steps, elapsed = 0.0, 0, 0, 0.0
    for done in steps_done:
        if not first:
            if done >= warm_up:
                began, first = clock(), done
            continue
        steps, elapsed = done - first, clock() - began
        if elapsed >= PROBE_SECONDS:
            break
    return steps / elapsed if elapsed > 0 else math.inf


def context_check(model: Model, chosen: CanarySet, warnings: list[str]) -> Course[None]:
    """Add a sentence to `warnings` for each format and context in which canaries score differently, if the model leaves a choice."""
    if not isinstance(model, ContextualModel) or (contexts := model.contexts) is None:
        return
    own = contexts.chosen
    warnings += _cut_otherwise(model, own, chosen)
    for format_id, form in chosen.formats.items():
        planted, others = _texts(chosen, format_id)
        if own.written is not None or not planted or not others:
            continue
        here = yield from _scores(model, form, [*planted, *others])
        for other in contexts.others:
            there = yield from _scores(model.in_context(other), form, [*planted, *others])
            known = ~np.isnan(here) & ~np.isnan(there)
            ins = [-way[: len(planted)][known[: len(planted)]] for way in (here, there)]
            outs = [-way[len(planted) :][known[len(planted) :]] for way in (here, there)]
            if not ins[0].size or not outs[0].size:
                continue  # the format cannot be scored in that context, so it is not what training saw
            areas = paired_areas((ins[0], outs[0]), (ins[1], outs[1]))
            limit = max(LARGE_DIFFERENCE, 2 * areas.standard_error)
            if max(areas.first, areas.second) >= STANDS_OUT and abs(areas.difference) > limit:
                no_text = " and no context_text" if own.text and not other.text else ""
                warnings.append(
                    f"it matters what {format_name(form.template)} is scored after: {ins[0].size} planted canaries stand out from "
                    f"{outs[0].size} others with an AUC of {areas.first:.2f} after {own.described} (as measured here) and of "
                    f"{areas.second:.2f} after {other.described}; "
                    f"if training put texts there, measure with --set context={other.choice}{no_text}"
                )


def _scores(model: Model, form: Format, texts: list[str]) -> Course[NDArray[np.float64]]:
    """The log-perplexities of texts (bits); NaN for one that has none."""
    try:
        scored = yield from _scored(Members(model, form), texts, "Scoring canaries in other contexts")
    except SURVIVED:
        return np.full(len(texts), np.nan)
    return scored.bits


def _texts(chosen: CanarySet, format_id: str) -> tuple[list[str], list[str]]:
    """Planted canaries of all numbers of copies, since those of many copies alone stand out in any context; and others."""
    own = [one for one in chosen if one.format_id == format_id]
    planted = [one.text for one in sorted(own, key=lambda one: -one.repetitions) if one.planted]
    others = [*(one.text for one in own if not one.planted), *chosen.references.get(format_id, ())]
    return planted[:: -(-len(planted) // TEXTS) or 1], others[:TEXTS]


def _cut_otherwise(model: Model, own: Context, canaries: CanarySet) -> list[str]:
    """A warning if texts have other tokens alone, as they are scored, than after the text of the context or before the end of a turn."""
    encode, texts = model.tokenizer.encode, [one.text for one in canaries]
    if own.text and own.written is None:
        first = encode(own.text)
        cut = sum(encode(own.text + text) != [*first, *encode(text)] for text in texts)
        where, advice = (
            f"after {own.text!r}",
            "end context_text where a token ends, such as with a line break",
        )
    else:
        check = getattr(model, "check_contents", None)
        cut = 0 if check is None else check(texts)
        where = "before what the chat template writes"
        advice = (
            "end the format with a letter or a digit, or use a template that ends turns with a special token"
        )
    if not cut:
        return []
    return [
        f"{cut} of {len(canaries)} canaries are cut into other tokens {where} than alone, as they are scored; {advice}"
    ]
