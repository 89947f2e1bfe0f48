"""Nodes, integers of any size and states of models as plain arrays, which are stored and sent without pickles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


def plain_integers(values: NDArray[Any]) -> NDArray[Any]:
    """Integers of 64 bits as they are, others in decimal digits.

    >>> plain_integers(np.array([2**70], dtype=object)).tolist()
    ['1180591620717411303424']
    """
    return values if values.dtype != object else np.array([str(value) for value in values], dtype=str)


def whole_integers(plain: NDArray[Any], kind: Any) -> NDArray[Any]:
    """What `plain_integers` was given, as an array of this type.

    >>> whole_integers(np.array(["1180591620717411303424"]), object).tolist() == [2**70]
    True
    """
    return (
        plain.astype(kind) if plain.dtype.kind == "i" else np.array([int(one) for one in plain], dtype=kind)
    )


def pack_states(batches: Mapping[int, Sequence[NDArray[Any]]]) -> Arrays:
    """Batches of arrays by number as a few long arrays; thousands of small ones would be slow to write."""
    parts = [(number, part) for number, arrays in batches.items() for part in arrays]
    most = max((part.ndim for _, part in parts), default=0)
    shapes = np.full((len(parts), most), -1, dtype=np.int64)
    for row, (_, part) in enumerate(parts):
        shapes[row, : part.ndim] = part.shape
    raw = [np.ascontiguousarray(part).reshape(-1).view(np.uint8) for _, part in parts]
    return {
        "state_numbers": np.array([number for number, _ in parts], dtype=np.int64),
        "state_types": np.array([part.dtype.str for _, part in parts], dtype=str),
        "state_shapes": shapes,
        "state_bytes": np.concatenate(raw) if raw else np.empty(0, dtype=np.uint8),
    }


def unpack_states(packed: Arrays) -> dict[int, list[NDArray[Any]]]:
    """What `pack_states` packed.

    >>> unpack_states(pack_states({7: [np.array([[1.5, 2.5]])]}))
    {7: [array([[1.5, 2.5]])]}
    """
    found: dict[int, list[NDArray[Any]]] = {}
    begin = 0
    columns = (packed["state_numbers"].tolist(), packed["state_types"].tolist(), packed["state_shapes"])
    for number, kind, padded in zip(*columns, strict=True):
        shape, dtype = tuple(padded[padded >= 0].tolist()), np.dtype(kind)
        end = begin + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        found.setdefault(number, []).append(packed["state_bytes"][begin:end].view(dtype).reshape(shape))
        begin = end
    return found
