"""Users and their texts, read from a corpus with a user field, or with each document as a user of its own; and what users are called."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import os
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from coalmine.audits.provenance.options import By
from coalmine.corpus.files.documents import Fields
from coalmine.corpus.files.kinds import kind_of
from coalmine.corpus.files.reading import read_documents
from coalmine.errors import CorpusError

Group = Literal["suspects", "others", "non-members", "reference"]

_YEAR_OR_MONTH = re.compile(r"\d{4}(-\d{2})?")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
# From the year 1 to the year 9999; milliseconds since 1970 are beyond it for all texts since 1978.
_EARLIEST, _LATEST = -62_135_596_800.0, 253_402_300_800.0
# What documents are called that were read one by one: by their place in the corpus, which says nothing about a person.
_PLACE = re.compile(r"(line|row) [0-9]+")


class UserText(NamedTuple):
    """One text of a user.

    >>> UserText("see you at noon", date="2024-05-01").date
    '2024-05-01'
    """

    text: str
    source: str | None = None
    date: str | None = None


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

    Texts of nothing but white space are left out, and users who have no others. A CorpusError names the line, and never the user.

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
    fields = fields or Fields()
    if by == "user" and fields.user is None:
        raise CorpusError(
            f"the {what} in {path} have no users, because no user field was named; name the field that says whose text it is, or ask "
            "about each document by itself (by document)"
        )
    if by == "document":  # whose it is does not matter, so the field need not be there
        fields = msgspec.structs.replace(fields, user=None)
    # Lines of several files have the same numbers, and one person's must be told apart.
    unit, before = kind_of(Path(path)).unit, "" if by == "document" else f"{what}, "
    found: dict[str, list[UserText]] = {}
    for one in read_documents(Path(path), fields):
        name = one.user if fields.user is not None else f"{before}{unit} {one.number}"
        if not name:
            raise CorpusError(
                f"{path}, {unit} {one.number} does not say whose text it is; fill in its user field, or drop it from the {what}"
            )
        if one.date is not None and seconds_since_1970(one.date) is None:
            raise CorpusError(
                f"{path}, {unit} {one.number}: the date field {fields.date!r} should be an ISO 8601 date or time, such as 2019-05-31, or "
                "seconds since 1970; convert it, or name no date field"
            )
        if one.text.strip():
            found.setdefault(name, []).append(UserText(one.text, one.source, one.date))
    return [User(name, tuple(texts)) for name, texts in found.items()]


def seconds_since_1970(date: str) -> float | None:
    """The time that a date says, in seconds since 1970 in UTC; None if it is not a date.

    A date is ISO 8601 (a year, a month, a day or a time, in UTC unless it names another zone) or a number of seconds since 1970.

    >>> seconds_since_1970("1970-01-02"), seconds_since_1970("1970-01-01T01:00:00+01:00"), seconds_since_1970("86400.5")
    (86400.0, 0.0, 86400.5)
    >>> seconds_since_1970("last Tuesday") is None
    True
    """
    date = date.strip()
    whole = f"{date}-01-01"[: len("2019-01-01")] if _YEAR_OR_MONTH.fullmatch(date) else date
    with contextlib.suppress(ValueError):
        found = dt.datetime.fromisoformat(whole)
        return (found if found.tzinfo else found.replace(tzinfo=dt.UTC)).timestamp()
    with contextlib.suppress(ValueError):
        return float(date) if _EARLIEST <= float(date) < _LATEST else None
    return None


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


def listed(names: Sequence[str], most: int = 3) -> str:
    """Some names, and how many more there are.

    >>> listed(["user 1", "user 4", "user 5", "user 9"])
    'user 1, user 4, user 5 and 1 more'
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")
