"""Users and their texts, read from a corpus with a user field, or with each document as a user of its own; and what users are called."""

from __future__ import annotations

import datetime as dt
import math
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import msgspec

from coalmine.audits.provenance.options import By
from coalmine.corpus.files.documents import CorpusDocument, Fields
from coalmine.corpus.files.kinds import kind_of
from coalmine.corpus.files.reading import read_documents
from coalmine.errors import CorpusError, InputError
from coalmine.randomness import arrays

Group = Literal["suspects", "others", "non-members", "reference"]

# How many names a list of people gives.
NAMED = 3
_YEAR_OR_MONTH = re.compile(r"\d{4}(-\d{2})?")
# Seconds that are valid as a date in eight digits are read as that date: they would be in the first years after 1970.
_EIGHT_DIGITS = re.compile(r"\d{8}")
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
# From the year 1 to the year 9999; milliseconds since 1970 are beyond it for all texts since 1978.
_EARLIEST, _LATEST = -62_135_596_800.0, 253_402_300_800.0
# What documents are called that were read one by one: by their place in the corpus, which says nothing about a person.
_PLACE = re.compile(r"(line|row) [0-9]+")


class UserText(NamedTuple):
    """One text of a user; `number` is its line, or row, in the corpus that it was read from, and 0 for one that was not.

    >>> UserText("see you at noon", date="2024-05-01").number
    0
    """

    text: str
    source: str | None = None
    date: str | None = None
    number: int = 0


class User(NamedTuple):
    """A user and all texts that are known of them, in the order of the corpus.

    >>> User("ann", (UserText("hello"), UserText("good day"))).texts[1].text
    'good day'
    """

    name: str
    texts: tuple[UserText, ...]


class AuditedUsers(NamedTuple):
    """The users of an audit, by their role.

    Attributes:
        suspects: users who are asked about, with the texts that may have been used for training.
        others: further texts by suspects, for the question whether they took part at all; empty where there are none. Those by non-members
            are what they are compared with, and where there are none of these, the first texts of non-members are.
        non_members: users who are known not to be in the training data, to compare with; empty where there are none.
        reference: users whose texts the shadows were trained on, to compare likelihood ratios with; empty where they are not at hand.
        members: the names of the suspects who are in the training data, where the truth is known.

    >>> from coalmine.audits import User, UserText
    >>> AuditedUsers([User("ann", (UserText("hello"),))], non_members=[User("bob", (UserText("hi"),))]).suspects[0].name
    'ann'
    """

    suspects: Sequence[User]
    others: Sequence[User] = ()
    non_members: Sequence[User] = ()
    reference: Sequence[User] = ()
    members: Collection[str] | None = None

    @property
    def other_suspects(self) -> list[User]:
        """Other texts by suspects."""
        suspects = {user.name for user in self.suspects}
        return [user for user in self.others if user.name in suspects]

    @property
    def other_non_members(self) -> list[User]:
        """Other texts by non-members, which those by suspects are compared with."""
        suspects = {user.name for user in self.suspects}
        return [user for user in self.others if user.name not in suspects]

    def groups(self) -> dict[Group, Sequence[User]]:
        """The groups that there are, by name; all texts of non-members are one."""
        groups: dict[Group, Sequence[User]] = {
            "suspects": self.suspects,
            "others": self.other_suspects,
            "non-members": [*self.non_members, *self.other_non_members],
            "reference": self.reference,
        }
        return {name: users for name, users in groups.items() if users}


def read_users(
    path: str | os.PathLike[str], fields: Fields | None = None, *, by: By = "user", what: str = "suspects"
) -> list[User]:
    r"""The users of a corpus file in the order in which they first occur, read in one pass.

    Texts of nothing but white space are left out. A CorpusError names the line, and never the user.

    Args:
        path: the corpus file; its suffix says what kind it is.
        fields: which fields hold the text, the user and, where there is one, the date; pairs have a source too.
        by: "user", or "document" for each document as a user of its own, whose name is then its line or row; or "person", where all
            documents are one person's: the same, or, if a user field is named, the documents with the same value in it together.
        what: how messages call these users.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "mail.jsonl")
    ...     _ = path.write_text('{"text": "hello", "from": "ann"}\n{"text": "hi", "from": "bob"}\n{"text": "bye", "from": "ann"}\n')
    ...     [(user.name, len(user.texts)) for user in read_users(path, Fields(user="from"))]
    [('ann', 2), ('bob', 1)]
    """
    if by not in get_args(By):
        raise InputError(f"users are read by user, by document or by person, got {by!r}; choose one of them")
    fields = fields or Fields()
    if by == "user" and fields.user is None:
        raise CorpusError(
            f"the {what} in {path} have no users, because no user field was named; name the field that says whose text it is, or ask "
            "about each document by itself (by document)"
        )
    if by == "document":  # whose it is does not matter, so the field need not be there
        fields = msgspec.structs.replace(fields, user=None)
    unit = kind_of(path).unit
    # Lines of several files have the same numbers, and one person's must be told apart.
    before = "" if by == "document" else f"{what}, "
    found: dict[str, tuple[int, list[UserText]]] = {}  # the first line of each user, and their texts
    for document in _dated(Path(path), fields):
        name = document.user if fields.user is not None else f"{before}{unit} {document.number}"
        if not name:
            raise CorpusError(
                f"{path}, {unit} {document.number} does not say whose text it is; fill in its user field, or drop it from the {what}"
            )
        _, texts = found.setdefault(name, (document.number, []))
        if document.text.strip():
            texts.append(_text(document))
    for first, texts in found.values():
        if not texts:
            raise CorpusError(
                f"{path}, {unit} {first}: a {'document' if fields.user is None else 'user'} of the {what} has nothing but white space; "
                "leave it out"
            )
    return [User(name, tuple(texts)) for name, (_, texts) in found.items()]


def read_texts(path: str | os.PathLike[str], fields: Fields | None = None) -> list[UserText]:
    """All texts of a corpus file that is not labeled with users, for `artificial_users`; those of white space only are left out."""
    fields = msgspec.structs.replace(fields or Fields(), user=None)
    return [_text(document) for document in _dated(Path(path), fields) if document.text.strip()]


def artificial_users(texts: Sequence[str | UserText], number: int, seed: int = 0) -> list[User]:
    """Random subsets of texts as users, for shadow models where the reference texts are not labeled with users.

    Each text is in one subset, and sizes differ by one text at most. As in section 4.1 of Auditing Data Provenance in Text-Generation
    Models (Song and Shmatikov, 2019, arXiv:1811.00513).

    >>> sorted(len(user.texts) for user in artificial_users(["one", "two", "three", "four", "five"], 2))
    [2, 3]
    """
    given = [UserText(text) if isinstance(text, str) else text for text in texts]
    written = [text for text in given if text.text.strip()]
    if not 1 <= number <= len(written):
        raise InputError(
            f"{len(written):,} texts can be divided among 1 to {len(written):,} artificial users, got {number:,}; ask for another number, "
            "or give more texts"
        )
    chance = arrays(seed, "provenance", "artificial users", number)
    order = chance.permutation(len(written))
    # Every number-th of a random order, then in the order in which the texts came. Which users have a text more is random too, so that the
    # first of them are not told from the last by that.
    parts = [sorted(order[first::number].tolist()) for first in chance.permutation(number)]
    return [
        User(f"artificial {place}", tuple(written[text] for text in part))
        for place, part in enumerate(parts, 1)
    ]


def seconds_since_1970(date: str) -> float | None:
    """The time that a date says, in seconds since 1970 in UTC; None if it is not a date.

    A date is ISO 8601 (a year, a month, a day or a time, in UTC unless it names another zone) or a number of seconds since 1970.

    >>> seconds_since_1970("1970-01-02"), seconds_since_1970("1970-01-01T01:00:00+01:00"), seconds_since_1970("86400.5")
    (86400.0, 0.0, 86400.5)
    >>> seconds_since_1970("last Tuesday") is None
    True
    """
    date = date.strip()
    if _NUMBER.fullmatch(date) and not _YEAR_OR_MONTH.fullmatch(date):
        as_day = _iso(date) if _EIGHT_DIGITS.fullmatch(date) else None
        seconds = float(date) if as_day is None else as_day
        return seconds if math.isfinite(seconds) and _EARLIEST <= seconds < _LATEST else None
    if _YEAR_OR_MONTH.fullmatch(date):
        date = f"{date}-01" if "-" in date else f"{date}-01-01"
    return _iso(date)


def day_of(seconds: float) -> str:
    """The day of a time in seconds since 1970, in UTC, as ISO 8601.

    >>> day_of(86400.5)
    '1970-01-02'
    """
    return (_EPOCH + dt.timedelta(seconds=math.floor(seconds))).date().isoformat()


def masked_names(names: Iterable[str], by: By = "user") -> dict[str, str]:
    """What each is called where names are not shown: by its place among these names. Places in a corpus are shown as they are,
    and one person has no name.

    >>> masked_names(["ann@example.org", "bob@example.org", "ann@example.org"])
    {'ann@example.org': 'user 1', 'bob@example.org': 'user 2'}
    >>> masked_names(["line 3", "a letter to Ann"], by="document")
    {'line 3': 'line 3', 'a letter to Ann': 'document 2'}
    """
    return {
        name: name if by == "person" or (by == "document" and _PLACE.fullmatch(name)) else f"{by} {number}"
        for number, name in enumerate(dict.fromkeys(names), 1)
    }


def counted(count: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "user"), counted(1_200, "document")
    ('1 user', '1,200 documents')
    """
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def listed(names: Sequence[str], most: int = NAMED) -> str:
    """Some names, and how many more there are.

    >>> listed(["user 1", "user 4", "user 5", "user 9"])
    'user 1, user 4, user 5 and 1 more'
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def _dated(path: Path, fields: Fields) -> Iterator[CorpusDocument]:
    """The documents of a corpus; a CorpusError for the first whose date cannot be read."""
    for document in read_documents(path, fields):
        if document.date is not None and seconds_since_1970(document.date) is None:
            raise CorpusError(
                f"{path}, {kind_of(path).unit} {document.number}: the date field {fields.date!r} should be an ISO 8601 date or time, "
                "such as 2019-05-31, or seconds since 1970; convert it, or name no date field"
            )
        yield document


def _text(document: CorpusDocument) -> UserText:
    return UserText(document.text, document.source, document.date, document.number)


def _iso(date: str) -> float | None:
    try:
        found = dt.datetime.fromisoformat(date)
    except ValueError:
        return None
    if found.tzinfo is None:
        found = found.replace(tzinfo=dt.UTC)
    return (found - _EPOCH).total_seconds()
