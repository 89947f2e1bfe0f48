"""What a run.json says about the document that the same command wrote beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coalmine.models.reference.checkpoint import MODELS
from coalmine.records.documents import Document
from coalmine.records.run_record import RUN_RECORDS
from coalmine.reports.verifying.kinds import all_documents
from coalmine.training.record import TRAININGS


def written_with(record: Mapping[str, Any]) -> str | None:
    """The name of the document that was written with a run.json; None where the record does not say.

    >>> written_with({"command": ["coalmine", "expose", "out/model"]})
    'exposure.json'
    >>> written_with({"command": ["coalmine", "provenance", "fit", "mail.jsonl"]})
    'provenance-fit.json'
    """
    command = record.get("command")
    words = command[1:] if isinstance(command, list) else []
    # A command of two words, such as `provenance fit`, goes before that of its first word.
    names = [words[:many] for many in (2, 1) if len(words) >= many]
    kinds = [kind for kind in all_documents() if kind.written_by is not None]
    found = ([kind for kind in kinds if (kind.written_by or "").split() == name] for name in names)
    written = next((some for some in found if some), [])
    # A command that leaves one of several documents: that of canaries is the one with a manifest.
    of_canaries = [kind for kind in written if kind.origin.measures_canaries == ("manifest_sha256" in record)]
    chosen = written if len(written) == 1 else of_canaries
    return chosen[0].file if chosen else None


def belongs_beside(kind: Document[Any], other: Document[Any], document: Any) -> bool:
    """Whether a document of one kind is written into the directory where another document is."""
    if kind is RUN_RECORDS:
        return other.written_by is not None
    if other is RUN_RECORDS:
        return written_with(document) == kind.file
    return kind is TRAININGS and other is MODELS


def is_of_another_run(record: Mapping[str, Any], kind: Document[Any], document: Any) -> bool:
    """Whether a run.json is about another model, manifest or corpus than the document that was written with it."""
    return any(name in record and record[name] != fact for name, fact in kind.origin.facts(document).items())
