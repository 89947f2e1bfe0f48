"""Other ways to write digits, spaces and hyphens folded to ASCII, with a way back to the original bytes."""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from coalmine.models.protocols import IntArray

# The last digits of Unicode are below this; nothing after it is folded.
_CODES = 0x20000
_ASCII = 0x80
# What a code is folded to; two values that are not ASCII say that it stays, or that it is left out.
_STAYS, _REMOVED = 0xFF, 0xFE
_MINUS, _SOFT_HYPHEN, _BYTE_ORDER_MARK = 0x2212, 0x00AD, 0xFEFF
_FULL_WIDTH = range(0xFF01, 0xFF5F)
_FULL_WIDTH_OFFSET = 0xFEE0
# Where only one byte in so many begins a folded character, joining what is between them is faster than looking at every byte.
_SPARSE = 200
_BYTES = [bytes([byte]) for byte in range(256)]


@cache
def _table() -> NDArray[np.uint8]:
    """What each code of Unicode is folded to."""
    import numpy as np

    table = np.full(_CODES, _STAYS, dtype=np.uint8)
    for code in range(_ASCII, _CODES):
        character = chr(code)
        category = unicodedata.category(character)
        if category == "Nd":
            table[code] = ord("0") + unicodedata.digit(character)
        elif category == "Zs":
            table[code] = ord(" ")
        elif category == "Pd" or code == _MINUS:
            table[code] = ord("-")
        elif category == "Cf":  # no width: joiners, marks of direction, soft hyphens
            table[code] = _REMOVED
    table[_FULL_WIDTH.start : _FULL_WIDTH.stop] = (
        np.arange(_FULL_WIDTH.start, _FULL_WIDTH.stop) - _FULL_WIDTH_OFFSET
    )
    return table


@cache
def _translation() -> dict[int, str | None]:
    """The same for `str.translate`."""
    folds = enumerate(_table().tolist())
    return {code: None if fold == _REMOVED else chr(fold) for code, fold in folds if fold != _STAYS}


def folded_text(text: str) -> str:
    """The text with digits, spaces, hyphens and full-width characters in ASCII, and without characters of no width.

    >>> folded_text("٠٧٨\N{NON-BREAKING HYPHEN}05\N{EN DASH}1120 ａ＠ｂ\N{ZERO WIDTH SPACE}")
    '078-05-1120 a@b'
    """
    return text if text.isascii() else text.translate(_translation())


class Folded:
    r"""UTF-8 text folded to ASCII where that is another way to write the same; offsets lead back to the original.

    Text that is ASCII already costs nothing.

    >>> folded = Folded("\N{NO-BREAK SPACE}tel ٠١".encode())
    >>> folded.content, folded.originals([5, 6], [6, 7])
    (b' tel 01', ([6, 8], [8, 10]))
    """

    def __init__(self, original: bytes) -> None:
        self.content = original
        self.is_same = original.isascii()
        if not self.is_same:
            self._fold(original)

    def originals(self, begins: list[int], ends: list[int]) -> tuple[list[int], list[int]]:
        """Where in the original the bytes at some offsets of `content` are, and where those just before other offsets end.

        An end is that of all bytes that were folded to the one before it.
        """
        if self.is_same:
            return begins, ends
        import numpy as np

        first, last = np.array(begins, dtype=np.int64), np.array(ends, dtype=np.int64) - 1
        widths = np.ones(len(last), dtype=np.int64)
        if len(self._replaced):
            places = np.minimum(np.searchsorted(self._replaced, last), len(self._replaced) - 1)
            is_folded = self._replaced[places] == last
            widths[is_folded] = self._widths[places[is_folded]]
        firsts = first + self._missing[np.searchsorted(self._shifts, first, side="right")]
        lasts = last + self._missing[np.searchsorted(self._shifts, last, side="right")] + widths
        return firsts.tolist(), lasts.tolist()

    def _fold(self, original: bytes) -> None:
        import numpy as np

        content = np.frombuffer(original, dtype=np.uint8)
        starts, widths, folds = _folded_characters(content)
        self.is_same = not len(starts)
        if self.is_same:
            return
        removed = folds == _REMOVED
        # How many bytes of each are left, and how many are missing before it and after it.
        left = np.where(removed, 0, 1)
        missing = np.concatenate(([0], np.cumsum(widths - left)))
        at = starts - missing[:-1]
        # From these offsets of the folded content on, one more of them is missing.
        self._shifts, self._missing = at + left, missing
        self._replaced, self._widths = at[~removed], widths[~removed]
        ends = starts + widths
        if len(starts) * _SPARSE < len(content):
            view = memoryview(original)
            pieces: list[bytes | memoryview] = []
            begin = 0
            for start, end, fold in zip(starts.tolist(), ends.tolist(), folds.tolist(), strict=True):
                pieces += (view[begin:start], b"" if fold == _REMOVED else _BYTES[fold])
                begin = end
            self.content = b"".join([*pieces, view[begin:]])
            return
        new = content.copy()
        new[starts[~removed]] = folds[~removed]
        kept = np.ones(len(content), dtype=bool)
        kept[starts[removed]] = False
        for further in (1, 2, 3):
            kept[starts[widths > further] + further] = False
        self.content = new[kept].tobytes()


def _folded_characters(content: NDArray[np.uint8]) -> tuple[IntArray, IntArray, NDArray[np.uint8]]:
    """Where characters begin that are folded, how many bytes each has, and what it is folded to."""
    import numpy as np

    starts = np.flatnonzero(content >= 0xC2)
    starts = starts[content[starts] < 0xF5]
    leads = content[starts]
    widths = 2 + (leads >= 0xE0).astype(np.int64) + (leads >= 0xF0)
    whole = starts + widths <= len(content)
    starts, leads, widths = starts[whole], leads[whole], widths[whole]
    codes = leads.astype(np.int64) & (0xFF >> (widths + 1))
    for further in (1, 2, 3):
        longer = widths > further
        codes[longer] = codes[longer] << 6 | (content[starts[longer] + further] & 0x3F)
    folds = _table()[np.minimum(codes, _CODES - 1)]
    found = folds != _STAYS
    return starts[found], widths[found], folds[found]
