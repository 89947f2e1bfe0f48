"""Units given to a pool of workers: retried if a worker is lost, stopped on Ctrl-C, recorded as they arrive.

A pool only carries messages to and from its workers; which unit runs where, what is retried and what is kept is decided here, for every
kind of pool.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from coalmine.engines.engine import Engine, Job
from coalmine.engines.ledger import Ledger
from coalmine.engines.units import (
    Arrays,
    Key,
    MayStayHere,
    Outcome,
    Unit,
    Work,
    facts_digest,
    loaded,
    unit_key,
)
from coalmine.errors import CoalmineError, InputError, WorkerLostError
from coalmine.interrupts import deferred_interrupt
from coalmine.progress import Progress, Silent

# A unit whose worker was lost is run again, at most this often in all.
ATTEMPTS = 3
# How long workers that were asked to stop may take to send what they keep.
STOP_SECONDS = 5.0
# How long the driver waits for a message before it looks for Ctrl-C.
LOOK_SECONDS = 0.2
_ADVICE = "give the workers more memory or use fewer of them, and run the same command to resume"


class Advanced(NamedTuple):
    """A worker reports progress."""

    worker: int
    amount: int
    note: str


class Kept(NamedTuple):
    """A worker sends the state that its unit resumes from."""

    worker: int
    arrays: Arrays


class Ended(NamedTuple):
    """A unit is over: with a result, with a problem, or with neither because it was asked to stop."""

    worker: int
    arrays: Arrays | None
    problem: CoalmineError | None


class Lost(NamedTuple):
    """A worker is gone, with what it was doing; another one has its number now."""

    worker: int
    reason: str


class Unprepared(NamedTuple):
    """A worker cannot do this work at all, such as load the model."""

    worker: int
    problem: CoalmineError


Message = Advanced | Kept | Ended | Lost | Unprepared


class Order(NamedTuple):
    """What a worker is given: a unit, and what an earlier run of it kept. `seconds` is how often it keeps its state."""

    job: int
    unit: Unit
    kept: Arrays | None
    seconds: float


class Pool(Protocol):
    """Workers that each run one unit at a time, numbered from 0."""

    @property
    def workers(self) -> int:
        """How many there are."""

    def begin(self, works: Sequence[Work]) -> None:
        """Orders from now on are for these works, by their place."""

    def ready(self, worker: int) -> bool:
        """Whether a worker can be given a unit; one that was replaced may take a while, or wait for a free machine."""

    def give(self, worker: int, order: Order) -> None:
        """Let an idle worker run a unit."""

    def messages(self, seconds: float) -> list[Message]:
        """What workers have sent; waits for up to `seconds` if there is nothing."""

    def stop_units(self) -> None:
        """Ask the units that are running to keep their state and to end."""

    def replace(self, worker: int) -> None:
        """Put another worker in the place of one that does not stop; nothing that it still sends is a message."""


class _Assigned(NamedTuple):
    """A unit that a worker runs."""

    job: int
    number: int
    unit: Unit
    key: Key
    attempt: int

    def outcome(self, arrays: Arrays | None, problem: CoalmineError | None = None) -> Outcome:
        """What became of it."""
        return Outcome(self.number, self.unit._replace(payload=None), arrays, problem, self.attempt)


class PooledEngine(Engine):
    """An engine whose units run in other processes."""

    @property
    @abstractmethod
    def pool(self) -> Pool:
        """The workers; the engine must be open."""

    def map_each(
        self, jobs: Sequence[Job], *, ledger: Ledger | None = None, progress: Progress | None = None
    ) -> Iterator[tuple[int, Outcome]]:
        """Each idle worker gets the next unit; outcomes come in any order."""
        for job in jobs:
            _check_sendable(job.work)
        self.check([job.work for job in jobs])
        with deferred_interrupt() as interrupted:
            schedule = _Schedule(self.pool, jobs, ledger or Ledger(), progress or Silent(), interrupted)
            yield from schedule.run(self.unit_minutes)

    def check(self, works: Sequence[Work]) -> None:
        """Reject works that these workers cannot do, where it can be known before they start."""


def _check_sendable(work: Work) -> None:
    """Reject a work that only this process can do, which its records say."""
    if isinstance(work, MayStayHere) and work.only_here is not None:
        raise InputError(f"{work.only_here}; use the engine here")


class _Schedule:
    """One `map_each`, from its first unit to its last."""

    def __init__(
        self,
        pool: Pool,
        jobs: Sequence[Job],
        ledger: Ledger,
        progress: Progress,
        interrupted: Callable[[], bool],
    ) -> None:
        self._pool, self._jobs, self._ledger = pool, jobs, ledger
        self._progress, self._interrupted = progress, interrupted
        self._waiting = self._fresh()
        self._again: deque[_Assigned] = deque()
        self._running: dict[int, _Assigned] = {}
        self._advanced: dict[int, int] = {}
        self._given_at: dict[int, float] = {}
        self._lost_in_a_row = 0
        self._all_given = False
        self._unread: deque[Message] = deque()

    def run(self, unit_minutes: float | None = None) -> Iterator[tuple[int, Outcome]]:
        """Outcomes, as they arrive; a unit that takes longer than `unit_minutes` is ended."""
        self._pool.begin([job.work for job in self._jobs])
        try:
            while True:
                yield from self._fill()
                if self._all_given and not self._again and not self._running:
                    return
                yield from self._listen(LOOK_SECONDS)
                if unit_minutes is not None:
                    yield from self._end_long_units(unit_minutes)
                if self._interrupted():
                    raise KeyboardInterrupt
        finally:
            if self._running:  # the caller stopped, or an error did
                self._stop()

    def _fresh(self) -> Iterator[_Assigned]:
        """The units that were not tried yet, with their keys."""
        for place, job in enumerate(self._jobs):
            digest = facts_digest(job.work)
            for number, unit in enumerate(job.units):
                yield _Assigned(place, number, unit, unit_key(digest, unit), 1)

    def _fill(self) -> Iterator[tuple[int, Outcome]]:
        """Give each idle worker a unit; results that are known are outcomes at once."""
        idle = [
            worker
            for worker in range(self._pool.workers)
            if worker not in self._running and self._pool.ready(worker)
        ]
        while idle:
            if self._interrupted():
                raise KeyboardInterrupt
            following = self._again.popleft() if self._again else next(self._waiting, None)
            if following is None:
                self._all_given = True
                return
            known = self._ledger.result(following.key) if following.attempt == 1 else None
            if known is not None:
                self._progress.advance(following.unit.size)
                yield following.job, following.outcome(known)._replace(attempts=0)
                continue
            worker = idle.pop(0)
            following = following._replace(unit=loaded(following.unit))
            self._running[worker], self._advanced[worker] = following, 0
            self._given_at[worker] = time.monotonic()
            kept = self._ledger.kept(following.key)
            self._pool.give(
                worker, Order(following.job, following.unit, kept, self._ledger.seconds_between_saves)
            )

    def _messages(self, seconds: float) -> Iterator[Message]:
        """What workers say; messages that came with one at which the caller stopped are still there for the next call."""
        if not self._unread:
            self._unread.extend(self._pool.messages(seconds))
        while self._unread:
            yield self._unread.popleft()

    def _listen(self, seconds: float) -> Iterator[tuple[int, Outcome]]:
        for message in self._messages(seconds):
            assigned = self._running.get(message.worker)
            if isinstance(message, Unprepared):
                self._running.pop(message.worker, None)
                raise message.problem
            if assigned is None:
                self._note_loss(message)
            elif isinstance(message, Advanced):
                self._advanced[message.worker] += message.amount
                self._progress.advance(message.amount, message.note)
            elif isinstance(message, Kept):
                self._ledger.keep(assigned.key, message.arrays)
            elif isinstance(message, Lost):
                del self._running[message.worker]
                # The unit starts over, or from what it kept.
                self._progress.advance(-self._advanced[message.worker])
                self._note_loss(message)
                if assigned.attempt < ATTEMPTS:
                    self._again.append(assigned._replace(attempt=assigned.attempt + 1))
                else:
                    yield assigned.job, self._failed(assigned, message.worker, _lost(message.reason))
            else:
                del self._running[message.worker]
                self._lost_in_a_row = 0
                if message.arrays is not None:
                    arrays = self._recorded(assigned, message.arrays)
                    self._progress.advance(max(0, assigned.unit.size - self._advanced[message.worker]))
                    yield assigned.job, assigned.outcome(arrays)
                elif message.problem is not None:
                    yield assigned.job, self._failed(assigned, message.worker, message.problem)
                else:
                    raise RuntimeError("a unit ended without a result or a reason; please report this")

    def _end_long_units(self, minutes: float) -> Iterator[tuple[int, Outcome]]:
        """End the workers of units that take too long; the units would again, so they are not tried again."""
        now = time.monotonic()
        for worker in [one for one in self._running if now - self._given_at[one] > 60 * minutes]:
            self._pool.replace(worker)
            assigned = self._running.pop(worker)
            problem = WorkerLostError(
                f"a unit of work was ended because it took longer than {minutes:g} minutes; raise unit_minutes, and run the same command "
                "to resume"
            )
            yield assigned.job, self._failed(assigned, worker, problem)

    def _recorded(self, assigned: _Assigned, arrays: Arrays) -> Arrays:
        kept = self._jobs[assigned.job].stored(assigned.unit, arrays)
        self._ledger.add(assigned.key, kept)
        return kept

    def _failed(self, assigned: _Assigned, worker: int, problem: CoalmineError) -> Outcome:
        self._progress.advance(max(0, assigned.unit.size - self._advanced[worker]))
        return assigned.outcome(None, problem)

    def _note_loss(self, message: Message) -> None:
        """Workers that are lost one after the other, with no unit in between that ended, will not do better."""
        if isinstance(message, Lost):
            self._lost_in_a_row += 1
            if self._lost_in_a_row > ATTEMPTS * self._pool.workers:
                raise WorkerLostError(
                    f"{self._lost_in_a_row} workers were lost in a row before any of them finished a unit (the last: {message.reason}); "
                    f"{_ADVICE}"
                )

    def _stop(self) -> None:
        """Ask the running units to end, and record what they send in time; a worker that does not answer is replaced."""
        self._pool.stop_units()
        end = time.monotonic() + STOP_SECONDS
        while self._running and time.monotonic() < end:
            for message in self._messages(LOOK_SECONDS):
                assigned = self._running.get(message.worker)
                if assigned is None or isinstance(message, Advanced):
                    continue
                if isinstance(message, Kept):
                    self._ledger.keep(assigned.key, message.arrays)
                    continue
                if isinstance(message, Ended) and message.arrays is not None:
                    self._recorded(assigned, message.arrays)
                del self._running[message.worker]
        for worker in self._running:  # what it may still send would be taken for the result of its next unit
            self._pool.replace(worker)


def _lost(reason: str) -> WorkerLostError:
    return WorkerLostError(
        f"a unit of work was tried {ATTEMPTS} times, and its worker was lost each time ({reason}); {_ADVICE}"
    )
