"""Whether a regular expression for names of modules can be matched in a bounded time.

Python's `re` tries one way to match after the other. A repeat within a repeat, such as `(a+)+b`, has exponentially many ways, so a
config with one could keep a command busy forever.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

LONGEST = 20_000
# About as many ways as four repeats in a row have in a name of 100 characters: milliseconds per module.
_MOST_BITS = 28.0
# How often a repeat without an end can repeat in a name, and how many digits a number in one has.
_CHARACTERS, _DIGITS = 100, 4
_QUANTIFIER = re.compile(r"(?:([*+?])|\{(\d*)(?:(,)(\d*))?\})[?+]?")
_GROUP = re.compile(r"\?(?::|>|=|!|<=|<!|P<\w+>|\(\w+\)|(?P<flags>[a-zA-Z]*)(?:-[a-zA-Z]+)?:)")
# Groups without content: flags for the whole pattern, comments and references to other groups.
_EMPTY = re.compile(r"\(\?(?:[a-zA-Z]+|#[^)]*|P=\w+)\)")
# One character of a name: a set of them, an escape, or itself.
_ONE = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]|\\.|.", re.DOTALL)
_DIGIT = ("\\d", "[0-9]", "[\\d]")
_PLAIN = re.compile(r"\\?[^\w\s\\]|\w|\s")


@dataclass
class _Group:
    """An open group of a pattern: the ways of its alternatives, as log2, and the texts of those that are plain text."""

    alternatives: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    # Of the alternative that is being read: the ways of its parts, and its text while it is plain.
    parts: list[float] = field(default_factory=list)
    text: str | None = ""

    def next_alternative(self) -> None:
        if self.text is None:
            self.alternatives.append(sum(self.parts))
        else:
            self.texts.append(self.text)
        self.parts, self.text = [], ""

    def ways(self) -> float:
        """Of plain texts, only those fit at the same place of which one begins with the other."""
        self.next_alternative()
        chain = most = 0
        begun: list[str] = []
        for text in sorted(self.texts):
            while begun and not text.startswith(begun[-1]):
                begun.pop()
            begun.append(text)
            chain, most = len(begun), max(most, len(begun))
        bits = [*self.alternatives, *([math.log2(most)] if chain else [])]
        top = max(bits)
        return top + math.log2(sum(2.0 ** (one - top) for one in bits))


def is_bounded(pattern: str) -> bool:
    r"""Whether a pattern, which must compile, is short and has few enough ways to match a name.

    >>> is_bounded(r".*\.layers\.\d+\.(self_attn|mlp)\.(q|k|v)_proj"), is_bounded(r"(a+)+b"), is_bounded(r"(a|a)*b")
    (True, False, False)
    """
    return len(pattern) <= LONGEST and _ways(pattern) <= _MOST_BITS


def _ways(pattern: str) -> float:
    """In how many ways a pattern may match one name, at most, as log2; infinite for what is not understood."""
    groups, place, longest = [_Group()], 0, _CHARACTERS
    while place < len(pattern):
        group = groups[-1]
        quantifier = _QUANTIFIER.match(pattern, place)
        if quantifier is not None and group.parts and quantifier.group()[:2] != "{}":
            group.parts[-1] = _repeated(group.parts[-1], quantifier, longest)
            group.text = None
            place = quantifier.end()
            continue
        longest = _CHARACTERS
        empty = _EMPTY.match(pattern, place)
        if empty is not None:
            group.text = None
            place = empty.end()
        elif pattern[place] == "(":
            begins = _GROUP.match(pattern, place + 1)
            if pattern.startswith("?", place + 1) and (begins is None or "x" in (begins["flags"] or "")):
                return math.inf
            groups.append(_Group())
            place = place + 1 if begins is None else begins.end()
        elif pattern[place] == ")":
            if len(groups) == 1:
                return math.inf
            ways = groups.pop().ways()
            groups[-1].parts.append(ways)
            groups[-1].text = None
            place += 1
        elif pattern[place] == "|":
            group.next_alternative()
            place += 1
        else:
            one = _ONE.match(pattern, place)
            found = pattern[place] if one is None else one.group()
            longest = _DIGITS if found in _DIGIT else _CHARACTERS
            group.parts.append(0.0)
            plain = _PLAIN.fullmatch(found) is not None and found not in ".^$"
            group.text = group.text + found[-1].casefold() if plain and group.text is not None else None
            place += len(found)
    return groups[0].ways() if len(groups) == 1 else math.inf


def _repeated(ways: float, quantifier: re.Match[str], longest: int) -> float:
    sign, least_digits, comma, most_digits = quantifier.groups()
    if sign is not None:
        least, most = (1 if sign == "+" else 0), (1 if sign == "?" else longest)
    else:
        least = min(int(least_digits or 0), longest)
        most = longest if comma and not most_digits else int((most_digits if comma else least_digits) or 0)
        most = max(least, min(most, longest))
    return math.log2(most - least + 1) + most * ways
