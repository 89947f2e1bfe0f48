"""The records of canaries.json, validated while they are read."""

from __future__ import annotations

import decimal
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from coalmine.corpus.files.documents import Fields
from coalmine.errors import ManifestError
from coalmine.records import Canary
from coalmine.records.chat import Frame
from coalmine.records.documents import OfSchema
from coalmine.storage.decoding import UndecodableError, decode_json, shown_schema

SCHEMA = "coalmine.canaries/1"
# Of a file, in bytes, on every file system in use.
_LONGEST_NAME = 255


class Rewritten(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was done to a planted corpus afterwards, and what it was before that."""

    # The command, such as "dedup".
    by: str
    # The SHA-256 of the corpus and of the manifest before, and how many documents there were.
    corpus_sha256: str
    manifest_sha256: str
    documents: int


class PlantedCorpus(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The corpus that the canaries were planted in, before and after."""

    # The planted corpus, which is in the directory of the manifest, and the name of the original.
    name: str
    original_name: str
    sha256_before: str
    sha256_after: str
    documents_before: int
    documents_after: int
    fields: Fields
    # Where the planted corpus was rewritten: `sha256_after` and `documents_after` are then those of what was written.
    rewritten: Rewritten | UnsetType = UNSET


class ScannedCorpus(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The corpus that secrets were found in, which is not beside the manifest; of records, the one that copies were counted in."""

    name: str
    sha256: str
    # How many distinct secrets were found or given, also those that cannot be measured.
    secrets: int
    # Whether its rows are conversations.
    conversations: bool | UnsetType = UNSET


class FormatEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One format."""

    format_id: str
    template: str
    words: tuple[str, ...] | None
    source_template: str | None
    # In decimal digits, because many readers of JSON lose integers above 2**53.
    size: str
    # Whether the format is only the list of the texts that are known, because it is not known what they were drawn from.
    listed: bool | UnsetType = UNSET


class ReferencesEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The references of one format."""

    format_id: str
    texts: tuple[str, ...]


class CanaryManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The manifest: formats with their sizes, canaries, references, and the corpus before and after."""

    schema: str
    coalmine: str
    seed: int | None
    formats: tuple[FormatEntry, ...]
    canaries: tuple[Canary, ...]
    references: tuple[ReferencesEntry, ...]
    corpus: PlantedCorpus | None
    withhold: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None
    # Of secrets that were found.
    scanned: ScannedCorpus | UnsetType = UNSET
    # Of canaries in chat data.
    frame: Frame | UnsetType = UNSET


def decoded(content: bytes) -> CanaryManifest:
    """The manifest in a file's content; a ManifestError where it is damaged or of another version."""
    try:
        schema = decode_json(content, OfSchema).schema
        if schema != SCHEMA:
            raise ManifestError(
                f"its schema is {shown_schema(schema)}, but this version of coalmine reads {SCHEMA!r}; "
                "use the version that wrote it, or plant again"
            )
        manifest = decode_json(content, CanaryManifest)
    except UndecodableError as error:
        raise ManifestError(
            f"the manifest is damaged ({error}); restore it from a copy, or plant again"
        ) from None
    if manifest.corpus is not None and not _is_file_name(manifest.corpus.name):
        raise ManifestError(
            "the corpus should be in the directory of the manifest, but its name is a path; plant again"
        )
    return manifest


def _is_file_name(name: str) -> bool:
    return (
        Path(name).name == name
        and name not in {"", "..", "."}
        and "\0" not in name
        and len(name.encode("utf-8", "replace")) <= _LONGEST_NAME
    )


def in_decimal(size: int) -> str:
    """The digits of an integer, also of those with more than 4,300, which Python's own conversion refuses."""
    return f"{decimal.Decimal(size):f}"
