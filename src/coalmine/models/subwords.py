"""Subword tokenizers of the Hugging Face kind, as the search sees them: ids, their bytes, and the one way to cut a text."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from coalmine.errors import ModelError

_BYTE_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")


class SubwordTokenizer:
    """A fast tokenizer with the document separator that its model was trained with.

    `size` is that of the model's vocabulary, which may be larger than the tokenizer's: ids beyond it stand for no text.
    """

    unambiguous: ClassVar[bool] = False

    def __init__(self, backend: Any, *, size: int, separator: int) -> None:
        # A copy that neither truncates nor pads: what the tokenizer was last used for must not cut a text that is scored.
        backend = type(backend).from_str(backend.to_str())
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self.size = size
        self.separator = separator
        description = json.loads(backend.to_str())
        unknown = (description.get("model") or {}).get("unk_token")
        self._unknown = None if unknown is None else backend.token_to_id(unknown)
        special = {token["id"] for token in description.get("added_tokens") or () if token["special"]}
        self._further = _bytes_of_tokens(backend, size, special, str(description.get("decoder")))
        # Some schemes put a space before the first word and take it away again when decoding.
        self._marks_first_word = self.encode("a") != [] and (
            self._further[self.encode("a")[0]] or b""
        ).startswith(b" ")

    def encode(self, text: str) -> list[int]:
        """The canonical tokens of a text, without special ones."""
        tokens: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        if self._unknown is not None and self._unknown in tokens:
            raise ModelError(
                "the model's tokenizer has no token for a part of a text, so the text cannot be scored; choose a format that "
                "it can write"
            )
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens."""
        text = b"".join(self._further[token] or b"" for token in tokens).decode("utf-8", "replace")
        return text[1:] if self._marks_first_word and text.startswith(" ") else text

    def pieces(self, *, first: bool) -> list[bytes | None]:
        """The bytes of each token; a leading space that only marks the first word is none there."""
        if not (first and self._marks_first_word):
            return self._further
        return [
            None if piece is None else piece[1:] if piece.startswith(b" ") else None
            for piece in self._further
        ]


def _bytes_of_tokens(backend: Any, size: int, special: set[int], decoder: str) -> list[bytes | None]:
    byte_of = _byte_level_alphabet() if "ByteLevel" in decoder else None
    pieces: list[bytes | None] = []
    for token in range(size):
        written = backend.id_to_token(token)
        if written is None or token in special:
            pieces.append(None)
        elif byte_of is not None:
            pieces.append(bytes(byte_of[character] for character in written if character in byte_of))
        elif match := _BYTE_FALLBACK.fullmatch(written):
            pieces.append(bytes([int(match[1], 16)]))
        else:
            pieces.append(written.replace("▁", " ").encode())
    return pieces


def _byte_level_alphabet() -> dict[str, int]:
    """The characters by which byte-level vocabularies write bytes: printable ones as themselves, the rest from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + place): byte for place, byte in enumerate(others)
    }
