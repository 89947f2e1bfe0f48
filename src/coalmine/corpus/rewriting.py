"""Writing a corpus again with edits, and the manifest of a planted one with the copies of canaries that are left."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from coalmine.corpus.files.corpora import Edits
from coalmine.corpus.files.documents import Fields
from coalmine.corpus.files.reading import open_corpus, reported
from coalmine.corpus.planting.manifest import MANIFEST_NAME, CanarySet
from coalmine.corpus.planting.recounting import KnownManifest, Recount, recount_summary, recounted
from coalmine.errors import CorpusError, ManifestError
from coalmine.progress import Progress
from coalmine.storage.files import PRIVATE, FileGroup, sha256_of_file, whole_file


class OriginalCorpus(NamedTuple):
    """A corpus that is about to be written again, as it was when it was first read."""

    path: Path
    fields: Fields
    sha256: str
    changed_at: int

    @classmethod
    def of(cls, path: Path, fields: Fields) -> OriginalCorpus:
        """The corpus as it is now."""
        return cls(path, fields, sha256_of_file(path), path.stat().st_mtime_ns)

    def write(self, target: Path, edits: Edits, progress: Progress) -> str:
        """Write it with edits, readable by its owner only; returns the SHA-256 of what was written."""
        with (
            open_corpus(self.path, self.fields) as corpus,
            whole_file(target, mode=PRIVATE) as temporary,
            reported(corpus, progress, "writing the corpus") as advance,
        ):
            digest = corpus.write(temporary, edits, advance)
        if self.path.stat().st_mtime_ns != self.changed_at:
            raise CorpusError(
                f"{self.path} changed while it was being read; run again once nothing writes to it"
            )
        return digest

    def recount(
        self,
        target: Path,
        known: KnownManifest,
        written: FileGroup,
        progress: Progress,
        *,
        by: str,
        documents: int,
    ) -> Recount | None:
        """Write the manifest of a planted corpus with the copies that are left; None where no manifest is known.

        `documents` is how many there were before, and `by` what rewrote the corpus.
        """
        manifest = target.with_name(MANIFEST_NAME)
        if known.canaries is None:
            if _is_manifest_of(manifest, target):
                written.remove(manifest)
            return None
        counted = recounted(
            known.canaries,
            target,
            content=written.where(target),
            by=by,
            before=(self.path.name, self.sha256, documents),
            fields=self.fields,
            progress=progress,
        )
        counted.save(manifest)
        return recount_summary(known.canaries, counted, manifest.name)


def refuse_itself(source: Path, target: Path) -> None:
    """Refuse to write a corpus in its own place, and to rewrite a directory of parts."""
    if source.is_dir():
        raise CorpusError(
            f"{source} is a directory of parts, which can be read and planted in, but not rewritten; join its files to one"
        )
    if target.exists() and source.exists() and target.samefile(source):
        raise CorpusError(f"this would replace the corpus itself, {source}; write to another directory")


def _is_manifest_of(manifest: Path, corpus: Path) -> bool:
    """Whether a manifest is that of a corpus beside it, which is about to be replaced."""
    try:
        recorded = CanarySet.load(manifest).corpus
    except ManifestError:
        return False
    return recorded is not None and recorded.name == corpus.name
