"""The engine `here`: units run one after the other in this process; nothing is started, and nothing else is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from coalmine.engines.engine import Engine, Job
from coalmine.engines.failures import run_unit
from coalmine.engines.ledger import Keeping, Ledger
from coalmine.engines.units import Arrays, Key, Outcome, Run, Unit, facts_digest, loaded, read_only, unit_key
from coalmine.errors import CoalmineError, WriteError
from coalmine.interrupts import deferred_interrupt
from coalmine.progress import Progress, Silent


class Here(Engine):
    """Runs units in this process.

    >>> with Here() as engine:
    ...     engine.threads
    1
    """

    def map_each(
        self, jobs: Sequence[Job], *, ledger: Ledger | None = None, progress: Progress | None = None
    ) -> Iterator[tuple[int, Outcome]]:
        """One unit after the other, in the order given."""
        book, shown = ledger or Ledger(), progress or Silent()
        with deferred_interrupt() as interrupted:
            for place, job in enumerate(jobs):
                digest, run = facts_digest(job.work), None
                for number, unit in enumerate(job.units):
                    if interrupted():
                        raise KeyboardInterrupt
                    key = unit_key(digest, unit)
                    known = book.result(key)
                    if known is not None:
                        shown.advance(unit.size)
                        yield place, Outcome(number, unit._replace(payload=None), known, attempts=0)
                        continue
                    run = run or job.work.prepare()
                    yield place, _run(run, job, number, unit, _RunningHere(book, key, shown, interrupted))


class _RunningHere:
    """A unit that runs in this process."""

    def __init__(self, ledger: Ledger, key: Key, progress: Progress, interrupted: Callable[[], bool]) -> None:
        self._ledger, self.key, self._progress, self._interrupted = ledger, key, progress, interrupted
        self._keeping = Keeping(ledger.seconds_between_saves, lambda arrays: ledger.keep(key, arrays))
        self._advanced = 0

    def advance(self, amount: int = 1, note: str = "") -> None:
        self._advanced += amount
        self._progress.advance(amount, note)
        if self._interrupted():
            raise KeyboardInterrupt

    def kept(self) -> Arrays | None:
        return read_only(self._ledger.kept(self.key))

    def keep(self, state: Callable[[], Arrays]) -> None:
        stopping = self._interrupted()
        self._keeping.keep(state, now=stopping)
        if stopping:
            raise KeyboardInterrupt

    def end(self, unit: Unit, arrays: Arrays | None) -> None:
        """Record the result; the progress that the unit did not report itself is reported now.

        What a unit kept before it failed stays: the same command may have more luck, with an endpoint for example.
        """
        if arrays is not None:
            self._ledger.add(self.key, arrays)
        self._progress.advance(max(0, unit.size - self._advanced))


def _run(run: Run, job: Job, number: int, unit: Unit, running: _RunningHere) -> Outcome:
    try:
        whole = loaded(unit)
        arrays = job.stored(whole, run_unit(run, whole, running))
    except WriteError:
        raise  # what the unit kept could not be written; the unit itself did not fail
    except CoalmineError as problem:
        running.end(unit, None)
        return Outcome(number, unit._replace(payload=None), None, problem)
    running.end(unit, arrays)
    return Outcome(number, unit._replace(payload=None), arrays)
