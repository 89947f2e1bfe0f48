"""Canonical tokenizations: which token may follow which, so that the tokens are those that the tokenizer would choose.

A text can be split into tokens in many ways, and a model's perplexity of it is that of one: its canonical tokenization. For
byte-pair encodings a sequence is canonical exactly when each pair of neighbors is (the merges that decide a boundary are next to
it). So it is enough to ask the tokenizer about pairs. That each member then has exactly one path, and that it is the tokenizer's,
is checked and not assumed.

Added tokens are matched in a text before all others, leftmost first, then longest. So other tokens together must not spell one:
partial matches of added tokens are tracked from token to token.

A character without a token is encoded in byte tokens, always the same ones, which merge with nothing and occur nowhere else. Part
of a character is not a text that the tokenizer can be asked about, so such a character is one unit here, with an id after all tokens.

A vocabulary with all numbers of up to three digits has a million pairs of these. Tokens that differ in their digits only have the same
shape, and if a few dozen random pairs of two shapes get the same answer, all pairs of these shapes do. Where that turns out to be wrong,
since the paths are checked, every pair is asked about.
"""

from __future__ import annotations

from collections.abc import Iterable

from coalmine.errors import ModelError
from coalmine.grouped import grouped
from coalmine.models.transformers.subwords import SubwordTokenizer
from coalmine.randomness import integers

# Represents the beginning of a text among the tokens that another may follow.
START = -1
# Texts to put before a token that cannot begin a text.
_ANCHORS = (b"a", b"0", b".", b" ", b"z", b"9")
_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
# How many random pairs of two shapes are asked about, and up to how many pairs each one is.
_PAIRS_OF_SHAPES = 48


# The most pairs that a tokenizer is asked about for one format, which takes some 10 seconds. Six letters have many times as many.
MOST_PAIRS = 1_000_000


class TooManyPairsError(ModelError):
    """A format's members can be split into so many pairs of tokens that asking about them all would take minutes."""


# For each added token that a text has begun to spell, the bytes that are still missing.
Spelling = frozenset[bytes]
NOTHING: Spelling = frozenset()


class Neighbors:
    """A tokenizer's answers about pairs of tokens, each asked for once."""

    def __init__(
        self, tokenizer: SubwordTokenizer, characters: Iterable[str] = (), *, each_pair: bool = False
    ) -> None:
        """`characters` are those that may have to be encoded in bytes; with `each_pair`, shapes decide nothing."""
        self._tokenizer = tokenizer
        self._first, self._further = tokenizer.pieces(first=True), tokenizer.pieces(first=False)
        self._known: dict[tuple[int, int], bool] = {}
        self._openings: dict[int, tuple[bytes, list[int]] | None] = {}
        written = ((character, tokenizer.in_bytes(character)) for character in sorted(set(characters)))
        # From the id of each unit to its bytes and its tokens.
        self.units: dict[int, tuple[bytes, tuple[int, ...]]] = {
            tokenizer.size + place: (character.encode("utf-8", "surrogatepass"), tokens)
            for place, (character, tokens) in enumerate(written)
            if tokens
        }
        # From each added token to its bytes.
        self.added = {token: text.encode() for token, text in tokenizer.added_tokens.items() if text}
        self._added_by_start = grouped((text[0], text) for text in self.added.values())
        self._begun: dict[tuple[int, bool], Spelling | None] = {}
        self._of_shape = grouped(
            (piece.translate(_DIGITS), token)
            for token, piece in enumerate(() if each_pair else self._further)
            if piece and any(digit in piece for digit in b"0123456789") and token not in self.added
        )
        self._shapes: dict[tuple[bytes, bytes], bool | None] = {}
        self._asked = 0

    def pieces(self, *, fresh: bool) -> dict[int, bytes]:
        """The bytes of each token and unit, at the beginning of a marked word (`fresh`) or elsewhere."""
        table = self._first if fresh else self._further
        bytes_of = self._tokenizer.byte_tokens
        found = {
            token: piece
            for token, piece in enumerate(table)
            if piece is not None and token not in bytes_of and (piece or fresh)
        }
        # The mark of a first word is a separate token before a unit.
        units = () if fresh and self._first is not self._further else self.units.items()
        return found | {unit: piece for unit, (piece, _) in units}

    def is_fresh_after(self, token: int) -> bool:
        """Whether the word after a token is marked like the first word of a text."""
        return token == START or (self._tokenizer.marks_after_added and token in self._tokenizer.added_tokens)

    def spelling_after(self, spelling: Spelling, token: int, *, fresh: bool) -> Spelling | None:
        """The partial matches of added tokens after `token`; None where one was spelled in full.

        An added token itself is a match: only one that begins earlier, or there and is longer, would have been matched first.
        """
        if not self.added:
            return NOTHING
        piece = self._piece(token, fresh=fresh)
        if (token, fresh) not in self._begun:
            if token in self.added:
                wanted = [(0, text) for text in self.added.values() if len(text) > len(piece)]
            else:
                wanted = [
                    (start, text)
                    for start, byte in enumerate(piece)
                    for text in self._added_by_start.get(byte, ())
                ]
            self._begun[token, fresh] = _spelled_on(piece, wanted)
        begun = self._begun[token, fresh]
        continued = _spelled_on(piece, [(0, rest) for rest in spelling]) if spelling else NOTHING
        return None if begun is None or continued is None else begun | continued

    def allows(self, before: int, token: int) -> bool:
        """Whether a token may follow `before` in a canonical tokenization."""
        pair = before, token
        if pair not in self._known:
            decided = self._decided(self.shape(before), self.shape(token))
            self._known[pair] = self._ask(before, token) if decided is None else decided
        return self._known[pair]

    @property
    def shapes_decided(self) -> bool:
        """Whether a pair was answered without asking about it."""
        return any(decided is not None for decided in self._shapes.values())

    def shape(self, token: int) -> bytes | None:
        """The text of a token with each digit as 0; None for tokens without digits, and where there are no others of its shape."""
        if token == START or token in self.units or token in self.added or not self._of_shape:
            return None
        shape = (self._further[token] or b"").translate(_DIGITS)
        return shape if len(self._of_shape.get(shape, ())) > 1 else None

    def is_like_its_shape(self, before: int, shapes: Iterable[bytes | None]) -> bool:
        """Whether a token allows the same ones among tokens of these shapes as every other of its own shape."""
        own = self.shape(before)
        return own is not None and all(self._decided(own, other) is not None for other in shapes)

    def _decided(self, one: bytes | None, other: bytes | None) -> bool | None:
        """The answer for all pairs of two shapes; None where pairs must be asked about one by one."""
        if one is None or other is None:
            return None
        if (one, other) not in self._shapes:
            befores, tokens = self._of_shape[one], self._of_shape[other]
            self._shapes[one, other] = None
            if len(befores) * len(tokens) > _PAIRS_OF_SHAPES:
                drawn = integers(0, "shapes", one.hex(), other.hex())
                answers = {
                    self._ask(drawn.choice(befores), drawn.choice(tokens)) for _ in range(_PAIRS_OF_SHAPES)
                }
                self._shapes[one, other] = answers.pop() if len(answers) == 1 else None
        return self._shapes[one, other]

    def _ask(self, before: int, token: int) -> bool:
        self._asked += 1
        if self._asked > MOST_PAIRS:
            raise TooManyPairsError(f"its tokens make more than {MOST_PAIRS:,} pairs")
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
        """A text that ends with a token: the token alone where it can begin a text, else after something that it does not merge with."""
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
        """The answer for tokens that are not a text by themselves: parts of characters, which are always within one word."""
        if any(token in self.units or token in self._tokenizer.added_tokens for token in tokens):
            return True  # cannot be checked alone: the count of paths checks it together with all others
        return not all(self._further[token] for token in tokens) or self._tokenizer.stays_apart(*tokens)

    def _spelled(self, token: int) -> list[int]:
        return list(self.units[token][1]) if token in self.units else [token]

    def _piece(self, token: int, *, fresh: bool) -> bytes:
        if token in self.units:
            return self.units[token][0]
        return (self._first[token] if fresh else self._further[token]) or b""

    def _tokens(self, text: bytes) -> list[int] | None:
        """The tokens of a text: None if it begins or ends within a character, an empty list if it cannot be encoded."""
        try:
            return self._tokenizer.encode(text.decode())
        except UnicodeDecodeError:
            return None
        except ModelError:
            return []


def _spelled_on(piece: bytes, wanted: Iterable[tuple[int, bytes]]) -> Spelling | None:
    """The missing bytes of texts that begin at places of a piece; None where one of them is there in full."""
    lacking = set()
    for start, text in wanted:
        written = piece[start : start + len(text)]
        if text == written:
            return None
        if start + len(text) > len(piece) and text.startswith(written):
            lacking.add(text[len(written) :])
    return frozenset(lacking)
