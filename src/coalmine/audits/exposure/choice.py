"""The estimator that `auto` takes: the exact rank if time allows at the measured speed of the model, else an estimate."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from coalmine.audits.exposure.estimators import BOUNDED, EXACT, GUIDED, SPLITTING
from coalmine.audits.exposure.ranked import SCORED_UP_TO
from coalmine.audits.exposure.splitting import expected_scores
from coalmine.engines.courses import Course, CourseStep, one_result
from coalmine.engines.units import Arrays, Running, Unit
from coalmine.errors import NoNumberError
from coalmine.progress import duration
from coalmine.search.walks.enumeration import enumerate_members, walked_costs
from coalmine.search.walks.frontier import Frontier
from coalmine.search.walks.members import Members
from coalmine.search.walks.works import MembersWork

# How long the model is timed before its speed is trusted.
PROBE_SECONDS = 0.5
# Rows per batch while timing: a slow model would take minutes for a few batches of the usual size.
PROBE_ROWS, PROBE_TEXTS = 256, 64
# Few models take more steps than this per second; a space that would take too long even then is not worth a probe.
FASTEST = 500_000
# From so many steps on, and where at most this share of the members can rank before a canary, which a few of them show, it is worth
# leaving out the text after the holes of all others, and with it their scores.
WORTH_PROVING, MOST_READ, ENDINGS_DRAWN = 4096, 0.5, 100


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


def chosen_method(
    members: Members, seconds: float, budget: int, first_members: int, most_bits: float
) -> Course[Choice]:
    """The method for one format, as `choose` finds it."""
    unit = Unit((seconds, budget, first_members, most_bits))
    step = CourseStep(Choosing(members), [unit], "Measuring the speed of the model", 1)
    found = yield from one_result(step)
    return msgspec.msgpack.decode(found["choice"].tobytes(), type=Choice)


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
        most, warm_up, done = SCORED_UP_TO, 1, _scored(members)
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


def _scored(members: Members) -> Iterator[int]:
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
