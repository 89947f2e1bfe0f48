"""Recounting canaries in a corpus that was rewritten after planting, for a manifest with the new counts."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import msgspec

from coalmine.corpus.files.corpora import Corpus
from coalmine.corpus.files.documents import Fields
from coalmine.corpus.files.kinds import kind_of
from coalmine.corpus.files.reading import open_corpus, reported
from coalmine.corpus.planting.manifest import MANIFEST_NAME, CanarySet, as_canary_set
from coalmine.corpus.planting.manifest_records import PlantedCorpus, Rewritten
from coalmine.corpus.planting.occurrences import search_for
from coalmine.errors import ManifestError
from coalmine.progress import Progress, Silent
from coalmine.storage.files import sha256_of_file


class Recount(msgspec.Struct, frozen=True, kw_only=True):
    """How many copies of canaries a rewritten corpus holds, compared with those that were planted."""

    # The name of the manifest that was written, and its SHA-256.
    manifest: str
    manifest_sha256: str
    # Canaries that a coin planted, and their copies before and after.
    planted: int
    copies_before: int
    copies_after: int
    # Ids of canaries that lost some of their copies, and of those that lost all.
    fewer: tuple[str, ...]
    gone: tuple[str, ...]
    warnings: tuple[str, ...] = ()


class KnownManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of a corpus that is about to be rewritten, if there is one, and warnings if there is none."""

    canaries: CanarySet | None = None
    warnings: tuple[str, ...] = ()


def manifest_of(corpus: Path, given: CanarySet | str | os.PathLike[str] | None = None) -> KnownManifest:
    """The manifest that was given, or the canaries.json beside a corpus if it is the manifest of that corpus.

    A ManifestError is raised for a manifest that was given and describes another corpus. One that was only found beside the corpus
    is then not used, with a warning.
    """
    if given is not None:
        canaries = as_canary_set(given)
        _check_corpus(canaries, corpus)
        return KnownManifest(canaries=canaries)
    beside = corpus.parent / MANIFEST_NAME
    if not beside.is_file():
        return KnownManifest()
    try:
        canaries = CanarySet.load(beside)
        _check_corpus(canaries, corpus)
    except ManifestError as problem:
        why = str(problem)
    else:
        if canaries.corpus is not None:
            return KnownManifest(canaries=canaries)
        why = f"{beside} describes no corpus; name it with --canaries if this corpus holds its canaries"
    return KnownManifest(
        warnings=(
            f"the manifest beside the corpus is not used, and copies of canaries are not counted: {why}",
        )
    )


def _check_corpus(canaries: CanarySet, corpus: Path) -> None:
    if canaries.corpus is not None and canaries.corpus.sha256_after != sha256_of_file(corpus):
        raise ManifestError(
            f"{canaries.path or 'the manifest'} describes another corpus than {corpus} (the SHA-256 differs); name the manifest of "
            "this corpus"
        )


def recounted(
    canaries: CanarySet,
    corpus: str | os.PathLike[str],
    *,
    by: str,
    before: tuple[str, str, int],
    content: Path | None = None,
    fields: Fields | None = None,
    progress: Progress | None = None,
) -> CanarySet:
    """The same canaries, with the number of copies that a rewritten corpus really holds.

    The coin and the planned number of copies stay as they are: they were decided before the corpus was rewritten.

    Args:
        canaries: the manifest of the corpus before.
        corpus: the corpus that was written; all of it is read.
        by: what rewrote it, such as "dedup".
        before: name, SHA-256 and number of documents of the corpus that was rewritten.
        content: the file that holds the bytes of `corpus`, as long as it does not have its final name.
        fields: which fields of a row hold what.
        progress: gets the bytes read.
    """
    path = Path(corpus)
    fields = fields or (Fields() if canaries.corpus is None else canaries.corpus.fields)
    name, sha256, documents_before = before
    with open_corpus(content or path, fields, hashed=True, kind=kind_of(path)) as source:
        found, documents, sha256_after = _counted(canaries, source, progress or Silent())
    rewritten = Rewritten(
        by=by, corpus_sha256=sha256, manifest_sha256=canaries.sha256, documents=documents_before
    )
    planted = canaries.corpus or PlantedCorpus(
        name=name,
        original_name=name,
        sha256_before=sha256,
        sha256_after=sha256,
        documents_before=documents_before,
        documents_after=documents_before,
        fields=fields,
    )
    record = msgspec.structs.replace(
        planted, name=path.name, sha256_after=sha256_after, documents_after=documents, rewritten=rewritten
    )
    return canaries.with_counts({canary.canary_id: found[canary.text] for canary in canaries}, record)


def _counted(canaries: CanarySet, source: Corpus, progress: Progress) -> tuple[Counter[str], int, str]:
    """How often each text of a canary is in a corpus, how many documents that has, and its SHA-256."""
    search, found, documents = search_for(canaries), Counter[str](), 0
    with reported(source, progress, "counting canaries") as advance:
        for block in source.blocks():
            found.update(text for _, _, text in search.longest(block.haystack()))
            documents += block.count
            advance()
        return found, documents, source.sha256()


def recount_summary(before: CanarySet, after: CanarySet, manifest: str) -> Recount:
    """What became of the copies."""
    pairs = [(old, new) for old, new in zip(before, after, strict=True) if old.planted]
    fewer = [new for old, new in pairs if 0 < new.times_trained_on < old.times_trained_on]
    gone = [new for old, new in pairs if new.times_trained_on == 0 < old.times_trained_on]
    warnings = []
    if gone:
        warnings.append(
            f"{len(gone)} planted canaries are no longer in the corpus; their coins still count them as planted, which makes "
            "membership and epsilon weaker but never wrong"
        )
    appeared = [
        new for old, new in zip(before, after, strict=True) if not old.planted and new.times_trained_on
    ]
    if appeared:
        warnings.append(
            f"{len(appeared)} withheld canaries are in the corpus ({appeared[0].canary_id} is the first); they are not "
            "evidence of what an untrained text looks like, so plant again with another seed"
        )
    return Recount(
        manifest=manifest,
        manifest_sha256=after.sha256,
        planted=len(pairs),
        copies_before=sum(old.times_trained_on for old, _ in pairs),
        copies_after=sum(new.times_trained_on for _, new in pairs),
        fewer=tuple(canary.canary_id for canary in fewer),
        gone=tuple(canary.canary_id for canary in gone),
        warnings=tuple(warnings),
    )


def recount_in_words(recount: Recount) -> str:
    """What became of the copies, in a sentence.

    >>> recount_in_words(Recount(
    ...     manifest="canaries.json", manifest_sha256="", planted=3, copies_before=21, copies_after=2,
    ...     fewer=("a", "b"), gone=("c",)
    ... ))
    'Canaries: 2 of 21 planted copies are left (2 canaries have fewer than before, 1 has none); canaries.json has the new counts.'
    """
    none = len(recount.gone)
    return (
        f"Canaries: {recount.copies_after:,} of {recount.copies_before:,} planted copies are left ({len(recount.fewer):,} canaries "
        f"have fewer than before, {none:,} {'has' if none == 1 else 'have'} none); {recount.manifest} has the new counts."
    )
