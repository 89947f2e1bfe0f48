"""`run.json`: the record of one command, written beside its results."""

from __future__ import annotations

from typing import Any

from coalmine.records.documents import Document, Origin

SCHEMA = "coalmine.run/1"


RUN_RECORDS: Document[dict[str, Any]] = Document(
    record=dict[str, Any],
    schema=SCHEMA,
    file="run.json",
    title="record of a run",
    by="every command that measures or makes something, next to what it made: its time, versions, seed and hashes",
    name_is_common=True,
    origin=Origin(
        manifests=lambda record: [
            found
            for name in ("manifest_sha256", "earlier_manifest_sha256")
            if isinstance(found := record.get(name), str)
        ]
    ),
)
