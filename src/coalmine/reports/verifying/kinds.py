"""Which files of a directory are ours, by their names, schemas and checksums, and which of them are of work that is not finished."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from coalmine.audits.comparison.results import COMPARISONS
from coalmine.audits.exposure.results import EXPOSURES, SCORES_FILE
from coalmine.audits.extraction.results import EXTRACTIONS, VERIFIED
from coalmine.audits.membership.results import MEMBERSHIPS
from coalmine.audits.recitation.results import RECITATIONS, SEQUENCES_FILE
from coalmine.corpus.deduplication.report import DEDUPLICATIONS, REMOVED_FILE
from coalmine.corpus.index.building import UNFINISHED_FILE as UNFINISHED_INDEX
from coalmine.corpus.index.shards import INDEXES
from coalmine.corpus.planting.manifest_records import SCHEMA as MANIFEST_SCHEMA
from coalmine.evidence.run import RUN_RECORDS, WATCHES
from coalmine.models.reference.checkpoint import MODELS
from coalmine.models.reference.checkpoint import UNFINISHED_FILE as UNFINISHED_TRAINING
from coalmine.records.documents import SealedKind, is_sealed
from coalmine.storage.decoding import UndecodableError, decode_python_json
from coalmine.storage.unfinished import UNFINISHED_FILE
from coalmine.storage.work_files import is_work_name
from coalmine.training.record import TRAININGS


class FileKind(NamedTuple):
    """One kind of file of ours.

    `names` is a pattern of its usual names. Where others use these names too (`common`), what is in the file decides.
    """

    shown: str
    names: str
    schema: str
    common: bool = False
    sealed: SealedKind[Any] | None = None


MANIFEST = FileKind("canaries", r"canaries\.json", MANIFEST_SCHEMA)
KINDS = (
    MANIFEST,
    FileKind("exposures", r"exposure\.json", EXPOSURES.schema, sealed=EXPOSURES),
    FileKind("extraction", r"extraction(-.*)?\.json", EXTRACTIONS.schema, sealed=EXTRACTIONS),
    FileKind("extracted canaries", r"verified\.json", VERIFIED.schema, sealed=VERIFIED),
    FileKind("membership", r"membership\.json", MEMBERSHIPS.schema, sealed=MEMBERSHIPS),
    FileKind("recitation", r"recitation\.json", RECITATIONS.schema, sealed=RECITATIONS),
    FileKind("exposure during training", r"exposure-during-training\.json", WATCHES.schema, sealed=WATCHES),
    FileKind("comparison", r"comparison\.json", COMPARISONS.schema, common=True, sealed=COMPARISONS),
    FileKind("deduplication", r"dedup\.json", DEDUPLICATIONS.schema, common=True, sealed=DEDUPLICATIONS),
    FileKind("training", r"training\.json", TRAININGS.schema, common=True, sealed=TRAININGS),
    FileKind("model", r"config\.json", MODELS.schema, common=True, sealed=MODELS),
    FileKind("index", r"manifest\.json", INDEXES.schema, common=True, sealed=INDEXES),
    FileKind("record of a run", r"run\.json", RUN_RECORDS.schema, common=True, sealed=RUN_RECORDS),
)
# A file with a checksum of ours and a schema that is not: one of another version.
UNKNOWN = FileKind("a file of another version", "", "")
# Files without a schema that only we write, and the document that each is written with.
WRITTEN_WITH = (
    (re.compile(re.escape(SCORES_FILE)), "exposure.json"),
    (re.compile(re.escape(SEQUENCES_FILE)), "recitation.json"),
    (re.compile(re.escape(REMOVED_FILE)), "dedup.json"),
    (re.compile(r"shard-[0-9]{5}\.(symbols|suffixes|starts|numbers)"), "manifest.json"),
)
# What work that was stopped left, to the name of the file that is there once it is finished; None where there is no such file.
_UNFINISHED = (
    (re.compile(re.escape(UNFINISHED_TRAINING)), "training.json"),
    (re.compile(re.escape(UNFINISHED_INDEX)), "manifest.json"),
    (re.compile(re.escape(UNFINISHED_FILE)), None),
    (re.compile(r"unfinished-extraction-[0-9a-f]+\.npz"), None),
    (re.compile(r"unfinished-.+\.npz"), "exposure.json"),
    (re.compile(r"resume-[0-9]+\.npz"), "recitation.json"),
)
_SCHEMA = re.compile(rb'"schema"\s*:\s*"(?P<schema>coalmine\.[a-z-]+/[0-9]+)"')
# How much of a file is looked at to tell whether it is ours: its schema is the first field, and its checksum the last.
_ENDS = 4_096


class Unfinished(NamedTuple):
    """A file of work that was stopped: whether the finished work is beside it, and whether it is kept on purpose."""

    left_over: bool
    kept_by_search: bool


def unfinished(path: Path) -> Unfinished | None:
    """Whether a file is of work that was stopped, or None."""
    if is_work_name(path.name):
        return Unfinished(left_over=True, kept_by_search=False)
    for names, finished in _UNFINISHED:
        if names.fullmatch(path.name):
            there = finished is not None and path.with_name(finished).is_file()
            return Unfinished(left_over=there, kept_by_search=path.name.startswith("unfinished-extraction-"))
    return None


def kind_of(path: Path) -> FileKind | None:
    """What a file of ours is; None for a file of others, and for one that only another file can tell of."""
    if path.suffix != ".json":
        return None
    head, tail = _ends(path)
    named = next((kind for kind in KINDS if re.fullmatch(kind.names, path.name)), None)
    schema = _SCHEMA.search(head)
    told = None if schema is None else schema["schema"].decode()
    if named is not None and (not named.common or told == named.schema or is_sealed(tail)):
        return named
    known = next((kind for kind in KINDS if kind.schema == told), None)
    if known is not None:
        return known
    if is_sealed(tail):
        return UNKNOWN
    return named if named is not None and not _is_json(path, head) else None


def _ends(path: Path) -> tuple[bytes, bytes]:
    with open(path, "rb") as stream:
        head = stream.read(_ENDS)
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - _ENDS))
        return head, stream.read(_ENDS)


def _is_json(path: Path, head: bytes) -> bool:
    """Whether a file with a name that others use too can be theirs: what is empty or cut short can be ours as well."""
    try:
        decode_python_json(head if len(head) < _ENDS else path.read_bytes())
    except UndecodableError:
        return False
    return True
