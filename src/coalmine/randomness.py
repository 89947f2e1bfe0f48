"""Random number generators: one root seed, and a named child of it for each use.

Two uses with different names never share a stream, so another draw in one place does not change any number elsewhere.
"""

from __future__ import annotations

import hashlib
import random
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def child_seed(seed: int, *names: str | int) -> int:
    """A 128-bit seed that depends on the root seed and the names alone.

    >>> child_seed(0, "plant", "canaries") == child_seed(0, "plant", "canaries")
    True
    >>> child_seed(0, "plant", "canaries") == child_seed(0, "plant", "positions")
    False
    """
    path = "\x1f".join([str(int(seed)), *(str(name) for name in names)])
    return int.from_bytes(hashlib.sha256(path.encode()).digest()[:16], "big")


def integers(seed: int, *names: str | int) -> random.Random:
    """A generator for integers of any size (NumPy's stop at 64 bits)."""
    return random.Random(child_seed(seed, *names))


def arrays(seed: int, *names: str | int) -> np.random.Generator:
    """A NumPy generator, for arrays of numbers."""
    import numpy as np

    return np.random.Generator(np.random.PCG64(child_seed(seed, *names)))


def from_system() -> int:
    """128 bits from the system, for a seed that nobody can know: the one source that does not depend on a root seed."""
    return secrets.randbits(128)
