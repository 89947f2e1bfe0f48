"""Which token may follow which, so that the tokens are those the tokenizer itself would choose.

A text can be cut into tokens in many ways, and a model's perplexity of it is that of one: what its tokenizer makes of it. For
byte-pair encodings a sequence is canonical exactly when each pair of neighbors is (the merges that decide a boundary are next
to it). So it is enough to ask the tokenizer about pairs; that each member then has exactly one path is counted, not assumed.
"""

from __future__ import annotations

from collections.abc import Iterable

from coalmine.models.protocols import Tokenizer

# What stands for the beginning of a text among the tokens that another may follow.
START = -1
# Texts that a token can be put behind when it cannot begin one.
_ANCHORS = (b"a", b"0", b".", b" ", b"z", b"9")
# Texts that a token can be put behind when it cannot begin one.
_ANCHORS = (b"a", b"0", b".", b" ", b"z", b"9")


class Neighbors:
    """Answers of a tokenizer on pairs of tokens, asked once each."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._first, self._further = tokenizer.pieces(first=True), tokenizer.pieces(first=False)
        self._known: dict[tuple[int, int], bool] = {}

    def allowed(self, before: int, tokens: Iterable[int]) -> list[bool]:
        """Whether each token may follow `before` in what the tokenizer makes of a text."""
        listed = list(tokens)
        unknown = [token for token in listed if (before, token) not in self._known]
        for token in unknown:
            self._known[before, token] = self._ask(before, token)
        return [self._known[before, token] for token in listed]

    def _ask(self, before: int, token: int) -> bool:
        if before == START:
            return not self._first[token] or self._tokens(self._first[token]) in (None, [token])
        # The pair as a text begins with it, where it can begin one, and else behind something that it does not join.
        for anchor in (None, *_ANCHORS):
            opening = self._first[before] if anchor is None else anchor + (self._further[before] or b"")
            alone = self._tokens(opening)
            if alone is None:
                break
            if alone[-1:] == [before] and (anchor is not None or len(alone) == 1):
                together = self._tokens((opening or b"") + (self._further[token] or b""))
                return together is None or together == [*alone, token]
        return True  # could not be judged by itself: the count of paths judges it with all others

    def _tokens(self, text: bytes | None) -> list[int] | None:
        """What the tokenizer makes of a text, or None where it ends in the middle of a character."""
        try:
            return self._tokenizer.encode((text or b"").decode())
        except UnicodeDecodeError:
            return None
