"""Writes a corpus again without what is repeated in it: parts of texts, and documents that are nearly the same."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from coalmine.corpus.deduplication.cuts import CutCorpus, Survey, as_change
from coalmine.corpus.deduplication.near_duplicates import (
    PERMUTATIONS,
    WORDS,
    NearDuplicate,
    chance_of_proposal,
    near_duplicates,
    rows_in_band,
)
from coalmine.corpus.deduplication.repeated_text import RepeatedPart, repeated_parts
from coalmine.corpus.deduplication.report import (
    REMOVED_FILE,
    REPORT_FILE,
    Deduplication,
    ExactSummary,
    Keep,
    NearSummary,
    Removed,
)
from coalmine.corpus.files.documents import Fields
from coalmine.corpus.files.reading import open_corpus
from coalmine.corpus.files.rewriting import Changes, write_with_changes
from coalmine.corpus.files.streams import kind_of
from coalmine.corpus.index.building import DEFAULT_MEMORY, build_index
from coalmine.corpus.index.sorting import LARGEST_SORT
from coalmine.corpus.planting.done_already import deduplicated, exists_already, first_in_the_way
from coalmine.corpus.planting.manifest import MANIFEST_NAME, CanarySet
from coalmine.corpus.planting.recounting import KnownManifest, manifest_of, recount_summary, recounted
from coalmine.errors import CorpusError, InputError, ManifestError
from coalmine.progress import Progress, Silent
from coalmine.storage.files import (
    PRIVATE,
    FileGroup,
    check_places,
    refused_writing,
    sha256_of_file,
    together,
    whole_file,
)
from coalmine.storage.unfinished import UNFINISHED_FILE, noted_as_unfinished, sole_use
from coalmine.storage.work_files import work_directory


def deduplicate(
    corpus: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    exact: int | None = 100,
    keep: Keep = "one",
    near: float | None = 0.8,
    fields: Fields | None = None,
    canaries: CanarySet | str | os.PathLike[str] | None = None,
    memory: int = DEFAULT_MEMORY,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress | None = None,
    record: Callable[[Deduplication], None] | None = None,
) -> Deduplication:
    """Write a copy of a corpus in which no text of some length stands twice, and no two documents are nearly the same.

    Repeated text comes first, in rounds: taking something out brings together what stood around it, which may stand
    elsewhere as well, so the corpus is searched again until nothing is found. Then near duplicates of earlier
    documents are left out. A second run on the result therefore finds nothing. A document of which nothing is left is left
    out. All other fields, and documents that do not change, stay as they were.

    Of a planted corpus, the copies of canaries that are left are counted in what was written, and `canaries.json` is written with
    these counts beside it.

    Args:
        corpus: a .txt, .jsonl, .csv or .parquet file, the first three also as .gz or .zst.
        out: the directory for `corpus` (with the suffixes of the original), `dedup.json` and `removed.jsonl`.
        exact: the length in bytes of UTF-8 from which on a text must not stand twice; None to leave this out.
        keep: "one" keeps the first copy, "none" none.
        near: the similarity from which on a document is a near duplicate; None to leave this out.
        fields: which fields of a row hold what.
        canaries: the manifest of a planted corpus; None takes the canaries.json beside the corpus if it belongs to it.
        memory: about how many bytes sorting may take. Near duplicates take about 8 bytes per word beside it.
        seed: the seed of the hashes that propose near duplicates.
        overwrite: replace what an earlier run wrote to `out`. Without it, what the very same call wrote there is left as it is, and
            anything else is refused.
        progress: is told of each search.
        record: is called with the result; what it writes takes its name together with the corpus and the report.
    """
    source, folder, fields, progress = Path(corpus), Path(out), fields or Fields(), progress or Silent()
    target = folder / f"corpus{kind_of(source).suffix}"
    _check(source, target, exact, keep, near)
    with open_corpus(source, fields):
        known = manifest_of(source, canaries)
        written = (
            target.name,
            *(() if known.canaries is None else (MANIFEST_NAME,)),
            REMOVED_FILE,
            REPORT_FILE,
        )
        places = [folder / name for name in written if name != REMOVED_FILE]
        if not overwrite and (there := first_in_the_way(*places)) is not None:
            done = deduplicated(
                source, target, exact=exact, keep=keep, near=near, seed=seed, fields=fields, known=known
            )
            if done is None:
                raise exists_already(there)
            return done
    # The corpus can be opened, so there will be something to put there.
    with sole_use(folder):
        if not overwrite and (there := first_in_the_way(*places)) is not None:
            raise exists_already(there)  # which another process has made meanwhile
        with noted_as_unfinished(folder, written):
            found = _search(
                source, folder, fields, exact, keep, near, memory=memory, seed=seed, progress=progress
            )
            with together() as group:
                report = _write_all(found, target, known, group, progress)
                if record is not None:
                    record(report)
    return report


class _Found(NamedTuple):
    """What is to be removed from a corpus, and why."""

    state: CutCorpus
    survey: Survey
    # The corpus as it was read.
    sha256: str
    changed_at: int
    removed: list[Removed]
    # Places of documents of which nothing is left.
    dropped: set[int]
    exact: ExactSummary | None
    near: NearSummary | None
    seed: int


def _search(
    source: Path,
    folder: Path,
    fields: Fields,
    exact: int | None,
    keep: Keep,
    near: float | None,
    *,
    memory: int,
    seed: int,
    progress: Progress,
) -> _Found:
    """Repeated text first, then near duplicates among what is left."""
    state = CutCorpus(source, fields)
    before, changed_at = sha256_of_file(source), source.stat().st_mtime_ns
    removed: list[Removed] = []
    rounds = 0
    with refused_writing(folder), work_directory(folder) as work:
        if exact is not None:
            rounds, removed = _remove_repeats(state, exact, keep, memory, work, progress)
        survey = state.survey()
        near_found = [] if near is None else list(_near(state, near, seed, survey.emptied, progress))
    dropped = survey.emptied | {place for place, _ in near_found}
    if len(dropped) == len(survey.sizes):
        raise CorpusError(
            f"nothing of {source} would be left, because all of it is repeated; keep one copy, or ask for a greater length"
        )
    return _Found(
        state,
        survey,
        before,
        changed_at,
        [*removed, *(one for _, one in near_found)],
        dropped,
        None if exact is None else _exact_summary(exact, keep, rounds, removed, state, survey),
        None if near is None else _near_summary(near, [one for _, one in near_found]),
        seed,
    )


def _write_all(
    found: _Found, target: Path, known: KnownManifest, written: FileGroup, progress: Progress
) -> Deduplication:
    """The corpus, the manifest of a planted one, and the report last."""
    state, survey, dropped, folder = found.state, found.survey, found.dropped, target.parent
    source, fields, manifest = state.source, state.fields, folder / MANIFEST_NAME
    changes: Changes = {
        **{place: as_change(pieces) for place, pieces in state.pieces.items()},
        **dict.fromkeys(dropped),
    }
    after = _write(source, target, fields, changes, progress)
    if source.stat().st_mtime_ns != found.changed_at:
        raise CorpusError(f"{source} changed while it was being read; run again once nothing writes to it")
    recount = None
    if known.canaries is not None:
        counted = recounted(
            known.canaries,
            target,
            content=written.where(target),
            by="dedup",
            before=(source.name, found.sha256, len(survey.sizes)),
            fields=fields,
            progress=progress,
        )
        counted.save(manifest)
        recount = recount_summary(known.canaries, counted, manifest.name)
    elif _tells_of(manifest, target):
        written.remove(manifest)
    report = Deduplication(
        corpus=target.name,
        sha256_before=found.sha256,
        sha256_after=after,
        documents_before=len(survey.sizes),
        documents_after=len(survey.sizes) - len(dropped),
        bytes_before=sum(survey.sizes),
        bytes_after=sum(left for place, left in enumerate(survey.left) if place not in dropped),
        exact=found.exact,
        near=found.near,
        seed=found.seed,
        fields=fields,
        canaries=recount,
        warnings=(*known.warnings, *(() if recount is None else recount.warnings)),
    )
    return report.save(folder, found.removed)


def _exact_summary(
    length: int, keep: Keep, rounds: int, removed: Sequence[Removed], state: CutCorpus, survey: Survey
) -> ExactSummary:
    return ExactSummary(
        length,
        keep,
        rounds,
        len(removed),
        sum(one.bytes for one in removed),
        len(state.pieces) - len(survey.emptied),
        len(survey.emptied),
    )


def _near_summary(threshold: float, removed: Sequence[Removed]) -> NearSummary:
    chance = chance_of_proposal(threshold, rows_in_band(threshold))
    return NearSummary(
        threshold, WORDS, PERMUTATIONS, chance, len(removed), sum(one.bytes for one in removed)
    )


def _remove_repeats(
    state: CutCorpus, length: int, keep: Keep, memory: int, work: Path, progress: Progress
) -> tuple[int, list[Removed]]:
    """Cut what is repeated out of the documents, until nothing is; gives how often was searched, and what was cut."""
    removed: list[Removed] = []
    source, fields, rounds = state.source, state.fields, 0
    numbers = np.empty(0, dtype=np.int64)
    while True:
        rounds += 1
        index = build_index(
            source, work / "index", fields=fields, memory=memory, overwrite=True, progress=progress
        )
        if rounds == 1:
            numbers = np.concatenate([shard.numbers for shard in index.shards])
        sizes = np.concatenate([np.diff(shard.starts.astype(np.int64)) - 1 for shard in index.shards])
        parts = repeated_parts(index, length, keep_first=keep == "one", work=work, progress=progress)
        if not parts:
            return rounds, removed
        # Before anything is cut: offsets are those of this round.
        origins = [state.original_offset(part.first_document, part.first_offset) for part in parts]
        removed += _cut(state, parts, origins, rounds, sizes, numbers)
        source, fields = work / "round.jsonl", Fields()
        with open(source, "wb") as out:
            texts = (document.text.decode("utf-8") for document in state.documents())
            out.writelines(msgspec.json.encode({"text": text}) + b"\n" for text in texts)


def _cut(
    state: CutCorpus,
    parts: Sequence[RepeatedPart],
    origins: Sequence[int],
    rounds: int,
    sizes: np.ndarray[tuple[int], np.dtype[np.int64]],
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> list[Removed]:
    removed: list[Removed] = []
    for place, some in groupby(zip(parts, origins, strict=True), key=lambda one: one[0].document):
        # From the last to the first, so that the offsets of those that are still to come hold.
        here: list[Removed] = []
        for part, origin in reversed(list(some)):
            for begin, end in reversed(state.cut(place, int(sizes[place]), part.begin, part.end)):
                here.append(
                    Removed(
                        document=int(numbers[place]),
                        reason="repeated text",
                        offset=begin,
                        bytes=end - begin,
                        round=rounds,
                        copies=part.copies,
                        of=int(numbers[part.first_document]),
                        of_offset=origin,
                    )
                )
        removed += reversed(here)
    return removed


def _near(
    state: CutCorpus, threshold: float, seed: int, dropped: set[int], progress: Progress
) -> Iterator[tuple[int, Removed]]:
    """The places of near duplicates among what is left, and what is to be said of each."""
    numbers: dict[int, int] = {}
    texts: dict[int, int] = {}
    progress.start("looking for near duplicates", None)

    def named() -> Iterator[tuple[int, str]]:
        for document in state.documents():
            numbers[document.place] = document.number
            texts[document.place] = len(document.text)
            progress.advance()
            if document.place not in dropped:
                yield document.place, document.text.decode("utf-8")

    found: list[NearDuplicate] = list(near_duplicates(named(), threshold, seed=seed))
    progress.finish()
    for one in found:
        yield (
            one.document,
            Removed(
                document=numbers[one.document],
                reason="near duplicate",
                offset=0,
                bytes=texts[one.document],
                of=numbers[one.of],
                similarity=one.similarity,
            ),
        )


def _write(source: Path, target: Path, fields: Fields, changes: Changes, progress: Progress) -> str:
    with open_corpus(source, fields) as corpus, whole_file(target, mode=PRIVATE) as temporary:
        progress.start("writing the corpus", corpus.size)
        told = 0

        def advance() -> None:
            nonlocal told
            progress.advance(corpus.position - told)
            told = corpus.position

        sha256 = write_with_changes(corpus, temporary, changes, advance)
        progress.finish()
    return sha256


def _check(source: Path, target: Path, exact: int | None, keep: str, near: float | None) -> None:
    if exact is None and near is None:
        raise InputError(
            "nothing to do: neither repeated text nor near duplicates are to be removed; ask for one"
        )
    if exact is not None and not 4 <= exact <= LARGEST_SORT:
        raise InputError(
            f"the length of repeated text should be from 4 to {LARGEST_SORT:,} bytes, got {exact}; 100 is usual"
        )
    if keep not in {"one", "none"}:
        raise InputError(f"keep should be 'one' or 'none', got {keep!r}")
    if near is not None:
        rows_in_band(near)
    if target.exists() and source.exists() and target.samefile(source):
        raise CorpusError(f"this would replace the corpus itself, {source}; write to another directory")
    check_places(target.parent, target.name, MANIFEST_NAME, REPORT_FILE, REMOVED_FILE, UNFINISHED_FILE)


def _tells_of(manifest: Path, corpus: Path) -> bool:
    """Whether a manifest is that of a corpus beside it, which is about to be replaced."""
    try:
        told = CanarySet.load(manifest).corpus
    except ManifestError:
        return False
    return told is not None and told.name == corpus.name
