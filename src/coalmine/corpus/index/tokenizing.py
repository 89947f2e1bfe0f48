"""Tokenizers of an index: bytes, or the tokens of a model."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from coalmine.corpus.index.options import BYTES
from coalmine.errors import InputError, MissingExtraError, ModelError
from coalmine.models.offline import offline
from coalmine.models.plugins import is_plugin, plugin_model
from coalmine.models.protocols import IntArray
from coalmine.models.reference.checkpoint import saved_tokenizer
from coalmine.models.reference.tokens import (
    CharacterTokenizer,
    ReferenceTokenizer,
    WordTokenizer,
    tokenizer_from_dict,
)
from coalmine.models.transformers.chat import rendered_chat, template_sha256
from coalmine.models.transformers.libraries import as_model_error
from coalmine.models.transformers.model_files import TOKENIZER_FILE, check_json, gguf_file_in
from coalmine.models.transformers.subwords import SubwordTokenizer, encoded
from coalmine.models.transformers.token_ids import check_ids, check_vocabulary, check_written_ids
from coalmine.records.chat import Turn


class IndexTokenizer(Protocol):
    """Documents and queries to token ids. `description` is all that is needed to make the same tokenizer again."""

    @property
    def kind(self) -> str:
        """Bytes, characters, words or subwords."""

    @property
    def size(self) -> int:
        """How many token ids there are; ids are 0 to size - 1."""

    @property
    def description(self) -> dict[str, Any]:
        """What `from_description` takes."""

    def encode_documents(self, texts: Sequence[str]) -> list[IntArray]:
        """The tokens of some documents, as training saw them, without special tokens around them."""

    def encode_query(self, text: str) -> IntArray:
        """The tokens of a text; a ModelError where it has a part that the vocabulary cannot write."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens; bytes that are not a whole character become U+FFFD."""


def utf8(text: str) -> bytes:
    r"""The UTF-8 of a query; an InputError where it is not text, such as an argument of bytes that are not UTF-8.

    >>> utf8("né")
    b'n\xc3\xa9'
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise InputError(
            f"a text to look up is not UTF-8 (half a surrogate pair at character {problem.start}); give it as UTF-8"
        ) from None


class ByteTokens:
    """The bytes of the text in UTF-8.

    >>> ByteTokens().encode_query("né").tolist()
    [110, 195, 169]
    """

    kind: ClassVar[str] = BYTES
    # No byte of UTF-8 is above 244, so 0 to 254 leaves room for the end of a document in one byte.
    size: ClassVar[int] = 255
    description: ClassVar[dict[str, Any]] = {"kind": BYTES}

    def encode_documents(self, texts: Sequence[str]) -> list[IntArray]:
        """One array per text."""
        return [self.encode_query(text) for text in texts]

    def encode_query(self, text: str) -> IntArray:
        """Its bytes."""
        return np.frombuffer(text.encode("utf-8"), dtype=np.uint8)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text again."""
        return bytes(tokens).decode("utf-8", "replace")


class ReferenceTokens:
    """The characters or words of a model that `coalmine train` wrote; an unknown word in a document is the unknown token."""

    def __init__(self, tokenizer: ReferenceTokenizer) -> None:
        self._tokenizer = tokenizer
        self.kind = tokenizer.kind
        self.size = tokenizer.size
        self.description = tokenizer.to_dict()

    def encode_documents(self, texts: Sequence[str]) -> list[IntArray]:
        """One array per text."""
        return [self._tokenizer.encode_document(text) for text in texts]

    def encode_query(self, text: str) -> IntArray:
        """Its tokens; an unknown word has none, because it would match every other."""
        return np.asarray(self._tokenizer.encode(text), dtype=np.int64)

    def decode(self, tokens: Sequence[int]) -> str:
        """Their text."""
        return self._tokenizer.decode(tokens)


class SubwordTokens:
    """The tokens of a tokenizer of the Hugging Face kind."""

    kind: ClassVar[str] = "subwords"

    def __init__(self, written: str, chat: Any = None) -> None:
        """`chat` is the tokenizer of transformers, if it has a chat template, which conversations are written with."""
        self.chat = chat
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise MissingExtraError("an index over subwords", "tokenizers", "transformers") from None
        with offline(), as_model_error("the tokenizer cannot be read", "save the tokenizer again"):
            self._backend = Tokenizer.from_str(written)
            # Truncation that was set in an earlier use must not shorten a document.
            self._backend.no_truncation()
            self._backend.no_padding()
        self.size = check_ids(self._backend)  # before anything lists the ids
        canonical = json.loads(self._backend.to_str())
        self.description = {"kind": self.kind, "tokenizer": canonical}
        unknown = (canonical.get("model") or {}).get("unk_token")
        self._unknown = None if unknown is None else self._backend.token_to_id(unknown)

    def lone_words(self) -> list[str]:
        """Words of printable ASCII that are one token after a space, also next to themselves; those with the highest ids first."""
        from coalmine.models.transformers.subwords import subword_tokenizer

        tokenizer = subword_tokenizer(self._backend, size=self.size, separator=-1)
        found = []
        for token, piece in reversed(list(enumerate(tokenizer.pieces(first=False)))):
            if piece is None or token in tokenizer.added_tokens or not piece.startswith(b" "):
                continue
            text = piece[1:].decode("utf-8", "replace")
            if len(text) < 2 or not (text.isascii() and text.isprintable()) or " " in text:
                continue
            if encoded(self._backend, f"{text} {text} {text}").ids[-2:] == [token, token]:
                found.append(text)
        return found

    def encode_documents(self, texts: Sequence[str]) -> list[IntArray]:
        """One array per text."""
        with as_model_error("the tokenizer cannot write a document", "check the tokenizer"):
            found = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.asarray(one.ids, dtype=np.int64) for one in found]

    def encode_query(self, text: str) -> IntArray:
        """Its tokens when encoded alone; inside a longer text it may be tokenized differently."""
        tokens = np.asarray(encoded(self._backend, text).ids, dtype=np.int64)
        if self._unknown is not None and np.any(tokens == self._unknown):
            raise ModelError(
                "the index's tokenizer has no token for a part of the text, so it cannot be looked up; index the corpus over bytes"
            )
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """Their text."""
        text: str = self._backend.decode(list(tokens), skip_special_tokens=False)
        return text


def index_tokenizer(given: str | os.PathLike[str] | object) -> IndexTokenizer:
    """The tokenizer for "bytes", for a model's directory, `python:module:function` or `NAME:WHERE`, or for a model's tokenizer itself.

    >>> index_tokenizer("bytes").kind
    'bytes'
    """
    if isinstance(given, ByteTokens | ReferenceTokens | SubwordTokens):
        return given
    if isinstance(given, CharacterTokenizer | WordTokenizer):
        return ReferenceTokens(given)
    if isinstance(given, SubwordTokenizer):
        return SubwordTokens(given._backend.to_str())  # noqa: SLF001 - the one place where an index meets a model's tokenizer
    if isinstance(given, str) and given == BYTES:
        return ByteTokens()
    if isinstance(given, str) and is_plugin(given):
        return index_tokenizer(plugin_model(given).tokenizer)
    if isinstance(given, str | os.PathLike):
        return _from_directory(Path(given))
    raise InputError(
        f"a tokenizer should be 'bytes', a model's directory, or one of coalmine's tokenizers of characters, words or subwords, got "
        f"{type(given).__name__}"
    )


def from_description(document: dict[str, Any]) -> IndexTokenizer:
    """The inverse of `description`; a ModelError where it does not describe a tokenizer."""
    if not isinstance(document, dict):
        raise ModelError("the tokenizer is not described by an object; build the index again, with overwrite")
    if document.get("kind") == BYTES:
        return ByteTokens()
    if document.get("kind") == SubwordTokens.kind:
        return SubwordTokens(json.dumps(document.get("tokenizer"), ensure_ascii=False))
    return ReferenceTokens(tokenizer_from_dict(document))


def description_bytes(tokenizer: IndexTokenizer) -> bytes:
    """The description as bytes of a file: the same tokenizer gives the same bytes."""
    return json.dumps(tokenizer.description, ensure_ascii=False, sort_keys=False).encode(
        "utf-8", "surrogatepass"
    )


def tokenizer_sha256(given: str | os.PathLike[str] | object) -> str:
    """The SHA-256 of a tokenizer's description: equal if an index and a model tokenize alike.

    >>> tokenizer_sha256("bytes")[:8]
    'eb929771'
    """
    return hashlib.sha256(description_bytes(index_tokenizer(given))).hexdigest()


def _from_directory(directory: Path) -> IndexTokenizer:
    gguf = gguf_file_in(directory)
    if gguf is not None:
        return _from_gguf(gguf)
    if not directory.is_dir():
        raise InputError(
            f"tokenizer not found: {directory} is not a directory or a .gguf file; name a model, or the word 'bytes'"
        )
    trained_here = saved_tokenizer(directory)
    if trained_here is not None:
        return ReferenceTokens(trained_here)
    if not (directory / TOKENIZER_FILE).is_file():
        raise ModelError(
            f"{directory} has neither a config.json of `coalmine train` nor a tokenizer.json; name a model's directory, or 'bytes'"
        )
    check_json(directory)
    check_vocabulary(directory)
    tokenizer = SubwordTokens(*_as_transformers_reads(directory))
    check_written_ids(directory, tokenizer._backend)  # noqa: SLF001 - of this module
    return tokenizer


def _from_gguf(path: Path) -> IndexTokenizer:
    try:
        from coalmine.models.transformers.gguf_files import load_gguf_tokenizer, read_gguf

        loaded = load_gguf_tokenizer(read_gguf(path))
    except ImportError:
        raise MissingExtraError("the tokenizer of a GGUF file", "transformers", "quantized") from None
    return SubwordTokens(
        loaded.backend_tokenizer.to_str(), loaded if getattr(loaded, "chat_template", None) else None
    )


def _as_transformers_reads(directory: Path) -> tuple[str, Any]:
    """The tokenizer as the model's own loader makes it, which may differ from the file; without transformers, the file.

    The second is the loader's own tokenizer, where it has a chat template.
    """
    try:
        from coalmine.models.transformers.pretrained import load_tokenizer

        loaded = load_tokenizer(directory)
        written: str = loaded.backend_tokenizer.to_str()
    except (ImportError, ModelError, AttributeError):
        # A directory with a tokenizer and no model has no config to load it by, so its file is read as it is.
        return (directory / TOKENIZER_FILE).read_text(encoding="utf-8"), None
    return written, loaded if getattr(loaded, "chat_template", None) else None


def template_in(tokenizer: IndexTokenizer) -> str | None:
    """The SHA-256 of the chat template that a tokenizer writes conversations with; None where it has none."""
    chat = getattr(tokenizer, "chat", None)
    return None if chat is None else template_sha256(chat)


def written_turns(tokenizer: IndexTokenizer, turns: Sequence[Turn]) -> str:
    """A conversation as the chat template of a tokenizer that has one writes it."""
    return rendered_chat(getattr(tokenizer, "chat", None), turns)
