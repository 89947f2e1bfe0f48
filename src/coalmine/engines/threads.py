"""The number of threads that a process computes with: the same in every engine, because another number may change the last bits."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

# Read by the libraries of linear algebra when they are first imported.
_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


@contextlib.contextmanager
def computing_threads(number: int) -> Iterator[None]:
    """Let torch compute with this many threads within the block, if it is imported."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def threads_of_new_processes(number: int) -> Iterator[None]:
    """Let processes that are started within the block compute with this many threads."""
    before = {name: os.environ.get(name) for name in _VARIABLES}
    os.environ.update(thread_variables(number))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def thread_variables(number: int) -> dict[str, str]:
    """The environment of a process that computes with this many threads.

    >>> thread_variables(2)["OMP_NUM_THREADS"]
    '2'
    """
    return dict.fromkeys(_VARIABLES, str(number))
