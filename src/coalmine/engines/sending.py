"""Works packed to be sent to our own processes: the only place that pickles anything, and nothing that comes from a file is unpickled."""

from __future__ import annotations

import contextlib
import pickle
import sys
from collections.abc import Iterator, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

from coalmine.engines.units import Work
from coalmine.errors import InputError


def packed(works: Sequence[Work]) -> bytes:
    """Works for one process, with the weights of torch models in shared memory if there is enough of it."""
    if "torch" in sys.modules:
        import torch.multiprocessing  # noqa: F401 - teaches the pickler to share tensors

        with contextlib.suppress(RuntimeError, OSError), _refused_in_words():
            return bytes(ForkingPickler.dumps(works))
    with _refused_in_words():
        return pickle.dumps(works)


def why_not_sent(value: Any) -> str | None:
    """Why a value cannot be sent to another process, or None if it can."""
    try:
        pickle.dumps(value)
    except Exception as problem:  # noqa: BLE001 - an object can refuse with any exception
        return str(problem)
    return None


@contextlib.contextmanager
def _refused_in_words() -> Iterator[None]:
    try:
        yield
    except (pickle.PicklingError, TypeError, AttributeError) as problem:
        raise InputError(
            f"this model cannot be sent to other processes ({problem}); load it from a path, or use the engine here"
        ) from problem
