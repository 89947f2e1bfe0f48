"""How much memory is available, and whether it is enough for a number of workers."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from coalmine.errors import InputError

# An interpreter with torch and a tokenizer.
WORKER_BYTES = 400_000_000
_UNLIMITED = 2**60


def check_memory(workers: int, each_bytes: int) -> None:
    """Reject more workers than the available memory allows; weights are shared, so they are not counted."""
    available, needed = available_bytes(), workers * (WORKER_BYTES + each_bytes)
    if workers > 1 and available is not None and needed > available:
        fit = max(1, available // (WORKER_BYTES + each_bytes))
        raise InputError(
            f"{workers} workers may need {needed / 1e9:.1f} GB of memory, and {available / 1e9:.1f} GB are available; use at most {fit} "
            "of them (--engine processes:N), or less memory each (memory)"
        )


def available_bytes() -> int | None:
    """Bytes that new processes may use, by the system and by the limits of the container; None if it is not known."""
    found = [_system(), _container()]
    known = [one for one in found if one is not None]
    return min(known) if known else None


def _system() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    return None


def _container() -> int | None:
    """What the control group leaves, in both versions of its files."""
    for most, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):
            limit = int(Path(most).read_text(encoding="ascii"))
            if limit < _UNLIMITED:
                return max(0, limit - int(Path(used).read_text(encoding="ascii")))
    return None
