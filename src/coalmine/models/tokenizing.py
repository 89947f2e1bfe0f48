"""Tokenizers at the model boundary: text to token ids and back, with an unknown token for other words where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


class Tokenizer(Protocol):
    """Text to token ids and back. `CharacterTokenizer` has all of this:

    >>> from coalmine.models import CharacterTokenizer
    >>> tokens = CharacterTokenizer("ab")
    >>> tokens.encode("ba"), tokens.decode([1, 0]), tokens.pieces(first=True)
    ([1, 0], 'ba', [b'a', b'b', None])
    """

    @property
    def size(self) -> int:
        """The number of token ids; ids are 0 to size - 1, and 0 is an ordinary id."""

    def encode(self, text: str) -> list[int]:
        """The canonical tokens of a text; a ModelError where the vocabulary lacks a part of it."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens."""

    def pieces(self, *, first: bool) -> Sequence[bytes | None]:
        """The UTF-8 bytes that each id adds to a text, at its start or later; None for ids that have no text."""

    @property
    def unambiguous(self) -> bool:
        """Whether there is only one way to cut any text into these pieces."""


@runtime_checkable
class OpenTokenizer(Tokenizer, Protocol):
    """A tokenizer that can read any text: words that are not in its vocabulary become the unknown token, as they did in training.

    `encode` still refuses such a text: every other unknown word would have the same probability. An audit that reads the texts of people
    uses `encode_open`, and does not count the unknown tokens.

    >>> from coalmine.models import CharacterTokenizer, WordTokenizer
    >>> tokens = WordTokenizer(["sat", "the"])
    >>> isinstance(tokens, OpenTokenizer), tokens.encode_open("the cat sat"), tokens.unknown
    (True, [1, 2, 0], 2)
    >>> isinstance(CharacterTokenizer("ab"), OpenTokenizer)  # it has no unknown token
    False
    """

    @property
    def unknown(self) -> int:
        """The id of the unknown token, which has no text."""

    def encode_open(self, text: str) -> list[int]:
        """As `encode`, with the unknown token for each part that is not in the vocabulary; no text is refused."""
