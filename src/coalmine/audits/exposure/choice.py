"""The estimator that `auto` takes: the exact rank if time allows at the measured speed of the model, else an estimate."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from coalmine.audits.exposure.estimators import automatic
from coalmine.audits.exposure.ranked import SCORED_UP_TO
from coalmine.audits.exposure.results import Choice, duration
from coalmine.audits.exposure.splitting import expected_scores
from coalmine.engines.courses import Course, CourseStep, one_result
from coalmine.engines.units import Arrays, Running, Unit
from coalmine.search.walks.enumeration import enumerate_members
from coalmine.search.walks.members import Members
from coalmine.search.walks.works import MembersWork

# How long the model is timed before its speed is trusted.
PROBE_SECONDS = 0.5
# Rows per batch while timing: a slow model would take minutes for a few batches of the usual size.
PROBE_ROWS, PROBE_TEXTS = 256, 64
# Few models take more steps than this per second; a space that would take too long even then is not worth a probe.
FASTEST = 500_000

# What is taken where all members can be ranked in time, and where they cannot.
RANK_ALL, WALK, SCORE = automatic("all members"), automatic("incremental decoding"), automatic("scores")

Clock = Callable[[], float]


class Choosing(MembersWork):
    """The choice for one format, as a unit of work: a run that was stopped chooses as before, whatever the clock says now."""

    name = "choose/1"

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Choose for the seconds, the first members of splitting and the budget of the unit."""
        del running
        seconds, first_members, budget = unit.inputs
        found = choose(self.members, seconds=seconds, first_members=first_members, budget=budget)
        return {"choice": np.frombuffer(msgspec.msgpack.encode(found), dtype=np.uint8)}


def chosen(members: Members, *, seconds: float, first_members: int, budget: int) -> Course[Choice]:
    """The method for one format, as `choose` finds it."""
    unit = Unit((seconds, first_members, budget))
    found = yield from one_result(
        CourseStep(Choosing(members), [unit], "Measuring the speed of the model", 1)
    )
    return msgspec.msgpack.decode(found["choice"].tobytes(), type=Choice)


def choose(
    members: Members,
    *,
    seconds: float,
    first_members: int = SCORE.samples,
    budget: int,
    clock: Clock | None = None,
) -> Choice:
    """The method for one format that may take about `seconds`, where guided draws would cost `budget` expansions or more.

    Where an estimate would cost the model as much work as the exact rank, exact is taken without looking at the clock.
    """
    clock = time.perf_counter if clock is None else clock
    if members.obstacle is not None:
        return _choose_by_scores(members, members.obstacle, seconds, first_members, clock)
    size = members.format.size
    frontier = members.frontier("the exact method", "use another method", batch=PROBE_ROWS, leave_out=True)
    steps = frontier.tree.inner_nodes
    if steps <= budget:
        return Choice(
            method=RANK_ALL.name, why=f"the space has {size:,} members, few enough to rank them all"
        )
    estimated = "small ranks are proven, larger ones estimated"
    if steps > seconds * FASTEST:
        return Choice(method=WALK.name, why=f"the space has {size:,} members: {estimated}")

    def walked() -> Iterator[int]:
        for _ in enumerate_members(frontier):
            yield frontier.expansions

    rate = _rate(walked(), PROBE_ROWS // 2, clock)
    allowed = duration(seconds)
    if steps <= seconds * rate:
        why = f"all {size:,} members can be ranked within the {allowed} allowed"
        return Choice(method=RANK_ALL.name, why=why, steps=steps, steps_per_second=rate)
    why = f"ranking all {size:,} members would take more than the {allowed} allowed: {estimated}"
    return Choice(method=WALK.name, why=why, steps=steps, steps_per_second=rate)


def _choose_by_scores(
    members: Members,
    obstacle: str,
    seconds: float,
    first_members: int,
    clock: Clock,
) -> Choice:
    """The same for a model that can only score."""
    size = members.format.size
    if size <= expected_scores(math.log2(size), first_members):
        return Choice(
            method=RANK_ALL.name, why=f"the space has {size:,} members, few enough to score each ({obstacle})"
        )
    if size > SCORED_UP_TO:
        return Choice(method=SCORE.name, why=f"{size:,} members are too many to score each ({obstacle})")

    def scored() -> Iterator[int]:
        for done in range(0, min(size, 64 * PROBE_TEXTS), PROBE_TEXTS):
            members.score_each([members.format.at(done + place) for place in range(PROBE_TEXTS)])
            yield done + PROBE_TEXTS

    rate = _rate(scored(), 1, clock)
    allowed = duration(seconds)
    if size <= seconds * rate:
        why = f"all {size:,} members can be scored within the {allowed} allowed ({obstacle})"
        return Choice(method=RANK_ALL.name, why=why, steps=size, steps_per_second=rate)
    why = f"scoring all {size:,} members would take more than the {allowed} allowed ({obstacle})"
    return Choice(method=SCORE.name, why=why, steps=size, steps_per_second=rate)


def _rate(steps_done: Iterator[int], warm_up: int, clock: Clock) -> float:
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
