"""Writes a corpus again without what is repeated in it: parts of texts, and documents that are nearly the same."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from coalmine.corpus.deduplication.exact import CutCorpus, Sizes, as_change, exact_summary, remove_repeats
from coalmine.corpus.deduplication.near_duplicates import (
    PERMUTATIONS,
    WORDS,
    NearDuplicate,
    chance_of_proposal,
    near_duplicates,
    rows_in_band,
)
from coalmine.corpus.deduplication.options import DedupOptions
from coalmine.corpus.deduplication.report import (
    REMOVED_FILE,
    REPORT_FILE,
    Deduplication,
    ExactSummary,
    NearSummary,
    Removed,
    finished_before,
)
from coalmine.corpus.files.corpora import Edits
from coalmine.corpus.files.kinds import kind_of
from coalmine.corpus.files.reading import open_corpus
from coalmine.corpus.outputs import exists_already, first_in_the_way, sole_writing
from coalmine.corpus.planting.manifest import MANIFEST_NAME, CanarySet
from coalmine.corpus.planting.recounting import KnownManifest, manifest_of
from coalmine.corpus.rewriting import OriginalCorpus, refuse_itself
from coalmine.engines.engine import Engine, open_engine
from coalmine.errors import CorpusError
from coalmine.progress import Progress, Silent
from coalmine.storage.directories import UNFINISHED_FILE, work_directory
from coalmine.storage.files import FileGroup, check_places, refused_writing, together


def deduplicate(
    corpus: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    canaries: CanarySet | str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    engine: Engine | str | None = None,
    progress: Progress | None = None,
    record: Callable[[Deduplication], None] | None = None,
    options: DedupOptions | None = None,
    **changes: Any,
) -> Deduplication:
    r"""Write a copy of a corpus in which no text of some length occurs twice, and no two documents are nearly the same.

    Repeated text comes first, in rounds: taking something out brings together what was around it, which may occur elsewhere
    as well, so the corpus is searched again until nothing is found. Then near duplicates of earlier documents are left out. A
    second run on the result therefore finds nothing. A document of which nothing is left is left out. All other fields, and
    documents that do not change, stay as they were.

    For a planted corpus, the copies of canaries that are left are counted in what was written, and `canaries.json` is written
    beside it with these counts.

    Args:
        corpus: a corpus file of any kind that `read_documents` reads.
        out: the directory for `corpus` (with the suffixes of the original), `dedup.json` and `removed.jsonl`.
        canaries: the manifest of a planted corpus; None takes the canaries.json beside the corpus if it belongs to it.
        overwrite: replace what an earlier run wrote to `out`. Without it, what the very same call wrote there is left as it is, and
            anything else is refused.
        engine: where near duplicates and repeated text are looked for, such as "processes:4"; without it, in this process.
        progress: gets each search.
        record: called with the result; what it writes appears together with the corpus and the report.
        options: from which length and similarity on something is repeated; the default is `DedupOptions()`.
        changes: fields of `DedupOptions` by name, such as `exact=50` (bytes) or `near=None`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("a sentence that is repeated, and this\na sentence that is repeated\n")
    ...     report = deduplicate(Path(folder, "a.txt"), Path(folder, "out"), exact=20, near=None)
    >>> report.documents_after, report.bytes_before - report.bytes_after
    (1, 27)
    """
    chosen = DedupOptions.of(options, changes)
    source, folder = Path(corpus), Path(out)
    target = folder / f"corpus{kind_of(source).full_suffix}"
    _check_places(source, target)
    with open_engine(engine) as opened:
        searching = _Searching(chosen, opened, progress or Silent())
        return _deduplicated(source, target, canaries, searching, record, overwrite=overwrite)


class _Searching(NamedTuple):
    """What is looked for, and where."""

    options: DedupOptions
    engine: Engine
    progress: Progress


def _deduplicated(
    source: Path,
    target: Path,
    canaries: CanarySet | str | os.PathLike[str] | None,
    searching: _Searching,
    record: Callable[[Deduplication], None] | None,
    *,
    overwrite: bool,
) -> Deduplication:
    """Write the corpus again, unless the very same call did that before."""
    options, progress = searching.options, searching.progress
    with open_corpus(source, options.fields) as corpus:
        if corpus.rows is not None and options.exact is not None:
            raise CorpusError(
                f"{source} holds conversations, and repeated text is not cut out of their turns; leave out near duplicates alone "
                "(--no-exact, or exact=None)"
            )
        known = manifest_of(source, canaries)
    folder, manifests = target.parent, () if known.canaries is None else (MANIFEST_NAME,)
    written = (target.name, *manifests, REMOVED_FILE, REPORT_FILE)
    places = [] if overwrite else [folder / name for name in written if name != REMOVED_FILE]
    if (there := first_in_the_way(*places)) is not None:
        done = finished_before(source, target, options, planted=known.canaries is not None)
        if done is None:
            raise exists_already(there)
        return done
    # The corpus can be opened, so there will be something to put there.
    with sole_writing(folder, written, places):
        found = _search(source, folder, searching)
        with together() as group:
            report = _write_all(found, target, known, group, progress)
            if record is not None:
                record(report)
    return report


class _Removals(NamedTuple):
    """What is to be removed from a corpus, and why."""

    state: CutCorpus
    sizes: Sizes
    source: OriginalCorpus
    removed: list[Removed]
    # Places of documents of which nothing is left.
    dropped: set[int]
    exact: ExactSummary | None
    near: NearSummary | None
    seed: int


def _search(source: Path, folder: Path, searching: _Searching) -> _Removals:
    """Repeated text first, then near duplicates among what is left."""
    options, progress = searching.options, searching.progress
    state = CutCorpus(source, options.fields)
    original = OriginalCorpus.of(source, options.fields)
    removed: list[Removed] = []
    rounds = 0
    with refused_writing(folder), work_directory(folder) as work:
        if options.exact is not None:
            rounds, removed = remove_repeats(state, options, work, progress, searching.engine)
        sizes = state.sizes()
        near = list(_near(state, searching, sizes.emptied))
    dropped = sizes.emptied | {place for place, _ in near}
    if len(dropped) == len(sizes.before):
        raise CorpusError(
            f"nothing of {source} would be left, because all of it is repeated; keep one copy, or ask for a greater length"
        )
    return _Removals(
        state,
        sizes,
        original,
        [*removed, *(one for _, one in near)],
        dropped,
        exact_summary(options, rounds, removed, state, sizes),
        _near_summary(options, [one for _, one in near]),
        options.seed,
    )


def _near(state: CutCorpus, searching: _Searching, dropped: set[int]) -> Iterator[tuple[int, Removed]]:
    """The places of near duplicates among what is left, each with its record."""
    options, progress = searching.options, searching.progress
    if options.near is None:
        return
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

    found: list[NearDuplicate] = list(
        near_duplicates(named(), options.near, seed=options.seed, engine=searching.engine)
    )
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


def _near_summary(options: DedupOptions, removed: Sequence[Removed]) -> NearSummary | None:
    if options.near is None:
        return None
    chance = chance_of_proposal(options.near, rows_in_band(options.near))
    return NearSummary(
        options.near, WORDS, PERMUTATIONS, chance, len(removed), sum(one.bytes for one in removed)
    )


def _write_all(
    found: _Removals, target: Path, known: KnownManifest, written: FileGroup, progress: Progress
) -> Deduplication:
    """The corpus, the manifest of a planted one, and the report last."""
    sizes = found.sizes
    after = found.source.write(target, Edits(changes=_changes(found)), progress)
    documents = len(sizes.before)
    recount = found.source.recount(target, known, written, progress, by="dedup", documents=documents)
    report = Deduplication(
        corpus=target.name,
        sha256_before=found.source.sha256,
        sha256_after=after,
        documents_before=documents,
        documents_after=documents - len(found.dropped),
        bytes_before=sum(sizes.before),
        bytes_after=sum(left for place, left in enumerate(sizes.after) if place not in found.dropped),
        exact=found.exact,
        near=found.near,
        seed=found.seed,
        fields=found.state.fields,
        canaries=recount,
        warnings=(*known.warnings, *(() if recount is None else recount.warnings)),
    )
    return report.save(target.parent, found.removed)


def _changes(found: _Removals) -> dict[int, Callable[[str], str] | None]:
    """What becomes of each document that changes."""
    return {
        **{place: as_change(pieces) for place, pieces in found.state.pieces.items()},
        **dict.fromkeys(found.dropped),
    }


def _check_places(source: Path, target: Path) -> None:
    refuse_itself(source, target)
    check_places(target.parent, target.name, MANIFEST_NAME, REPORT_FILE, REMOVED_FILE, UNFINISHED_FILE)
