"""Puts canaries into training data: so many of each format, each so many times, at places drawn uniformly."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from coalmine import files
from coalmine.corpus.documents import Fields
from coalmine.corpus.manifest import MANIFEST_NAME, CanarySet
from coalmine.corpus.manifest_records import PlantedCorpus
from coalmine.corpus.occurrences import search_for
from coalmine.corpus.reading import nonempty_blocks, open_corpus
from coalmine.corpus.streams import COMPRESSIONS, KINDS, kind_of
from coalmine.corpus.writing import Insertion, write_errors, write_with_insertions
from coalmine.errors import CorpusError, InputError, ManifestError, NotMeasurableError
from coalmine.formats.format import Format
from coalmine.progress import Progress, Silent
from coalmine.randomness import child_seed, integers
from coalmine.records import Canary

# What every reader of JSON keeps of an integer.
_LARGEST_SEED = 2**53
_CORPUS_NAMES = frozenset(
    f"corpus{kind}{compression}" for kind in KINDS for compression in ("", *COMPRESSIONS)
)


class Planted(msgspec.Struct, frozen=True):
    """What `plant` made: the canaries, the corpus with them in it, and the manifest that says where they came from."""

    canaries: CanarySet
    corpus: Path
    manifest: Path


class _Survey(NamedTuple):
    """What the first pass over a corpus found."""

    documents: int
    sha256: str
    # Size, time of change and inode: the second pass must see the same file.
    identity: tuple[int, int, int]


def plant(
    corpus: str | os.PathLike[str],
    formats: Format | str | Sequence[Format | str],
    *,
    repeat: int | Sequence[int] = (1,),
    canaries: int = 1,
    references: int = 1000,
    withhold: float = 0.0,
    seed: int = 0,
    out: str | os.PathLike[str],
    fields: Fields | None = None,
    source_formats: Format | str | Sequence[Format | str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Planted:
    r"""Write a copy of a corpus with canaries in it, and the manifest that an audit of the trained model needs.

    Which of the positions of the new corpus hold canaries is drawn uniformly; all other documents stay as they were,
    byte for byte and in order. The same arguments give the same files. A run that fails leaves no file behind.

    Args:
        corpus: a .txt, .jsonl, .csv or .parquet file, the first three also as .gz or .zst; it is read twice.
        formats: the secret formats, each with its own canaries and references.
        repeat: how often a canary is planted; each number gets canaries of its own.
        canaries: how many canaries there are for each format and each number in `repeat`.
        references: how many members of each format to draw beside them, which are never planted.
        withhold: the probability with which a canary is left out, by a coin of its own: what was left out is what the
            planted ones are compared with.
        seed: the seed of all draws.
        out: the directory to write `corpus` (with the suffixes of the original) and `canaries.json` to.
        fields: which fields of a row hold what; .txt has none.
        source_formats: for pairs, the format of the source side for each of `formats`; both sides are filled alike.
        overwrite: replace what an earlier run wrote to `out`; its corpus goes also where the new one has another name.
        progress: is told of both passes, in bytes of the corpus.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     corpus = Path(folder, "corpus.txt")
    ...     _ = corpus.write_text("one document a line\n" * 100)
    ...     planted = plant(corpus, "my pin is {digits:4}", repeat=[1, 4], references=10, out=Path(folder, "planted"))
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
    _check_places(original, target, overwrite=overwrite)
    earlier = _earlier_corpus(original, target)
    drawn = _draw(
        _as_formats(formats),
        _as_source_formats(source_formats, fields),
        repeat=_checked_repeat(repeat),
        canaries=_checked_count("canaries", canaries, least=1),
        references=_checked_count("references", references, least=0),
        withhold=_checked_probability(withhold),
        seed=_checked_seed(seed),
    )
    survey = _survey(original, fields, drawn, progress)
    copies = [number for number, canary in enumerate(drawn) for _ in range(canary.times_trained_on)]
    insertions = _places(survey.documents, copies, seed)
    manifest = folder / MANIFEST_NAME
    with write_errors(target), files.whole_file(target, mode=files.PRIVATE) as temporary:
        sha256_after = _write(
            original,
            temporary,
            fields=fields,
            insertions=insertions,
            rows=[_values(canary) for canary in drawn],
            survey=survey,
            progress=progress,
        )
        # From here on the old manifest would tell of a corpus that is no longer there. It goes last: it alone knows the corpus.
        if earlier is not None:
            _remove_if_unchanged(*earlier)
        manifest.unlink(missing_ok=True)
    record = PlantedCorpus(
        name=target.name,
        original_name=original.name,
        sha256_before=survey.sha256,
        sha256_after=sha256_after,
        documents_before=survey.documents,
        documents_after=survey.documents + len(copies),
        fields=fields,
    )
    result = drawn.with_corpus(record, manifest)
    try:
        with write_errors(manifest):
            result.save(manifest)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return Planted(result, target, manifest)


def _draw(
    formats: Sequence[Format],
    source_formats: Sequence[Format] | None,
    *,
    repeat: Sequence[int],
    canaries: int,
    references: int,
    withhold: float,
    seed: int,
) -> CanarySet:
    """Draw canaries and references of each format, and toss the coins."""
    if source_formats is not None and len(source_formats) != len(formats):
        raise CorpusError(
            f"pairs need a source format for each format, but there are {len(source_formats)} for {len(formats)}"
        )
    drawn: list[Canary] = []
    others: dict[str, Sequence[str]] = {}
    named = {f"f{number}": secret for number, secret in enumerate(formats)}
    sources = {f"f{number}": secret for number, secret in enumerate(source_formats or ())}
    for format_id, secret in named.items():
        wanted = canaries * len(repeat)
        if wanted + references > secret.size:
            raise NotMeasurableError(
                f"format {secret.template!r} has {secret.size:,} members, too few for {wanted:,} canaries and "
                f"{references:,} references; ask for fewer, or use a larger format"
            )
        texts = secret.sample(wanted + references, child_seed(seed, "plant", format_id), replace=False)
        if "" in texts:
            raise CorpusError(
                f"the empty text is a member of {secret.template!r} and stands in every document; "
                "use a format whose members all have some text"
            )
        source = sources.get(format_id)
        if source is not None and source.words != secret.words:
            raise CorpusError(
                f"both sides of a pair need the same words, but those of {secret.template!r} differ"
            )
        for place, text in enumerate(texts[:wanted]):
            count = repeat[place // canaries]
            canary_id = f"{format_id}-x{count}-{place % canaries}"
            coin = integers(seed, "plant", "withhold", canary_id).random()
            drawn.append(
                Canary(
                    canary_id=canary_id,
                    format_id=format_id,
                    text=text,
                    repetitions=count,
                    planted=coin >= withhold,
                    source=None if source is None else source.fill(secret.fillings(text)),
                )
            )
        others[format_id] = texts[wanted:]
    return CanarySet(drawn, named, references=others, source_formats=sources, seed=seed, withhold=withhold)


def _survey(path: Path, fields: Fields, drawn: CanarySet, progress: Progress) -> _Survey:
    """Read the whole corpus once: count its documents, hash it, and look for the canaries in it."""
    names = {text: name for name, _, text in drawn.named_texts()}
    search = search_for(drawn)
    documents = 0
    with open_corpus(path, fields, hashed=True) as source:
        identity = _identity(path)
        for canary in drawn:
            # Fails now, not in the second pass, if the corpus cannot hold one of them; CSV knows its columns later.
            if kind_of(path).kind != ".csv":
                source.row(_values(canary))
        progress.start("reading the corpus", source.size)
        told = 0
        for block in nonempty_blocks(source):
            for offset, text in search.find(block.haystack()):
                raise CorpusError(
                    f"{names[text]} stands in the corpus already ({path}, {kind_of(path).unit} {block.number_at(offset)}), "
                    "so nothing could be learned from it; use another seed or another format"
                )
            documents += block.count
            progress.advance(source.position - told)
            told = source.position
        sha256 = source.sha256()
        progress.advance(source.size - told)
        progress.finish()
    return _Survey(documents, sha256, identity)


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


def _check_places(original: Path, target: Path, *, overwrite: bool) -> None:
    if target.exists() and original.exists() and target.samefile(original):
        raise CorpusError(f"planting would replace the corpus itself, {original}; write to another directory")
    for path in (target.parent / MANIFEST_NAME, target):
        if path.exists() and not overwrite:
            raise CorpusError(
                f"{path} exists already; write to another directory, or allow it to be replaced with overwrite"
            )


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


def _remove_if_unchanged(path: Path, sha256: str) -> None:
    """Remove a file if it is what was written; what somebody has put in its place stays."""
    if path.is_file() and not path.is_symlink() and files.sha256_of_file(path) == sha256:
        path.unlink()


def _as_formats(given: Format | str | Sequence[Format | str]) -> list[Format]:
    several = [given] if isinstance(given, Format | str) else list(given)
    if not several:
        raise InputError(
            "planting needs at least one format, but none was given; give one such as 'my pin is {digits:4}'"
        )
    return [Format(each) if isinstance(each, str) else each for each in several]


def _as_source_formats(
    given: Format | str | Sequence[Format | str] | None, fields: Fields
) -> list[Format] | None:
    if (given is None) != (fields.source is None):
        missing, there = (
            ("source format", "source field") if given is None else ("source field", "source format")
        )
        raise CorpusError(
            f"pairs need a source field and source formats, but there is a {there} and no {missing}; give both"
        )
    return None if given is None else _as_formats(given)


def _checked_repeat(repeat: int | Sequence[int]) -> list[int]:
    counts: list[int] = (
        [repeat] if isinstance(repeat, int) else [*repeat] if isinstance(repeat, Sequence) else []
    )
    if (
        not counts
        or any(not isinstance(count, int) for count in counts)
        or min(counts) < 1
        or len(set(counts)) < len(counts)
    ):
        raise InputError(
            f"repeat should be different whole numbers of at least 1, but is {repeat!r}; give some such as [1, 4, 16]"
        )
    return counts


def _checked_count(name: str, count: int, *, least: int) -> int:
    if count < least:
        raise InputError(f"{name} should be at least {least}, but is {count}; give a larger number")
    return count


def _checked_probability(withhold: float) -> float:
    if not 0.0 <= withhold <= 1.0:
        raise InputError(f"withhold is a probability, but is {withhold}; give a number from 0 to 1")
    return withhold


def _checked_seed(seed: int) -> int:
    if not 0 <= seed <= _LARGEST_SEED:
        raise InputError(f"the seed should be an integer from 0 to 2**53, but is {seed}; give another")
    return seed
