"""The registry of kinds of corpus file: one line per kind, from which everything else follows."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from coalmine.corpus.files.arrow_streams import ARROW
from coalmine.corpus.files.comma_separated import CSV
from coalmine.corpus.files.corpora import CorpusKind
from coalmine.corpus.files.json_lines import JSON_LINES
from coalmine.corpus.files.parquet import PARQUET
from coalmine.corpus.files.parts import SPLITS_FILE, STATE_FILE, PartsCorpus, check_one_split, part_files
from coalmine.corpus.files.plain_text import PLAIN_TEXT
from coalmine.corpus.files.streams import COMPRESSIONS
from coalmine.corpus.files.tab_separated import TSV
from coalmine.errors import CorpusError

KINDS: tuple[CorpusKind, ...] = (
    PLAIN_TEXT,
    JSON_LINES,
    CSV,
    PARQUET,
    TSV,
)


def kind_of(path: str | os.PathLike[str]) -> CorpusKind:
    """The kind of a corpus file by its suffixes, or of a directory of parts; a CorpusError where they name none that can be read.

    >>> kind = kind_of("mail.2024.jsonl.zst")
    >>> kind.title, kind.suffix, kind.compression
    ('JSON Lines', '.jsonl', '.zst')
    """
    if Path(path).is_dir():
        return _kind_of_directory(Path(path))
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSIONS else ""
    last = suffixes[-1] if suffixes else ""
    found = next((kind for kind in KINDS if kind.suffix == last), None)
    if found is None:
        raise CorpusError(
            f"cannot tell what kind of corpus {path} is by its suffix; "
            f"name it {', '.join(kind.suffix for kind in KINDS)}, with .gz or .zst after it if it is compressed"
        )
    if compression and not found.compressible:
        raise CorpusError(
            f"{found.title} is compressed inside, but {path} is compressed as a whole; decompress it to {found.suffix} first"
        )
    return dataclasses.replace(found, compression=compression)


def is_in_parts(path: Path) -> bool:
    """Whether a path is a directory that is a corpus."""
    try:
        return kind_of(path).part is not None
    except CorpusError:
        return False


def _kind_of_directory(path: Path) -> CorpusKind:
    """The kind of a directory of parts; a CorpusError where it holds other things."""
    try:
        names = {one.name for one in path.iterdir() if not one.name.startswith(".")}
    except OSError as error:
        raise CorpusError(f"corpus {path} cannot be read: {error.strerror}; check its permissions") from None
    if SPLITS_FILE in names:
        raise CorpusError(
            f"{path} holds several splits of a dataset, and a corpus is one; name one of them, such as {path / 'train'}"
        )
    if STATE_FILE in names:
        part = ARROW
    else:
        suffixes = {
            kind.full_suffix for kind in (kind_of(path / name) for name in names if _is_part(path / name))
        }
        if len(suffixes) != 1 or not all(_is_part(path / name) for name in names):
            raise CorpusError(
                f"a corpus is one file, or a directory of part files of one kind and nothing else, but {path} is a directory of something "
                "else; join its files, or name one of them"
            )
        part = kind_of(path / min(names))
        check_one_split(path, part_files(path), part.full_suffix)
    return dataclasses.replace(part, opens=PartsCorpus, unit="row", part=part)


def _is_part(path: Path) -> bool:
    return path.is_file() and path.name.lower().endswith(tuple(all_suffixes()))


def all_suffixes() -> list[str]:
    """Every suffix that a corpus file can have, compressed ones included.

    >>> all_suffixes()[:4]
    ['.txt', '.txt.gz', '.txt.zst', '.jsonl']
    """
    return [
        kind.suffix + compression
        for kind in KINDS
        for compression in ("", *(COMPRESSIONS if kind.compressible else ()))
    ]


def suffixes_in_words(kinds: Sequence[CorpusKind], *, notes: bool = False) -> str:
    """The suffixes of some kinds as they are listed in help.

    >>> suffixes_in_words(KINDS[:3], notes=True)
    '.txt (one document per line), .jsonl or .csv'
    """
    names = [f"{kind.suffix} ({kind.note})" if notes and kind.note else kind.suffix for kind in kinds]
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
