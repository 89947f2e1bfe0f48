"""The sort itself, for symbols of every width, with few and with many different ones."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine.corpus import build_index, repeated_sequences
from coalmine.corpus.index.shards import to_symbols
from coalmine.corpus.index.sorting import sorted_suffixes
from coalmine.corpus.index.tokenizing import ReferenceTokens
from coalmine.models import WordTokenizer


@settings(max_examples=100)
@given(
    st.lists(st.lists(st.integers(0, 3), max_size=9), min_size=1, max_size=5), st.sampled_from([1, 2, 3, 4])
)
def test_suffixes_are_in_the_order_of_what_follows_them(documents, width):
    # Ids that differ in each of their bytes, and that of token 0.
    ids = [0, 1, 256 ** (width - 1), 256**width - 2]
    tokens = [token for document in documents for token in [*(ids[place] for place in document), -1]]
    found = sorted_suffixes(to_symbols(np.array(tokens), width), width, len(documents)).tolist()
    expected = sorted(
        (place for place, token in enumerate(tokens) if token >= 0), key=lambda place: tokens[place:]
    )
    assert found == expected


@pytest.mark.parametrize("width", [3, 4])
def test_more_different_symbols_than_two_bytes_can_tell_apart(width):
    ids = np.random.default_rng(0).permutation(70_000) * (200 if width == 3 else 60_000)
    symbols = to_symbols(np.append(ids, -1), width)
    assert np.array_equal(sorted_suffixes(symbols, width, 1), np.argsort(ids))


class Huge(ReferenceTokens):
    """Words whose ids need four bytes."""

    def __init__(self):
        super().__init__(WordTokenizer(["a", "b", "c"]))
        self.size = 2**31

    def encode_documents(self, texts):
        return [2**31 - 1 - tokens.astype(np.int64) for tokens in super().encode_documents(texts)]


def test_a_vocabulary_of_billions():
    texts = ["a b c a b c a", "b c a", "c c c c", ""]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.jsonl")
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        for memory in (1, 10**9):
            index = build_index(path, Path(folder, "index"), tokenizer=Huge(), memory=memory, overwrite=True)
            index.tokenizer = Huge()
            a, b, c = (2**31 - 1 - token for token in range(3))
            assert index.manifest.symbol_bytes == 4
            assert index.counts([[a], [b, c, a], [c, c], [a, b, c, a, b, c, a], [c, b]]).tolist() == [
                4,
                3,
                3,
                1,
                0,
            ]
            assert index.longest_match([b, b, c, a, a]).length == 3
            found = {tuple(one.tokens.tolist()): one.count for one in repeated_sequences(index, 3)}
            assert found == {(a, b, c): 2, (b, c, a): 3, (c, c, c): 2}
