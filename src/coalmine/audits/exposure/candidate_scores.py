"""The scores of candidates that `expose` keeps in scores.parquet, read back and checked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure.estimators import CandidateKind
from coalmine.audits.exposure.results import CandidateScores
from coalmine.errors import InputError, MissingExtraError

# A few bytes of Parquet can encode any number of rows; `expose` never writes as many as these.
MOST_ROWS = 100_000_000


class _Columns(NamedTuple):
    """The columns of a table; names are codes into a list, because millions of rows share a few names."""

    formats: tuple[NDArray[np.int32], list[str]]
    kinds: tuple[NDArray[np.int32], list[str]]
    bits: NDArray[np.float64]
    indices: NDArray[np.object_] | None


def read_candidates(path: Path, *, indices: bool = True) -> list[CandidateScores]:
    """The scores in a scores.parquet by format and kind; without `indices` these are not read, and all are empty."""
    columns = _read(path, indices=indices)
    (form_codes, forms), (kind_codes, kinds) = columns.formats, columns.kinds
    found = []
    for form in dict.fromkeys(form_codes.tolist()):
        of_form = form_codes == form
        for kind in dict.fromkeys(kind_codes[of_form].tolist()):
            if kinds[kind] not in get_args(CandidateKind):
                raise _damaged(path, "it has a kind of score that is not known")
            rows = of_form & (kind_codes == kind)
            numbers = np.empty(0, dtype=object) if columns.indices is None else columns.indices[rows]
            found.append(CandidateScores(forms[form], kinds[kind], numbers, columns.bits[rows]))
    return found


def _read(path: Path, *, indices: bool) -> _Columns:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError("reading scores.parquet", "pyarrow", "tables") from None
    names = ["format_id", "kind", "log_perplexity_bits", *(["index"] if indices else [])]
    try:
        # By its bytes, because a path that is not UTF-8 is not text to pyarrow.
        with pa.OSFile(os.fsencode(path)) as source, pq.ParquetFile(source) as file:
            if file.metadata.num_rows > MOST_ROWS:
                raise _damaged(path, f"it claims to have {file.metadata.num_rows:,} rows")
            table = file.read(columns=names)
        if table.column_names != names and sorted(table.column_names) != sorted(names):
            raise _damaged(path, "a column is missing")
        table.validate(full=True)
        texts = {name: table[name].cast(pa.string()).combine_chunks() for name in names if name != names[2]}
        bits = table[names[2]].cast(pa.float64()).combine_chunks()
    except (pa.ArrowException, OSError, KeyError, MemoryError, OverflowError, UnicodeError):
        raise _damaged(path, "it cannot be read as one") from None
    if any(column.null_count for column in (*texts.values(), bits)):
        raise _damaged(path, "a value in it is missing")
    scores = np.asarray(bits, dtype=np.float64)
    if np.isnan(scores).any():
        raise _damaged(path, "a score in it is not a number")
    coded = []
    for name in names[:2]:
        encoded = texts[name].dictionary_encode()
        coded.append((np.asarray(encoded.indices), encoded.dictionary.to_pylist()))
    numbers = np.asarray(texts["index"].to_numpy(zero_copy_only=False), dtype=object) if indices else None
    return _Columns(coded[0], coded[1], scores, numbers)


def _damaged(path: Path, why: str) -> InputError:
    return InputError(f"{path} is not a scores.parquet of `coalmine expose` ({why}); run expose again")
