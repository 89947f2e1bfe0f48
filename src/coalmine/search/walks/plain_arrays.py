"""Nodes, integers of any size and states of models as plain arrays, which are stored and sent without pickles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

# The bytes by which arrays are told apart before they are compared.
BEGINNING = 256


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


def pack_states(batches: Iterable[tuple[int, Sequence[NDArray[Any]]]]) -> Arrays:
    """Numbered batches of arrays as a few long arrays; thousands of small ones would be slow to write. Equal arrays are there once."""
    numbers, places = [], []
    unique: list[NDArray[Any]] = []
    # The places of arrays that begin alike, most of which are equal.
    alike: dict[tuple[str, tuple[int, ...], bytes], list[int]] = {}
    for number, arrays in batches:
        for array in arrays:
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            similar = alike.setdefault((array.dtype.str, array.shape, flat[:BEGINNING].tobytes()), [])
            place = next((one for one in similar if _equal(unique[one], array)), len(unique))
            if place == len(unique):
                unique.append(array)
                similar.append(place)
            numbers.append(number)
            places.append(place)
    shapes = np.full((len(unique), max((part.ndim for part in unique), default=0)), -1, dtype=np.int64)
    for row, part in enumerate(unique):
        shapes[row, : part.ndim] = part.shape
    raw = [np.ascontiguousarray(part).reshape(-1).view(np.uint8) for part in unique]
    return {
        "state_numbers": np.array(numbers, dtype=np.int64),
        "state_places": np.array(places, dtype=np.int64),
        "state_types": np.array([part.dtype.str for part in unique], dtype=str),
        "state_shapes": shapes,
        "state_bytes": np.concatenate(raw) if raw else np.empty(0, dtype=np.uint8),
    }


def unpack_states(packed: Arrays) -> dict[int, list[NDArray[Any]]]:
    """What `pack_states` packed.

    >>> unpack_states(pack_states([(7, [np.array([[1.5, 2.5]])])]))
    {7: [array([[1.5, 2.5]])]}
    """
    unique: list[NDArray[Any]] = []
    begin = 0
    for kind, padded in zip(packed["state_types"].tolist(), packed["state_shapes"], strict=True):
        shape, dtype = tuple(padded[padded >= 0].tolist()), np.dtype(kind)
        end = begin + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        unique.append(packed["state_bytes"][begin:end].view(dtype).reshape(shape))
        begin = end
    found: dict[int, list[NDArray[Any]]] = {}
    for number, place in zip(packed["state_numbers"].tolist(), packed["state_places"].tolist(), strict=True):
        found.setdefault(number, []).append(unique[place])
    return found


def _equal(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two arrays of one type and shape have the same bytes."""
    first, second = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (one, other))
    return np.array_equal(first, second)
