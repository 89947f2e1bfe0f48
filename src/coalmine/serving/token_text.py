"""Tokens as an answer shows them: the text of each, where it begins, and a spelling for those that are not text by themselves."""

from __future__ import annotations

import codecs

from coalmine.models.protocols import Tokenizer


class TokenTexts:
    """The pieces of a tokenizer, as strings that JSON can carry.

    A token that holds a part of a character is written as `bytes:` and its bytes, of which those that are not printable ASCII
    are escaped; one that has no text at all (a document separator, say) as `token_id:` and its id.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._first = tokenizer.pieces(first=True)
        self._further = tokenizer.pieces(first=False)

    def piece(self, token: int, *, first: bool) -> bytes | None:
        """What a token adds to a text, in UTF-8; `first` where it begins the text."""
        # Some tokenizers do not have a piece for what never begins a text; a model may begin with it all the same.
        opening = self._first[token] if first else None
        return self._further[token] if opening is None else opening

    def written(self, token: int, *, first: bool) -> str:
        """A token as one string."""
        piece = self.piece(token, first=first)
        if piece is None:
            return f"token_id:{token}"
        try:
            return piece.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(_escaped(byte) for byte in piece)


class Transcript:
    """A text that grows token by token, and remembers where each token begins in it."""

    def __init__(self, texts: TokenTexts, *, first: bool) -> None:
        """`first` says whether the first token begins its document."""
        self.text = ""
        self.tokens: list[str] = []
        self.offsets: list[int] = []  # in characters
        self._texts = texts
        self._first = first
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> None:
        """Append a token; a character whose last byte has not come yet is not in `text` yet."""
        self.tokens.append(self._texts.written(token, first=self._first))
        self.offsets.append(len(self.text))
        self.text += self._decoder.decode(self._texts.piece(token, first=self._first) or b"")
        self._first = False

    def end(self) -> None:
        """End the text: an unfinished character becomes a replacement character."""
        self.text += self._decoder.decode(b"", final=True)

    def cut(self, length: int) -> None:
        """Keep the first `length` characters, and the tokens that begin within them."""
        self.text = self.text[:length]
        kept = sum(offset < length for offset in self.offsets)
        del self.tokens[kept:], self.offsets[kept:]


def _escaped(byte: int) -> str:
    return chr(byte) if 32 <= byte < 127 and byte != ord("\\") else f"\\x{byte:02x}"
