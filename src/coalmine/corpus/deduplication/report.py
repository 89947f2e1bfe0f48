"""What deduplication removed, where, how much and why: dedup.json and removed.jsonl."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from coalmine.corpus.files.documents import Fields
from coalmine.corpus.planting.recounting import Recount
from coalmine.records.contradictions import count_problems, in_range
from coalmine.records.documents import Document, Origin
from coalmine.storage.files import PRIVATE, sha256_of_file, whole_file

SCHEMA = "coalmine.dedup/1"
REPORT_FILE = "dedup.json"
REMOVED_FILE = "removed.jsonl"
Keep = Literal["one", "none"]


class Removed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was removed. Offsets and sizes are in bytes of the document's text in UTF-8, as it was."""

    # The line or row of the document.
    document: int
    reason: Literal["repeated text", "near duplicate"]
    offset: int
    bytes: int
    # For repeated text: how often what begins this part stood in the corpus in that round, and where it stood first.
    round: int | None = None
    copies: int | None = None
    # For both: the document that the same stands in; for near duplicates it was kept.
    of: int
    of_offset: int | None = None
    similarity: float | None = None


class ExactSummary(msgspec.Struct, frozen=True):
    """What exact deduplication did."""

    length: int
    keep: Keep
    # How often the corpus was searched; the last search found nothing.
    rounds: int
    parts: int
    bytes: int
    documents_shortened: int
    documents_emptied: int


class NearSummary(msgspec.Struct, frozen=True):
    """What near deduplication did."""

    threshold: float
    words: int
    permutations: int
    # The probability with which a pair that is just similar enough is found.
    chance_at_threshold: float
    documents: int
    bytes: int


class Deduplication(msgspec.Struct, frozen=True, kw_only=True):
    """What `deduplicate` did; dedup.json. What was removed, one thing per line, is in removed.jsonl."""

    schema: str = SCHEMA
    corpus: str
    sha256_before: str
    sha256_after: str
    documents_before: int
    documents_after: int
    bytes_before: int
    bytes_after: int
    exact: ExactSummary | None
    near: NearSummary | None
    # The seed of the hashes that propose near duplicates, and the fields that were read.
    seed: int = 0
    fields: Fields = Fields()
    # What became of the copies of canaries; None where the corpus has no manifest that is known.
    canaries: Recount | None = None
    # One sentence each; none of them shows a secret.
    warnings: tuple[str, ...] = ()
    # Of the removed.jsonl that was written with it.
    removed_sha256: str | None = None

    def save(self, folder: Path, removed: Iterable[Removed]) -> Deduplication:
        """Write removed.jsonl, and dedup.json, which vouches for it, last; both are readable by their owner only."""
        with whole_file(folder / REMOVED_FILE, mode=PRIVATE) as temporary:
            with open(temporary, "wb") as lines:
                lines.writelines(msgspec.json.encode(one) + b"\n" for one in removed)
            whole = msgspec.structs.replace(self, removed_sha256=sha256_of_file(temporary))
        DEDUPLICATIONS.save(folder, whole)
        return whole


def _problems(report: Deduplication) -> Iterator[str]:
    for what, before, after in (
        ("documents", report.documents_before, report.documents_after),
        ("bytes", report.bytes_before, report.bytes_after),
    ):
        yield from count_problems(f"the number of {what} before", before)
        yield from in_range(f"the number of {what} after", after, 0, before)


DEDUPLICATIONS = Document(
    record=Deduplication,
    schema=SCHEMA,
    file=REPORT_FILE,
    what="the deduplication",
    title="deduplication",
    name_is_common=True,
    problems=_problems,
    companions=lambda report: {
        report.corpus: report.sha256_after,
        REMOVED_FILE: report.removed_sha256,
        **({} if report.canaries is None else {report.canaries.manifest: report.canaries.manifest_sha256}),
    },
    companion_names=re.escape(REMOVED_FILE),
    written_by="dedup",
    origin=Origin(
        manifests=lambda report: [] if report.canaries is None else [report.canaries.manifest_sha256],
        facts=lambda report: {"corpus_sha256": report.sha256_before},
    ),
)
