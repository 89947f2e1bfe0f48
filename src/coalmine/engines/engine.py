"""Engines: what runs units of work, and the choice of one by its name."""

from __future__ import annotations

import contextlib
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Self

from coalmine.engines.ledger import Ledger
from coalmine.engines.options import NAMES
from coalmine.engines.threads import computing_threads
from coalmine.engines.units import Arrays, Outcome, Unit, Work
from coalmine.errors import InputError
from coalmine.progress import Progress

Store = Callable[[Unit, Arrays], Arrays]


class Job(NamedTuple):
    """Units of one work, and how their results are stored, if not in the ledger."""

    work: Work
    units: Iterable[Unit]
    store: Store | None = None

    def stored(self, unit: Unit, arrays: Arrays) -> Arrays:
        """What the ledger keeps of a result."""
        return arrays if self.store is None else self.store(unit, arrays)


class Engine(ABC):
    """Runs units of work, in this process or elsewhere; every engine gives the same results, to the last bit.

    An engine is opened as a context manager, and can run one map after the other while it is open.

    Attributes:
        threads: how many threads each worker computes with. Another number may change the last bits of results.
        unit_minutes: how long a unit may take before its worker is ended; None for as long as it needs.
    """

    def __init__(self, *, threads: int = 1, unit_minutes: float | None = None) -> None:
        if threads < 1:
            raise InputError(f"threads must be a whole number of at least 1, got {threads}")
        if unit_minutes is not None and not 0 < unit_minutes < math.inf:
            raise InputError(f"the minutes of a unit must be a number above 0, got {unit_minutes}")
        self.threads, self.unit_minutes = threads, unit_minutes
        self._held = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._held.enter_context(computing_threads(self.threads))
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def map(
        self,
        work: Work,
        units: Iterable[Unit],
        *,
        ledger: Ledger | None = None,
        progress: Progress | None = None,
        store: Store | None = None,
    ) -> Iterator[Outcome]:
        """What became of each unit, as it arrives; `in_order` restores the order of the units.

        Units whose result is in the ledger are not run again. Ctrl-C raises KeyboardInterrupt within seconds; what running units could
        keep by then is in the ledger. The progress is advanced by the sizes of the units; the caller starts and finishes it. With
        `store`, a large result is put where it belongs, in this process, and the ledger keeps only what that returns.
        """
        jobs = [Job(work, units, store)]
        return (outcome for _, outcome in self.map_each(jobs, ledger=ledger, progress=progress))

    @abstractmethod
    def map_each(
        self, jobs: Sequence[Job], *, ledger: Ledger | None = None, progress: Progress | None = None
    ) -> Iterator[tuple[int, Outcome]]:
        """The same for several works at once: the place of the job, and the outcome of one of its units."""


@contextlib.contextmanager
def open_engine(
    engine: Engine | str | None, *, threads: int = 1, unit_minutes: float | None = None
) -> Iterator[Engine]:
    """An engine by its name, closed at the end of the block; one that the caller opened stays open.

    >>> with open_engine("here") as engine:
    ...     type(engine).__name__
    'Here'
    """
    if isinstance(engine, Engine):
        yield engine
        return
    name = "here" if engine is None else engine
    with engine_named(name, threads=threads, unit_minutes=unit_minutes) as opened:
        yield opened


def engine_named(name: str, *, threads: int = 1, unit_minutes: float | None = None) -> Engine:
    """An engine that is not open yet; an InputError for a name that there is not."""
    kind, colon, detail = name.partition(":")
    if colon and not detail:  # as in "processes:$N" where N is empty
        raise InputError(f"the engine {name!r} ends with a colon; known are {NAMES}")
    if kind == "here" and not detail:
        from coalmine.engines.here import Here

        if unit_minutes is not None:
            raise InputError(
                "the engine here runs units in this process, and cannot end one that takes too long; leave unit_minutes out, or use "
                "the engine processes:N"
            )
        return Here(threads=threads)
    if kind == "processes":
        from coalmine.engines.processes import Processes

        if detail and (not detail.isascii() or not detail.isdigit() or not int(detail)):
            raise InputError(
                f"the engine processes:N needs a number of workers, such as processes:4, got {name!r}"
            )
        workers = int(detail) if detail else available_cores()
        return Processes(workers, threads=threads, unit_minutes=unit_minutes)
    if kind == "ray":
        from coalmine.engines.ray import Ray

        return Ray(detail or None, threads=threads, unit_minutes=unit_minutes)
    raise InputError(f"unknown engine {name!r}: known are {NAMES}")


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
