"""Results of a scan: what was found, by kind, user and number of copies (scan.json), and the secrets themselves, in private files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar
from unicodedata import category

import msgspec

from coalmine.corpus.files.documents import Fields
from coalmine.corpus.secrets.kind import SecretKind
from coalmine.errors import InputError
from coalmine.records.documents import Document, beside
from coalmine.records.estimate import Count, Share
from coalmine.storage.decoding import UndecodableError, decode_json
from coalmine.storage.files import sha256_of_file

SCHEMA = "coalmine.scan/1"
SCAN_FILE = "scan.json"
OCCURRENCES_FILE = "occurrences.jsonl"
DISTINCT_FILE = "distinct.jsonl"
USERS_FILE = "users.jsonl"
_Line = TypeVar("_Line", bound=msgspec.Struct)


class SecretOccurrence(msgspec.Struct, frozen=True, gc=False):
    """One place at which a secret is; a line of occurrences.jsonl. Offsets are in bytes of the document's text in UTF-8.

    In a conversation, all other strings of its row follow the text, such as the arguments of tool calls, each after one more byte.

    >>> SecretOccurrence(document=3, user="ann", kind="ssn", start=10, end=21, text="219-09-9998", value="219099998", specimen=False).end
    21
    """

    # The line or row of the document, as the corpus counts them, from 1.
    document: int
    user: str | None
    kind: str
    start: int
    end: int
    # As it is written there, and in its plain form.
    text: str
    value: str
    # Whether it is a well-known example and nobody's secret.
    specimen: bool


class DistinctSecret(msgspec.Struct, frozen=True, gc=False):
    """One secret, however often it occurs; a line of distinct.jsonl. The place is that of its first copy.

    >>> DistinctSecret(
    ...     kind="ssn", value="219099998", specimen=False, copies=3, documents=2, users=1, document=3, user="ann", start=10, end=21,
    ...     text="219-09-9998"
    ... ).copies
    3
    """

    kind: str
    value: str
    specimen: bool
    copies: int
    # How many documents and users have it; no users where the corpus names none.
    documents: int
    users: int
    document: int
    user: str | None
    start: int
    end: int
    text: str
    # How often the text occurs anywhere in the corpus, as its index counts; None without an index.
    copies_in_index: int | None = None


class Copies(msgspec.Struct, frozen=True):
    """How many secrets occur from `least` to `most` times."""

    least: Count
    most: Count
    secrets: Count


class KindFound(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of one kind. Well-known examples are counted apart, and nowhere else."""

    kind: str
    title: str
    sensitivity: int
    # Occurrences and distinct secrets, and how many documents and users have one.
    occurrences: Count
    secrets: Count
    documents: Count
    users: Count
    # Occurrences of well-known examples.
    specimens: Count
    # Distinct texts that have the shape, those that fail the check included; how many of them chance alone would let pass, and the
    # probability that chance lets at least as many pass as did. None where random texts have no known share that passes.
    shaped: Count
    expected_by_chance: float | None
    p_value: Share | None
    by_copies: tuple[Copies, ...]


class UserFound(msgspec.Struct, frozen=True):
    """What one user's documents hold, without the name."""

    # The line of users.jsonl that names the user.
    user: int
    occurrences: int
    # Occurrences by kind.
    kinds: dict[str, int]


class UserSecrets(msgspec.Struct, frozen=True, gc=False):
    """What one user's documents hold, with the user's name; a line of users.jsonl."""

    user: str
    occurrences: int
    kinds: dict[str, int]


class RepeatedSecret(msgspec.Struct, frozen=True):
    """One of the secrets that occur most often, without itself."""

    kind: str
    masked: str
    copies: int
    documents: int
    users: int
    document: int
    start: int
    copies_in_index: int | None = None


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """What `scan` found; scan.json. It holds no secret: these are in occurrences.jsonl and distinct.jsonl beside it.

    >>> from coalmine.corpus import scan
    >>> found = scan("mail.jsonl", "scan/")  # doctest: +SKIP
    >>> {one.kind: one.secrets for one in found.kinds if one.secrets}  # doctest: +SKIP
    {'phone': 128, 'email': 961}
    """

    schema: str = SCHEMA
    corpus: str
    corpus_sha256: str
    documents: Count
    # Of text, in UTF-8.
    bytes: Count
    fields: Fields = Fields()
    kinds: tuple[KindFound, ...]
    # Fields whose strings were not looked at.
    not_searched: tuple[str, ...] = ()
    # How many users have a secret, and the ones with the most; None where the corpus names none.
    users: Count | None
    by_user: tuple[UserFound, ...]
    repeated: tuple[RepeatedSecret, ...]
    # Whether copies were counted in an index of the corpus too.
    is_indexed: bool = False
    occurrences_sha256: str
    distinct_sha256: str
    users_sha256: str | None = None

    @property
    def secrets(self) -> int:
        """How many distinct secrets there are, of all kinds."""
        return sum(one.secrets for one in self.kinds)

    @property
    def occurrences(self) -> int:
        """How often secrets of all kinds occur."""
        return sum(one.occurrences for one in self.kinds)


def masked(text: str) -> str:
    """A secret with every letter and digit hidden; its shape remains visible.

    >>> masked("ann.lee@firm.org"), masked("219-09-9998")
    ('•••.•••@••••.•••', '•••-••-••••')
    """
    return "".join("•" if one.isalnum() or category(one).startswith("M") else one for one in text)


SCANS = Document(
    record=Scan,
    schema=SCHEMA,
    file=SCAN_FILE,
    title="scan for secrets",
    by="`coalmine data scan`",
    others={
        OCCURRENCES_FILE: "one line for each place of a secret, with its text",
        DISTINCT_FILE: "one line for each distinct secret, with its copies",
        USERS_FILE: "one line for each user whose documents hold secrets",
    },
    companions=lambda scan: {
        OCCURRENCES_FILE: scan.occurrences_sha256,
        DISTINCT_FILE: scan.distinct_sha256,
        **({} if scan.users is None else {USERS_FILE: scan.users_sha256}),
    },
)
"""scan.json, and what is written with it."""


def finished_before(
    corpus: Path, folder: Path, kinds: Sequence[SecretKind], fields: Fields, *, is_indexed: bool
) -> Scan | None:
    """The scan in a directory, if it is of this corpus and these kinds and all files that it names are unchanged.

    A command that was killed after it had written everything can be run again without finding its own files in its way.
    """
    path = folder / SCAN_FILE
    try:
        there = SCANS.alone(path)
    except InputError:
        return None
    wanted = ([kind.name for kind in kinds], fields, is_indexed)
    if wanted != ([one.kind for one in there.kinds], there.fields, there.is_indexed):
        return None
    files = {corpus: there.corpus_sha256} | {
        beside(path, name): sha256 for name, sha256 in SCANS.companions(there).items()
    }
    return (
        there
        if all(one.is_file() and sha256_of_file(one) == sha256 for one, sha256 in files.items())
        else None
    )


def read_scan(path: str | os.PathLike[str]) -> Scan:
    """A scan.json, or the one in a directory; the files beside it must be those that were written with it.

    >>> read_scan("scan/").documents  # doctest: +SKIP
    4027
    """
    return SCANS.load(path)


def occurrences_in(folder: str | os.PathLike[str]) -> Iterator[SecretOccurrence]:
    """The places of secrets that a scan wrote to a directory, in the order of the corpus, in constant memory.

    >>> {one.document for one in occurrences_in("scan/") if one.kind == "ssn"}  # doctest: +SKIP
    {17, 2041}
    """
    return _lines(Path(folder) / OCCURRENCES_FILE, SecretOccurrence)


def distinct_in(folder: str | os.PathLike[str]) -> Iterator[DistinctSecret]:
    """The distinct secrets that a scan wrote to a directory, in no particular order, in constant memory.

    >>> max(distinct_in("scan/"), key=lambda one: one.copies).copies  # doctest: +SKIP
    629
    """
    return _lines(Path(folder) / DISTINCT_FILE, DistinctSecret)


def users_in(folder: str | os.PathLike[str]) -> Iterator[UserSecrets]:
    """The users whose documents hold secrets, as a scan wrote them to a directory, in no particular order, in constant memory."""
    return _lines(Path(folder) / USERS_FILE, UserSecrets)


def _lines(path: Path, record: type[_Line]) -> Iterator[_Line]:
    try:
        stream = open(path, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}; run `coalmine data scan` again to make it"
        ) from None
    with stream:
        for number, line in enumerate(stream, 1):
            try:
                yield decode_json(line, record)
            except UndecodableError as problem:
                raise InputError(
                    f"{path}, line {number} is damaged ({problem}); run `coalmine data scan` again to make it"
                ) from None
