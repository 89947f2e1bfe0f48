"""The options of engines, for every command whose work runs on one."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated

from coalmine.records.options import Option, Options

if TYPE_CHECKING:
    from coalmine.engines.engine import Engine

NAMES = "here, processes, processes:N, ray or ray:ADDRESS"


class EngineOptions(Options, frozen=True, kw_only=True):
    """Where the work runs; the results are the same, to the last bit.

    Attributes:
        engine: "here", "processes:N", or "ray" with or without the address of a cluster.
        threads: threads of each worker; another number may change the last bits of results.

    >>> EngineOptions(engine="processes:4").threads
    1
    """

    engine: Annotated[str, Option(f"Where the work runs: {NAMES}. The results are the same.")] = "here"
    threads: Annotated[
        int, Option("Threads of each worker; another number may change the last digits.", least=1)
    ] = 1

    def opened(self) -> AbstractContextManager[Engine]:
        """The engine, which is closed at the end of the block."""
        from coalmine.engines.engine import open_engine

        return open_engine(self.engine, threads=self.threads)
