"""The engine `processes:N`: units run in N processes of this machine, each with its own interpreter and one thread.

Processes are never forked from the driver, so that no lock of a library is copied while it is held. Where that is safe they are forked
from a process that has imported what the driver has, done nothing else, and ends with the driver; that takes a moment where a new
interpreter takes seconds. Else they are spawned. Weights of torch models are put into shared memory, where the platform has it, so that
N workers hold them once.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, Self

from coalmine.engines.memory import check_memory
from coalmine.engines.scheduling import Lost, Message, Order, PooledEngine
from coalmine.engines.sending import packed
from coalmine.engines.threads import threads_of_new_processes
from coalmine.engines.units import Work
from coalmine.engines.worker import Worker
from coalmine.errors import InputError
from coalmine.pages import keep_pages
from coalmine.storage.files import write_error

# How long a worker may take to end by itself when the engine is closed.
_END_SECONDS = 1.0
# Where memory that processes share is a file, on most systems.
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a name for a message
# What takes long to import, and starts no thread.
_SLOW_IMPORTS = ("numpy", "torch", "transformers.modeling_utils")


class Processes(PooledEngine):
    """Runs units in processes of this machine.

    >>> Processes(2).workers
    2
    """

    def __init__(self, workers: int, *, threads: int = 1, unit_minutes: float | None = None) -> None:
        super().__init__(threads=threads, unit_minutes=unit_minutes)
        if workers < 1:
            raise InputError(f"the engine processes needs at least 1 worker, got {workers}")
        self.workers = workers
        self._pool: _ProcessPool | None = None

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        super().__exit__(*raised)

    @property
    def pool(self) -> _ProcessPool:
        """The workers, each of which is started with its first unit."""
        if self._pool is None:
            self._pool = _ProcessPool(self.workers, self.threads)
        return self._pool

    def check(self, works: Sequence[Work]) -> None:
        """Reject more workers than memory allows."""
        check_memory(self.workers, max((work.memory_bytes for work in works), default=0))


class _Bug(NamedTuple):
    """An exception that coalmine did not raise on purpose."""

    traceback: str


class _OneProcess:
    """A process, and the connection to it."""

    def __init__(self, number: int, threads: int, stopping: Any) -> None:
        context = _context(threads)
        self.connection, theirs = context.Pipe()
        with threads_of_new_processes(threads):
            self.process: BaseProcess = context.Process(
                target=_main,
                args=(number, threads, dict(os.environ), theirs, stopping),
                daemon=True,
                name=f"coalmine-{number}",
            )
            # The terminal sends Ctrl-C to the new process too, which inherits that it is blocked; else it would show a traceback.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                self.process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self.knows_works = False

    def lost_reason(self) -> str:
        """How the process ended."""
        self.process.join(_END_SECONDS)
        code = self.process.exitcode
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                return f"it was ended by {signal.Signals(-code).name}"
        return f"it ended with code {code}"

    def end(self, seconds: float = _END_SECONDS) -> None:
        """End the process, by force if it takes longer than this."""
        self.connection.close()
        self.process.join(seconds)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.process.close()


class _ProcessPool:
    """Processes that each run one unit at a time; each is started with its first unit, and one that dies is replaced."""

    def __init__(self, workers: int, threads: int) -> None:
        self.workers, self._threads = workers, threads
        self._stopping = _shared_byte()
        self._works: Sequence[Work] = ()
        self._processes: dict[int, _OneProcess] = {}

    def begin(self, works: Sequence[Work]) -> None:
        self._works = works
        self._stopping.value = 0
        for one in self._processes.values():
            one.knows_works = False

    def ready(self, worker: int) -> bool:  # noqa: ARG002 - a new process takes orders from its start
        return True

    def give(self, worker: int, order: Order) -> None:
        if worker not in self._processes:
            self._start(worker)
        one = self._processes[worker]
        with contextlib.suppress(BrokenPipeError, ConnectionError):  # it died: the next messages say so
            if not one.knows_works:
                one.connection.send_bytes(packed(self._works))
                one.knows_works = True
            one.connection.send(order)

    def messages(self, seconds: float) -> list[Message]:
        connections: dict[Any, int] = {one.connection: number for number, one in self._processes.items()}
        found: list[Message] = []
        for ready in multiprocessing.connection.wait(list(connections), seconds):
            found += self._received(connections[ready])
        return found

    def stop_units(self) -> None:
        self._stopping.value = 1

    def replace(self, worker: int) -> None:
        one = self._processes[worker]
        one.process.kill()
        one.end()
        self._start(worker)

    def close(self) -> None:
        """End all processes."""
        self._stopping.value = 1
        for one in self._processes.values():
            one.connection.close()
        end = time.monotonic() + _END_SECONDS  # for all of them: they end at the same time
        for one in self._processes.values():
            one.end(max(0.0, end - time.monotonic()))
        self._processes = {}

    def _start(self, worker: int) -> None:
        self._processes[worker] = _OneProcess(worker, self._threads, self._stopping)

    def _received(self, number: int) -> list[Message]:
        one = self._processes[number]
        try:
            message = one.connection.recv()
        except (EOFError, OSError):
            reason = one.lost_reason()
            one.end()
            self._start(number)
            return [Lost(number, reason)]
        if isinstance(message, _Bug):
            raise RuntimeError(f"a worker failed:\n{message.traceback}")  # noqa: TRY004 - a bug, not a wrong type
        return [message]


def _context(threads: int) -> ForkServerContext | SpawnContext:
    """How processes are started. Libraries that compute with several threads may start them on import, and a fork would lose these."""
    if sys.platform != "linux" or threads > 1:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *(name for name in _SLOW_IMPORTS if name in sys.modules)])
    return context


def _shared_byte() -> Any:
    """A byte without a lock: a worker that is killed while it holds a lock would leave it locked."""
    try:
        return multiprocessing.get_context("spawn").RawValue("b", 0)
    except OSError as error:
        place = _SHARED_MEMORY if os.path.isdir(_SHARED_MEMORY) else tempfile.gettempdir()  # noqa: PTH112 - as multiprocessing does
        raise write_error(f"{place}, where workers share memory,", error, "no worker was started") from error


def _main(
    number: int, threads: int, environment: dict[str, str], connection: Connection, stopping: Any
) -> None:
    """A process: it runs what it is given until the driver closes the connection, or is gone."""
    # What it was forked from has the environment of an earlier moment.
    os.environ.clear()
    os.environ.update(environment)
    # The terminal sends Ctrl-C to all processes; the driver says what is to be done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    keep_pages()
    threading.Thread(target=_end_with_driver, daemon=True).start()
    worker = Worker(number, threads, connection.send, lambda: bool(stopping.value))
    try:
        while True:
            received = _received(connection)
            if isinstance(received, Order):
                worker.run(received)
            else:
                worker.begin(received)
    except BaseException:  # noqa: BLE001 - a bug in the work; the driver shows it, if it is there
        with contextlib.suppress(OSError):
            connection.send(_Bug(traceback.format_exc()))
        os._exit(1)


def _received(connection: Connection) -> Any:
    try:
        return connection.recv()
    except (EOFError, ConnectionError):
        os._exit(0)  # the driver has ended


def _end_with_driver() -> None:
    """End this process as soon as the driver is gone, whatever its unit does: it may never return."""
    driver = multiprocessing.parent_process()
    if driver is not None:
        multiprocessing.connection.wait([driver.sentinel])
        os._exit(0)
