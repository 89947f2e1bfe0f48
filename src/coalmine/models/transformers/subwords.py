"""Hugging Face subword tokenizers: their ids, the bytes of each token, and the canonical tokens of a text."""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from coalmine.errors import ModelError, NoTokenError
from coalmine.models.transformers.libraries import as_model_error
from coalmine.models.transformers.token_ids import check_ids

_BYTE_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")
# Texts that show what a tokenizer puts before a word; the first one that it can encode is used.
_PROBES = ("a", "e", "0", "1", "A", ".")
# What a decoder of word pieces attaches to a word without a space.
_ATTACHED = (".", "?", "!", ",")


class SubwordTokenizer:
    """A fast tokenizer (of the tokenizers library) with the document separator that its model was trained with.

    `size` is that of the model's vocabulary, which may be larger than the tokenizer's: ids beyond it have no text. Added tokens, special
    or not, have their own text, as they do when it occurs in a document; only the separator has none.

    >>> backend = AutoTokenizer.from_pretrained("model/").backend_tokenizer  # doctest: +SKIP
    >>> SubwordTokenizer(backend, size=50257, separator=50256).decode([262, 4512])  # doctest: +SKIP
    ' the train'

    Attributes:
        decided_by_pairs: whether tokens are canonical exactly if each pair of neighbors is (true of byte-pair encodings, apart from
            what is done to a text before they see it).
        byte_tokens: the tokens that encode a character without its own token byte by byte.
        added_tokens: the tokens that are found in a text before all others, with their texts.
        marks_after_added: whether the space that marks the first word also follows each added token.
        given: the tokens of the text that all texts go on with, where `after` was given one.
    """

    unambiguous: ClassVar[bool] = False

    def __init__(self, backend: Any, *, size: int, separator: int) -> None:
        # A copy that neither truncates nor pads: earlier use of the tokenizer must not cut a text that is scored.
        check_ids(backend, size)
        with as_model_error("the model's tokenizer cannot be read", "save the tokenizer again"):
            written = backend.to_str()
            backend = type(backend).from_str(written) if hasattr(backend, "from_str") else backend
            backend.no_truncation()
            backend.no_padding()
        self._backend = backend
        self._before = ""
        self.given: tuple[int, ...] = ()
        self.size = size
        self.separator = separator
        description = json.loads(written)
        model = description.get("model") or {}
        decoder = str(description.get("decoder"))
        self.decided_by_pairs = model.get("type") == "BPE"
        self._unknown = _unknown_token(backend, model)
        self._byte_level = "ByteLevel" in decoder
        self._is_word_pieces = model.get("type") == "WordPiece"
        falls_back = bool(model.get("byte_fallback"))
        # Such an encoding silently drops what it has no token for.
        self._drops = self.decided_by_pairs and not (
            falls_back or self._byte_level or self._unknown is not None
        )
        added: dict[int, str] = {
            token["id"]: token["content"] for token in description.get("added_tokens") or ()
        }
        self.added_tokens = added
        self.byte_tokens = frozenset(
            token
            for token in range(size if falls_back else 0)
            if token not in added and _BYTE_FALLBACK.fullmatch(backend.id_to_token(token) or "")
        )
        self._further = self._pieces_of(added, model)
        self._marks_first_word = self._is_marked(self._probe(""))
        self.marks_after_added = not self._is_word_pieces and any(
            self._is_marked(self._probe(content)) for content in added.values()
        )
        self._first = self._first_pieces()

    def encode(self, text: str) -> list[int]:
        """The canonical tokens of a text, without special ones except those that the text itself names."""
        tokens = self._ids(text)
        if (self._unknown is not None and self._unknown in tokens) or (
            self._drops and self.decode(tokens) != text
        ):
            raise NoTokenError(
                "the model's tokenizer has no token for a part of a text, so the text cannot be scored; choose a format that "
                "it can encode"
            )
        return tokens

    def after(self, text: str) -> SubwordTokenizer:
        """The same tokenizer for texts that go on with `text`: they are cut as they are after it, and its own tokens are `given`.

        Where `text` ends in a space that is in one token with the word that follows, that space belongs to the word. Empty for texts that
        go on with nothing.
        """
        found = copy.copy(self)
        found._before, found.given = "", ()  # noqa: SLF001 - of the same class, here and below
        alone = self.whole(text) if text else []
        probed = [self.whole(text + probe) for probe in _PROBES]
        read = [alone, *(ids for ids in probed if self._unknown not in ids[len(alone) :])]
        columns = itertools.takewhile(lambda column: len(set(column)) == 1, zip(*read, strict=False))
        kept = [column[0] for column in columns]
        if b"".join(self._further[token] or b"" for token in alone[len(kept) :]) not in {b"", b" "}:
            raise ModelError(
                "what the chat template writes before contents shares a token with the content, so that contents cannot be scored by "
                "themselves; use a template that puts a special token or a line break before them"
            )
        found._before, found.given = text, tuple(kept)  # noqa: SLF001
        found._marks_first_word = found._is_marked(found._probe(""))  # noqa: SLF001
        found._first = found._first_pieces()  # noqa: SLF001
        return found

    def whole(self, text: str) -> list[int]:
        """The tokens of a text that goes on with nothing, with the unknown token where there is no other."""
        tokens: list[int] = encoded(self._backend, text).ids
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens."""
        parts: list[bytes] = []
        fresh = True
        for token in tokens:
            piece = self._first[token] if fresh else None
            parts.append(piece if piece is not None else self._further[token] or b"")
            fresh = self.marks_after_added and token in self.added_tokens
        return b"".join(parts).decode("utf-8", "replace")

    def pieces(self, *, first: bool) -> list[bytes | None]:
        """The bytes of each token; a leading space that only marks the first word is left out there."""
        return self._first if first else self._further

    def in_bytes(self, character: str) -> tuple[int, ...]:
        """The tokens that encode a character byte by byte; none if it has its own token, or is not encoded in this way."""
        if not self.byte_tokens:
            return ()
        tokens = tuple(token.id for token in self._backend.model.tokenize(character))
        return tokens if tokens and self.byte_tokens.issuperset(tokens) else ()

    def stays_apart(self, *tokens: int) -> bool:
        """Whether tokens within one word, or within one character, are what the encoding makes of their joint text."""
        written = "".join(self._backend.id_to_token(token) or "" for token in tokens)
        return [token.id for token in self._backend.model.tokenize(written)] == list(tokens)

    def _pieces_of(self, added: dict[int, str], model: dict[str, Any]) -> list[bytes | None]:
        byte_of = byte_level_alphabet()
        prefix = str(model.get("continuing_subword_prefix") or "##")
        pieces: list[bytes | None] = []
        for token in range(self.size):
            written = self._backend.id_to_token(token)
            if written is None or (token == self.separator and token in added) or token == self._unknown:
                pieces.append(None)
            elif token in added:
                pieces.append((" " * self._is_word_pieces + added[token]).encode())
            elif self._byte_level:
                pieces.append(bytes(byte_of[character] for character in written if character in byte_of))
            elif token in self.byte_tokens:
                pieces.append(bytes([int(written[3:5], 16)]))
            elif self._is_word_pieces:
                joined = written.startswith(prefix)
                apart = "" if joined or written in _ATTACHED else " "
                pieces.append((apart + (written[len(prefix) :] if joined else written)).encode())
            else:
                pieces.append(written.replace("▁", " ").encode())
        return pieces

    def _first_pieces(self) -> list[bytes | None]:
        if not self._marks_first_word:
            return self._further
        kept = {} if self._is_word_pieces else self.added_tokens
        return [
            piece
            if piece is None or token in kept or (self._is_word_pieces and piece.decode() in _ATTACHED)
            else piece[1:]
            if piece.startswith(b" ") and token not in self.byte_tokens
            else None
            for token, piece in enumerate(self._further)
        ]

    def _probe(self, before: str) -> int | None:
        """The first token of a word after a text of one token, or at the start."""
        length = 1 if before else 0
        for probe in _PROBES:
            tokens = self._ids(before + probe)
            if len(tokens) > length and self._unknown not in tokens:
                return int(tokens[length]) if tokens[length] < self.size else None
        return None

    def _is_marked(self, token: int | None) -> bool:
        return token is not None and (self._further[token] or b"").startswith(b" ")

    def _ids(self, text: str) -> list[int]:
        """The tokens of a text, as they are after what it goes on with."""
        tokens = self.whole(self._before + text)
        given = len(self.given)
        if tuple(tokens[:given]) != self.given:
            raise NoTokenError(
                "a text shares a token with what the chat template writes before it, so the text cannot be scored by itself; choose a "
                "format that begins with a word"
            )
        return tokens[given:]


class OpenSubwordTokenizer(SubwordTokenizer):
    """A fast tokenizer with an unknown token, such as most that are of the kinds WordPiece and Unigram.

    >>> tokenizer = from_transformers_pairs(t5, t5_tokenizer).tokenizer  # doctest: +SKIP
    >>> tokenizer.unknown in tokenizer.encode_open("a \u2603 in the yard")  # doctest: +SKIP
    True
    """

    @property
    def unknown(self) -> int:
        """The token of what has no other."""
        if self._unknown is None:
            raise ModelError("the model's tokenizer has no unknown token; use SubwordTokenizer for it")
        return self._unknown

    def encode_open(self, text: str) -> list[int]:
        """The tokens of any text; a part that has no token is the unknown token, as in training."""
        return self._ids(text)


def subword_tokenizer(backend: Any, *, size: int, separator: int) -> SubwordTokenizer:
    """A tokenizer of the tokenizers library; it can read any text if it has an unknown token."""
    with as_model_error("the model's tokenizer cannot be read", "save the tokenizer again"):
        unknown = _unknown_token(backend, json.loads(backend.to_str()).get("model") or {})
    kind = SubwordTokenizer if unknown is None else OpenSubwordTokenizer
    return kind(backend, size=size, separator=separator)


def encoded(backend: Any, text: str, *, special: bool = False) -> Any:
    """A text as the library encodes it, with or without the special tokens that it puts around a text."""
    with as_model_error(
        "the model's tokenizer cannot encode a text", "choose another format, or check the tokenizer"
    ):
        return backend.encode(text, add_special_tokens=special)


def _unknown_token(backend: Any, model: dict[str, Any]) -> int | None:
    if model.get("unk_id") is not None:
        return int(model["unk_id"])
    unknown = model.get("unk_token")
    found = None if unknown is None else backend.token_to_id(unknown)
    return None if found is None else int(found)


def byte_level_alphabet() -> dict[str, int]:
    """The characters that represent bytes in byte-level vocabularies: printable ones represent themselves, the rest start at 256."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + place): byte for place, byte in enumerate(others)
    }
