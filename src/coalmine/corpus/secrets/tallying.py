"""Counts of what a scan found, by secret, kind and user: exact, and in memory that does not grow with the corpus."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from coalmine.corpus.secrets.counting import Tallies
from coalmine.corpus.secrets.kind import SecretKind
from coalmine.corpus.secrets.results import (
    Copies,
    DistinctSecret,
    KindFound,
    RepeatedSecret,
    SecretOccurrence,
    UserFound,
    UserSecrets,
    masked,
)

if TYPE_CHECKING:
    from coalmine.corpus.index.queries import CorpusIndex

# How many of the most repeated secrets and of the users with the most are listed.
MOST_LISTED = 20
_AT_ONCE = 1 << 12
# Which secret it is a copy of, and where it is.
_SECRET, _PLACE = attrgetter("kind", "value"), attrgetter("document", "start")
# What is kept, after what it is ranked by.
_Ranked = TypeVar("_Ranked", bound=tuple[Any, ...])


class _SeenSecret(msgspec.Struct, gc=False):
    """The copies of one secret with one user; the place is that of the first."""

    kind: str
    value: str
    specimen: bool
    copies: int
    documents: int
    document: int
    user: str | None
    start: int
    end: int
    text: str
    last_document: int


class _Failed(msgspec.Struct, gc=False):
    """A text that has the shape of a kind and fails its check."""

    kind: str


class _OfUser(msgspec.Struct):
    """What one user's documents hold: of each kind, where the first is (document and start), and how many."""

    user: str
    kinds: dict[str, tuple[int, int, int]]


def _both(first: _SeenSecret, second: _SeenSecret) -> _SeenSecret:
    first.copies += second.copies
    first.documents += second.documents - (first.last_document == second.document)
    first.last_document = second.last_document
    return first


def _both_users(first: _OfUser, second: _OfUser) -> _OfUser:
    for kind, (document, start, count) in second.kinds.items():
        there = first.kinds.get(kind, (document, start, 0))
        first.kinds[kind] = (*min(there[:2], (document, start)), there[2] + count)
    return first


def _first_of(one: SecretOccurrence) -> _SeenSecret:
    return _SeenSecret(
        one.kind,
        one.value,
        one.specimen,
        1,
        1,
        one.document,
        one.user,
        one.start,
        one.end,
        one.text,
        one.document,
    )


class Tally:
    """What a scan has found so far; `distinct`, then `by_users`, then the rest are asked for once everything is added."""

    def __init__(
        self, kinds: Sequence[SecretKind], folder: Path, *, index: CorpusIndex | None, has_users: bool
    ) -> None:
        self._kinds = kinds
        self._index = index
        self._seen = Tallies(_SeenSecret, _both, folder)
        self._failed = Tallies(_Failed, lambda first, _: first, folder)
        self._users = Tallies(_OfUser, _both_users, folder) if has_users else None
        self._occurrences: Counter[str] = Counter()
        self._specimens: Counter[str] = Counter()
        self._documents: Counter[str] = Counter()
        self._last_document: dict[str, int] = {}
        # Known once all distinct secrets and users were listed.
        self._secrets: Counter[str] = Counter()
        self._by_copies: Counter[tuple[str, int]] = Counter()
        self._repeated: list[tuple[int, int, int, DistinctSecret]] = []
        self._users_of_kind: Counter[str] = Counter()
        self._top_users: list[tuple[int, int, UserFound]] = []
        self.users = 0 if has_users else None

    def add(self, occurrences: Sequence[SecretOccurrence]) -> None:
        """Count some places of secrets; what is the same for all copies with a user is counted at the end."""
        here, last_document = self._seen.here, self._last_document
        for one in occurrences:
            kind, document = one.kind, one.document
            secret = (kind, one.value, one.user or "")
            seen = here.get(secret)
            if seen is None:
                self._seen.add(_first_of(one), *secret)
            else:
                seen.copies += 1
                if seen.last_document != document:
                    seen.documents += 1
                    seen.last_document = document
            if last_document.get(kind) != document and not one.specimen:
                last_document[kind] = document
                self._documents[kind] += 1

    def _add_user(self, users: Tallies[_OfUser], one: _SeenSecret) -> None:
        """Count what one user has of a secret."""
        if one.user is None or one.specimen:
            return
        place, of_user = (one.document, one.start), users.here.get((one.user,))
        if of_user is None:
            users.add(_OfUser(one.user, {one.kind: (*place, one.copies)}), one.user)
            return
        there = of_user.kinds.get(one.kind)
        if there is not None and there < place:
            of_user.kinds[one.kind] = (there[0], there[1], there[2] + one.copies)
        else:
            of_user.kinds[one.kind] = (*place, one.copies + (there[2] if there else 0))

    def add_failed(self, kind: str, text: str) -> None:
        """Count a text that has the shape of a kind, and fails its check."""
        plain = "".join(filter(str.isalnum, text))
        if (kind, plain) not in self._failed.here:
            self._failed.add(_Failed(kind), kind, plain)

    def distinct(self) -> Iterator[DistinctSecret]:
        """Each secret once, in an order that depends on the secrets only."""
        secrets = (self._joined(list(copies)) for _, copies in groupby(self._seen, key=_SECRET))
        while some := list(islice(secrets, _AT_ONCE)):
            if self._index is not None:
                counts = self._index.counts([one.text for one in some]).tolist()
                some = [
                    msgspec.structs.replace(one, copies_in_index=count)
                    for one, count in zip(some, counts, strict=True)
                ]
            for one in some:
                self._note(one)
            yield from some

    def by_users(self) -> Iterator[UserSecrets]:
        """Each user with a secret once; nothing where the corpus names none."""
        for number, one in enumerate(self._users or (), 1):
            self.users = number
            self._users_of_kind.update(one.kinds.keys())
            kinds = {kind: count for kind, (_, _, count) in sorted(one.kinds.items(), key=itemgetter(1))}
            total = sum(kinds.values())
            _keep_most(self._top_users, (total, -number, UserFound(number, total, kinds)))
            yield UserSecrets(one.user, total, kinds)

    def kinds(self) -> tuple[KindFound, ...]:
        """What was found of each kind, in their order."""
        failed = Counter(one.kind for one in self._failed)
        return tuple(self._of_kind(kind, failed[kind.name]) for kind in self._kinds)

    def by_user(self) -> tuple[UserFound, ...]:
        """The users with the most occurrences, those first."""
        return tuple(found for _, _, found in sorted(self._top_users, reverse=True))

    def repeated(self) -> tuple[RepeatedSecret, ...]:
        """The secrets with the most copies, those first."""
        return tuple(
            RepeatedSecret(
                kind=one.kind,
                masked=masked(one.text),
                copies=one.copies,
                documents=one.documents,
                users=one.users,
                document=one.document,
                start=one.start,
                copies_in_index=one.copies_in_index,
            )
            for *_, one in sorted(self._repeated, key=lambda each: each[:3], reverse=True)
        )

    def _joined(self, copies: list[_SeenSecret]) -> DistinctSecret:
        """A secret from what each of its users has of it."""
        if self._users is not None:
            for one in copies:
                self._add_user(self._users, one)
        return _joined(copies)

    def _note(self, one: DistinctSecret) -> None:
        if one.specimen:
            self._specimens[one.kind] += one.copies
            return
        self._occurrences[one.kind] += one.copies
        self._secrets[one.kind] += 1
        self._by_copies[one.kind, (one.copies - 1).bit_length()] += 1
        if one.copies > 1:
            _keep_most(self._repeated, (one.copies, -one.document, -one.start, one))

    def _of_kind(self, kind: SecretKind, failed: int) -> KindFound:
        name = kind.name
        secrets = self._secrets[name]
        shaped = secrets + failed
        buckets = sorted(bucket for of, bucket in self._by_copies if of == name)
        return KindFound(
            kind=name,
            title=kind.title,
            sensitivity=kind.sensitivity,
            occurrences=self._occurrences[name],
            secrets=secrets,
            documents=self._documents[name],
            users=self._users_of_kind[name],
            specimens=self._specimens[name],
            shaped=shaped,
            expected_by_chance=None if kind.chance is None else shaped * kind.chance,
            p_value=None if kind.chance is None else _as_many_by_chance(secrets, shaped, kind.chance),
            by_copies=tuple(
                Copies(2**bucket // 2 + 1, 2**bucket, self._by_copies[name, bucket]) for bucket in buckets
            ),
        )


def _joined(copies: list[_SeenSecret]) -> DistinctSecret:
    """A secret from what each of its users has of it."""
    first = min(copies, key=_PLACE)
    return DistinctSecret(
        kind=first.kind,
        value=first.value,
        specimen=first.specimen,
        copies=sum([one.copies for one in copies]),
        documents=sum([one.documents for one in copies]),
        users=sum([one.user is not None for one in copies]),
        document=first.document,
        user=first.user,
        start=first.start,
        end=first.end,
        text=first.text,
    )


def _keep_most(kept: list[_Ranked], one: _Ranked) -> None:
    """Keep one more on a list of the largest."""
    if len(kept) < MOST_LISTED:
        heapq.heappush(kept, one)
    else:
        heapq.heappushpop(kept, one)


def _as_many_by_chance(passed: int, shaped: int, chance: float) -> float:
    """The probability that at least this many of `shaped` random texts pass."""
    if not passed:
        return 1.0
    from scipy.special import betainc

    return float(betainc(passed, shaped - passed + 1, chance))
