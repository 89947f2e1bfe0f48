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
from coalmine.errors import NoNumberError
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

# What is taken where all members can be ranked in time, and where they cannot.
RANK_ALL, WALK, SCORE = automatic("all members"), automatic("incremental decoding"), automatic("scores")
PROVE = automatic("text after holes")

Clock = Callable[[], float]


class Choosing(MembersWork):
    """The choice for one format, as a unit of work: a run that was stopped chooses as before, whatever the clock says now."""

    name = "choose/2"

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Choose for the seconds, the first members of splitting, the budget and the most that a canary costs, in bits."""
        del running
        seconds, first_members, budget, most_bits = unit.inputs
        found = choose(
            self.members, seconds=seconds, first_members=first_members, budget=budget, most_bits=most_bits
        )
        return {"choice": np.frombuffer(msgspec.msgpack.encode(found), dtype=np.uint8)}


def chosen_method(
    members: Members, *, seconds: float, first_members: int, budget: int, most_bits: float
) -> Course[Choice]:
    """The method for one format, as `choose` finds it."""
    unit = Unit((seconds, first_members, budget, most_bits))
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
    most_bits: float = math.inf,
    clock: Clock | None = None,
) -> Choice:
    """The method for one format that may take about `seconds`, where guided draws would cost `budget` expansions or more.

    No canary costs more than `most_bits`. Where an estimate would cost the model as much work as the exact rank, exact is taken without
    looking at the clock.
    """
    clock = time.perf_counter if clock is None else clock
    if members.obstacle is not None:
        return _choose_by_scores(members, members.obstacle, seconds, first_members, clock)
    size = members.format.size
    frontier = members.frontier("the exact method", "use another method", batch=PROBE_ROWS, leave_out=True)
    steps = frontier.tree.inner_nodes
    if steps <= budget:
        why = f"the space has {size:,} members, few enough to rank them all"
        return _all_ranked(members, frontier, most_bits, Choice(method=RANK_ALL.name, why=why))
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
        all_of_them = Choice(method=RANK_ALL.name, why=why, steps=steps, steps_per_second=rate)
        return _all_ranked(members, frontier, most_bits, all_of_them)
    why = f"ranking all {size:,} members would take more than the {allowed} allowed: {estimated}"
    return Choice(method=WALK.name, why=why, steps=steps, steps_per_second=rate)


def _all_ranked(members: Members, frontier: Frontier, most_bits: float, choice: Choice) -> Choice:
    """The choice to rank all members, or to prove the same ranks where most steps would go into the text after the holes, in vain.

    A member that costs more than every canary before that text ranks behind them all, whatever follows.
    """
    tree = frontier.tree
    steps, endings = tree.inner_nodes, tree.endings
    if steps < WORTH_PROVING or endings <= steps / 2 or not math.isfinite(most_bits):
        return choice
    drawn = members.format.sample(ENDINGS_DRAWN, seed=0)
    try:
        before = walked_costs(frontier, [tree.index_of(text) for text in drawn], endings=False)
    except NoNumberError:
        return choice
    read = float(np.mean(before <= most_bits))
    if read > MOST_READ:
        return choice
    share = f"about {read:.0%}" if read else f"fewer than {1 / ENDINGS_DRAWN:.0%}"
    why = (
        f"text follows the holes, and ranking all {tree.size:,} members would read it for each; {share} of them can rank before a canary, "
        "so the same ranks are proven by bounds without the others"
    )
    return msgspec.structs.replace(choice, method=PROVE.name, why=why, steps=steps)


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
