"""Results that contradict themselves: what every estimate must fulfil, and how a file that does not is refused.

A checksum says that a result is what was written, and not that it makes sense: anyone who edits a result can compute the checksum
again. So whoever reads a result also asks whether its numbers can be true together. No message quotes a text of the file other than
names that messages use anyway.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator

from coalmine.errors import ContradictionError
from coalmine.records import Estimate

# Numbers that follow from each other were computed by sums and logarithms in double precision.
_ROUNDING = 1e-9
# Limits of intervals are found by inverting distributions, which libraries do in different ways.
_LIMIT_ROUNDING = 1e-6
# Python converts no more.
_MOST_DIGITS = 4_300
_MOST_COUNTED = 2**63


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
    try:
        return math.isclose(first, second, rel_tol=_ROUNDING, abs_tol=_ROUNDING)
    except OverflowError:  # a whole number that no float holds
        return first == second


def another_interval(estimate: Estimate, low: float, high: float) -> bool:
    """Whether the limits of an estimate are there, and are not these to the accuracy that any way of computing them has."""
    return any(
        said is not None and not abs(said - limit) <= _LIMIT_ROUNDING
        for said, limit in ((estimate.low, low), (estimate.high, high))
    )


def hits_of(share: float, n: int) -> int | None:
    """How many of n a share is; None where it is not a share of them.

    >>> hits_of(0.3, 10), hits_of(0.35, 10)
    (3, None)
    """
    try:
        counted = share * n
    except OverflowError:
        return None
    hits = round(counted)
    return hits if math.isclose(counted, hits, rel_tol=1e-6, abs_tol=_ROUNDING) else None


def at_most(first: float, second: float) -> bool:
    """Whether the first number is at most the second, to rounding."""
    return first <= second or same(first, second)


def in_range(
    name: str, value: float | None, least: float = -math.inf, most: float = math.inf
) -> Iterator[str]:
    """What is wrong with a number that is finite and lies between two limits; nothing where it is not known.

    >>> list(in_range("a share", 1.5, 0, 1))
    ['a share is 1.5, which is not between 0 and 1']
    """
    if value is None:
        return
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{name} is not a finite number"
    elif not (at_most(least, value) and at_most(value, most)):
        limits = (
            f"at least {shown(least)}" if most == math.inf else f"between {shown(least)} and {shown(most)}"
        )
        yield f"{name} is {shown(value)}, which is not {limits}"


def count_problems(name: str, count: int | None, least: int = 0) -> Iterator[str]:
    """What is wrong with a number of things that were counted one by one."""
    return in_range(name, count, least, _MOST_COUNTED)


def shown(number: float) -> str:
    """A number for people.

    >>> shown(10**6), shown(0.5)
    ('1,000,000', '0.5')
    """
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"


def twice(what: str, names: Iterable[str]) -> Iterator[str]:
    """Names that are there more than once."""
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{what} {name!r} is in it twice"


def whole_number(digits: str) -> int | None:
    """A whole number of at least 1 in decimal digits, as sizes are written; None for anything else.

    >>> whole_number("10000"), whole_number("1e4"), whole_number("0")
    (10000, None, None)
    """
    plain = digits.isascii() and digits.isdecimal() and not digits.startswith("0")
    return int(digits) if plain and len(digits) <= _MOST_DIGITS else None


def share_problems(name: str, value: float | None) -> Iterator[str]:
    """What is wrong with a probability or a share."""
    return in_range(name, value, 0, 1)


def level_problems(name: str, value: float | None) -> Iterator[str]:
    """What is wrong with a level of confidence, which lies strictly between 0 and 1."""
    if value is not None and not 0 < value < 1:
        yield f"{name} is {value:g}, which is not a level between 0 and 1"


def estimate_problems(
    name: str, estimate: Estimate, least: float = -math.inf, most: float = math.inf
) -> Iterator[str]:
    """What is wrong with an estimate, whose numbers lie between `least` and `most`.

    >>> from coalmine.records import Estimate
    >>> wrong = Estimate(
    ...     method="exact", status="measured", value=3.0, low=4.0, high=5.0, confidence=None, n=8, statement="3 bits"
    ... )
    >>> list(estimate_problems("canary 'a'", wrong))
    ["canary 'a' has the value 3, which is not between its limits 4 and 5"]
    """
    value, low, high = estimate.value, estimate.low, estimate.high
    for part, number in (("value", value), ("lower limit", low), ("upper limit", high)):
        yield from in_range(f"{name}: the {part}", number, least, most)
    yield from level_problems(f"{name}: the confidence", estimate.confidence)
    yield from in_range(f"{name}: the number of scores", estimate.n, 0)
    yield from in_range(f"{name}: the number of scores that they are worth", estimate.effective_n, 0)
    if estimate.status == "measured" and value is None:
        yield f"{name} is measured and has no value"
    if estimate.status != "measured" and value is not None:
        yield f"{name} has the value {value:g}, although it is {estimate.status.replace('_', ' ')}"
    if estimate.status == "lower_bound" and low is None:
        yield f"{name} is a lower bound and has no lower limit"
    if estimate.status == "not_measured" and not (low is high is None):
        yield f"{name} is not measured and has limits"
    # One of the limits, or both, may be missing: a number as it was given has none.
    below, above = (-math.inf if low is None else low), (math.inf if high is None else high)
    if not at_most(below, above):
        yield f"{name} has the lower limit {below:g}, which is above its upper limit {above:g}"
    elif value is not None and not (at_most(below, value) and at_most(value, above)):
        yield f"{name} has the value {value:g}, which is not between its limits {below:g} and {above:g}"
