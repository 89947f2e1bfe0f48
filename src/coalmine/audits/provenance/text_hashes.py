"""Hashes of users and texts: what groups of users share, in a few bytes per text."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.provenance.users import User, UserText

# In bytes of UTF-8 after normalization: shorter texts ("thank you very much") are written by many users independently of each other.
SHORTEST_TEXT = 30

Hashes = NDArray[np.uint64]


# Characters that cannot be seen: soft hyphens, joiners, marks of direction and of byte order.
_INVISIBLE = dict.fromkeys(
    [0xAD, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2065), 0xFEFF]
)


def normalized(text: str) -> str:
    r"""A text in one form, however it was broken into lines, capitalized, or written in Unicode, and without what cannot be seen.

    >>> normalized("Good  day,\n Ann\u200b ")
    'good day, ann'
    """
    return _one_form(text).casefold()


def name_form(name: str, *, cased: bool) -> str:
    """A name in one form, with or without its case.

    >>> name_form(" Ann@example.org", cased=False), name_form(" Ann", cased=True)
    ('ann@example.org', 'Ann')
    """
    return _one_form(name) if cased else normalized(name)


def told_by_case(names: Iterable[str]) -> bool:
    """Whether some of these names differ in case alone, so that case means something.

    >>> told_by_case(["aQ", "Aq"]), told_by_case(["ann", "Bob"])
    (True, False)
    """
    forms = {_one_form(name) for name in names}
    return len({form.casefold() for form in forms}) < len(forms)


def _one_form(text: str) -> str:
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).translate(_INVISIBLE)
    return " ".join(text.split())


class GroupHashes(NamedTuple):
    """Hashes of the names and of the texts of some users: ascending, none twice, eight bytes each."""

    users: Hashes
    texts: Hashes

    @classmethod
    def of(cls, users: Sequence[User], *, shortest: int = SHORTEST_TEXT, cased: bool = False) -> GroupHashes:
        """The hashes of some users, without texts of fewer bytes than `shortest`; `cased` is whether names differ if their case does.

        >>> group = GroupHashes.of([User("ann", (UserText("hello"), UserText(" hello")))], shortest=1)
        >>> len(group.users), len(group.texts)
        (1, 1)
        """
        names = np.fromiter((_hash(name_form(user.name, cased=cased)) for user in users), dtype=np.uint64)
        texts = np.fromiter((one for one, _ in _hashed_texts(users, shortest)), dtype=np.uint64)
        return cls(np.unique(names), np.unique(texts))

    def among(self, users: Sequence[User], *, shortest: int, cased: bool, named: bool) -> list[int]:
        """The places of users who have one of these texts, or, if they are `named`, one of these names."""
        texts, names = set(self.texts.tolist()), set(self.users.tolist())
        return [
            place
            for place, user in enumerate(users)
            if (named and _hash(name_form(user.name, cased=cased)) in names)
            or (texts and any(one in texts for one, _ in _hashed_texts([user], shortest)))
        ]


class OwnedTexts(NamedTuple):
    """Which users have which texts: a row for each text of each user, sorted by text; twice the same row is left out."""

    texts: Hashes
    owners: NDArray[np.int64]

    @classmethod
    def of(cls, users: Sequence[User], *, shortest: int = SHORTEST_TEXT) -> OwnedTexts:
        """From users; those of the same name are one owner. Sixteen bytes are kept for each text."""
        numbers: dict[str, int] = {}
        for user in users:
            numbers.setdefault(user.name, len(numbers))
        row = np.dtype([("text", np.uint64), ("owner", np.int64)])
        pairs = ((one, numbers[user.name]) for one, user in _hashed_texts(users, shortest))
        found = np.unique(np.fromiter(pairs, dtype=row))
        return cls(found["text"], found["owner"])

    def shared(self) -> NDArray[np.bool_]:
        """Which rows have a text that another owner has too."""
        same = self.texts[1:] == self.texts[:-1]
        shared = np.zeros(len(self.texts), dtype=np.bool_)
        shared[1:] |= same
        shared[:-1] |= same
        return shared


def long_enough(texts: Iterable[UserText], shortest: int) -> Iterator[tuple[UserText, str]]:
    """The texts that are compared, each with its normalized form; that of a pair has both sides."""
    for text in texts:
        form = normalized(text.text)
        if len(form.encode("utf-8", "surrogatepass")) >= shortest:
            yield text, form if text.source is None else f"{form}\0{normalized(text.source)}"


def _hashed_texts(users: Iterable[User], shortest: int) -> Iterator[tuple[int, User]]:
    for user in users:
        for _, form in long_enough(user.texts, shortest):
            yield _hash(form), user


def _hash(text: str) -> int:
    # With eight bytes, two of ten million texts agree by chance with probability 3e-6.
    content = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
