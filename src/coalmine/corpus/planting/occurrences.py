"""Searching texts for thousands of secrets at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from coalmine.grouped import grouped

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from coalmine.corpus.planting.manifest import CanarySet

# A shared prefix of this many bytes is rare enough in ordinary text that examining each occurrence is cheap.
_LONG_PREFIX = 6
_WINDOW = 8
# Odd and with its bits well spread: multiplying by it and keeping the high bits is a good hash of a 64-bit number.
_MULTIPLIER = 0x9E3779B97F4A7C15
_TABLE_BITS = 20
_PIECE = 1 << 15


class OccurrenceSearch:
    """Finds where members of one or more groups of texts occur inside other text.

    The members of a group, such as the canaries and references of one format, mostly have a common beginning. Where they do,
    only the places where that beginning occurs are examined. The others are found by their first few bytes, for all
    members and all places of the text together.

    >>> search = OccurrenceSearch([["my code is 17", "my code is 23"], ["xyz"]])
    >>> sorted(search.find(b"is my code is 23? no, xyz."))
    [(3, 'my code is 23'), (22, 'xyz')]
    """

    def __init__(self, groups: Iterable[Iterable[str]]) -> None:
        self._prefixed: list[tuple[bytes, _Members]] = []
        scattered: dict[int, list[bytes]] = {}
        for group in groups:
            members = [text.encode("utf-8") for text in group]
            if not members:
                continue
            if not all(members):
                raise ValueError("the empty text occurs everywhere, so it cannot be searched for")
            prefix = _common_prefix(members)
            if len(prefix) >= _LONG_PREFIX:
                self._prefixed.append((prefix, _Members(members)))
            else:
                for member in members:
                    scattered.setdefault(_window_width(len(member)), []).append(member)
        self._windowed = [_WindowSearch(width, members) for width, members in sorted(scattered.items())]

    def find(self, haystack: bytes) -> Iterator[tuple[int, str]]:
        """Each occurrence in a UTF-8 text, as its offset in bytes and the member; in no particular order."""
        for prefix, members in self._prefixed:
            start = haystack.find(prefix)
            while start >= 0:
                yield from members.at(haystack, start)
                start = haystack.find(prefix, start + 1)
        for search in self._windowed:
            yield from search.find(haystack)

    def longest(self, haystack: bytes) -> list[tuple[int, int, str]]:
        """Each occurrence that is not part of a longer one, as begin, end and member, in order.

        >>> OccurrenceSearch([["pin 12", "pin 1234"]]).longest(b"pin 1234 and pin 12")
        [(0, 8, 'pin 1234'), (13, 19, 'pin 12')]
        """
        # By where they begin, the longest first.
        found = sorted({(start, -len(text.encode()), text) for start, text in self.find(haystack)})
        kept, reach = [], 0
        for start, length, text in found:
            end = start - length
            if end > reach:
                kept.append((start, end, text))
                reach = end
        return kept


def search_for(canaries: CanarySet) -> OccurrenceSearch:
    """A search for all canaries and references of a set."""
    groups = grouped((format_id, text) for _, format_id, text in canaries.named_texts())
    return OccurrenceSearch(groups.values())


class _Members:
    """A set of texts, and the lengths they have."""

    def __init__(self, members: list[bytes]) -> None:
        self._texts: Mapping[bytes, str] = {member: member.decode("utf-8") for member in members}
        self._lengths = sorted({len(member) for member in members})

    def at(self, haystack: bytes, start: int) -> Iterator[tuple[int, str]]:
        """The members that occur at an offset."""
        for length in self._lengths:
            text = self._texts.get(haystack[start : start + length])
            if text is not None:
                yield start, text


class _WindowSearch:
    """Compares a hash of the first `width` bytes of all members with that of each `width` bytes of the text."""

    def __init__(self, width: int, members: list[bytes]) -> None:
        import numpy as np

        self._width = width
        self._members = _Members(members)
        starts = np.frombuffer(b"".join(member[:width] for member in members), dtype=np.uint8)
        self._table = np.zeros(1 << _TABLE_BITS, dtype=bool)
        self._table[self._hashes(starts)[::width]] = True

    def find(self, haystack: bytes) -> Iterator[tuple[int, str]]:
        """Each occurrence, as its offset and the member."""
        import numpy as np

        text = np.frombuffer(haystack, dtype=np.uint8)
        # In pieces that stay in the processor's cache; each reaches into the next by one byte less than a window.
        for begin in range(0, len(text) - self._width + 1, _PIECE):
            hashes = self._hashes(text[begin : begin + _PIECE + self._width - 1])
            for start in np.flatnonzero(self._table[hashes]).tolist():
                yield from self._members.at(haystack, begin + start)

    def _hashes(self, text: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
        """For each offset, a number below 2**_TABLE_BITS that depends on the next `width` bytes."""
        import numpy as np

        packed = text.astype(np.uint64)
        packed_bytes = 1
        while packed_bytes < self._width:
            packed = (packed[:-packed_bytes] << np.uint64(8 * packed_bytes)) | packed[packed_bytes:]
            packed_bytes *= 2
        packed *= np.uint64(_MULTIPLIER)
        packed >>= np.uint64(64 - _TABLE_BITS)
        return packed


def _window_width(length: int) -> int:
    """The widest window, a power of two and at most a 64-bit number, within this many bytes."""
    return min(_WINDOW, 1 << (length.bit_length() - 1))


def _common_prefix(members: list[bytes]) -> bytes:
    first, last = min(members), max(members)
    same = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:same]
