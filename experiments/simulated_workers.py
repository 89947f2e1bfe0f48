"""The scheduler of the engines against simulated workers, in simulated time.

Which unit goes where, what is retried and what is given up is decided by `coalmine/engines/scheduling.py` itself; only the pool of its
workers, the network and the clock are simulated.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from coalmine.engines.scheduling import Ended, Lost, Message, Order, PooledEngine
from coalmine.engines.units import Arrays, Run, Running, Unit, Work
from coalmine.randomness import arrays

# Until the worker that replaces a lost one can be given units: a process or an actor starts, and loads the model.
REPLACE_SECONDS = 60.0
# Shares of the units between which the throughput is counted: neither the start nor the end of a run.
STEADY = (0.25, 0.75)
# A resource that is busy for this share of the time is the bottleneck; workers that compute for this share are well fed.
BUSY, WELL = 0.95, 0.9


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """What a unit costs apart from its work, in seconds.

    Attributes:
        give: in the driver, before it runs: key, packing, sending.
        take: in the driver, after it ran: receiving and recording.
        per_byte: in the driver, for each byte of the unit and of its result.
        record_per_byte: in the driver, for each byte of the result.
        beside: outside of the driver: unpacking, waking up and packing in the worker.
        look, look_per_worker: in the driver, each time that it looks for messages.
        report: in the driver, for each report on the progress of a unit.
        polls: reports are asked for, at most 200 a second; otherwise each worker sends up to ten a second.
    """

    give: float
    take: float
    per_byte: float
    record_per_byte: float
    beside: float
    look: float
    look_per_worker: float
    report: float
    polls: bool


class Setting(NamedTuple):
    """What is simulated."""

    costs: Costs
    workers: int
    failures_per_hour: float = 0.0
    gigabits: float = 10.0
    unit_bytes: int = 100_000
    result_bytes: int = 10_000
    replace_seconds: float = REPLACE_SECONDS


class Nothing(NamedTuple):
    """The work of simulated workers, which is never run."""

    name: str = "simulated/1"
    facts: int = 0
    memory_bytes: int = 0

    def prepare(self) -> Run:
        """There is no function to run."""
        raise NotImplementedError

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Not run."""
        raise NotImplementedError


class SimulatedPool:
    """Workers, the network and the driver in simulated time; the payload of a unit is how many seconds it takes."""

    def __init__(self, setting: Setting, seed: int, unit_seconds: float, *, stagger: bool) -> None:
        self.workers, self.now = setting.workers, 0.0
        self.driver_busy = self.out_busy = self.in_busy = self.work_done = 0.0
        self._setting, self._costs = setting, setting.costs
        self._draw = arrays(seed, "scheduling", "failures")
        begin = arrays(seed, "scheduling", "starts").uniform(0, unit_seconds, self.workers)
        self._ready_at: list[float] = begin.tolist() if stagger else [0.0] * self.workers
        self._dies_at = [self._lifetime() + at for at in self._ready_at]
        self._ended: list[
            tuple[float, int, float]
        ] = []  # when, worker, seconds of work; negative if it was lost
        self._arrived: list[tuple[float, int, float]] = []
        self._out_free = self._in_free = 0.0
        self.reporting = min(0.9, self._reports_per_second(unit_seconds) * self._costs.report)

    def begin(self, works: Sequence[Work]) -> None:
        """Nothing: works are known."""

    def ready(self, worker: int) -> bool:
        """Whether a worker has started."""
        return self._ready_at[worker] <= self.now

    def give(self, worker: int, order: Order) -> None:
        """The unit goes through the network to the worker, which runs it or dies."""
        self._spend(self._costs.give + self._setting.unit_bytes * self._costs.per_byte)
        sending = self._on_link(self._setting.unit_bytes)
        self._out_free, self.out_busy = max(self.now, self._out_free) + sending, self.out_busy + sending
        seconds = float(order.unit.payload)
        end = self._out_free + self._costs.beside + seconds
        died = self._dies_at[worker]
        heapq.heappush(
            self._ended, (end, worker, seconds) if end <= died else (max(died, self.now), worker, -1.0)
        )

    def messages(self, seconds: float) -> list[Message]:
        """All that has arrived; time passes until something does."""
        self._spend(self._costs.look + self._costs.look_per_worker * self.workers)
        self._receive()
        if not self._arrived or self._arrived[0][0] > self.now:
            following = [at for at, *_ in (*self._ended[:1], *self._arrived[:1])]
            self.now = min([self.now + seconds, *(max(self.now, at) for at in following)])
            self._receive()
        found: list[Message] = []
        while self._arrived and self._arrived[0][0] <= self.now:
            at, worker, worked = heapq.heappop(self._arrived)
            if worked < 0:
                self._ready_at[worker] = max(self.now, at + self._setting.replace_seconds)
                self._dies_at[worker] = self._ready_at[worker] + self._lifetime()
                found.append(Lost(worker, "simulated"))
            else:
                self.work_done += worked
                found.append(Ended(worker, {}, None))
        size = self._setting.result_bytes
        for message in found:
            bytes_cost = size * (self._costs.per_byte + self._costs.record_per_byte)
            self._spend(self._costs.take + (bytes_cost if isinstance(message, Ended) else 0.0))
        return found

    def stop_units(self) -> None:
        """Not asked for: simulations run to their ends."""

    def replace(self, worker: int) -> None:
        """Not asked for."""

    def _receive(self) -> None:
        """Results that are ready by now go through the network one after the other."""
        while self._ended and self._ended[0][0] <= self.now:
            at, worker, worked = heapq.heappop(self._ended)
            if worked >= 0:
                sending = self._on_link(self._setting.result_bytes)
                self._in_free, self.in_busy = max(at, self._in_free) + sending, self.in_busy + sending
                at = self._in_free
            heapq.heappush(self._arrived, (at, worker, worked))

    def _spend(self, seconds: float) -> None:
        self.now += seconds / (1 - self.reporting)
        self.driver_busy += seconds

    def _on_link(self, size: int) -> float:
        return size * 8 / (self._setting.gigabits * 1e9)

    def _lifetime(self) -> float:
        rate = self._setting.failures_per_hour / 3600
        return float(self._draw.exponential(1 / rate)) if rate else float("inf")

    def _reports_per_second(self, unit_seconds: float) -> float:
        if self._costs.polls:
            interval = max(0.5, self.workers / 200)
            return self.workers / interval if unit_seconds > interval else 0.0
        return 10.0 * self.workers if unit_seconds > 0.1 else 0.0


class SimulatedEngine(PooledEngine):
    """The real scheduler, with simulated workers."""

    def __init__(self, simulated: SimulatedPool) -> None:
        super().__init__()
        self._simulated = simulated

    @property
    def pool(self) -> SimulatedPool:
        """The workers."""
        return self._simulated


class Simulated(NamedTuple):
    """What came of a simulation; shares are of the time between the two ends of the steady part."""

    seconds: float
    throughput: float
    efficiency: float
    driver_busy: float
    link_busy: float
    tries: float
    given_up: float

    @property
    def bottleneck(self) -> str:
        """What keeps workers waiting, if they wait for more than a tenth of their time."""
        if self.efficiency > WELL:
            return "none"
        if self.driver_busy > BUSY:
            return "driver"
        return "network" if self.link_busy > BUSY else "failures"


def simulate(
    setting: Setting, durations: Sequence[float], seed: int = 0, *, stagger: bool = True
) -> Simulated:
    """Run units of these durations."""
    pool = SimulatedPool(setting, seed, float(np.mean(durations)), stagger=stagger)
    marks, tries, lost = [int(share * len(durations)) for share in STEADY], 0, 0
    begun = ended = np.zeros(5)
    units = (Unit(number, seconds) for number, seconds in enumerate(durations))
    with SimulatedEngine(pool) as engine:
        for number, outcome in enumerate(engine.map(Nothing(), units)):
            tries, lost = tries + outcome.attempts, lost + (outcome.arrays is None)
            if number in marks:
                found = np.array([pool.now, pool.work_done, pool.driver_busy, pool.out_busy, pool.in_busy])
                begun, ended = (found, found) if number == marks[0] else (begun, found)
    window, work, driver, sent, received = (ended - begun).tolist()
    return Simulated(
        seconds=pool.now,
        throughput=(marks[1] - marks[0]) / window,
        efficiency=work / window / setting.workers,
        driver_busy=driver / window + pool.reporting,
        link_busy=max(sent, received) / window,
        tries=tries / len(durations),
        given_up=lost / len(durations),
    )
