"""Results that contradict themselves, or what they were computed from: how two results are compared, and how a file is refused.

A checksum says that a result is what was written. Whoever computes it again is met by `verify` and `check`, which compute the result
again from what is beside it. No message quotes a text of the file other than names that messages use anyway.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from coalmine.errors import ContradictionError

# Numbers that follow from each other were computed by sums and logarithms in double precision.
_ROUNDING = 1e-9
# Limits of intervals are found by inverting distributions, which libraries do in different ways.
_LIMIT_ROUNDING = 1e-6
# Sentences, which later versions may word differently.
_WORDS = frozenset({"statement", "assumptions", "warnings", "why"})


def refuse_contradictions(
    path: str | os.PathLike[str], problems: Iterable[str], what: str, whom: str = "itself"
) -> None:
    """Raise a ContradictionError that names the file and the first of its problems; `what` is what to make again."""
    first = next(iter(problems), None)
    if first is not None:
        raise ContradictionError(f"{path} contradicts {whom}: {first}; make {what} again")


def same(first: float, second: float) -> bool:
    """Whether two numbers are equal to rounding.

    >>> same(0.1 + 0.2, 0.3), same(3.29, 13.29)
    (True, False)
    """
    return math.isclose(first, second, rel_tol=_ROUNDING, abs_tol=_ROUNDING)


def at_most(first: float, second: float) -> bool:
    """Whether the first number is at most the second, to rounding."""
    return first <= second or same(first, second)


def differences(told: Any, again: Any, what: str = "it") -> Iterator[str]:
    """Where a result differs from the same one computed again: numbers beyond rounding, and anything else but sentences.

    >>> list(differences({"rank": 1, "limits": [0.5, 2.0]}, {"rank": 1, "limits": [0.5, 2.5]}))
    ['it.limits[1] is 2, and computed again 2.5']
    """
    told, again = msgspec.to_builtins(told), msgspec.to_builtins(again)
    if isinstance(told, dict) and isinstance(again, dict):
        for name in dict.fromkeys((*again, *told)):
            if name not in _WORDS:
                # A name that only the file has is a text of the file.
                where = f"{what}.{name}" if name in again else what
                yield from differences(told.get(name), again.get(name), where)
    elif isinstance(told, list | tuple) and isinstance(again, list | tuple) and len(told) == len(again):
        for place, (one, other) in enumerate(zip(told, again, strict=True)):
            yield from differences(one, other, f"{what}[{place}]")
    elif _is_number(told) and _is_number(again):
        if not math.isclose(told, again, rel_tol=_LIMIT_ROUNDING, abs_tol=_ROUNDING):
            yield f"{what} is {told:g}, and computed again {again:g}"
    elif told != again:
        yield f"{what} is not what is computed again"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
