"""The registry of kinds of corpus file: one line per kind, from which everything else follows."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from coalmine.corpus.files.comma_separated import CSV
from coalmine.corpus.files.corpora import CorpusKind
from coalmine.corpus.files.json_lines import JSON_LINES
from coalmine.corpus.files.parquet import PARQUET
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
    """The kind of a corpus file by its suffixes; a CorpusError where they name none that can be read.

    >>> kind = kind_of("mail.2024.jsonl.zst")
    >>> kind.title, kind.suffix, kind.compression
    ('JSON Lines', '.jsonl', '.zst')
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSIONS else ""
    last = suffixes[-1] if suffixes else ""
    found = next((kind for kind in KINDS if kind.suffix == last), None)
    if found is None and Path(path).is_dir():
        raise CorpusError(
            f"a corpus is one file, but {path} is a directory; join its files, or name one of them"
        )
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
