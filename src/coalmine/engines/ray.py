"""The engine `ray`: units run in actors of a Ray cluster."""

from __future__ import annotations

from coalmine.engines.scheduling import Pool, PooledEngine


class Ray(PooledEngine):
    """Runs units on a Ray cluster, or on one that is started on this machine and stopped at the end."""

    def __init__(self, address: str | None = None, *, threads: int = 1) -> None:
        super().__init__(threads=threads)
        self.address = address

    @property
    def pool(self) -> Pool:
        """The workers."""
        raise NotImplementedError
