"""Tokens as strings that JSON can carry, as servers write them and clients read them.

A token that holds a part of a character is written as `bytes:` and its bytes, of which those that are not printable ASCII are escaped; one
that has no text at all (a document separator, say) as `token_id:` and its id.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coalmine.models.protocols import Tokenizer


class TokenTexts:
    """The pieces of a tokenizer, and how they are written."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._first = tokenizer.pieces(first=True)
        self._further = tokenizer.pieces(first=False)

    @property
    def longest_piece(self) -> int:
        """The most bytes that a token can add to a text."""
        return max(len(piece or b"") for piece in (*self._first, *self._further))

    def piece(self, token: int, *, first: bool) -> bytes:
        """What a token adds to a text, in UTF-8; `first` where it begins the text."""
        return self._piece(token, first=first) or b""

    def written(self, token: int, *, first: bool) -> str:
        """A token as one string."""
        piece = self._piece(token, first=first)
        if piece is None:
            return f"token_id:{token}"
        try:
            return piece.decode()
        except UnicodeDecodeError:
            return written_bytes(piece)

    def _piece(self, token: int, *, first: bool) -> bytes | None:
        # Some schemes mark the first word with a space that is not in the text; others have no piece for what never begins a text.
        opening = self._first[token] if first else None
        return self._further[token] if opening is None else opening


def written_bytes(piece: bytes) -> str:
    r"""Bytes that are not a text, as one string.

    >>> print(written_bytes(b"\xe2\x98"))
    bytes:\xe2\x98
    """
    return "bytes:" + "".join(_escaped(byte) for byte in piece)


def piece_of(written: str) -> bytes:
    r"""The bytes of a token that a server wrote.

    >>> piece_of("is"), piece_of(r"bytes:\xe2\x98")
    (b'is', b'\xe2\x98')
    """
    if written.startswith("bytes:"):
        # A server that writes something else there means the text itself.
        with contextlib.suppress(UnicodeError):
            return written[len("bytes:") :].encode("ascii").decode("unicode_escape").encode("latin-1")
    return written.encode("utf-8", "surrogatepass")


def _escaped(byte: int) -> str:
    return chr(byte) if 32 <= byte < 127 and byte != ord("\\") else f"\\x{byte:02x}"
