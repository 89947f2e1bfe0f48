"""Exact counts of many distinct things in bounded memory: what does not fit is sorted to files, which are merged at the end."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b
from operator import itemgetter
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

    Iterating gives the tally of all names once, merged from those that were added one after the other. Those that share their first
    names are next to each other, and the order depends on the names only.

    >>> import tempfile
    >>> class Seen(msgspec.Struct):
    ...     copies: int
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tallies = Tallies(Seen, lambda a, b: Seen(a.copies + b.copies), Path(folder), most=2)
    ...     for name in "abcab":
    ...         tallies.add(Seen(1), name)
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
        # Those in memory, which may be changed in place.
        self.here: dict[tuple[str, ...], Tally] = {}
        self._files: list[Path] = []
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(record).decode

    def add(self, tally: Tally, *names: str) -> None:
        """Begin a tally of names that has none in memory; it is merged with an earlier one at the end."""
        self.here[names] = tally
        if len(self.here) > self._most:
            self._spill()

    def __iter__(self) -> Iterator[Tally]:
        if not self._files:
            yield from (tally for _, tally in self._sorted())
            return
        runs: list[Iterable[tuple[bytes, int, Tally]]] = [
            self._read(path, number) for number, path in enumerate(self._files)
        ]
        runs.append((key, len(self._files), tally) for key, tally in self._sorted())
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

    def _sorted(self) -> list[tuple[bytes, Tally]]:
        return sorted([(_key(names), tally) for names, tally in self.here.items()], key=itemgetter(0))

    def _spill(self) -> None:
        path = self._folder / f"tallies-{id(self):x}-{len(self._files)}"
        with open(path, "wb") as stream:
            for key, tally in self._sorted():
                content = key + self._encode(tally)
                stream.write(len(content).to_bytes(_LENGTH_BYTES) + bytes([len(key)]) + content)
        self._files.append(path)
        self.here.clear()

    def _read(self, path: Path, number: int) -> Iterator[tuple[bytes, int, Tally]]:
        with open(path, "rb") as stream:
            while head := stream.read(_LENGTH_BYTES + 1):
                content = stream.read(int.from_bytes(head[:_LENGTH_BYTES]))
                width = head[_LENGTH_BYTES]
                yield content[:width], number, self._decode(content[width:])


def _key(names: tuple[str, ...]) -> bytes:
    return b"".join(map(_digest, names))


@lru_cache(maxsize=1 << 14)
def _digest(name: str) -> bytes:
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()
