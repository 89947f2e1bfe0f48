"""Columns of NumPy and Arrow, exchanged through their memory: pyarrow's own conversions import pandas, which takes half a second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def arrow_column(values: NDArray[Any], missing: NDArray[np.bool_] | None = None) -> Any:
    """Numbers, truth values or texts as a column of Arrow, in which those that are missing are null.

    >>> arrow_column(np.array([1.5, 2.5]), np.array([False, True])).to_pylist()
    [1.5, None]
    >>> arrow_column(np.array(["a", "bcd"])).to_pylist()
    ['a', 'bcd']
    """
    import pyarrow as pa

    valid = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    if values.dtype.kind in "UO":
        return _texts(values.tolist(), valid)
    stored = np.packbits(values, bitorder="little") if values.dtype == bool else np.ascontiguousarray(values)
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(stored)])


def _texts(values: Sequence[str], valid: Any) -> Any:
    import pyarrow as pa

    encoded = [text.encode() for text in values]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    buffers = [valid, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_string(), len(values), buffers).cast(pa.string())


def repeated_text(text: str, rows: int) -> Any:
    """A column of one text, stored once."""
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(
        arrow_column(np.zeros(rows, dtype=np.int32)), arrow_column(np.array([text], dtype=object))
    )


def numpy_column(column: Any) -> NDArray[Any]:
    """The numbers or truth values of a column of Arrow without nulls; its texts as objects."""
    import pyarrow as pa

    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_boolean(whole.type) or not pa.types.is_primitive(whole.type):
        kind = bool if pa.types.is_boolean(whole.type) else object
        return np.array(whole.to_pylist(), dtype=kind)
    stored = whole.buffers()[1]
    kind = np.dtype(whole.type.to_pandas_dtype())
    if stored is None:
        return np.zeros(0, dtype=kind)
    return np.frombuffer(stored, dtype=kind)[whole.offset : whole.offset + len(whole)].copy()
