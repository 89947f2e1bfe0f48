"""Results that say whether they are what was written: JSON documents that end with a checksum of all that comes before it.

The checksum guards against accidents (an edit, a half-restored backup, a broken disk), not against anyone who computes it again.
It is the last line but one of the file, so that any tool can make it: `head -n -2 exposure.json | sha256sum`.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from coalmine.errors import AlteredError, ContradictionError, InputError
from coalmine.storage.decoding import UndecodableError, decode_json, shown_schema
from coalmine.storage.files import PRIVATE, PUBLIC, read_bytes, sha256_of_file, to_json, write_bytes

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
    content = read_bytes(path, what)
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


class OfSchema(msgspec.Struct, frozen=True):
    """The beginning of every document, which says what the rest is."""

    schema: str


def read_record(path: str | os.PathLike[str], kind: type[Record], *, schema: str, what: str) -> Record:
    """A record that `write_sealed` wrote: unchanged, of this version, and with the fields that it should have.

    `what` is what messages call it, such as "the extraction".
    """
    content = read_sealed(path, what)
    try:
        # The schema first: what another version wrote may have other fields, and that is not damage.
        found = decode_json(content, OfSchema).schema
        if found == schema:
            return decode_json(content, kind)
    except UndecodableError as problem:  # its checksum was made anew
        raise ContradictionError(f"{path} contradicts itself: {problem}; make {what} again") from None
    raise InputError(
        f"{path} has the schema {shown_schema(found)}, but this version of coalmine reads {schema!r}; make {what} again"
    )


class SaidOfCanary(NamedTuple):
    """What a result says of one canary; None for what it does not say."""

    canary_id: str
    format_id: str | None = None
    # How often the model was trained on it, and how often it would have been, had its coin said so.
    repetitions: int | None = None
    planned: int | None = None
    planted: bool | None = None


class SaidOfFormat(NamedTuple):
    """What a result says of one format; None for what it does not say."""

    format_id: str
    template: str | None = None
    size: int | None = None


@dataclass(frozen=True, kw_only=True)
class Origin(Generic[Record]):
    """What a document says about where its numbers come from, so that reports and `verify` can check it against what is there.

    Attributes:
        model: the description of the model that it is about; None for a document that is not about one model.
        manifests: the SHA-256 of each manifest that it was made with, or that it describes.
        canaries: what it says of single canaries, and `formats` of formats; the manifest must say the same. None where it says nothing.
        manifest_beside: what the files beside it and the manifest together contradict in it, given its path, one sentence each.
        is_measurement: whether it measures the canaries of its manifests in the finished model; what was seen during a training does not.
        follows_manifest: whether it belongs to every model that was measured with its manifest, where no model is nearer to its file.
        natural: whether it is about secrets that were in the data all along, which reports keep apart from canaries that were planted.

    >>> Origin(model=lambda toys: toys["model"]).model({"model": {"name": "m"}})
    {'name': 'm'}
    """

    model: Callable[[Record], Mapping[str, Any]] | None = None
    manifests: Callable[[Record], Iterable[str | None]] = lambda _: ()
    canaries: Callable[[Record], Iterable[SaidOfCanary]] | None = None
    formats: Callable[[Record], Iterable[SaidOfFormat]] = lambda _: ()
    manifest_beside: Callable[[Path, Record, Any], Iterable[str]] = lambda _path, _record, _manifest: ()
    is_measurement: bool = True
    follows_manifest: bool = False
    natural: Callable[[Record], bool] = lambda _: False

    @property
    def measures_canaries(self) -> bool:
        """Whether it is a measurement of single canaries of its manifests."""
        return self.is_measurement and self.canaries is not None


@dataclass(frozen=True, kw_only=True, eq=False)
class Document(Generic[Record]):
    """One kind of result file, declared once: its schema, name and mode, how it is written and read, and what it must fulfill.

    Attributes:
        record: the type of its content.
        schema: the schema id that it starts with, such as "coalmine.exposure/1".
        file: its usual name, such as "exposure.json", and `names` a pattern of all names that it may have.
        title: what tables call it, such as "exposures", and messages after "the".
        by: who writes it, for the page of files, which also has the first sentence about the record.
        others: what is in each file that is written beside it and readable by you only, by its name, in which * stands for any.
        mode: PRIVATE where it may hold secrets.
        name_is_common: whether other programs use this name too, so that the content decides whose file it is.
        again: computes again, for `verify` and `check`, what follows from the files beside it or from its own numbers, given its path;
            one sentence for each difference.
        companions: the SHA-256 of each file that was written with it, by name; None for one that it does not know of.
        verifies_companions: whether loading it verifies them; not for a corpus, nor for weights, which are verified when loaded.
        other_models: a folder beside it with models of their own, such as shadow models, which no report is about.
        preference: sorts several results about one model, the one to rely on first.
        reader: reads a file that does not end with a checksum, such as a manifest, which people may write themselves.
        origin: what it says about the model, the manifest and the documents that it comes from.

    >>> import tempfile
    >>> class Toys(msgspec.Struct):
    ...     schema: str = "toys/1"
    ...     broken: int = 0
    >>> TOYS = Document(record=Toys, schema="toys/1", file="toys.json", title="toys")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = TOYS.save(folder, Toys(broken=3))
    ...     TOYS.load(path).broken
    3
    """

    record: type[Record]
    schema: str
    file: str
    title: str
    by: str = ""
    others: Mapping[str, str] = field(default_factory=dict)
    mode: int = PRIVATE
    names: str = ""
    name_is_common: bool = False
    again: Callable[[Path, Record], Iterable[str]] = lambda _path, _record: ()
    companions: Callable[[Record], Mapping[str, str | None]] = lambda _: {}
    verifies_companions: bool = True
    other_models: str | None = None
    preference: Callable[[Record], Any] | None = None
    reader: Callable[[Path], Record] | None = None
    origin: Origin[Record] = Origin()

    @property
    def what(self) -> str:
        """What messages call it."""
        return f"the {self.title}"

    def save(self, directory: str | os.PathLike[str], record: Record, name: str | None = None) -> Path:
        """Write a record into a directory, complete or not at all, with its checksum; returns the path."""
        path = Path(directory) / (name or self.file)
        write_sealed(path, record, mode=self.mode)
        return path

    def alone(self, path: str | os.PathLike[str]) -> Record:
        """The record in an unaltered file, regardless of the files that were written with it."""
        if self.reader is not None:
            return self.reader(Path(path))
        return read_record(path, self.record, schema=self.schema, what=self.what)

    def load(self, path: str | os.PathLike[str]) -> Record:
        """The record in a file, or in the file of this name in a directory; files written with it must be unaltered if they exist."""
        place = Path(path)
        if place.is_dir():
            place /= self.file
        record = self.alone(place)
        if self.verifies_companions:
            for name, sha256 in self.companions(record).items():
                check_companion(place, name, sha256, self.what)
        return record

    def owns(self, path: Path) -> bool:
        """Whether a file of its name is one of ours; other programs write some of these names too, without schema and checksum."""
        content = read_bytes(path, self.what) if self.name_is_common else b""
        return not self.name_is_common or self.schema.encode() in content or is_sealed(content)

    def is_named(self, name: str) -> bool:
        """Whether a file of this kind may have this name."""
        return re.fullmatch(self.names or re.escape(self.file), name) is not None


def beside(document: str | os.PathLike[str], name: str) -> Path:
    """Where a file is that a document names; in the same directory, whatever the document says."""
    # A null character is in no name of a file, and in no path that can be asked about.
    return Path(document).parent / Path(name.replace("\0", " ")).name


def is_there(path: Path) -> bool:
    """Whether there is such a file; also for names that no file can have, which `Path.is_file` may refuse."""
    return os.path.isfile(path)  # noqa: PTH113 - see above


def check_companion(document: Path, name: str, sha256: str | None, what: str) -> None:
    """Refuse a file beside a sealed document that is not the one that was written with it, if there is one.

    `sha256` is what the document says of it; None where it was written without one.
    """
    path = beside(document, name)
    if is_there(path) and (sha256 is None or sha256_of_file(path) != sha256):
        raise AlteredError(
            f"{path} is not what was written with {document.name}: its SHA-256 does not match; restore it, or make {what} again"
        )


# Numbers that follow from each other were computed by sums and logarithms in double precision.
_ROUNDING = 1e-9
# Limits of intervals are found by inverting distributions, which libraries do in different ways.
_LIMIT_ROUNDING = 1e-6
# Sentences, which later versions may word differently.
_WORDS = frozenset({"statement", "assumptions", "warnings", "why"})


def same(first: float, second: float) -> bool:
    """Whether two numbers are equal to rounding.

    >>> same(0.1 + 0.2, 0.3), same(3.29, 13.29)
    (True, False)
    """
    return math.isclose(first, second, rel_tol=_ROUNDING, abs_tol=_ROUNDING)


def at_most(first: float, second: float) -> bool:
    """Whether the first number is at most the second, to rounding."""
    return first <= second or same(first, second)


def differences(told: Any, again: Any, what: str = "it") -> Iterator[str]:
    """Where a result differs from the same one computed again: numbers beyond rounding, and anything else but sentences.

    >>> list(differences({"rank": 1, "limits": [0.5, 2.0]}, {"rank": 1, "limits": [0.5, 2.5]}))
    ['it.limits[1] is 2, and computed again 2.5']
    """
    told, again = msgspec.to_builtins(told), msgspec.to_builtins(again)
    if isinstance(told, dict) and isinstance(again, dict):
        for name in dict.fromkeys((*again, *told)):
            if name not in _WORDS:
                # A name that only the file has is a text of the file.
                where = f"{what}.{name}" if name in again else what
                yield from differences(told.get(name), again.get(name), where)
    elif isinstance(told, list | tuple) and isinstance(again, list | tuple) and len(told) == len(again):
        for place, (one, other) in enumerate(zip(told, again, strict=True)):
            yield from differences(one, other, f"{what}[{place}]")
    elif {type(told), type(again)} <= {int, float}:
        if not math.isclose(told, again, rel_tol=_LIMIT_ROUNDING, abs_tol=_ROUNDING):
            yield f"{what} is {told:g}, and computed again {again:g}"
    elif told != again:
        yield f"{what} is not what is computed again"


_NAMED_MANIFESTS = ("manifest_sha256", "earlier_manifest_sha256")
# The record of one command, written beside its results.
RUN_RECORDS: Document[dict[str, Any]] = Document(
    record=dict[str, Any],
    schema="coalmine.run/1",
    file="run.json",
    title="record of a run",
    by="every command that measures or makes something, next to what it made: its time, versions, seed and hashes",
    name_is_common=True,
    origin=Origin(
        manifests=lambda record: [
            found for name in _NAMED_MANIFESTS if isinstance(found := record.get(name), str)
        ]
    ),
)
