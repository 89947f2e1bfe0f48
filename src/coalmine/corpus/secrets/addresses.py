"""References of e-mail addresses: other names at the same domain, made of the names that the corpus itself has.

Names are not random letters. So no space of equally likely members is known for them, and an address is compared with others that
look as real: its name is cut into words and numbers, and each is replaced by one that is in the same place of another address of
the corpus with the same shape. A word that many addresses have is drawn as often as they have it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from coalmine.corpus.secrets.contexts import shares_a_piece
from coalmine.randomness import integers

# With fewer comparable addresses, a rank among them shows little.
FEWEST_REFERENCES = 19
# A name that occurs at this many domains, such as info or john, can be guessed.
COMMON_AT = 3
# Draws per reference, before there seem to be no more.
_TRIES = 30
_PART = re.compile(r"[^\W\d_]+|\d+|.", re.DOTALL)

COMMON = f"its name occurs at {COMMON_AT} or more domains, so it can be guessed"
ECHOED = "its name is in part that of its domain, so it can be guessed"
ALONE = f"fewer than {FEWEST_REFERENCES} comparable addresses can be made of the names in the corpus"


def split_address(address: str) -> tuple[str, str]:
    """The name and the domain of an e-mail address.

    >>> split_address("ann.lee@example.org")
    ('ann.lee', 'example.org')
    """
    name, _, domain = address.rpartition("@")
    return name, domain


def parts_of(name: str) -> list[str]:
    """The words, numbers and other characters of a name.

    >>> parts_of("ann.lee27")
    ['ann', '.', 'lee', '27']
    """
    return _PART.findall(name)


def _shape(parts: Sequence[str]) -> tuple[str, ...]:
    return tuple("word" if one.isalpha() else "number" if one.isdecimal() else one for one in parts)


class AddressBook:
    """All addresses of a corpus, from which others are made.

    >>> book = AddressBook(["ann.lee@a.org", "bob.ray@a.org", "cat.fox@b.org"])
    >>> book.others("ann.lee@a.org", 2, 0, "email-1")  # doctest: +ELLIPSIS
    ['...@a.org', '...@a.org']
    """

    def __init__(self, addresses: Iterable[str]) -> None:
        self._known: set[str] = set()
        self._domains: dict[str, set[str]] = defaultdict(set)
        names: dict[str, None] = {}
        for address in addresses:
            name, domain = split_address(address)
            self._known.add(address.lower())
            self._domains[name.lower()].add(domain.lower())
            names[name] = None
        # For each shape, the parts in each place, each as often as names have it.
        self._parts: dict[tuple[str, ...], list[list[str]]] = {}
        for name in names:
            parts = parts_of(name)
            columns = self._parts.setdefault(_shape(parts), [[] for _ in parts])
            for column, part in zip(columns, parts, strict=True):
                column.append(part)

    def guessable(self, address: str) -> str | None:
        """Why an address can be guessed by anyone who knows its domain; None where it cannot."""
        name, domain = split_address(address)
        if len(self._domains[name.lower()]) >= COMMON_AT:
            return COMMON
        return ECHOED if shares_a_piece(domain, name) else None

    def others(self, address: str, count: int, seed: int, canary_id: str) -> list[str]:
        """Up to so many addresses at the same domain that do not occur in the corpus."""
        name, domain = split_address(address)
        columns = self._parts.get(_shape(parts_of(name)), [])
        generator = integers(seed, "addresses", canary_id)
        found: dict[str, str] = {}
        for _ in range(_TRIES * count if columns else 0):
            drawn = "".join(generator.choice(column) for column in columns) + "@" + domain
            low = drawn.lower()
            if low not in self._known and not shares_a_piece(domain, split_address(drawn)[0]):
                found.setdefault(low, drawn)
            if len(found) == count:
                break
        return list(found.values())
