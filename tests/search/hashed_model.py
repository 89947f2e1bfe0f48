"""A model of any tokens with probabilities that follow from what was read, and a subword tokenizer that is written by hand."""

from functools import cache

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from coalmine.models import SequenceScore, Step, SubwordTokenizer


class Hashed:
    """A model of any tokens whose probabilities are random numbers that follow from what was read."""

    name, resolution_bits, mixes_depths = "hashed", 1e-9, True

    def __init__(self, tokenizer):
        self.tokenizer, self.context = tokenizer, (tokenizer.separator,)

    def describe(self):
        return {"adapter": "hashed"}

    def start(self, contexts, *, columns=None):
        return self._step([tuple(context) for context in contexts], columns)

    def step(self, states, parents, tokens, *, columns=None):
        pairs = zip(parents, tokens, strict=True)
        return self._step([(*states[parent], int(token)) for parent, token in pairs], columns)

    def gather(self, parts):
        return [states[row] for states, rows in parts for row in rows]

    def state_bytes(self, states):
        return sum(100 + 10 * len(state) for state in states)

    def score(self, sequences):
        found = []
        for context, target, _ in sequences:
            rows = [self._row((*context, *target[:place])) for place in range(len(target))]
            own = np.array([row[token] for row, token in zip(rows, target, strict=True)])
            found.append(SequenceScore(own, np.zeros(len(target), dtype=bool), None))
        return found

    def _step(self, states, columns):
        rows = np.array([self._row(state) for state in states])
        return Step(states, rows if columns is None else rows[:, columns])

    def _row(self, state):
        # A linear congruence over the tokens; doubled steps between neighbors make some far likelier than others.
        number = 17
        for token in state:
            number = (number * 48271 + token + 1) % 2147483647
        weights = (number * (np.arange(self.tokenizer.size) + 3) % 10007 + 1.0) ** 2
        return np.log2(weights / weights.sum())


@cache
def subwords():
    """Bytes, and tokens of two, three and four digits."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [
        ("1", "2"),
        ("3", "4"),
        ("12", "3"),
        ("0", "0"),
        ("00", "00"),
        ("p", "i"),
        ("pi", "n"),
        ("9", "9"),
    ]
    names = ["<s>", *alphabet, *dict.fromkeys("".join(pair) for pair in merges)]
    tokenizer = Tokenizer(models.BPE(vocab={name: place for place, name in enumerate(names)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>"])
    return SubwordTokenizer(tokenizer, size=len(names), separator=0)
