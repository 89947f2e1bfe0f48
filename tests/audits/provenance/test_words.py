"""Words: which texts of a user are rarest, and predictions with hidden units at zero, as a network whose weights are zero makes them."""

import copy
import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from audits.provenance.small_users import SMALL, small_users
from coalmine import load_model
from coalmine.audits import ProvenanceOptions, User, UserText
from coalmine.audits.provenance.views import look, readable, view_of
from coalmine.audits.provenance.words import SHARES, ablation_curves, weights_of, with_chosen_texts
from coalmine.randomness import arrays
from coalmine.training.trainer import train_documents

words = st.lists(
    st.sampled_from(["the", "a", "cat", "dog", "sat", "on", "mat", "emu", "zebra"]), min_size=1, max_size=8
)
texts = st.lists(words.map(" ".join), min_size=1, max_size=12)


def chosen(own, rule, number, counts, seed=0, name="ann"):
    options = ProvenanceOptions(selection=rule, queries=number, seed=seed)
    user = User(name, tuple(UserText(text) for text in own))
    asked = with_chosen_texts(user, options, str.split, weights_of(counts, rule))
    return [text.text for text in asked.texts]


@given(texts, texts, st.integers(1, 14))
def test_both_rules_choose_as_a_plain_loop_does(reference, own, number):
    counts = Counter(word for text in reference for word in text.split())
    table = [word for _, word in sorted((-count, word) for word, count in counts.items())]
    frequency = [sum(counts[word] for word in text.split()) for text in own]
    index = [sum(table.index(word) if word in table else len(table) for word in text.split()) for text in own]
    for rule, keys in (("frequency-sum", frequency), ("index-sum", [-one for one in index])):
        left, expected = list(range(len(own))), []
        while left and len(expected) < number:
            best = min(left, key=lambda place: (keys[place], place))
            left.remove(best)
            expected.append(best)
        assert chosen(own, rule, number, counts) == [own[place] for place in sorted(expected)]


USERS = small_users(10, texts=4, pairs=True)
MEMBERS, STRANGERS = USERS[:4], USERS[4:]
TEXTS = [text for user in MEMBERS for text in user.texts]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ablation")
    written, options = [text.text for text in TEXTS], {**SMALL, "epochs": 40}
    train_documents(written, out=folder / "words", preset="provenance-words", **options)
    pairs = {"sources": [text.source for text in TEXTS], "preset": "provenance-dialog"}
    train_documents(written, out=folder / "pairs", **pairs, **{**options, "epochs": 5})
    return {name: load_model(folder / name) for name in ("words", "pairs")}


def with_zero_weights(model, units):
    """The same model, whose last layer has no weights for these units: what they say is not heard."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.network.output.weight[:, units] = 0.0
    return other


@pytest.mark.parametrize("name", ["words", "pairs"])
def test_a_curve_counts_the_words_that_a_network_without_these_weights_predicts(models, name):
    model = models[name]
    ranks = np.linspace(0, 1, model.tokenizer.size, endpoint=False)
    curve = list(ablation_curves(model, ranks, MEMBERS, (), most=1000, seed=3))
    assert [(point.x, point.words) for point in curve] == list(
        itertools.product(SHARES, ("frequent", "rare"))
    )
    order = arrays(3, "provenance", "ablation").permutation(SMALL["hidden"])
    for point in curve:
        silent = with_zero_weights(model, order[: round(point.x * 16)].tolist())
        views = look(silent, view_of(silent), TEXTS)
        hits = np.concatenate([view.ranks == 0 for view in views])
        rare = ranks[np.concatenate([view.tokens for view in views])] >= 0.1
        assert point.y == pytest.approx(hits[rare if point.words == "rare" else ~rare].mean())
    assert name == "pairs" or curve[1].y > curve[-1].y + 0.2
    # One text alone goes another way in a model of pairs, which then holds its source fixed.
    sequences, sets = [sequence for _, sequence, _ in readable(model, TEXTS)], [[], [3, 0, 7]]
    together = model.predicts_without(sequences, sets)
    for sequence, one in zip(sequences[:2], together, strict=False):
        assert model.predicts_without([sequence], sets)[0].tolist() == one.tolist()
