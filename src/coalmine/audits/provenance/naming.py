"""What users are called, and how many there are: by numbers, because names are personal data, unless someone asks to reveal them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from coalmine.evidence.findings import NAMED
from coalmine.visible import visible

if TYPE_CHECKING:
    from coalmine.audits.provenance.options import By
    from coalmine.audits.provenance.results import Provenance

# What documents are called that were read one by one: by their place in the corpus, which says nothing about a person.
_PLACE = re.compile(r"(line|row) [0-9]+")


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


def names_of_users(document: Provenance, *, reveal: bool = False) -> dict[str, str]:
    """What each user of a result is called, the same in all of its questions: "user 3" is the third row of the first question.

    With `reveal`, it is the name itself, with unprintable characters escaped.
    """
    names = [row.user for question in document.questions for row in question.rows]
    if reveal:
        return {name: visible(name) for name in names}
    return masked_names(names, document.settings.by)


def without_names(document: Provenance) -> Provenance:
    """The same result with users called by numbers, for whoever may not see their names."""
    names = names_of_users(document)
    questions = tuple(
        msgspec.structs.replace(
            question, rows=tuple(msgspec.structs.replace(row, user=names[row.user]) for row in question.rows)
        )
        for question in document.questions
    )
    return msgspec.structs.replace(document, questions=questions)


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
