"""Which token may follow which, so that the tokens are those the tokenizer itself would choose.

A text can be cut into tokens in many ways, and a model's perplexity of it is that of one: what its tokenizer makes of it. For
byte-pair encodings a sequence is canonical exactly when each pair of neighbors is (the merges that decide a boundary are next
to it). So it is enough to ask the tokenizer about pairs; that each member then has exactly one path is counted, and its path is
compared with what the tokenizer makes of it, not assumed.

Added tokens are found in a text before all others, the leftmost first and of these the longest. So what other tokens write must not
come to spell one: what could still become one is followed from token to token.

A character that has no token is written in bytes, always in the same ones, which stand for nothing else and merge with nothing. A
part of a character is no text that could be asked about, so such a character is one unit here, with an id behind all tokens.
"""

from __future__ import annotations

from collections.abc import Iterable

from coalmine.errors import ModelError
from coalmine.models.transformers.subwords import SubwordTokenizer

# What stands for the beginning of a text among the tokens that another may follow.
START = -1
# Texts that a token can be put behind when it cannot begin one.
_ANCHORS = (b"a", b"0", b".", b" ", b"z", b"9")


# For each added token that a text may be about to spell, the bytes that it still lacks.
Spelling = frozenset[bytes]
NOTHING: Spelling = frozenset()


class Neighbors:
    """Answers of a tokenizer on pairs of tokens, asked once each."""

    def __init__(self, tokenizer: SubwordTokenizer, characters: Iterable[str] = ()) -> None:
        """`characters` are those that may have to be written in bytes."""
        self._tokenizer = tokenizer
        self._first, self._further = tokenizer.pieces(first=True), tokenizer.pieces(first=False)
        self._known: dict[tuple[int, int], bool] = {}
        self._openings: dict[int, tuple[bytes, list[int]] | None] = {}
        written = ((character, tokenizer.in_bytes(character)) for character in sorted(set(characters)))
        # Of each unit, by its id: its bytes, and its tokens.
        self.units: dict[int, tuple[bytes, tuple[int, ...]]] = {
            tokenizer.size + place: (character.encode("utf-8", "surrogatepass"), tokens)
            for place, (character, tokens) in enumerate(written)
            if tokens
        }
        # Of each added token its bytes.
        self.added = {token: text.encode() for token, text in tokenizer.added_tokens.items() if text}
        self._begun: dict[tuple[int, bool], Spelling | None] = {}

    def pieces(self, *, fresh: bool) -> dict[int, bytes]:
        """The bytes of each token and unit, where a marked word can begin (`fresh`) or elsewhere."""
        table = self._first if fresh else self._further
        bytes_of = self._tokenizer.byte_tokens
        found = {
            token: piece
            for token, piece in enumerate(table)
            if piece is not None and token not in bytes_of and (piece or fresh)
        }
        # What marks a first word stands before a unit as a token of its own.
        units = () if fresh and self._first is not self._further else self.units.items()
        return found | {unit: piece for unit, (piece, _) in units}

    def is_fresh_after(self, token: int) -> bool:
        """Whether the word behind a token is marked as the first word of a text is."""
        return token == START or (self._tokenizer.marks_after_added and token in self._tokenizer.added_tokens)

    def spelling_after(self, spelling: Spelling, token: int, *, fresh: bool) -> Spelling | None:
        """What could still become an added token once `token` is written; None where one has come to be spelled.

        An added token itself is one that was found: only one that begins earlier, or there and is longer, would have gone first.
        """
        if not self.added:
            return NOTHING
        piece = self._piece(token, fresh=fresh)
        if (token, fresh) not in self._begun:
            if token in self.added:
                wanted = [(0, text) for text in self.added.values() if len(text) > len(piece)]
            else:
                wanted = [(start, text) for start in range(len(piece)) for text in self.added.values()]
            self._begun[token, fresh] = _spelled_on(piece, wanted)
        begun = self._begun[token, fresh]
        going_on = _spelled_on(piece, [(0, rest) for rest in spelling]) if spelling else NOTHING
        return None if begun is None or going_on is None else begun | going_on

    def allows(self, before: int, token: int) -> bool:
        """Whether a token may follow `before` in what the tokenizer makes of a text."""
        pair = before, token
        if pair not in self._known:
            self._known[pair] = self._ask(before, token)
        return self._known[pair]

    def _ask(self, before: int, token: int) -> bool:
        piece = self._piece(token, fresh=self.is_fresh_after(before))
        if before == START:
            alone = self._tokens(piece)
            return self._apart(token) if alone is None else alone == self._spelled(token)
        if before not in self._openings:
            self._openings[before] = self._opening(before)
        opening = self._openings[before]
        if opening is not None:
            together = self._tokens(opening[0] + piece)
            if together is not None:
                return together == [*opening[1], *self._spelled(token)]
        return self._apart(before, token)

    def _opening(self, before: int) -> tuple[bytes, list[int]] | None:
        """A text that ends with a token, as a text begins with it where it can, and else behind something that it does not join."""
        own = self._spelled(before)
        for anchor in (b"", *_ANCHORS):
            text = anchor + self._piece(before, fresh=not anchor)
            tokens = self._tokens(text)
            if tokens is None:
                return None
            if tokens[-len(own) :] == own and (anchor or tokens == own):
                return text, tokens
        return None

    def _apart(self, *tokens: int) -> bool:
        """The answer for what is no text by itself: parts of characters, which always stand within one word."""
        if any(token in self.units or token in self._tokenizer.added_tokens for token in tokens):
            return True  # could not be judged by itself: the count of paths judges it with all others
        return not all(self._further[token] for token in tokens) or self._tokenizer.stays_apart(*tokens)

    def _spelled(self, token: int) -> list[int]:
        return list(self.units[token][1]) if token in self.units else [token]

    def _piece(self, token: int, *, fresh: bool) -> bytes:
        if token in self.units:
            return self.units[token][0]
        return (self._first[token] if fresh else self._further[token]) or b""

    def _tokens(self, text: bytes) -> list[int] | None:
        """What the tokenizer makes of a text: None where it begins or ends within a character, nothing where it has no tokens."""
        try:
            return self._tokenizer.encode(text.decode())
        except UnicodeDecodeError:
            return None
        except ModelError:
            return []


def _spelled_on(piece: bytes, wanted: Iterable[tuple[int, bytes]]) -> Spelling | None:
    """What is still lacking of texts that begin at places of a piece; None where one of them is there in full."""
    lacking = set()
    for start, text in wanted:
        written = piece[start : start + len(text)]
        if text == written:
            return None
        if start + len(text) > len(piece) and text.startswith(written):
            lacking.add(text[len(written) :])
    return frozenset(lacking)
