"""Users and their texts, read from a corpus with a user field, or with each document as a user of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import msgspec

from coalmine.audits.provenance.dates import seconds_since_1970
from coalmine.corpus.files.documents import CorpusDocument, Fields
from coalmine.corpus.files.kinds import kind_of
from coalmine.corpus.files.reading import read_documents
from coalmine.errors import CorpusError, InputError
from coalmine.randomness import arrays

By = Literal["user", "document", "person"]


class UserText(NamedTuple):
    """One text of a user; `number` is its line, or row, in the corpus that it was read from, and 0 for one that was not.

    >>> UserText("guten Tag", source="good day", date="2019-05-31").source
    'good day'
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


def read_users(
    path: str | os.PathLike[str], fields: Fields | None = None, *, by: By = "user", what: str = "suspects"
) -> list[User]:
    r"""The users of a corpus file in the order in which they first occur, read in one pass.

    Texts of nothing but white space are left out. A CorpusError says so if no user field is named, if a document names no user, or if
    a user has no text at all; it names the line and never the user.

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
    documents = _dated(Path(path), fields)
    unit = kind_of(path).unit
    if by == "document" or fields.user is None:
        # Lines of several files have the same numbers, and one person's must be told apart.
        before = "" if by == "document" else f"{what}, "
        return [_document_user(document, path, unit, what, before) for document in documents]
    # The first line of each user, and their texts.
    found: dict[str, tuple[int, list[UserText]]] = {}
    for document in documents:
        if not document.user:
            raise CorpusError(
                f"{path}, {unit} {document.number} does not say whose text it is; fill in its user field, or drop it from the {what}"
            )
        _, texts = found.setdefault(document.user, (document.number, []))
        if document.text.strip():
            texts.append(_text(document))
    for first, texts in found.values():
        if not texts:
            raise CorpusError(
                f"a user of the {what} has no text: the user of {path}, {unit} {first} wrote nothing but white space; leave them out"
            )
    return [User(name, tuple(texts)) for name, (_, texts) in found.items()]


def read_texts(path: str | os.PathLike[str], fields: Fields | None = None) -> list[UserText]:
    """All texts of a corpus file that is not labeled with users, for `artificial_users`; those of white space only are left out."""
    # Whose texts they are is not looked at, so the field need not be there.
    fields = msgspec.structs.replace(fields or Fields(), user=None)
    return [_text(document) for document in _dated(Path(path), fields) if document.text.strip()]


def artificial_users(texts: Sequence[str | UserText], number: int, seed: int = 0) -> list[User]:
    """Random subsets of texts as users, for shadow models where the reference texts are not labeled with users.

    Each text is in one subset, and sizes differ by one text at most. As in section 4.1 of Auditing Data Provenance in Text-Generation
    Models (Song and Shmatikov, 2019, arXiv:1811.00513).

    Args:
        texts: texts, or pairs as `UserText`; those of white space only are left out.
        number: how many users.
        seed: of the subsets.

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


def _dated(path: Path, fields: Fields) -> Iterator[CorpusDocument]:
    """The documents of a corpus; a CorpusError for the first whose date cannot be read."""
    for document in read_documents(path, fields):
        if document.date is not None and seconds_since_1970(document.date) is None:
            raise CorpusError(
                f"{path}, {kind_of(path).unit} {document.number}: the date field {fields.date!r} should be an ISO 8601 date or time, "
                "such as 2019-05-31, or seconds since 1970; convert it, or name no date field"
            )
        yield document


def _document_user(
    document: CorpusDocument, path: str | os.PathLike[str], unit: str, what: str, before: str
) -> User:
    if not document.text.strip():
        raise CorpusError(
            f"a document of the {what} has no text: {path}, {unit} {document.number} is nothing but white space; leave it out"
        )
    return User(f"{before}{unit} {document.number}", (_text(document),))


def _text(document: CorpusDocument) -> UserText:
    return UserText(document.text, document.source, document.date, document.number)
