"""Sorting suffixes of symbols, with a compiled library that sorts bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.errors import MissingExtraError

# What the compiled sort can count to.
LARGEST_SORT = 2**31 - 1
_CHUNK = 1 << 16


def sorted_suffixes(symbols: NDArray[np.uint8], symbol_bytes: int, documents: int) -> NDArray[np.uint32]:
    """The positions of all tokens, in the order of what follows them; a position counts symbols, not bytes.

    Big-endian symbols sort as their bytes do, so the bytes are sorted and the places inside symbols are left out, in place:
    sorting takes 5 bytes of memory for each byte of `symbols`, and less where few of many symbols occur. The ends of
    documents are the smallest symbols, so they come first and are cut off.

    Args:
        symbols: big-endian, 0 at the end of each document and nowhere else.
        symbol_bytes: the width of a symbol.
        documents: how many ends there are.

    >>> sorted_suffixes(np.array([2, 1, 2, 0, 1, 0], dtype=np.uint8), 1, 2).tolist()
    [4, 1, 2, 0]
    """
    narrow = _in_two_bytes(symbols, symbol_bytes) if symbol_bytes > 2 else None
    content, width = (symbols, symbol_bytes) if narrow is None else (narrow, 2)
    found = _sort(content).view(np.uint32)
    kept = len(found)
    if width > 1:
        kept = 0
        for begin in range(0, len(found), _CHUNK):
            chunk = found[begin : begin + _CHUNK]
            aligned = chunk[chunk % width == 0] // width
            found[kept : kept + len(aligned)] = aligned
            kept += len(aligned)
    return found[documents:kept]


def _in_two_bytes(symbols: NDArray[np.uint8], symbol_bytes: int) -> NDArray[np.uint8] | None:
    """The same with each symbol replaced by its rank among those that occur, which sort alike; None if they are too many."""
    highest = max((int(values.max()) for values in _values(symbols, symbol_bytes)), default=0)
    if highest >= 1 << 24:
        return None
    occurs = np.zeros(highest + 1, dtype=bool)
    for values in _values(symbols, symbol_bytes):
        occurs[values] = True
    if np.count_nonzero(occurs) > 1 << 16:
        return None
    ranks = (np.cumsum(occurs) - 1).astype(np.uint16)
    narrow = np.empty(len(symbols) // symbol_bytes, dtype=">u2")
    at = 0
    for values in _values(symbols, symbol_bytes):
        narrow[at : at + len(values)] = ranks[values]
        at += len(values)
    return narrow.view(np.uint8)


def _values(symbols: NDArray[np.uint8], symbol_bytes: int) -> Iterator[NDArray[np.int64]]:
    """The symbols as integers, some at a time."""
    rows = symbols.reshape(-1, symbol_bytes)
    for begin in range(0, len(rows), _CHUNK):
        values = np.zeros(len(rows[begin : begin + _CHUNK]), dtype=np.int64)
        for column in range(symbol_bytes):
            values = (values << 8) | rows[begin : begin + _CHUNK, column]
        yield values


def _sort(content: NDArray[np.uint8]) -> NDArray[Any]:
    if not content.size:
        return np.empty(0, dtype=np.int32)
    try:
        from pydivsufsort import divsufsort
    except ImportError:
        raise MissingExtraError("indexing a corpus", "pydivsufsort", "index") from None
    found: NDArray[Any] = divsufsort(_writable(content))
    return found


def _writable(content: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The same bytes, which the library does not change but wants to be able to; copied only if they are protected."""
    if content.flags.writeable:
        return content
    same = content.view()
    try:
        same.flags.writeable = True
    except ValueError:
        return content.copy()
    return same
