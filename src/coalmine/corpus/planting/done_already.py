"""Whether a directory holds just what a command would write there, so that there is nothing left to do.

A command that was killed after it had written everything is run again, and should not be told that its own files are in its way.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from coalmine.corpus.deduplication.report import DEDUPLICATIONS, REPORT_FILE, Deduplication, Keep
from coalmine.corpus.files.documents import Fields
from coalmine.corpus.planting.manifest import EARLIER_NAME, MANIFEST_NAME, CanarySet
from coalmine.corpus.planting.manifest_records import PlantedCorpus
from coalmine.corpus.planting.recounting import KnownManifest, Recount, recount_summary
from coalmine.errors import CorpusError, InputError, ManifestError
from coalmine.records.documents import beside
from coalmine.storage.files import sha256_of_file
from coalmine.storage.unfinished import left_unfinished


def exists_already(path: Path) -> CorpusError:
    """The refusal of a place that holds something else."""
    return CorpusError(
        f"{path} exists already; write to another directory, or allow it to be replaced with overwrite"
    )


def first_in_the_way(*paths: Path) -> Path | None:
    """The first of these that is there and is not of a run that was killed."""
    return next(
        (path for path in paths if path.exists() and path.name not in left_unfinished(path.parent)), None
    )


def planted_with(folder: Path, drawn: CanarySet) -> CanarySet | None:
    """The manifest in a directory, if it is of these very draws."""
    path = folder / MANIFEST_NAME
    try:
        there = CanarySet.load(path)
    except ManifestError:
        return None
    if there.corpus is None or drawn.with_corpus(there.corpus, path).to_bytes() != path.read_bytes():
        return None
    return there


def planted_in(there: CanarySet, target: Path, expected: PlantedCorpus, known: KnownManifest) -> bool:
    """Whether a planted corpus is what its manifest says, and this is what was to be planted.

    `expected` is the record that planting would write, whose hash of the planted corpus is not known yet.
    """
    told, earlier = there.corpus, target.with_name(EARLIER_NAME)
    return (
        told is not None
        and msgspec.structs.replace(expected, sha256_after=told.sha256_after) == told
        and target.is_file()
        and sha256_of_file(target) == told.sha256_after
        and (known.canaries is None) == (not earlier.exists())
    )


def recount_there(target: Path, known: KnownManifest) -> Recount | None:
    """What became of the canaries that the corpus held before, by the manifest that was written of them."""
    if known.canaries is None:
        return None
    earlier = target.with_name(EARLIER_NAME)
    return recount_summary(known.canaries, CanarySet.load(earlier), earlier.name)


def deduplicated(
    source: Path,
    target: Path,
    *,
    exact: int | None,
    keep: Keep,
    near: float | None,
    seed: int,
    fields: Fields,
    known: KnownManifest,
) -> Deduplication | None:
    """The report in a directory, if it is of this corpus and these options and all that it tells of is there."""
    folder = target.parent
    try:
        there = DEDUPLICATIONS.alone(folder / REPORT_FILE)
    except InputError:
        return None
    asked = (target.name, exact, keep if exact is not None else None, near, seed, fields)
    told = (
        there.corpus,
        None if there.exact is None else there.exact.length,
        None if there.exact is None else there.exact.keep,
        None if there.near is None else there.near.threshold,
        there.seed,
        there.fields,
    )
    if asked != told or (there.canaries is None) != (known.canaries is None):
        return None
    files = {source: there.sha256_before} | {
        beside(folder / REPORT_FILE, name): sha256
        for name, sha256 in DEDUPLICATIONS.companions(there).items()
    }
    whole = all(path.is_file() and sha256_of_file(path) == sha256 for path, sha256 in files.items())
    return there if whole else None
