"""Records of redaction: what was done by kind, without the secrets (redaction.json)."""

from __future__ import annotations

from pathlib import Path

import msgspec

from coalmine.corpus.planting.recounting import Recount
from coalmine.corpus.redaction.options import Action, RedactOptions
from coalmine.errors import InputError
from coalmine.records.documents import Document, Origin, beside
from coalmine.records.estimate import Count
from coalmine.storage.files import sha256_of_file

SCHEMA = "coalmine.redaction/1"
REPORT_FILE = "redaction.json"


class RedactedKind(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the secrets of one kind; numbers of occurrences."""

    kind: str
    action: Action
    found: Count
    masked: Count
    replaced: Count
    # With their lines or documents.
    dropped: Count


class Redaction(msgspec.Struct, frozen=True, kw_only=True):
    """What `redact` did; redaction.json. It holds no secret, and nothing that a secret could be guessed by.

    >>> Redaction(
    ...     corpus="corpus.txt", sha256_before="", sha256_after="", documents_before=10, documents_after=9, documents_changed=2,
    ...     lines_dropped=0, kinds=(), specimens=0, settings=RedactOptions()
    ... ).documents_after
    9
    """

    schema: str = SCHEMA
    corpus: str
    sha256_before: str
    sha256_after: str
    documents_before: Count
    documents_after: Count
    # Documents that are left, with another text.
    documents_changed: Count
    lines_dropped: Count
    kinds: tuple[RedactedKind, ...]
    # Well-known examples in the original, which are nobody's secret and stay, unless their document or line is dropped.
    specimens: Count
    settings: RedactOptions
    # Tells the key of surrogates apart from others; None where nothing was replaced, or with a random key that nobody has.
    key_fingerprint: str | None = None
    # What became of the copies of canaries; None where no manifest of the corpus is known.
    canaries: Recount | None = None
    # One sentence each; none of them shows a secret.
    warnings: tuple[str, ...] = ()

    @property
    def found(self) -> int:
        """How many secrets were found."""
        return sum(one.found for one in self.kinds)


REDACTIONS = Document(
    record=Redaction,
    schema=SCHEMA,
    file=REPORT_FILE,
    title="redaction",
    by="`coalmine data redact`",
    companions=lambda report: {
        report.corpus: report.sha256_after,
        **({} if report.canaries is None else {report.canaries.manifest: report.canaries.manifest_sha256}),
    },
    origin=Origin(
        manifests=lambda report: [] if report.canaries is None else [report.canaries.manifest_sha256],
    ),
)


def finished_before(
    source: Path, target: Path, options: RedactOptions, fingerprint: str | None, *, planted: bool
) -> Redaction | None:
    """The record beside `target`, if the very same call wrote it and all files that it names are unchanged."""
    path = target.with_name(REPORT_FILE)
    try:
        there = REDACTIONS.alone(path)
    except InputError:
        return None
    replaced = any(one.action == "replace" for one in there.kinds)
    found = (there.corpus, there.settings, there.canaries is not None, there.key_fingerprint)
    # With a random key, the same call replaces differently each time.
    wanted = (target.name, options, planted, fingerprint if options.replaces else None)
    if found != wanted or (replaced and fingerprint is None):
        return None
    files = {source: there.sha256_before} | {
        beside(path, name): sha256 for name, sha256 in REDACTIONS.companions(there).items()
    }
    whole = all(path.is_file() and sha256_of_file(path) == sha256 for path, sha256 in files.items())
    return there if whole else None
