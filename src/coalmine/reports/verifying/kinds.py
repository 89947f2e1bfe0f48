"""Which files of a directory are ours, by their names, schemas and checksums, and which belong to unfinished work."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from coalmine.audits.registry import COMPARISONS, OF_CORPORA, audits
from coalmine.corpus.deduplication.report import DEDUPLICATIONS
from coalmine.corpus.index.shards import INDEXES
from coalmine.corpus.redaction.report import REDACTIONS
from coalmine.corpus.secrets.results import SCANS
from coalmine.evidence.reading import documents_of
from coalmine.models.reference.checkpoint import MODELS
from coalmine.records.documents import Document, is_sealed
from coalmine.storage.decoding import UndecodableError, decode_python_json
from coalmine.storage.unfinished import UNFINISHED_FILE
from coalmine.storage.work_files import is_work_name
from coalmine.training.quantizing.record import QUANTIZATIONS
from coalmine.training.unlearning.record import UNLEARNINGS

_SCHEMA = re.compile(rb'"schema"\s*:\s*"(?P<schema>[a-z][a-z0-9_.-]*/[0-9]+)"')
# How much of a file is looked at to decide whether it is ours: its schema is the first field, and its checksum the last.
_ENDS = 4_096


def all_documents() -> tuple[Document[Any], ...]:
    """Every kind of document that coalmine writes."""
    return (
        *documents_of(audits()),
        *(one.document for one in COMPARISONS),
        *OF_CORPORA,
        DEDUPLICATIONS,
        SCANS,
        REDACTIONS,
        MODELS,
        QUANTIZATIONS,
        UNLEARNINGS,
        INDEXES,
    )


class Unfinished(NamedTuple):
    """A file of work that was stopped: whether the finished work is beside it, and the document that it may be kept for."""

    left_over: bool
    kept_for: Document[Any] | None


def unfinished(path: Path) -> Unfinished | None:
    """Whether a file is of work that was stopped, or None."""
    if is_work_name(path.name):
        return Unfinished(left_over=True, kept_for=None)
    if path.name == UNFINISHED_FILE:
        return Unfinished(left_over=False, kept_for=None)
    mine = [kind for kind in all_documents() if kind.work_files and re.fullmatch(kind.work_files, path.name)]
    if not mine:
        return None
    kept_for = next((kind for kind in mine if kind.keeps_work_files is not None), None)
    finished = any(path.with_name(kind.file).is_file() for kind in mine if kind is not kept_for)
    return Unfinished(left_over=finished, kept_for=kept_for)


def written_with(path: Path) -> Document[Any] | None:
    """The kind of document that a file without a schema of its own is written with, by its name."""
    return next(
        (
            kind
            for kind in all_documents()
            if kind.companion_names and re.fullmatch(kind.companion_names, path.name)
        ),
        None,
    )


def named(name: str) -> Document[Any] | None:
    """The kind of document that has this name."""
    return next((kind for kind in all_documents() if kind.is_named(name)), None)


def says_nothing(path: Path) -> bool:
    """Whether a JSON file holds nothing that another program would write: no object, or an empty one."""
    head, _ = _ends(path)
    try:
        found = decode_python_json(head) if len(head) < _ENDS else None
    except UndecodableError:
        return False
    return len(head) < _ENDS and not (isinstance(found, dict) and found)


def kind_of(path: Path) -> tuple[Document[Any] | None, bool]:
    """What a file of ours is, and whether it is ours at all.

    A file that ends with a checksum of ours but has another schema is ours, of another version: (None, True).
    """
    if path.suffix != ".json":
        return None, False
    head, tail = _ends(path)
    kinds = all_documents()
    named_so = named(path.name)
    found = _SCHEMA.search(head)
    schema = None if found is None else found["schema"].decode()
    if named_so is not None and (not named_so.name_is_common or schema == named_so.schema or is_sealed(tail)):
        return named_so, True
    known = next((kind for kind in kinds if kind.schema == schema), None)
    if known is not None:
        return known, True
    if is_sealed(tail):
        return None, True
    if named_so is not None and not _is_json(path, head):
        return named_so, True
    return None, False


def _ends(path: Path) -> tuple[bytes, bytes]:
    with open(path, "rb") as stream:
        head = stream.read(_ENDS)
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - _ENDS))
        return head, stream.read(_ENDS)


def _is_json(path: Path, head: bytes) -> bool:
    """Whether a file with a common name may belong to another program: what is empty or cut short may be ours as well."""
    try:
        decode_python_json(head if len(head) < _ENDS else path.read_bytes())
    except UndecodableError:
        return False
    return True
