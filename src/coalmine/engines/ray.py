"""The engine `ray`: units run in actors of a Ray cluster, on this machine or on many.

Works and units go to the workers through Ray's object store, once per machine, and results come back to this process, which writes
them: no file system has to be shared. A worker that dies, with its process or its machine, is replaced, and its unit runs again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from coalmine.engines.engine import available_cores
from coalmine.engines.memory import WORKER_BYTES
from coalmine.engines.ray_cluster import connected
from coalmine.engines.ray_pool import RayPool
from coalmine.engines.scheduling import PooledEngine
from coalmine.engines.units import Work
from coalmine.errors import InputError


class Ray(PooledEngine):
    """Runs units on a Ray cluster, or on one that is started on this machine and stopped at the end.

    Attributes:
        address: host and port of the cluster's head; None for a cluster of this machine.
        asked: how many workers were asked for; None for one per CPU, or per `threads` CPUs.

    >>> Ray("10.0.0.1:6379", workers=8).asked
    8
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int | None = None,
        threads: int = 1,
        unit_minutes: float | None = None,
    ) -> None:
        super().__init__(threads=threads, unit_minutes=unit_minutes)
        if workers is not None and workers < 1:
            raise InputError(f"the engine ray needs at least 1 worker, got {workers}")
        self.address, self.asked = address, workers
        self._ray: Any = None
        self._pool: RayPool | None = None

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            cores = max(available_cores(), (self.asked or 1) * self.threads)
            self._ray = self._held.enter_context(connected(self.address, cores))
        except BaseException:
            super().__exit__()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            if self._pool is not None:
                self._pool.close()
        finally:
            self._pool = self._ray = None
            super().__exit__(*raised)

    @property
    def pool(self) -> RayPool:
        """The workers, started with the first unit."""
        if self._pool is None:
            self._pool = RayPool(
                self._ray, self.asked or sum(_places(self._ray, self.threads).values()), self.threads
            )
        return self._pool

    def check(self, works: Sequence[Work]) -> None:
        """Reject more workers than the cluster has CPUs or memory for, and workers of other versions."""
        self._check_room(max((work.memory_bytes for work in works), default=0))
        self.pool.await_workers()

    def _check_room(self, work_bytes: int) -> None:
        places, each = _places(self._ray, self.threads), WORKER_BYTES + work_bytes
        wanted, room = self.asked or max(1, sum(places.values())), sum(places.values())
        if room < wanted:
            raise InputError(
                f"the Ray cluster has CPUs for {room} workers of {self.threads} threads, and {wanted} were asked for; use fewer workers or "
                "threads, or add machines"
            )
        for node, number in places.items():
            number = min(number, wanted)  # noqa: PLW2901 - they may all be on one machine
            memory = float(_nodes(self._ray)[node]["Resources"].get("memory", 0))
            if memory < number * each:
                raise InputError(
                    f"{number} workers on the machine {_nodes(self._ray)[node]['NodeManagerHostname']} may need "
                    f"{number * each / 1e9:.1f} GB of memory, and {memory / 1e9:.1f} GB are available to Ray there, enough for "
                    f"{int(memory // each)}; let each use less (memory), or start Ray there with fewer CPUs (ray start --num-cpus)"
                )


def _nodes(ray: Any) -> dict[str, dict[str, Any]]:
    return {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}


def _places(ray: Any, threads: int) -> dict[str, int]:
    """How many workers each machine has CPUs for, by its id; machines without any are left out."""
    found = {key: int(node["Resources"].get("CPU", 0)) // threads for key, node in _nodes(ray).items()}
    return {key: number for key, number in found.items() if number}
