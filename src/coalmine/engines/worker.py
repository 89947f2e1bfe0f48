"""A worker: prepares each work once, runs one unit after the other, and sends progress, states and results to the driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from coalmine.engines.failures import foreign_failure, run_unit
from coalmine.engines.ledger import Keeping
from coalmine.engines.scheduling import Advanced, Ended, Kept, Message, Order, Unprepared
from coalmine.engines.threads import computing_threads
from coalmine.engines.units import Arrays, Run, Work, read_only
from coalmine.errors import CoalmineError

# Progress is sent at most this often.
SECONDS_BETWEEN_REPORTS = 0.1


class Worker:
    """Runs units for a driver that is elsewhere."""

    def __init__(
        self, number: int, threads: int, send: Callable[[Message], None], stopping: Callable[[], bool]
    ) -> None:
        self._number, self._threads = number, threads
        self._send, self._stopping = send, stopping
        self._works: Sequence[Work] = ()
        self._runs: dict[int, Run] = {}

    def begin(self, works: Sequence[Work]) -> None:
        """Orders from now on are for these works; what was prepared for others is released."""
        self._works, self._runs = works, {}

    def run(self, order: Order) -> None:
        """Run a unit, and send what became of it."""
        with computing_threads(self._threads):
            try:
                if order.job not in self._runs:
                    self._runs[order.job] = self._works[order.job].prepare()
            except CoalmineError as problem:
                self._send(Unprepared(self._number, problem))
                return
        with computing_threads(self._threads):  # again: preparing may have imported torch
            self._send(self._ended(order))

    def _ended(self, order: Order) -> Ended:
        running = _Sending(self._number, order, self._send, self._stopping)
        try:
            arrays = run_unit(self._runs[order.job], order.unit, running)
        except KeyboardInterrupt as stop:
            if self._stopping():
                return Ended(self._number, None, None)
            problem = foreign_failure(stop)
            if problem is None:
                raise
            return Ended(
                self._number, None, problem
            )  # no signal comes here; without a reason, the unit would vanish
        except CoalmineError as problem:
            return Ended(self._number, None, problem)
        running.report()
        return Ended(self._number, arrays, None)


class _Sending:
    """A unit that runs in a worker."""

    def __init__(
        self, number: int, order: Order, send: Callable[[Message], None], stopping: Callable[[], bool]
    ) -> None:
        self._number, self._kept, self._send, self._stopping = number, read_only(order.kept), send, stopping
        self._keeping = Keeping(order.seconds, lambda arrays: send(Kept(number, arrays)))
        self._amount, self._note = 0, ""
        self._reported_at = time.monotonic()

    def advance(self, amount: int = 1, note: str = "") -> None:
        self._amount += amount
        self._note = note or self._note
        if time.monotonic() - self._reported_at >= SECONDS_BETWEEN_REPORTS:
            self.report()
        if self._stopping():
            raise KeyboardInterrupt

    def report(self) -> None:
        """Send the progress since the last report."""
        if self._amount:
            self._send(Advanced(self._number, self._amount, self._note))
        self._amount, self._reported_at = 0, time.monotonic()

    def kept(self) -> Arrays | None:
        return self._kept

    def keep(self, state: Callable[[], Arrays]) -> None:
        stopping = self._stopping()
        self._keeping.keep(state, now=stopping)
        if stopping:
            raise KeyboardInterrupt
