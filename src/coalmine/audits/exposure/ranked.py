"""Exposure from ranks: among all members of the format (exact), among some that were drawn, and among the references."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure.candidate_scores import CandidateScores
from coalmine.audits.exposure.estimators import BY_SCORES
from coalmine.audits.exposure.question import (
    Compared,
    CountingWork,
    FormatQuestion,
    Measured,
    compared,
    warned,
    without_numbers,
)
from coalmine.engines.courses import Course, CourseStep
from coalmine.engines.units import Arrays, Running, Unit
from coalmine.errors import CoalmineError, NotMeasurableError
from coalmine.formats.naming import format_name
from coalmine.records import Estimate
from coalmine.search.walks.enumeration import enumerate_members, enumerate_unit
from coalmine.search.walks.frontier import Nodes
from coalmine.search.walks.plain_arrays import plain_integers, whole_integers
from coalmine.search.walks.thresholds import ThresholdCounter, in_steps
from coalmine.search.walks.works import cut_tree, score_every_member, score_in_batches
from coalmine.statistics.exposure.extrapolation import fit_tail
from coalmine.statistics.exposure.guided import bounded_exposure
from coalmine.statistics.exposure.ranks import exact_exposure, reference_exposures, sampled_exposures

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
    among = yield from compared(question, walked=True)
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
    among = yield from compared(question, walked=False)
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


def _drawn(question: FormatQuestion) -> Course[CandidateScores]:
    """A uniform sample of the space, scored; those without a number are left out."""
    indices = question.format.sample_indices(question.samples, question.options.seed)
    texts = [question.format.at(index) for index in indices]
    scored = yield from score_in_batches(question.members, texts, f"Scoring {question.samples:,} samples")
    known = [place for place in range(len(texts)) if place not in scored.problems]
    indices, bits = [indices[place] for place in known], scored.bits[known]
    # A canary that was drawn keeps its own score, whatever rounding does to it in another batch.
    own = dict(
        zip(map(question.format.index, question.canary_texts), question.canary_scores.tolist(), strict=True)
    )
    for place, index in enumerate(indices):
        if index in own:
            bits[place] = own[index]
    return CandidateScores(question.format_id, "sample", question.index_array(indices), bits)


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
    scored = yield from score_in_batches(question.members, texts, f"Scoring {len(texts):,} references")
    # Whether a text has a number is decided by the text, so those that have one are still independent draws like the canary.
    known = [place for place in range(len(texts)) if place not in scored.problems]
    scores = scored.bits[known]
    estimates = reference_exposures(
        question.canary_scores,
        scores,
        question.options.confidence,
        canary_ids=question.canary_ids,
        size=question.format.size,
    )
    estimates = _without(estimates, len(scored.problems), f"{len(texts):,} references")
    indices = question.places([texts[place] for place in known])
    ranks = 1 + np.searchsorted(np.sort(scores), question.canary_scores, side="right")
    return Measured(
        estimates=estimates,
        candidates=CandidateScores(question.format_id, "reference", indices, scores),
        ranks=[int(rank) for rank in ranks],
    )


def _without(estimates: list[Estimate], missing: int, of: str) -> list[Estimate]:
    """The same with a warning where some that canaries were compared with have no number, and were left out."""
    warning = f"{missing:,} of {of} have no number by this model, and were left out"
    return [warned(one, warning) for one in estimates] if missing else estimates
