"""Memory pages that the process keeps: freed blocks are used again, and not returned to the system and asked for anew at each step."""

from __future__ import annotations

import ctypes
import os
import sys

# Numbers from glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# Blocks of up to this size are used again, and up to this much is kept while it is not used: the most that can be told.
LARGEST_BLOCK, MOST_KEPT = 1 << 30, (1 << 31) - 1
# What a user chose for the allocator stays as it is.
_CHOSEN = ("GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")


def keep_pages() -> bool:
    """Tell the allocator of this process to keep its pages; False where it is not that of glibc, or was set up by the user.

    By default, glibc returns a freed block of more than 32 MB to the system, which clears all of its pages when it hands them out again.
    For commands and their workers only: in a program that uses the library, the allocator is the program's own business.
    """
    if sys.platform != "linux" or any(name in os.environ for name in _CHOSEN):
        return False
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018 - other libraries do not have it
        tell = library.mallopt
    except (OSError, AttributeError):
        return False
    return bool(tell(_MMAP_THRESHOLD, LARGEST_BLOCK) and tell(_TRIM_THRESHOLD, MOST_KEPT))
