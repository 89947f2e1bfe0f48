"""Reports of deduplication: what was removed, where, how much and why (dedup.json and removed.jsonl)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from coalmine.corpus.deduplication.options import DedupOptions, Keep
from coalmine.corpus.files.documents import Fields
from coalmine.corpus.planting.recounting import Recount
from coalmine.errors import InputError
from coalmine.records.documents import Document, Origin, beside
from coalmine.records.estimate import Count
from coalmine.storage.files import PRIVATE, sha256_of_file, whole_file

SCHEMA = "coalmine.dedup/1"
REPORT_FILE = "dedup.json"
REMOVED_FILE = "removed.jsonl"


class Removed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was removed. Offsets and sizes are in bytes of the document's original text in UTF-8."""

    # The line or row of the document.
    document: int
    reason: Literal["repeated text", "near duplicate"]
    offset: int
    bytes: int
    # For repeated text: how often the text that begins this part occurred in that round, and where it occurred first.
    round: int | None = None
    copies: int | None = None
    # For both: the document that has the same text; for near duplicates, it was kept.
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
    # The probability that a pair that is just similar enough is found.
    chance_at_threshold: float
    documents: int
    bytes: int


class Deduplication(msgspec.Struct, frozen=True, kw_only=True):
    """What `deduplicate` did; dedup.json. What was removed, one thing per line, is in removed.jsonl. Sizes are in bytes.

    >>> Deduplication(
    ...     corpus="corpus.txt", sha256_before="", sha256_after="", documents_before=10, documents_after=8, bytes_before=900,
    ...     bytes_after=700, exact=None, near=None
    ... ).documents_after
    8
    """

    schema: str = SCHEMA
    corpus: str
    sha256_before: str
    sha256_after: str
    documents_before: Count
    documents_after: Count
    bytes_before: Count
    bytes_after: Count
    exact: ExactSummary | None
    near: NearSummary | None
    # The seed of the hashes that propose near duplicates, and the fields that were read.
    seed: int = 0
    fields: Fields = Fields()
    # What became of the copies of canaries; None where no manifest of the corpus is known.
    canaries: Recount | None = None
    # One sentence each; none of them shows a secret.
    warnings: tuple[str, ...] = ()
    # Of the removed.jsonl that was written with it.
    removed_sha256: str | None = None

    def save(self, folder: Path, removed: Iterable[Removed]) -> Deduplication:
        """Write removed.jsonl, and then dedup.json, which has its checksum; both are readable by their owner only."""
        with whole_file(folder / REMOVED_FILE, mode=PRIVATE) as temporary:
            with open(temporary, "wb") as lines:
                lines.writelines(msgspec.json.encode(one) + b"\n" for one in removed)
            whole = msgspec.structs.replace(self, removed_sha256=sha256_of_file(temporary))
        DEDUPLICATIONS.save(folder, whole)
        return whole


DEDUPLICATIONS = Document(
    record=Deduplication,
    schema=SCHEMA,
    file=REPORT_FILE,
    title="deduplication",
    by="`coalmine data dedup`",
    others={REMOVED_FILE: "one line for each removal, without its text"},
    name_is_common=True,
    companions=lambda report: {
        report.corpus: report.sha256_after,
        REMOVED_FILE: report.removed_sha256,
        **({} if report.canaries is None else {report.canaries.manifest: report.canaries.manifest_sha256}),
    },
    origin=Origin(
        manifests=lambda report: [] if report.canaries is None else [report.canaries.manifest_sha256],
    ),
)


def finished_before(
    source: Path, target: Path, options: DedupOptions, *, planted: bool
) -> Deduplication | None:
    """The report beside `target`, if it is of this corpus and these options and all files that it names are unchanged.

    A command that was killed after it had written everything can be run again without finding its own files in its way.
    """
    path = target.with_name(REPORT_FILE)
    try:
        there = DEDUPLICATIONS.alone(path)
    except InputError:
        return None
    keep = options.keep if options.exact is not None else None
    wanted = (target.name, options.exact, keep, options.near, options.seed, options.fields, planted)
    found = (
        there.corpus,
        None if there.exact is None else there.exact.length,
        None if there.exact is None else there.exact.keep,
        None if there.near is None else there.near.threshold,
        there.seed,
        there.fields,
        there.canaries is not None,
    )
    if wanted != found:
        return None
    files = {source: there.sha256_before} | {
        beside(path, name): sha256 for name, sha256 in DEDUPLICATIONS.companions(there).items()
    }
    whole = all(path.is_file() and sha256_of_file(path) == sha256 for path, sha256 in files.items())
    return there if whole else None
