"""Exposure from ranks: among all members of the format (exact, bounded, guided), among some that were drawn, and among the references."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure.estimators import BY_SCORES, CandidateKind, ExposureOptions
from coalmine.audits.exposure.results import CandidateScores
from coalmine.engines.courses import SURVIVED, Course, CourseStep, one_result
from coalmine.engines.units import Arrays, Running, Unit, advance_and_keep
from coalmine.errors import CoalmineError, ModelOutputError, NotMeasurableError
from coalmine.formats.format import Format
from coalmine.formats.naming import format_name
from coalmine.models.resolution import allowed_bits
from coalmine.randomness import arrays
from coalmine.records import Estimate
from coalmine.search.walks.bounded import BoundedSearch
from coalmine.search.walks.enumeration import enumerate_members, enumerate_unit, walked_costs
from coalmine.search.walks.frontier import Frontier, Nodes
from coalmine.search.walks.guided import (
    DRAWS_AT_A_TIME,
    DrawnBelow,
    DrawPlan,
    Draws,
    FollowedDraws,
    follow_draws,
)
from coalmine.search.walks.members import Members
from coalmine.search.walks.plain_arrays import plain_integers, whole_integers
from coalmine.search.walks.resolution import Resolution, check_same, measure_resolution
from coalmine.search.walks.thresholds import Ranks, ThresholdCounter, count_ranks, in_steps
from coalmine.search.walks.works import MembersWork, cut_tree, score_every_member, score_in_batches
from coalmine.statistics.exposure.extrapolation import TailFit, fit_tail
from coalmine.statistics.exposure.guided import bounded_exposure, guided_exposures
from coalmine.statistics.exposure.ranks import exact_exposure, reference_exposures, sampled_exposures

# The resolution is measured on this many canaries, and on as many members drawn at random.
ASKED_CANARIES = 4
# How many times its resolution a canary may cost more or less among the members than when it is walked by itself.
MOST_RESOLUTIONS = 16.0


class Measured(NamedTuple):
    """What one method found for the canaries of a question, in their order."""

    estimates: list[Estimate]
    candidates: CandidateScores | None = None
    ranks: Sequence[int | None] | None = None
    expansions: int = 0
    fit: TailFit | None = None
    # The cost of each canary as it was compared with the others; None if that is its score in the question.
    own: NDArray[np.float64] | None = None
    resolution: Resolution | None = None


class FormatQuestion(NamedTuple):
    """The canaries of one format that have a score, and how they are to be measured; the options have the number of samples."""

    members: Members
    format_id: str
    references: tuple[str, ...]
    canary_ids: list[str]
    canary_texts: tuple[str, ...]
    canary_scores: NDArray[np.float64]
    options: ExposureOptions

    @property
    def samples(self) -> int:
        """How many members are drawn."""
        return self.options.samples or 0

    @property
    def format(self) -> Format:
        """The format that is asked about."""
        return self.members.format

    def frontier(self, method: str) -> Frontier:
        """The frontier over this format, for a model that supports incremental decoding."""
        return self.members.frontier(f"the {method} method", f"use the {BY_SCORES} method")

    def places(self, texts: Sequence[str]) -> NDArray[Any]:
        """The places of members in the order of the format."""
        return self.index_array([self.format.index(text) for text in texts])

    def index_array(self, indices: list[int]) -> NDArray[Any]:
        """Indices as an array, of 64 bits where the space allows."""
        return np.array(indices, dtype=np.int64 if self.format.size < 2**62 else object)


class Compared(NamedTuple):
    """The canaries of one format as they are found among the members that they are compared with.

    Attributes:
        indices: the number of each canary among the members.
        costs: what each of them costs (bits), asked in the way in which the members are.
        resolution: how far apart costs must be for their order to be known.
    """

    question: FormatQuestion
    indices: tuple[int, ...]
    costs: NDArray[np.float64]
    resolution: Resolution

    @property
    def reach(self) -> NDArray[np.float64]:
        """How far from its cost each canary may turn out to be among the members (bits)."""
        allowed = allowed_bits(self.question.members.model.resolution_bits, self.costs)
        return np.asarray(np.minimum(MOST_RESOLUTIONS * self.resolution.at(self.costs), allowed))

    def counted_by(self) -> tuple[NDArray[np.float64], NDArray[np.float64], tuple[int, ...]]:
        """What works count members against: the costs, how far from them members are kept apart, and the canaries' numbers."""
        return self.costs, self.reach + self.resolution.at(self.costs + self.reach), self.indices

    def ranks(self, counter: ThresholdCounter, *, complete: bool) -> Ranks:
        """What was counted, for each canary; a ModelOutputError if one has a quite different cost, or is missing though all was counted."""
        question = self.question
        pairs = zip(self.indices, self.costs.tolist(), strict=True)
        own = np.array([counter.noted.get(index, cost) for index, cost in pairs])
        names = [f"canary {name}" for name in question.canary_ids]
        check_same(question.members, names, np.abs(own - self.costs), self.costs, self.reach)
        ranks = count_ranks(counter, self.indices, self.resolution.at(own))
        if complete and not ranks.reached.all():
            name = names[int(np.argmin(ranks.reached))]
            raise ModelOutputError(
                f"the model {question.members.model.name!r} scores {name} differently when it is asked a second time: it is not among the "
                "members that cost no more; its adapter does not conform: run coalmine.models.conformance.check_model on it"
            )
        return ranks


@dataclass(frozen=True)
class CountingWork(MembersWork):
    """The base of works that count members against the costs of canaries."""

    thresholds: NDArray[np.float64]
    margins: NDArray[np.float64]
    indices: tuple[int, ...]


def warned(estimate: Estimate, warning: str) -> Estimate:
    """The same with one more warning."""
    return msgspec.structs.replace(estimate, warnings=(*estimate.warnings, warning))


def without_numbers(estimate: Estimate, members: int) -> Estimate:
    """The same with a warning that the model gave no number for some members, if there are any."""
    warning = f"no number by this model for {members:,} of the members, which may be more or less surprising than the canary"
    return warned(estimate, warning) if members else estimate


def compared(question: FormatQuestion, method: str | None) -> Course[Compared]:
    """The canaries as the walk of a method finds them, whose expansions do not count; or as they are scored one by one."""
    # Refused here where there is no tree.
    number_of = question.format.index if method is None else question.frontier(method).tree.index_of
    names = [f"canary {name}" for name in question.canary_ids]
    unit = Unit((question.canary_texts, question.canary_scores, question.options.seed), names)
    work = _Comparing(question.members, method is not None)
    found = yield from one_result(CourseStep(work, [unit], "Asking about canaries a second time", 1))
    resolution = msgspec.msgpack.decode(found["resolution"].tobytes(), type=Resolution)
    return Compared(question, tuple(map(number_of, question.canary_texts)), found["costs"], resolution)


@dataclass(frozen=True)
class _Comparing(MembersWork):
    """The costs of canaries as members are asked about, and the resolution: measured on a few of them, and on as many drawn members."""

    walked: bool

    name = "compare canaries/3"

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Ask about the canaries of the format."""
        del running
        members, (texts, scores, seed), names, costs = self.members, unit.inputs, unit.payload, unit.inputs[1]
        if self.walked:
            frontier = members.frontier("a walk", "score the texts instead")
            costs = in_steps(walked_costs(frontier, [frontier.tree.index_of(text) for text in texts]))
            check_same(members, names, np.abs(costs - scores), costs)
        step = max(1, -(-len(texts) // ASKED_CANARIES))
        drawn = [members.format.at(i) for i in members.format.sample_indices(ASKED_CANARIES, seed)]
        bits = members.score_each(drawn).bits
        known = np.flatnonzero(~np.isnan(bits)).tolist()
        resolution = measure_resolution(
            members,
            [*texts[::step], *(drawn[place] for place in known)],
            [*names[::step], *["a member"] * len(known)],
            np.concatenate([scores[::step], bits[known]]),
        )
        encoded = np.frombuffer(msgspec.msgpack.encode(resolution), dtype=np.uint8)
        return {"costs": costs, "resolution": encoded}


# Scores of single members are kept for the result's table up to this many per format; 16 bytes each.
KEEP_UP_TO = 2_000_000
# Members scored one by one where a model does not support incremental decoding: an hour's work for a small transformer on a CPU.
SCORED_UP_TO = 1_000_000


def exact(question: FormatQuestion) -> Course[Measured]:
    """The rank among all members: by walking the tree if possible, else by scoring each."""
    if question.members.obstacle is not None:
        return (yield from _exact_by_scoring(question))
    form, tree = question.format, question.members.tree
    keep = form.size <= KEEP_UP_TO
    among = yield from compared(question, "exact")
    parts = yield from cut_tree(question.members)
    work = Ranking(question.members, *among.counted_by(), keep)
    counter, kept, expansions = work.counter(), {-1: parts.above}, parts.expansions
    unknown, problems = parts.without_number, dict[int, CoalmineError]()
    counter.add(parts.above.costs, parts.above.indices)

    def take(number: int, found: Arrays) -> None:
        nonlocal expansions, unknown
        counter.merge(found)
        expansions += int(found["expansions"])
        unknown += int(str(found["without_number"]))
        if keep:
            indices = whole_integers(found["indices"], tree.index_type)
            kept[number] = parts.above._replace(indices=indices, costs=found["costs"])

    def failed(number: int, problem: CoalmineError) -> None:
        nonlocal unknown
        problems[number] = problem
        unknown += parts.units[number].size

    task = f"Ranking {form.size:,} members"
    yield CourseStep(work, parts.units, task, form.size, take, failed=failed)
    if len(problems) == len(parts.units):
        raise problems[0]
    candidates = None
    if keep:
        leaves = [kept[number] for number in sorted(kept)]
        places = tree.places(np.concatenate([one.indices for one in leaves]))
        bits = in_steps(np.concatenate([one.costs for one in leaves]))
        candidates = CandidateScores(question.format_id, "member", places, bits)
    return _measured(among, counter, candidates, np.zeros(unknown), expansions)


def _exact_by_scoring(question: FormatQuestion) -> Course[Measured]:
    """The same ranks for a model that does not support incremental decoding: every member is scored by itself."""
    form = question.format
    if form.size > SCORED_UP_TO:
        name, why = question.members.model.name, question.members.obstacle
        raise NotMeasurableError(
            f"{name!r} cannot be searched ({why}), and scoring {form.size:,} members one by one is refused above {SCORED_UP_TO:,}; "
            f"use the {BY_SCORES} method"
        )
    among = yield from compared(question, None)
    counter = ThresholdCounter(*among.counted_by())
    found = yield from score_every_member(question.members)
    counter.add(found.bits, found.indices)
    candidates = CandidateScores(question.format_id, "member", found.indices, found.bits)
    return _measured(among, counter, candidates, in_steps(found.least))


def _measured(
    among: Compared,
    counter: ThresholdCounter,
    candidates: CandidateScores | None,
    bounds: NDArray[np.float64],
    expansions: int = 0,
) -> Measured:
    """The plain count over the members' own costs; what the model's arithmetic leaves open is in the interval.

    Members without a number cost at least their `bounds`, and may be on either side of every canary that costs as much, so that ranks
    have bounds where there are some of these.
    """
    ranks, size = among.ranks(counter, complete=not len(bounds)), among.question.format.size
    counted = list(zip(ranks.rank.tolist(), ranks.least.tolist(), ranks.most.tolist(), strict=True))
    if len(bounds):
        nearest = ranks.own + among.resolution.at(ranks.own)
        beyond = np.searchsorted(np.sort(bounds), nearest, side="right").tolist()
        estimates = [
            without_numbers(bounded_exposure(low, min(size, most + open_ones), size), open_ones)
            for (_, low, most), open_ones in zip(counted, beyond, strict=True)
        ]
    else:
        estimates = [exact_exposure(rank, size, least=low, most=most) for rank, low, most in counted]
    proven = [
        None if one.value is None else low if len(bounds) else rank
        for one, (rank, low, _) in zip(estimates, counted, strict=True)
    ]
    return Measured(
        estimates=estimates,
        candidates=candidates,
        ranks=proven,
        expansions=expansions,
        own=ranks.own,
        resolution=among.resolution,
    )


@dataclass(frozen=True)
class Ranking(CountingWork):
    """Counts the members below a node, or all of them, against the costs of canaries; with `keep`, also every member with its cost."""

    keep: bool

    name = "rank/2"

    def counter(self) -> ThresholdCounter:
        """A counter that has counted nothing."""
        return ThresholdCounter(self.thresholds, self.margins, self.indices)

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Count the members below the node of a unit."""
        frontier = self.members.frontier("the exact method", "score the texts instead", leave_out=True)
        counter, kept = self.counter(), list[Nodes]()
        every = unit.payload is None
        for leaves in enumerate_members(frontier) if every else enumerate_unit(frontier, unit.payload):
            counter.add(leaves.costs, leaves.indices)
            if self.keep:
                kept.append(leaves)
            running.advance(len(leaves.costs))
        found = {
            **counter.state(),
            "expansions": np.array(frontier.expansions),
            "without_number": np.array(str(frontier.without_number)),
        }
        if self.keep:
            found["indices"] = plain_integers(np.concatenate([leaves.indices for leaves in kept]))
            found["costs"] = np.concatenate([leaves.costs for leaves in kept])
        return found


def score_others(
    question: FormatQuestion,
    texts: Sequence[str],
    kind: CandidateKind,
    survives: tuple[type[CoalmineError], ...] = SURVIVED,
) -> Course[CandidateScores]:
    """The scores of some members; those without a number are left out."""
    task = f"Scoring {len(texts):,} {kind}s"
    scored = yield from score_in_batches(question.members, texts, task, survives=survives)
    # Whether a text has a number is decided by the text, so those that have one are still independent draws like the canary.
    known = [place for place in range(len(texts)) if place not in scored.problems]
    places = question.places([texts[place] for place in known])
    return CandidateScores(question.format_id, kind, places, scored.bits[known])


def _drawn(question: FormatQuestion) -> Course[CandidateScores]:
    """A uniform sample of the space, scored."""
    indices = question.format.sample_indices(question.samples, question.options.seed)
    sample = yield from score_others(question, [question.format.at(index) for index in indices], "sample")
    # A canary that was drawn keeps its own score, whatever rounding does to it in another batch.
    for text, bits in zip(question.canary_texts, question.canary_scores.tolist(), strict=True):
        sample.log_perplexities_bits[sample.indices == question.format.index(text)] = bits
    return sample


def sampled(question: FormatQuestion) -> Course[Measured]:
    """The rank within a uniform sample of the space."""
    sample = yield from _drawn(question)
    estimates = sampled_exposures(
        question.canary_scores,
        sample.log_perplexities_bits,
        question.format.size,
        question.options.confidence,
        canary_ids=question.canary_ids,
        unknown=question.samples - len(sample.indices),
    )
    return Measured(estimates=estimates, candidates=sample)


def extrapolated(question: FormatQuestion) -> Course[Measured]:
    """The tail of a curve through such a sample."""
    sample = yield from _drawn(question)
    # Twice the refits that an interval at this confidence needs at least.
    refits = max(200, math.ceil(4 / (1 - question.options.confidence)))
    fit = fit_tail(sample.log_perplexities_bits, seed=question.options.seed, bootstraps=refits)
    estimates = fit.estimates(
        question.canary_scores,
        question.format.size,
        question.options.confidence,
        canary_ids=question.canary_ids,
        sample_scores=sample.log_perplexities_bits,
    )
    missing = question.samples - len(sample.indices)
    estimates = _without(estimates, missing, f"{question.samples:,} samples")
    return Measured(estimates=estimates, candidates=sample, fit=fit)


def references(question: FormatQuestion) -> Course[Measured]:
    """The rank among the manifest's references."""
    texts = question.references
    if not texts:
        raise NotMeasurableError(
            f"the manifest has no references for format {format_name(question.format.template)}; plant with references, or use "
            "another method"
        )
    others = yield from score_others(question, texts, "reference")
    scores = others.log_perplexities_bits
    estimates = reference_exposures(
        question.canary_scores,
        scores,
        question.options.confidence,
        canary_ids=question.canary_ids,
        size=question.format.size,
    )
    estimates = _without(estimates, len(texts) - len(scores), f"{len(texts):,} references")
    ranks = 1 + np.searchsorted(np.sort(scores), question.canary_scores, side="right")
    return Measured(estimates, others, ranks.tolist())


def _without(estimates: list[Estimate], missing: int, of: str) -> list[Estimate]:
    """The same with a warning where some that canaries were compared with have no number, and were left out."""
    warning = f"{missing:,} of {of} have no number by this model, and were left out"
    return [warned(one, warning) for one in estimates] if missing else estimates


class _Searched(NamedTuple):
    """What a search has counted about the canaries, and what that proves.

    Attributes:
        most: how many members may at most cost no more than each canary and its resolution.
    """

    among: Compared
    search: BoundedSearch
    ranks: Ranks
    most: list[int]
    proven: Measured


@dataclass(frozen=True)
class RankSearching(CountingWork):
    """A bounded search for the ranks of canaries; its result is the finished search as `snapshot` gives it."""

    budget: int

    name = "search ranks/2"

    @property
    def memory_bytes(self) -> int:
        """The states, and two copies of them while they are kept."""
        return 3 * self.members.memory_bytes

    def search(self) -> BoundedSearch:
        """A search that has not started."""
        return BoundedSearch(
            self.members.frontier("a search", "score the texts instead", leave_out=True),
            self.thresholds,
            margins=self.margins,
            noting=self.indices,
            memory_bytes=self.members.memory_bytes,
        )

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Search until it is settled or the budget is spent."""
        del unit
        search, saved = self.search(), running.kept()
        if saved is None:
            search.start()
        else:
            search.restore(saved)
            running.advance(search.frontier.expansions)
        keep = partial(search.snapshot, states=True)
        search.run(
            self.budget - search.frontier.expansions,
            lambda expanded: advance_and_keep(running, expanded, keep),
        )
        return search.snapshot()


def _searched(question: FormatQuestion, method: str) -> Course[_Searched]:
    """The bounded search, run until it is settled or its budget is spent."""
    among = yield from compared(question, method)
    budget = question.options.budget
    work = RankSearching(question.members, *among.counted_by(), budget)
    task = f"Proving ranks, at most {budget:,} expansions"
    found = yield from one_result(CourseStep(work, [Unit("search", size=0)], task))
    search = work.search()
    search.restore(found)
    unknown = search.frontier.without_number
    ranks = among.ranks(search.counter, complete=search.is_settled() and not unknown)
    beyond = ranks.own + among.resolution.at(ranks.own)
    behind = search.most_below(beyond)
    # Canaries that were not reached lie below open nodes, and are among those that may.
    reached = search.counter.counts_to(beyond).tolist()
    most = [
        max(known, min(question.format.size, found + more + unknown))
        for known, found, more in zip(ranks.most.tolist(), reached, behind, strict=True)
    ]
    rows = list(zip(ranks.rank.tolist(), ranks.least.tolist(), ranks.most.tolist(), most, strict=True))
    proven = [rank if known == all_there_may_be else None for rank, _, known, all_there_may_be in rows]
    estimates = [
        without_numbers(bounded_exposure(least, highest, question.format.size, rank=rank), unknown)
        for (_, least, _, highest), rank in zip(rows, proven, strict=True)
    ]
    expansions = search.frontier.expansions
    measured = Measured(estimates, None, proven, expansions, own=ranks.own, resolution=among.resolution)
    return _Searched(among, search, ranks, most, measured)


def bounded(question: FormatQuestion) -> Course[Measured]:
    """Proven bounds of the rank among all members, which meet where the budget was enough."""
    return (yield from _searched(question, "bounded")).proven


@dataclass(frozen=True)
class Drawing(MembersWork):
    """Guided draws, followed to their ends or up to a limit (bits)."""

    limit: float

    name = "draw/1"

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Follow the draws of a unit."""
        drawn: DrawnBelow = unit.inputs
        frontier = self.members.frontier("guided draws", "score the texts instead")
        indices, costs, log2_guided = follow_draws(frontier, drawn, self.limit)
        running.advance(len(costs))
        return {
            "indices": plain_integers(indices),
            "costs": costs,
            "log2_guided": log2_guided,
            "expansions": np.array(frontier.expansions),
        }


def _guided_draws(question: FormatQuestion, search: BoundedSearch) -> Course[Draws]:
    """Draws from below the open nodes of a search, to which their expansions are added."""
    number, tree = question.samples, search.frontier.tree
    generator = arrays(question.options.seed, "guided", question.format_id)
    plan = DrawPlan(tree, search.open.all(), number, generator)
    cuts = [(begin, min(begin + DRAWS_AT_A_TIME, number)) for begin in range(0, number, DRAWS_AT_A_TIME)]
    units = [Unit(plan.part(begin, end), size=end - begin) for begin, end in cuts]
    work = Drawing(question.members, search.limit)
    found = yield CourseStep(work, units, f"Drawing {number:,} members", number)
    search.frontier.expansions += sum(int(one["expansions"]) for one in found)
    return plan.draws(
        [
            FollowedDraws(whole_integers(one["indices"], tree.index_type), one["costs"], one["log2_guided"])
            for one in found
        ]
    )


def guided(question: FormatQuestion) -> Course[Measured]:
    """Prove what the budget can prove, and estimate the rest by draws from below the nodes that are left open."""
    searched = yield from _searched(question, "guided")
    search, among, ranks = searched.search, searched.among, searched.ranks
    if search.is_settled() or search.frontier.without_number:
        return searched.proven  # draws cannot say how many of the members without a number count
    try:
        draws = yield from _guided_draws(question, search)
    except SURVIVED as problem:
        warning = f"only what the search has proven is known, because members could not be drawn: {problem}"
        return searched.proven._replace(estimates=[warned(one, warning) for one in searched.proven.estimates])
    resolutions = among.resolution.at(ranks.own)
    # Canaries that the search has not reached are known nevertheless: they count as found, and draws of them do not.
    missing = [among.indices[i] for i in np.flatnonzero(~ranks.reached)]
    of_canaries = np.isin(draws.indices, question.index_array(missing))
    costs = in_steps(np.where(of_canaries, search.limit + 1, draws.costs))
    estimates = guided_exposures(
        ranks.own,
        costs,
        draws.log2_weights,
        log2_most_weight=draws.most_log2_weight(ranks.own + resolutions),
        known=ranks.rank.tolist(),
        most_rank=searched.most,
        size=question.format.size,
        confidence=question.options.confidence,
        canary_ids=question.canary_ids,
        resolutions=resolutions,
        known_near=list(zip(ranks.least.tolist(), ranks.most.tolist(), strict=True)),
    )
    # The draws that were followed to their ends are kept; a canary among them costs what it was measured with.
    followed = draws.costs <= search.limit
    indices, costs = draws.indices[followed], in_steps(draws.costs[followed])
    own = dict(zip(among.indices, ranks.own.tolist(), strict=True))
    for place in np.flatnonzero(np.isin(indices, question.index_array(list(own)))):
        costs[place] = own[int(indices[place])]
    places = search.frontier.tree.places(indices)
    return searched.proven._replace(
        estimates=estimates,
        candidates=CandidateScores(question.format_id, "guided", places, costs, draws.log2_weights[followed]),
        expansions=search.frontier.expansions,
    )
