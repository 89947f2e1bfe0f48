"""The workers of the engine `ray`: actors that are started, greeted, given units, asked how far they are, and replaced."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coalmine.engines.ray_parcels import Sender
from coalmine.engines.ray_worker import Bug, UnitWorker, facts_of_process
from coalmine.engines.scheduling import Lost, Message, Order
from coalmine.engines.sending import from_parts, in_parts
from coalmine.engines.threads import thread_variables
from coalmine.engines.units import Work
from coalmine.errors import InputError, WorkerLostError

# How long the first worker may take to start, and the others after one that did: they may wait for CPUs that others use.
START_SECONDS = 120.0
JOIN_SECONDS = 10.0
# How many workers may be lost while they start: Ray may still send one to a machine that has just left the cluster.
LOST_AT_START = 3
# How often a running unit is asked what it has to say; less often if there are many.
POLL_SECONDS = 0.5
_POLLS_PER_SECOND = 200
_LAST_POLL_SECONDS = 5.0


class RayPool:
    """Actors that each run one unit at a time; one that is lost is replaced."""

    def __init__(self, ray: Any, workers: int, threads: int) -> None:
        self.workers = workers
        self._ray = ray
        environment = {**thread_variables(threads), "PYTHONPATH": _python_path()}
        self._actor_class = ray.remote(UnitWorker).options(
            num_cpus=threads,
            max_concurrency=2,  # a unit, and the questions of the driver
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": environment},
        )
        self._threads = threads
        self._interval = max(POLL_SECONDS, workers / _POLLS_PER_SECOND)
        self._sender = Sender(ray, environment)
        self._works_number = 0
        self._alone_since: float | None = None
        self._owed: list[Message] = []
        self._actors = [self._started(number) for number in range(workers)]

    def begin(self, works: Sequence[Work]) -> None:
        """Put the works into the object store, from where each machine fetches once what it does not have."""
        self._works_number += 1
        self._sender.pack(works)

    def await_workers(self) -> None:
        """Wait until workers can be given units; those that could give other results are rejected."""
        waiting, changed_at, lost = self.workers, time.monotonic(), 0
        while waiting:
            if waiting < self.workers and time.monotonic() - changed_at > JOIN_SECONDS:
                return  # the others join when they can
            for message in self.messages(1.0):
                lost += isinstance(message, Lost)
                if isinstance(message, Lost) and lost > LOST_AT_START:
                    raise WorkerLostError(
                        f"{lost} workers of the Ray cluster could not start (the last: {message.reason}); look into Ray's log files on "
                        "their machines"
                    )
            before, waiting = waiting, sum(one.greeting is not None for one in self._actors)
            changed_at = changed_at if waiting == before else time.monotonic()

    def ready(self, worker: int) -> bool:
        """Whether a worker has started, and is idle."""
        one = self._actors[worker]
        return one.greeting is None and one.running is None

    def give(self, worker: int, order: Order) -> None:
        """Let an idle worker run a unit."""
        one = self._actors[worker]
        one.serial += 1
        parcel = self._sender.addressed_to(one.machine)
        one.running = one.handle.run.remote(one.serial, self._works_number, parcel, in_parts(order))
        one.poll_at = time.monotonic() + self._interval * (1 + worker / self.workers)

    def messages(self, seconds: float) -> list[Message]:
        """What workers have to say, those that are running a unit and those that start."""
        if self._owed:
            owed, self._owed = self._owed, []
            return owed
        self._poll()
        owners = {ref: number for number, one in enumerate(self._actors) for ref in one.refs()}
        if not owners:
            return []
        ready, _ = self._ray.wait(list(owners), timeout=seconds)
        if len(owners) > 1:
            ready, _ = self._ray.wait(list(owners), num_returns=len(owners), timeout=0)
        self._check_not_alone()
        return [message for ref in ready for message in self._received(owners[ref], ref)]

    def stop_units(self) -> None:
        """Ask the units that are running to keep their state and to end."""
        for one in self._actors:
            if one.running is not None:
                one.handle.stop.remote(one.serial)

    def replace(self, worker: int) -> None:
        """End a worker, and start another one with its number."""
        self._ray.kill(self._actors[worker].handle)
        self._actors[worker] = self._started(worker)

    def close(self) -> None:
        """End all workers."""
        for one in self._actors:
            self._ray.kill(one.handle)
        self._actors = []

    def _started(self, number: int) -> _Actor:
        return _Actor(self._actor_class.remote(number, self._threads))

    def _poll(self) -> None:
        now = time.monotonic()
        for one in self._actors:
            if one.running is not None and one.polling is None and now >= one.poll_at:
                one.polling, one.poll_at = one.handle.poll.remote(one.serial), now + self._interval

    def _received(self, number: int, ref: Any) -> list[Message]:
        one = self._actors[number]
        if ref not in one.refs():
            return []  # of a worker that was replaced, or taken with the end of its unit
        try:
            value = self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:
            raise _incapable(error) from None
        except self._ray.exceptions.RayError as error:
            self.replace(number)
            return [Lost(number, _reason(self._ray, error))]
        if ref == one.greeting:
            one.greeting, one.machine = None, value["node"]
            _check_alike(value)
            return []
        found = from_parts(value)
        if isinstance(found, Bug):
            self.replace(number)
            self._owed.append(Lost(number, "it failed"))
            raise RuntimeError(f"a worker failed:\n{found.traceback}")  # noqa: TRY004 - a bug, not a wrong type
        if ref == one.running:
            if one.polling is not None:  # what it took is older than the end
                with contextlib.suppress(self._ray.exceptions.RayError):
                    found = from_parts(self._ray.get(one.polling, timeout=_LAST_POLL_SECONDS)) + found
            one.running = None
        one.polling = None
        messages: list[Message] = found
        return messages

    def _check_not_alone(self) -> None:
        """A cluster whose machines are all gone, or taken by others, is not waited for forever."""
        if any(one.greeting is None for one in self._actors):
            self._alone_since = None
            return
        self._alone_since = self._alone_since or time.monotonic()
        if time.monotonic() - self._alone_since > START_SECONDS:
            raise WorkerLostError(
                f"the Ray cluster has had no CPU for a worker for {START_SECONDS:.0f} seconds; look at `ray status`, and run the same "
                "command to resume"
            )


class _Actor:
    """A worker, and the answers that are awaited from it."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.greeting: Any = handle.greet.remote()
        self.machine = ""  # which it says when it is greeted
        self.running: Any = None
        self.polling: Any = None
        self.serial = 0
        self.poll_at = 0.0

    def refs(self) -> list[Any]:
        """Of all answers that are awaited."""
        return [ref for ref in (self.greeting, self.running, self.polling) if ref is not None]


def _check_alike(theirs: dict[str, str]) -> None:
    """Reject a worker whose results could differ from those of this process, or who talks to everyone."""
    if theirs.get("authentication") != "token":
        raise InputError(
            f"the workers on {theirs.get('machine')} answer without a token, so everyone in the network could read what is measured; start "
            "Ray there with RAY_AUTH_MODE=token"
        )
    for what, ours in facts_of_process().items():
        if theirs.get(what) != ours:
            raise InputError(
                f"{what} is {theirs.get(what)} on {theirs.get('machine')} and {ours} here, so results could differ; install the same "
                "versions on every machine of the cluster"
            )


def _incapable(error: Exception) -> InputError:
    """Ray could not even call the worker: its machine has no coalmine, or another one."""
    reason = str(error).strip().splitlines()[-1].strip()
    return InputError(
        f"a machine of the Ray cluster cannot run this version of coalmine ({reason[:300]}); install the same versions on every machine"
    )


def _reason(ray: Any, error: Exception) -> str:
    if isinstance(error, ray.exceptions.OutOfMemoryError):
        return "its machine ran out of memory"
    if isinstance(error, ray.exceptions.ActorDiedError):
        return "its process or its machine died"
    return f"Ray reports {type(error).__name__}"


def _python_path() -> str:
    """Where this process imports from besides its own installation; workers do too, where the directories exist."""
    installed = {os.path.realpath(prefix) for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    own = [path for path in sys.path if path and not any(_is_below(path, prefix) for prefix in installed)]
    return os.pathsep.join(dict.fromkeys(own))


def _is_below(path: str, prefix: str) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(prefix)
