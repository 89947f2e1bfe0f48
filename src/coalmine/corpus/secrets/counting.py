"""Exact counts of many distinct things in bounded memory: what does not fit is sorted to files, which are merged at the end."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

Tally = TypeVar("Tally", bound=msgspec.Struct)

# Distinct things in memory; each takes about half a kilobyte.
_MOST = 100_000
_LENGTH_BYTES = 4
_DIGEST_BYTES = 16


class Tallies(Generic[Tally]):
    """Tallies by the names of what they count, of which only so many are in memory.

    `add` merges a tally into the one of the same names: of two tallies the second is the later one. Iterating gives each names'
    tally once, those that share their first names next to each other, in an order that depends on the names only.

    >>> import tempfile
    >>> class Seen(msgspec.Struct):
    ...     copies: int
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tallies = Tallies(Seen, lambda a, b: Seen(a.copies + b.copies), Path(folder), most=2)
    ...     for name in "abcab":
    ...         tallies.add((name,), Seen(1))
    ...     sorted(one.copies for one in tallies)
    [1, 2, 2]
    """

    def __init__(
        self,
        record: type[Tally],
        merge: Callable[[Tally, Tally], Tally],
        folder: Path,
        *,
        most: int = _MOST,
    ) -> None:
        self._merge, self._folder, self._most = merge, folder, most
        self._here: dict[bytes, Tally] = {}
        self._files: list[Path] = []
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(record).decode

    def add(self, names: tuple[str, ...], tally: Tally) -> None:
        """Merge one more tally into that of the same names."""
        key = b"".join(
            blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()
            for name in names
        )
        before = self._here.get(key)
        self._here[key] = tally if before is None else self._merge(before, tally)
        if len(self._here) > self._most:
            self._spill()

    def __iter__(self) -> Iterator[Tally]:
        runs: list[Iterable[tuple[bytes, int, Tally]]] = [
            self._read(path, number) for number, path in enumerate(self._files)
        ]
        runs.append(
            (key, len(runs), tally) for key, tally in sorted(self._here.items(), key=lambda one: one[0])
        )
        key: bytes | None = None
        merged: Tally | None = None
        for next_key, _, tally in heapq.merge(*runs, key=lambda one: one[:2]):
            if merged is not None and next_key == key:
                merged = self._merge(merged, tally)
                continue
            if merged is not None:
                yield merged
            key, merged = next_key, tally
        if merged is not None:
            yield merged

    def _spill(self) -> None:
        path = self._folder / f"tallies-{id(self):x}-{len(self._files)}"
        with open(path, "wb") as stream:
            for key, tally in sorted(self._here.items(), key=lambda one: one[0]):
                content = key + self._encode(tally)
                stream.write(len(content).to_bytes(_LENGTH_BYTES) + bytes([len(key)]) + content)
        self._files.append(path)
        self._here.clear()

    def _read(self, path: Path, number: int) -> Iterator[tuple[bytes, int, Tally]]:
        with open(path, "rb") as stream:
            while head := stream.read(_LENGTH_BYTES + 1):
                content = stream.read(int.from_bytes(head[:_LENGTH_BYTES]))
                width = head[_LENGTH_BYTES]
                yield content[:width], number, self._decode(content[width:])
