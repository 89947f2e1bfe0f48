"""Hashes of users and texts: what two groups of users share, without keeping or storing what they wrote."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.audits.provenance.users import User, UserText

# In bytes of UTF-8 after normalization: shorter texts ("thank you very much") are written by many users independently of each other.
SHORTEST_TEXT = 30

Hashes = NDArray[np.uint64]


def normalized(text: str) -> str:
    """A text with single spaces, so that it is the same however it was broken into lines.

    >>> normalized("good  day,\\n Ann ")
    'good day, Ann'
    """
    return " ".join(text.split())


class GroupHashes(msgspec.Struct, frozen=True, kw_only=True):
    """Hashes of the names and the texts of some users, as bytes: eight for each, ascending, none twice.

    They show whether a name or a text that is given is among those, so that they are as confidential as a list of them would be to someone
    who can guess what is in it. With another `salt`, the same users have other hashes.
    """

    users: bytes
    texts: bytes
    # Texts below this many bytes of UTF-8 are left out.
    shortest: int
    salt: str = ""

    @classmethod
    def of(cls, users: Sequence[User], *, shortest: int = SHORTEST_TEXT, salt: str = "") -> GroupHashes:
        """The hashes of some users.

        >>> group = GroupHashes.of([User("ann", (UserText("hello"),))], shortest=1)
        >>> len(group.users), len(group.texts)
        (8, 8)
        """
        names = np.fromiter((_hash(user.name, salt) for user in users), dtype=np.uint64)
        texts = np.fromiter((one for one, _ in _hashed_texts(users, shortest, salt)), dtype=np.uint64)
        return cls(
            users=np.unique(names).astype("<u8").tobytes(),
            texts=np.unique(texts).astype("<u8").tobytes(),
            shortest=shortest,
            salt=salt,
        )

    def user_hashes(self) -> Hashes:
        """The hashes of names."""
        return np.frombuffer(self.users, dtype="<u8")

    def text_hashes(self) -> Hashes:
        """The hashes of texts."""
        return np.frombuffer(self.texts, dtype="<u8")


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
        pairs = ((one, numbers[user.name]) for one, user in _hashed_texts(users, shortest, ""))
        found = np.unique(np.fromiter(pairs, dtype=row))
        return cls(found["text"], found["owner"])

    def shared(self) -> NDArray[np.bool_]:
        """Which rows have a text that another owner has too."""
        same = self.texts[1:] == self.texts[:-1]
        return np.concatenate([[False], same]) | np.concatenate([same, [False]])[: len(self.texts)]


def long_enough(texts: Iterable[UserText], shortest: int) -> Iterator[tuple[UserText, str]]:
    """The texts that are compared, each with its normalized form; that of a pair has both sides."""
    for text in texts:
        form = normalized(text.text)
        if len(form.encode("utf-8", "surrogatepass")) >= shortest:
            yield text, form if text.source is None else f"{form}\0{normalized(text.source)}"


def _hashed_texts(users: Iterable[User], shortest: int, salt: str) -> Iterator[tuple[int, User]]:
    for user in users:
        for _, form in long_enough(user.texts, shortest):
            yield _hash(form, salt), user


def _hash(text: str, salt: str) -> int:
    content = text.encode("utf-8", "surrogatepass")
    # The salt is hashed to a key of fixed size; with eight bytes, two of ten million texts agree by chance with probability 3e-6.
    key = hashlib.blake2b(salt.encode(), digest_size=16).digest() if salt else b""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8, key=key).digest(), "little")
