"""The tokenizers of the reference models: characters, or words."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from coalmine.errors import ModelError, NoTokenError
from coalmine.models.protocols import IntArray


class CharacterTokenizer:
    """One token per character, in code point order, followed by a document separator.

    A character that is not among them has no token, not even an unknown one: no text with it was in the training data.

    >>> tokens = CharacterTokenizer("ab ")
    >>> tokens.encode("ab a"), tokens.separator, tokens.size
    ([1, 2, 0, 1], 3, 4)
    """

    kind: ClassVar[str] = "characters"
    unambiguous: ClassVar[bool] = True

    def __init__(self, characters: Iterable[str]) -> None:
        self.characters = "".join(sorted(set(characters)))
        self._ids = {character: token for token, character in enumerate(self.characters)}
        self.separator = len(self.characters)

    @classmethod
    def of(cls, documents: Iterable[str]) -> CharacterTokenizer:
        """The tokenizer of the characters that occur in some documents."""
        seen: set[str] = set()
        for document in documents:
            seen.update(document)
        return cls(seen)

    @property
    def size(self) -> int:
        """The number of ids, the separator included."""
        return len(self.characters) + 1

    def encode(self, text: str) -> list[int]:
        """One id per character."""
        try:
            return [self._ids[character] for character in text]
        except KeyError:
            # The character itself may be part of the secret.
            missing = next(place for place, character in enumerate(text) if character not in self._ids)
            raise NoTokenError(
                f"the model has no token for character {missing + 1} of {len(text)} of a text, so it cannot be scored; "
                "train on a corpus in which it occurs, or choose a format without it"
            ) from None

    def encode_document(self, text: str) -> IntArray:
        """As `encode`, but fast on long documents."""
        points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
        alphabet = np.array([ord(character) for character in self.characters], dtype=np.uint32)
        ids = np.searchsorted(alphabet, points)
        known = ids < len(alphabet)
        known[known] = alphabet[ids[known]] == points[known]
        if not known.all():
            self.encode(text)  # raises an error that names the character
        return ids.astype(np.int32)

    def decode(self, tokens: Sequence[int]) -> str:
        """The characters; a separator has no text."""
        return "".join(self.characters[token] for token in tokens if token != self.separator)

    def pieces(self, *, first: bool) -> list[bytes | None]:
        """Each character adds its own bytes, at any position."""
        del first
        return [*(character.encode("utf-8", "surrogatepass") for character in self.characters), None]

    def to_dict(self) -> dict[str, Any]:
        """For a model's config.json."""
        return {"kind": self.kind, "characters": self.characters}


class WordTokenizer:
    """One token per word between white space; in training, words that are not in the vocabulary become the unknown token.

    A secret with an unknown word cannot be scored, because every other unknown word would have the same score: `encode` refuses it.
    `encode_open` reads any text as training did.

    >>> tokens = WordTokenizer(["sat", "the"])
    >>> tokens.encode("the sat"), tokens.decode([1, 0]), tokens.unknown, tokens.separator
    ([1, 0], 'the sat', 2, 3)
    >>> tokens.encode_open("the  cat sat ")
    [1, 2, 0]
    """

    kind: ClassVar[str] = "words"
    unambiguous: ClassVar[bool] = True

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(sorted(set(words)))
        self._ids = {word: token for token, word in enumerate(self.words)}
        self.unknown = len(self.words)
        self.separator = len(self.words) + 1

    @classmethod
    def of(cls, documents: Iterable[str], *, most: int) -> WordTokenizer:
        """The tokenizer of the `most` most frequent words of some documents."""
        counts: Counter[str] = Counter()
        for document in documents:
            counts.update(document.split())
        by_frequency = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return cls(word for word, _ in by_frequency[:most])

    @property
    def size(self) -> int:
        """The number of ids, the unknown word and the separator included."""
        return len(self.words) + 2

    def encode(self, text: str) -> list[int]:
        """One id per word; the words must be known and joined by single spaces."""
        words = text.split(" ")
        missing = next((place for place, word in enumerate(words) if word not in self._ids), None)
        if missing is not None:
            # The word itself may be the secret.
            kind = (
                "a word that is not in its vocabulary" if words[missing] else "two spaces, or one at an end"
            )
            raise NoTokenError(
                f"the model cannot read word {missing + 1} of {len(words)} of a text ({kind}), so it cannot be scored; "
                "use {word:n} with the model's own vocabulary, or a character model"
            )
        return [self._ids[word] for word in words]

    def encode_open(self, text: str) -> list[int]:
        """One id per word between any white space, as in training; unknown words become the unknown token."""
        return [self._ids.get(word, self.unknown) for word in text.split()]

    def encode_document(self, text: str) -> IntArray:
        """As `encode_open`, as an array."""
        return np.array(self.encode_open(text), dtype=np.int32)

    def decode(self, tokens: Sequence[int]) -> str:
        """The words, joined by spaces."""
        special = {self.unknown: "<unknown>"}
        return " ".join(
            special.get(token) or self.words[token] for token in tokens if token != self.separator
        )

    def pieces(self, *, first: bool) -> list[bytes | None]:
        """A word, with a space before it unless it is the first."""
        space = "" if first else " "
        return [*((space + word).encode("utf-8", "surrogatepass") for word in self.words), None, None]

    def to_dict(self) -> dict[str, Any]:
        """For a model's config.json."""
        return {"kind": self.kind, "words": list(self.words)}


ReferenceTokenizer = CharacterTokenizer | WordTokenizer


def tokenizer_from_dict(document: Any) -> ReferenceTokenizer:
    """The inverse of `to_dict`; a ModelError for anything that `to_dict` cannot return."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind == CharacterTokenizer.kind:
        characters = document.get("characters")
        return CharacterTokenizer(_in_order(list(characters) if isinstance(characters, str) else None))
    if kind == WordTokenizer.kind:
        return WordTokenizer(_in_order(document.get("words")))
    raise ModelError("unknown kind of tokenizer: known are 'characters' and 'words'")


def _in_order(tokens: Any) -> list[str]:
    """Sorted texts without duplicates: an id is an index into them."""
    if not (
        isinstance(tokens, list)
        and all(isinstance(text, str) for text in tokens)
        and all(one < next_one for one, next_one in itertools.pairwise(tokens))
    ):
        raise ModelError("the tokenizer must list texts in their order, each once")
    return tokens
