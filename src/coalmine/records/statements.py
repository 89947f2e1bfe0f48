"""Whether the sentence of an estimate says what its numbers say.

Reports and the gate show these sentences, and anyone who edits a result can edit them too. So each audit declares the sentences that its
estimates are stated in, and a result with another one, or with other numbers in it, contradicts itself.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence

from coalmine.records.estimate import Estimate

_NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?|10\^\d{1,4}"
# {name} is a number of that name, {} any number, {*} any words, and [one|other] one of these.
_PARTS = re.compile(r"\{(?P<name>[a-z_]*|\*)\}|\[(?P<choices>[^\]]*)\]|(?P<text>[^{\[]+)")
# Numbers in sentences are rounded, some of them up or down.
_SHARE_OF_LAST_DIGIT = 1.0 + 1e-6
_SIGNIFICANT = 1e-5
# The characters of a number; sizes have up to 4,300 digits, with commas.
_LONGEST = 6_000


def statement_problems(
    name: str, estimate: Estimate, sentences: Sequence[str], known: Mapping[str, float | None] | None = None
) -> Iterator[str]:
    """What is wrong with the sentence of an estimate that has a number; reasons why there is none are free.

    `known` has the numbers that sentences name besides `value`, `low`, `high`, `percent` (the confidence) and `n`; one that it does not
    have can be any number.

    >>> found = Estimate(
    ...     method="m", status="measured", value=3.14, low=3.0, high=4.0, confidence=0.95, n=8, statement="it is 3.1 (95%)"
    ... )
    >>> list(statement_problems("canary 'a'", found, ["it is {value} ({percent}%)"]))
    []
    >>> list(statement_problems("canary 'a'", found, ["it is {high} ({percent}%)"]))
    ["canary 'a' is described in a sentence that its numbers contradict"]
    """
    if estimate.status == "not_measured":
        return
    numbers: dict[str, float | None] = {
        "value": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "percent": None if estimate.confidence is None else 100 * estimate.confidence,
        "n": estimate.n,
        **(known or {}),
    }
    if not any(_says(sentence, estimate.statement, numbers) for sentence in sentences):
        yield f"{name} is described in a sentence that its numbers contradict"


def _says(sentence: str, statement: str, numbers: Mapping[str, float | None]) -> bool:
    pattern, names = _compiled(sentence)
    match = pattern.fullmatch(statement)
    return match is not None and all(
        _is(written, numbers[name])
        for name, written in zip(names, match.groups(), strict=True)
        if name in numbers
    )


@functools.cache
def _compiled(sentence: str) -> tuple[re.Pattern[str], tuple[str, ...]]:
    pattern, names = "", []
    for part in _PARTS.finditer(sentence):
        if part["name"] == "*":
            pattern += ".*"
        elif part["name"] is not None:
            pattern += f"({_NUMBER})"
            names.append(part["name"])
        elif part["choices"] is not None:
            pattern += f"(?:{'|'.join(map(re.escape, part['choices'].split('|')))})"
        else:
            pattern += re.escape(part["text"])
    return re.compile(pattern, re.DOTALL), tuple(names)


def _is(written: str, number: float | None) -> bool:
    """Whether a number in a sentence is this one, to the digits that it is written with."""
    if number is None or len(written) > _LONGEST:
        return False
    plain = written.replace(",", "")
    try:
        if "^" in plain or (isinstance(number, int) and plain.isdecimal()):
            base, _, power = plain.partition("^")
            return number == (int(base) ** int(power) if power else int(base))
        digits, _, power = plain.partition("e")
        last = 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
        return abs(float(plain) - number) <= max(_SHARE_OF_LAST_DIGIT * last, _SIGNIFICANT * abs(number))
    except (OverflowError, ValueError):  # numbers that no sentence has
        return False
