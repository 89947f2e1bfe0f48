"""The tokens of an endpoint: numbered as the server shows them, or those of a local tokenizer.json."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from coalmine.errors import InputError, MissingExtraError, ModelError, ModelOutputError
from coalmine.models.endpoints.echo import Piece
from coalmine.models.endpoints.token_texts import TokenTexts, piece_of
from coalmine.models.offline import offline
from coalmine.models.transformers.conversations import WrittenConversations
from coalmine.models.transformers.libraries import as_model_error
from coalmine.models.transformers.model_files import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, read_object
from coalmine.models.transformers.pretrained import load_tokenizer
from coalmine.models.transformers.subwords import SubwordTokenizer
from coalmine.models.transformers.token_ids import check_ids, check_vocabulary, check_written_ids
from coalmine.storage.files import read_bytes, sha256_of_file


class EndpointTokenizer:
    """Tokens as the server cuts them; an id is given to each piece of text when it is first seen.

    `start` represents whatever the server puts before a text, and has no text. `cut` gives the pieces of a text: those of the server, if it
    shows them, and otherwise single characters.

    >>> tokens = EndpointTokenizer(list)
    >>> tokens.encode("abba"), tokens.start, tokens.decode([1, 2, 0])
    ([0, 2, 2, 0], 1, 'ba')
    """

    unambiguous: ClassVar[bool] = False
    start: ClassVar[int] = 1

    def __init__(self, cut: Callable[[str], Sequence[str]], *, seen: Iterable[str] = ()) -> None:
        self._cut = cut
        self._texts: list[str | None] = []
        self._ids: dict[str, int] = {}
        for text in seen:
            self.id_of(text)

    @property
    def size(self) -> int:
        """The number of ids so far."""
        return len(self._texts)

    def id_of(self, text: str) -> int:
        """The id of a piece of text; a new one if it is new."""
        token = self._ids.get(text)
        if token is None:
            token = self._ids[text] = len(self._texts)
            self._texts.append(text)
            if len(self._texts) == self.start:
                self._texts.append(None)
        return token

    def encode(self, text: str) -> list[int]:
        """The ids of a text's pieces."""
        return [self.id_of(piece) for piece in self._cut(text)] if text else []

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens."""
        return "".join(self._text(token) for token in tokens)

    def pieces(self, *, first: bool) -> list[bytes | None]:
        """The text of each id so far."""
        del first
        return [None if text is None else text.encode("utf-8", "surrogatepass") for text in self._texts]

    def check_cut(self, asked: Sequence[int], pieces: Sequence[Piece]) -> None:
        """Check that the server read the tokens that were asked about, and not others with the same text."""
        if [piece.text for piece in pieces] != [self._text(token) for token in asked]:
            raise ModelOutputError(
                f"the server reads the text of {len(asked)} tokens as {len(pieces)} tokens that are cut elsewhere, so it cannot "
                "be asked about these; ask about texts (score_text)"
            )

    def _text(self, token: int) -> str:
        if not 0 <= token < max(self.size, self.start + 1):
            raise ModelError(f"there is no token {token}; {self.size} were seen so far")
        return "" if token == self.start else self._texts[token] or ""


class LocalTokenizer(SubwordTokenizer):
    """The tokenizer of a directory with a tokenizer.json; each answer is checked for being cut in the same way."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise MissingExtraError("a local tokenizer", "tokenizers", "transformers") from None
        home = Path(directory)
        path = home / TOKENIZER_FILE
        content = read_bytes(path, "the tokenizer")
        check_vocabulary(home)
        with (
            offline(),
            as_model_error(f"{path} cannot be read as a tokenizer", "save the tokenizer again"),
        ):
            backend = Tokenizer.from_str(content.decode())
        check_written_ids(home, backend)
        super().__init__(backend, size=check_ids(backend), separator=_separator(home, backend))
        self.start = self.separator
        self.sha256 = sha256_of_file(path)
        self._home = home
        self._named = dict(backend.get_vocab(with_added_tokens=True))
        self._by_bytes: dict[bytes, int] = {}
        for token, piece in enumerate(self.pieces(first=False)):
            if piece:
                self._by_bytes.setdefault(piece, token)

    @cached_property
    def conversations(self) -> WrittenConversations:
        """Conversations as the chat template of this directory writes them; a ModelError where it has none."""
        return WrittenConversations(load_tokenizer(self._home))

    def with_markers(self, tokens: Sequence[int]) -> str:
        """The text of some tokens, with that of special ones such as the markers of turns, of which one may separate documents too."""
        text: str = self._backend.decode(list(tokens), skip_special_tokens=False)
        return text

    def id_of(self, text: str) -> int:
        """The id of a token that the server wrote."""
        token = self._by_bytes.get(piece_of(text))
        token = self._named.get(text) if token is None else token
        if token is None:
            raise ModelOutputError(
                "the server wrote a token that the local tokenizer does not have; give the tokenizer of the model that is served"
            )
        return token

    def check_cut(self, asked: Sequence[int], pieces: Sequence[Piece]) -> None:
        """Check that the server cut the text where this tokenizer does, token for token."""
        texts = TokenTexts(self)
        own = [texts.piece(token, first=place == 0) for place, token in enumerate(asked)]
        place = 0
        for piece in pieces:
            part = own[place : place + piece.tokens]
            place += piece.tokens
            if b"".join(part) != piece.text.encode("utf-8", "surrogatepass"):
                break
        else:
            if place == len(own):
                return
        raise ModelOutputError(
            f"the server cuts a text into other tokens than the local tokenizer, which makes {len(asked)} of it; give the "
            "tokenizer of the model that is served, or none"
        )


def _separator(home: Path, backend: object) -> int:
    """The id of the BOS token, or of EOS if there is none, as the tokenizer's own configuration names them."""
    configuration = home / TOKENIZER_CONFIG_FILE
    named = read_object(configuration) if configuration.exists() else {}
    for role in ("bos_token", "eos_token"):
        token = named.get(role)
        text = token.get("content") if isinstance(token, dict) else token
        found = backend.token_to_id(text) if isinstance(text, str) else None  # type: ignore[attr-defined]  # untyped
        if found is not None:
            return int(found)
    raise InputError(
        f"{home} does not say which token separates documents; its tokenizer_config.json must name bos_token or eos_token"
    )
