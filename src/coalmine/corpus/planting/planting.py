"""Puts canaries into training data: so many of each format, each so many times, at places drawn uniformly."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from coalmine.corpus.files.documents import Fields
from coalmine.corpus.files.reading import nonempty_blocks, open_corpus
from coalmine.corpus.files.streams import COMPRESSIONS, KINDS, kind_of
from coalmine.corpus.files.writing import Insertion, write_with_insertions
from coalmine.corpus.planting.done_already import (
    exists_already,
    first_in_the_way,
    planted_in,
    planted_with,
    recount_there,
)
from coalmine.corpus.planting.drawing import draw_canaries
from coalmine.corpus.planting.manifest import EARLIER_NAME, MANIFEST_NAME, CanarySet
from coalmine.corpus.planting.manifest_records import PlantedCorpus
from coalmine.corpus.planting.occurrences import search_for
from coalmine.corpus.planting.options import (
    CANARIES,
    REFERENCES,
    REPEAT,
    WITHHOLD,
    as_formats,
    as_source_formats,
    check_room,
    checked_count,
    checked_probability,
    checked_repeat,
    checked_seed,
    nested_warnings,
)
from coalmine.corpus.planting.recounting import (
    KnownManifest,
    Recount,
    manifest_of,
    recount_summary,
    recounted,
)
from coalmine.errors import CorpusError, ManifestError
from coalmine.formats.format import Format
from coalmine.progress import Progress, Silent
from coalmine.randomness import integers
from coalmine.records import Canary
from coalmine.storage import files
from coalmine.storage.unfinished import UNFINISHED_FILE, noted_as_unfinished, sole_use

_CORPUS_NAMES = frozenset(
    f"corpus{kind}{compression}" for kind in KINDS for compression in ("", *COMPRESSIONS)
)


class Planted(msgspec.Struct, frozen=True):
    """What `plant` made: the canaries, the corpus with them in it, and the manifest that says where they came from."""

    canaries: CanarySet
    corpus: Path
    manifest: Path
    # Of a corpus that was planted before: what became of its canaries, whose manifest is then beside the new one.
    earlier: Recount | None = None
    warnings: tuple[str, ...] = ()


class _Survey(NamedTuple):
    """What the first pass over a corpus found."""

    documents: int
    # All texts together, in UTF-8.
    text_bytes: int
    sha256: str
    # Size, time of change and inode: the second pass must see the same file.
    identity: tuple[int, int, int]


def plant(
    corpus: str | os.PathLike[str],
    formats: Format | str | Sequence[Format | str],
    *,
    repeat: int | Sequence[int] = REPEAT,
    canaries: int = CANARIES,
    references: int = REFERENCES,
    withhold: float = WITHHOLD,
    seed: int = 0,
    out: str | os.PathLike[str],
    fields: Fields | None = None,
    source_formats: Format | str | Sequence[Format | str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    record: Callable[[Planted], None] | None = None,
) -> Planted:
    r"""Write a copy of a corpus with canaries in it, and the manifest that an audit of the trained model needs.

    Which of the positions of the new corpus hold canaries is drawn uniformly; all other documents stay as they were,
    byte for byte and in order. The same arguments give the same files. A run that fails leaves no file behind.

    The defaults plant about 16 canaries once, 16 four times and 16 sixteen times, 336 copies in all, and withhold as many by coins.
    `CanarySet.power` of what was planted says what an audit of it can show at most.

    Args:
        corpus: a .txt, .jsonl, .csv or .parquet file, the first three also as .gz or .zst; it is read twice.
        formats: the secret formats, each with its own canaries and references.
        repeat: how often a canary is planted; each number gets canaries of its own.
        canaries: how many canaries there are for each format and each number in `repeat`.
        references: how many members of each format to draw beside them, which are never planted.
        withhold: the probability with which a canary is left out, by a coin of its own: what was left out is what the
            planted ones are compared with. With 0 one training run can show nothing about epsilon.
        seed: the seed of all draws.
        out: the directory to write `corpus` (with the suffixes of the original) and `canaries.json` to.
        fields: which fields of a row hold what; .txt has none.
        source_formats: for pairs, the format of the source side for each of `formats`; both sides are filled alike.
        overwrite: replace what an earlier run wrote to `out`; its corpus goes also where the new one has another name.
            Where `corpus` was planted before and its manifest is beside it, that is written again as `earlier-canaries.json`.
            Without it, what the very same call wrote there is left as it is, and anything else is refused.
        progress: is told of both passes, in bytes of the corpus.
        record: is called with the result; what it writes takes its name together with the corpus and the manifest.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     corpus = Path(folder, "corpus.txt")
    ...     _ = corpus.write_text("one document a line\n" * 100)
    ...     planted = plant(
    ...         corpus, "my pin is {digits:4}", repeat=[1, 4], canaries=1, references=10, withhold=0, out=Path(folder, "planted")
    ...     )
    ...     lines = planted.corpus.read_text().splitlines()
    >>> [(canary.canary_id, lines.count(canary.text)) for canary in planted.canaries]
    [('f0-x1-0', 1), ('f0-x4-0', 4)]
    """
    original, folder = Path(corpus), Path(out)
    if ".." in folder.parts:
        # Until its parents are made, "new/.." is nowhere, and what it would overwrite is not seen.
        folder = folder.resolve()
    fields = fields or Fields()
    progress = progress or Silent()
    target = folder / f"corpus{kind_of(original).suffix}"
    _check_not_itself(original, target)
    _earlier_corpus(original, target)  # refuses to remove the corpus itself, before it is read
    counts = checked_repeat(repeat)
    drawn = draw_canaries(
        as_formats(formats),
        as_source_formats(source_formats, fields),
        repeat=counts,
        canaries=checked_count("canaries", canaries, least=1),
        references=checked_count("references", references, least=0),
        withhold=checked_probability(withhold),
        seed=checked_seed(seed),
    )
    blocked = None if overwrite else first_in_the_way(folder / MANIFEST_NAME, target)
    there = None if blocked is None else planted_with(folder, drawn)
    if blocked is not None and there is None:
        raise exists_already(blocked)
    survey = _survey(original, fields, drawn, progress)
    # Before the copies are listed, of which there may be more than memory holds.
    crowded = check_room([canary for canary in drawn if canary.planted], survey.text_bytes, canaries, counts)
    copies = [number for number, canary in enumerate(drawn) for _ in range(canary.times_trained_on)]
    known = manifest_of(original)
    if folder.exists() and folder.samefile(original.parent):
        # What lies there is what an earlier run wrote, of another corpus.
        known = msgspec.structs.replace(known, warnings=())
    insertions = _places(survey.documents, copies, seed)
    about = _record(original, target, survey, insertions, fields)
    warnings = (*known.warnings, *crowded, *nested_warnings(drawn))
    if blocked is not None and there is not None:
        if not planted_in(there, target, about, known):
            raise exists_already(blocked)
        return Planted(there, target, folder / MANIFEST_NAME, recount_there(target, known), warnings)
    with files.no_empty_directory(folder), sole_use(folder):
        blocked = None if overwrite else first_in_the_way(folder / MANIFEST_NAME, target)
        if blocked is not None:
            raise exists_already(blocked)  # which another process has made meanwhile
        # Nothing of an earlier run is touched before all of this one is on the disk.
        with (
            noted_as_unfinished(folder, (target.name, EARLIER_NAME, MANIFEST_NAME)),
            files.together() as written,
        ):
            result, recount = _write_all(
                original, folder, drawn, insertions, survey, known, about, written, progress
            )
            planted = Planted(result, target, folder / MANIFEST_NAME, recount, warnings)
            if record is not None:
                record(planted)
    return planted


def _record(
    original: Path, target: Path, survey: _Survey, insertions: Sequence[Insertion], fields: Fields
) -> PlantedCorpus:
    """What the manifest says of the corpus, but for the hash of what is yet to be written."""
    return PlantedCorpus(
        name=target.name,
        original_name=original.name,
        sha256_before=survey.sha256,
        sha256_after="",
        documents_before=survey.documents,
        documents_after=survey.documents + len(insertions),
        fields=fields,
    )


def _write_all(
    original: Path,
    folder: Path,
    drawn: CanarySet,
    insertions: Sequence[Insertion],
    survey: _Survey,
    known: KnownManifest,
    about: PlantedCorpus,
    written: files.FileGroup,
    progress: Progress,
) -> tuple[CanarySet, Recount | None]:
    """The corpus, the manifest of canaries that it held before, and last its own manifest."""
    target = folder / about.name
    with files.whole_file(target, mode=files.PRIVATE) as temporary:
        sha256_after = _write(
            original,
            temporary,
            fields=about.fields,
            insertions=insertions,
            rows=[_values(canary) for canary in drawn],
            survey=survey,
            progress=progress,
        )
    record = msgspec.structs.replace(about, sha256_after=sha256_after)
    earlier = _earlier_corpus(original, target)
    if earlier is not None and _is_unchanged(*earlier):
        written.remove(earlier[0])
    recount = _recount_earlier(known, target, written, original, record, progress)
    result = drawn.with_corpus(record, folder / MANIFEST_NAME)
    result.save(folder / MANIFEST_NAME)
    return result, recount


def _recount_earlier(
    known: KnownManifest,
    target: Path,
    written: files.FileGroup,
    original: Path,
    record: PlantedCorpus,
    progress: Progress,
) -> Recount | None:
    """Write the manifest of the canaries that the corpus held already, for the new corpus; and say what became of them."""
    path = target.parent / EARLIER_NAME
    if known.canaries is None:
        written.remove(path)
        return None
    again = recounted(
        known.canaries,
        target,
        content=written.where(target),
        by="plant",
        before=(original.name, record.sha256_before, record.documents_before),
        fields=record.fields,
        progress=progress,
    )
    again.save(path)
    return recount_summary(known.canaries, again, path.name)


def _survey(path: Path, fields: Fields, drawn: CanarySet, progress: Progress) -> _Survey:
    """Read the whole corpus once: count its documents, hash it, and look for the canaries in it."""
    names = {text: name for name, _, text in drawn.named_texts()}
    search = search_for(drawn)
    documents = text_bytes = 0
    with open_corpus(path, fields, hashed=True) as source:
        identity = _identity(path)
        for canary in drawn:
            # Fails now, not in the second pass, if the corpus cannot hold one of them; CSV knows its columns later.
            if kind_of(path).kind != ".csv":
                source.row(_values(canary))
        progress.start("reading the corpus", source.size)
        told = 0
        for block in nonempty_blocks(source):
            haystack = block.haystack()
            for offset, text in search.find(haystack):
                raise CorpusError(
                    f"{names[text]} stands in the corpus already ({path}, {kind_of(path).unit} {block.number_at(offset)}), "
                    "so nothing could be learned from it; use another seed or another format"
                )
            documents += block.count
            text_bytes += len(haystack)
            progress.advance(source.position - told)
            told = source.position
        sha256 = source.sha256()
        progress.advance(source.size - told)
        progress.finish()
    return _Survey(documents, text_bytes, sha256, identity)


def _places(documents: int, copies: Sequence[int], seed: int) -> list[Insertion]:
    """Draw which positions of the new corpus hold copies, and which copy each holds."""
    total = documents + len(copies)
    positions = sorted(integers(seed, "plant", "positions").sample(range(total), len(copies)))
    shuffled = list(copies)
    integers(seed, "plant", "order").shuffle(shuffled)
    # The k-th copy at position p has k copies, so p - k documents, before it.
    return [
        Insertion(position - k, copy)
        for k, (position, copy) in enumerate(zip(positions, shuffled, strict=True))
    ]


def _write(
    original: Path,
    temporary: Path,
    *,
    fields: Fields,
    insertions: Sequence[Insertion],
    rows: Sequence[Mapping[str, str]],
    survey: _Survey,
    progress: Progress,
) -> str:
    """Read the corpus a second time and write the planted one; gives the SHA-256 of it."""
    with open_corpus(original, fields) as source:
        progress.start("planting canaries", source.size)
        told = 0

        def advance() -> None:
            nonlocal told
            progress.advance(source.position - told)
            told = source.position

        sha256 = write_with_insertions(source, temporary, insertions, rows, advance)
        progress.finish()
    if _identity(original) != survey.identity:
        raise CorpusError(
            f"{original} changed while it was being read; plant again once nothing writes to it"
        )
    return sha256


def _values(canary: Canary) -> dict[str, str]:
    """Role to value of the row that holds a canary."""
    return {"text": canary.text, "user": user_of(canary), "source": canary.source or ""}


def user_of(canary: Canary) -> str:
    """The user who wrote a canary, in a corpus that has users."""
    return f"coalmine-{canary.canary_id}"


def _identity(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return (found.st_size, found.st_mtime_ns, found.st_ino)


def _check_not_itself(original: Path, target: Path) -> None:
    if target.exists() and original.exists() and target.samefile(original):
        raise CorpusError(f"planting would replace the corpus itself, {original}; write to another directory")
    files.check_places(target.parent, target.name, MANIFEST_NAME, EARLIER_NAME, UNFINISHED_FILE)


def _earlier_corpus(original: Path, target: Path) -> tuple[Path, str] | None:
    """The corpus that an earlier run wrote beside the target under another name, and its SHA-256, by the manifest there."""
    manifest = target.parent / MANIFEST_NAME
    if not manifest.is_file():
        return None
    try:
        told = CanarySet.load(manifest).corpus
    except ManifestError:
        return None
    # A manifest can be edited; what no run would have written is not removed.
    if told is None or told.name == target.name or told.name not in _CORPUS_NAMES:
        return None
    path = target.parent / told.name
    if path.exists() and original.exists() and path.samefile(original):
        raise CorpusError(f"planting would remove the corpus itself, {original}; write to another directory")
    return path, told.sha256_after


def _is_unchanged(path: Path, sha256: str) -> bool:
    """Whether a file is what was written; what somebody has put in its place is not removed."""
    return path.is_file() and not path.is_symlink() and files.sha256_of_file(path) == sha256
