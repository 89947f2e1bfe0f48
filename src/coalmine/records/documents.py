"""Results that say whether they are what was written: JSON documents that end with a checksum of all that comes before it.

The checksum guards against accidents (an edit, a half-restored backup, a broken disk), not against somebody who computes it again.
It is the last line but one of the file, so that any tool can make it: `head -n -2 exposure.json | sha256sum`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from coalmine.errors import AlteredError, InputError
from coalmine.records.contradictions import refuse_contradictions
from coalmine.storage.decoding import UndecodableError, decode_json, names_twice, shown_schema
from coalmine.storage.files import PUBLIC, read_written, sha256_of_file, to_json, write_bytes

Record = TypeVar("Record")

_SEAL = re.compile(rb'(?<=\n)  "checksum": "(?P<digest>[0-9a-f]{64})"\n\}\n\Z')
_END = b"\n}"


def write_sealed(path: str | os.PathLike[str], document: Any, *, mode: int = PUBLIC) -> None:
    """Write a record as `write_json` does, with the checksum of its content as the last field."""
    write_bytes(path, sealed(document), mode=mode)


def sealed(document: Any) -> bytes:
    """The bytes of a record with its checksum.

    >>> print(sealed({"value": 3}).decode(), end="")
    {
      "value": 3,
      "checksum": "625d3ad5a74e844dbec1fb381db156e540c356754fa7e3bead3400cb18c9d69f"
    }
    """
    content = to_json(document).removesuffix(_END) + b",\n"
    return content + f'  "checksum": "{hashlib.sha256(content).hexdigest()}"\n}}\n'.encode()


def read_sealed(path: str | os.PathLike[str], what: str) -> bytes:
    """The bytes of a file that `write_sealed` wrote; an AlteredError where they are no longer those."""
    content = read_written(path, what)
    check_seal(path, content, what)
    return content


def is_sealed(content: bytes) -> bool:
    """Whether bytes end with a checksum, right or wrong: a file of ours does, one that somebody else wrote does not."""
    return _SEAL.search(content) is not None


def check_seal(path: str | os.PathLike[str], content: bytes, what: str) -> None:
    """Refuse bytes that are not the ones that were written."""
    seal = _SEAL.search(content)
    if seal is None:
        raise AlteredError(
            f"{path} does not end with a checksum, so it was changed, cut short or written by an earlier version; restore it, or make "
            f"{what} again"
        )
    if hashlib.sha256(content[: seal.start()]).hexdigest() != seal["digest"].decode():
        raise AlteredError(
            f"{path} is not what was written: its checksum does not match its content; restore it, or make {what} again"
        )


class _Schema(msgspec.Struct, frozen=True):
    schema: str


def read_record(path: str | os.PathLike[str], kind: type[Record], *, schema: str, what: str) -> Record:
    """A record that `write_sealed` wrote: unchanged, of this version, and with the fields that it should have.

    `what` is what messages call it, such as "the extraction".
    """
    return decoded(path, read_sealed(path, what), kind, schema=schema, what=what)


def decoded(
    path: str | os.PathLike[str], content: bytes, kind: type[Record], *, schema: str, what: str
) -> Record:
    """The record in the content of a sealed file."""
    try:
        # The schema first: what another version wrote may have other fields, and that is not damage.
        found = decode_json(content, _Schema).schema
        if found == schema:
            document = decode_json(content, kind)
            if names_twice(content):
                raise AlteredError(
                    f"{path} is not what was written: it has a field twice; restore it, or make {what} again"
                )
            return document
    except UndecodableError as problem:
        raise InputError(f"{path} is damaged ({problem}); restore it, or make {what} again") from None
    raise InputError(
        f"{path} has the schema {shown_schema(found)}, but this version of coalmine reads {schema!r}; make {what} again"
    )


@dataclass(frozen=True)
class SealedKind(Generic[Record]):
    """One kind of sealed file: how it is read, what cannot be true in it, and what was written with it.

    `what` is what messages call it. `problems` gives a sentence for each contradiction, and `companions` the SHA-256 of each file that
    was written with it, by its name; None for one that it does not know of.
    """

    record: type[Record]
    schema: str
    what: str
    problems: Callable[[Record], Iterable[str]] = lambda _: ()
    companions: Callable[[Record], Mapping[str, str | None]] = lambda _: {}

    def alone(self, path: str | os.PathLike[str]) -> Record:
        """The record in a file that is what was written and does not contradict itself, whatever became of its companions."""
        document = read_record(path, self.record, schema=self.schema, what=self.what)
        refuse_contradictions(path, self.problems(document), self.what)
        return document

    def read(self, path: str | os.PathLike[str]) -> Record:
        """The same; what was written with it must be unchanged too, where it is there."""
        document = self.alone(path)
        for name, sha256 in self.companions(document).items():
            check_companion(path, name, sha256, self.what)
        return document


def beside(document: str | os.PathLike[str], name: str) -> Path:
    """Where a file is that a document names; in the same directory, whatever the document says."""
    # A null character is in no name of a file, and in no path that can be asked about.
    return Path(document).parent / Path(name.replace("\0", " ")).name


def is_there(path: Path) -> bool:
    """Whether there is such a file; also for names that no file can have, which `Path.is_file` may refuse."""
    return os.path.isfile(path)  # noqa: PTH113 - see above


def check_companion(
    document: str | os.PathLike[str], name: str, sha256: str | None, what: str
) -> Path | None:
    """The file beside a sealed document that was written with it; None where there is none, and an AlteredError where it is another.

    `sha256` is what the document says of it; None where it was written without one.
    """
    path = beside(document, name)
    if not is_there(path):
        return None
    if sha256 is None:
        raise AlteredError(
            f"{path} was not written with {Path(document).name}, which says nothing of it; remove it, or make {what} again"
        )
    if sha256_of_file(path) != sha256:
        raise AlteredError(
            f"{path} is not what was written with {Path(document).name}: its SHA-256 does not match; restore it, or make {what} again"
        )
    return path
