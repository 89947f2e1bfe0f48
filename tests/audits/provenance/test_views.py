"""What models show about texts: ranks from 0, probabilities, unknown words, and lists of likely tokens."""

import numpy as np
import pytest

from audits.provenance.small_users import SMALL, small_users
from coalmine import ScriptedModel, load_model
from coalmine.audits import UserText
from coalmine.audits.provenance.views import NOT_LISTED, look, view_of
from coalmine.models import text_sequence
from coalmine.training.trainer import train_documents


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A small word model."""
    folder = tmp_path_factory.mktemp("words") / "model"
    texts = [text.text for user in small_users(4) for text in user.texts]
    train_documents(texts, out=folder, preset="provenance-words", **{**SMALL, "epochs": 3})
    return load_model(folder)


def by_hand(model, text):
    """log2 probabilities and ranks from 0 of each token, from the full list of tokens at each position."""
    sequence = text_sequence(model, text)
    [positions] = model.likeliest([sequence], k=model.tokenizer.size)
    found = []
    for token, listed in zip(sequence.target, positions, strict=True):
        own = dict(listed)[token]
        found.append((own, sum(other > own for _, other in listed)))
    return [one for one, _ in found], [place for _, place in found]


def test_ranks_and_probabilities_are_those_of_the_full_list(words):
    texts = [text for user in small_users(3, seed=5) for text in user.texts]
    for text, view in zip(texts, look(words, view_of(words), texts), strict=True):
        bits, ranks = by_hand(words, text.text)
        assert view.ranks.tolist() == ranks
        assert np.allclose(view.log2_probabilities, bits, atol=1e-4)
        assert view.tokens.tolist() == words.tokenizer.encode(text.text)
        assert (view.deviations >= 0).all()


def test_words_that_are_not_known_are_read_and_not_counted(words):
    known, unknown = UserText("w1 w2 w3"), UserText("w1 zebra w3")
    plain, gap = look(words, view_of(words), [known, unknown])
    assert len(plain.ranks) == 3
    assert plain.unknown == 0
    assert len(gap.ranks) == 2
    assert gap.unknown == 1
    assert gap.ranks[0] == plain.ranks[0]  # what comes before the unknown word is the same
    assert gap.log2_probabilities[1] != plain.log2_probabilities[1]
    [nothing] = look(words, view_of(words), [UserText("zebra giraffe")])
    assert len(nothing.ranks) == 0
    assert nothing.unknown == 2
    assert look(words, view_of(words), [UserText("  ")]) == [None]


def test_the_top_hides_everything_else(words):
    text = UserText("w1 w2 w3 w4 w5 w6 w7 w8")
    [whole] = look(words, view_of(words), [text])
    view = view_of(words, top=5)
    assert (view.top, view.probabilities, view.moments) == (5, False, False)
    [part] = look(words, view, [text])
    assert part.ranks.tolist() == [rank if rank < 5 else NOT_LISTED for rank in whole.ranks]
    assert part.log2_probabilities is None
    assert part.means is None
    assert view_of(words, top=10**6).top is None


class Lists:
    """A server that lists the likeliest next tokens of a script, as texts."""

    name, context, resolution_bits = "lists", (), 1e-9
    most_listed = 3

    def __init__(self, said):
        self.tokenizer, self.said, self.asked = ScriptedModel("a").tokenizer, said, []

    def describe(self):
        return {"adapter": "lists"}

    def next_texts(self, prompts, *, k):
        self.asked += prompts
        return [self.said.get(prompt, [])[:k] for prompt in prompts]


def test_lists_of_next_tokens_are_asked_for_before_each_word():
    model = Lists({"I am": [" the", " th", " here"], "I am there": [" now", "."], "I": [" was"]})
    view = view_of(model)
    assert (view.ranked, view.top, view.probabilities) == (None, 3, False)
    [found] = look(model, view, [UserText("I am there now")])
    assert model.asked == ["I", "I am", "I am there"]
    # "was" is not what comes; of "the" and "th", the longer is taken; "now" is the first.
    assert found.ranks.tolist() == [NOT_LISTED, 0, 0]
    assert look(model, view, [UserText("one")]) == [None]
