"""The scores of candidates that `expose` keeps in scores.parquet: written, read back and checked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure.estimators import CandidateKind
from coalmine.errors import InputError, MissingExtraError
from coalmine.storage.files import PRIVATE, sha256_of_file, whole_file

# A few bytes of Parquet can encode any number of rows; `expose` never writes as many as these.
MOST_ROWS = 100_000_000


class CandidateScores(NamedTuple):
    """Scores of members of a format that canaries were compared with."""

    format_id: str
    kind: CandidateKind
    indices: NDArray[Any]  # (candidates,), places in the format's order: `Format.at` gives the text
    log_perplexities_bits: NDArray[np.float64]  # (candidates,)
    # Minus log2 of the probability with which each was drawn, where these probabilities differ.
    log2_weights: NDArray[np.float64] | None = None


class _Columns(NamedTuple):
    """The columns of a table; names are codes into a list, because millions of rows share a few names."""

    formats: tuple[NDArray[np.int32], list[str]]
    kinds: tuple[NDArray[np.int32], list[str]]
    bits: NDArray[np.float64]
    indices: NDArray[np.object_] | None


def write_scores(path: Path, candidates: Sequence[CandidateScores]) -> str:
    """One row per candidate: format_id, kind, index (decimal text), log_perplexity_bits, and log2_weight of guided draws.

    Returns the SHA-256 of the file.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError("writing scores.parquet", "pyarrow", "tables") from None
    schema = pa.schema(
        [
            ("format_id", pa.dictionary(pa.int32(), pa.string())),
            ("kind", pa.dictionary(pa.int32(), pa.string())),
            # Text where a space is too large for 64 bits would change the type from file to file, so always text.
            ("index", pa.string()),
            ("log_perplexity_bits", pa.float64()),
            ("log2_weight", pa.float64()),
        ]
    )
    with whole_file(path, mode=PRIVATE) as temporary:
        with open(temporary, "wb") as stream, pq.ParquetWriter(stream, schema) as writer:
            for scores in candidates:
                n = len(scores.indices)
                columns = [
                    pa.array([scores.format_id] * n, pa.string()).dictionary_encode(),
                    pa.array([scores.kind] * n, pa.string()).dictionary_encode(),
                    pa.array(scores.indices.astype(str), pa.string()),
                    pa.array(scores.log_perplexities_bits, pa.float64()),
                    pa.nulls(n, pa.float64())
                    if scores.log2_weights is None
                    else pa.array(scores.log2_weights),
                ]
                writer.write_table(pa.Table.from_arrays(columns, schema=schema))
        return sha256_of_file(temporary)


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
