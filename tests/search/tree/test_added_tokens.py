"""Texts that are about to spell a token that was added to a tokenizer: what is still lacking, and when it is there."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from coalmine.search.tree.canonical import NOTHING, Neighbors, _spelled_on
from search.random_tokenizers import wrapped


@pytest.fixture(scope="module")
def neighbors():
    """Bytes and one merge, with "ab", "abc" and "bcd!" as added tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = ["<unk>", "<s>", *alphabet, "xa"]
    model = models.BPE(vocab={name: place for place, name in enumerate(names)}, merges=[("x", "a")])
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<unk>"])
    return Neighbors(wrapped(tokenizer, added=[("ab", False), ("abc", False), ("bcd!", False)]))


def token(neighbors, text):
    [found] = [place for place, piece in neighbors.pieces(fresh=False).items() if piece == text.encode()]
    return found


def after(neighbors, *texts):
    """What a text of these tokens could still become; None where an added token is spelled in it."""
    spelling = NOTHING
    for text in texts:
        spelling = neighbors.spelling_after(spelling, token(neighbors, text), fresh=False)
        if spelling is None:
            return None
    return spelling


@pytest.mark.parametrize(
    ("texts", "lacking"),
    [
        (("x",), set()),
        (("a",), {b"b", b"bc"}),
        (("xa",), {b"b", b"bc"}),
        (("b",), {b"cd!"}),
        (("b", "c"), {b"d!"}),
        (("b", "c", "x"), set()),
        (("ab",), {b"c"}),  # the longer one would have gone first
        (("abc",), set()),
        (("ab", "x"), set()),
    ],
)
def test_what_is_lacking_of_added_tokens(neighbors, texts, lacking):
    assert after(neighbors, *texts) == lacking


@pytest.mark.parametrize("texts", [("a", "b"), ("xa", "b"), ("ab", "c"), ("b", "c", "d", "!")])
def test_an_added_token_that_is_spelled_by_others_is_noticed(neighbors, texts):
    assert after(neighbors, *texts) is None


def test_texts_begin_at_their_places_in_a_piece_and_go_on_behind_it():
    assert _spelled_on(b"abc", [(0, b"abcd"), (1, b"bcx"), (2, b"cab")]) == {b"d", b"x", b"ab"}
    assert _spelled_on(b"abc", [(0, b"abd"), (1, b"c"), (2, b"dc")]) == set()
    assert _spelled_on(b"abc", [(0, b"xyzw"), (1, b"bc")]) is None
    assert _spelled_on(b"abc", [(1, b"b")]) is None
