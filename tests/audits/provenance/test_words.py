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
from coalmine import audit_provenance, load_model
from coalmine.audits import AuditedUsers, ProvenanceOptions, User, UserText, artificial_users
from coalmine.audits.provenance.views import look, readable, view_of
from coalmine.audits.provenance.words import (
    SHARES,
    AblationWork,
    FrequencyTable,
    ablation_curves,
    chosen_places,
)
from coalmine.corpus import embedded_documents
from coalmine.engines.engine import open_engine
from coalmine.engines.ledger import Ledger
from coalmine.errors import InputError
from coalmine.models import AblatedScorer
from coalmine.progress import Silent
from coalmine.randomness import arrays
from coalmine.training.trainer import train_documents

RULES = ("random", "frequency-sum", "index-sum")
words = st.lists(
    st.sampled_from(["the", "a", "cat", "dog", "sat", "on", "mat", "emu", "zebra"]), min_size=1, max_size=8
)
texts = st.lists(words.map(" ".join), min_size=1, max_size=12)


def user(texts, name="ann"):
    return User(name, tuple(UserText(text) for text in texts))


def chosen(one, rule, number, table, seed=0):
    return chosen_places(one, ProvenanceOptions(selection=rule, queries=number, seed=seed), table)


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
        assert chosen(user(own), rule, number, FrequencyTable(reference)) == tuple(sorted(expected))


def test_the_paper_s_rule_picks_short_texts_and_that_of_its_code_long_ones():
    documents = embedded_documents(limit_bytes=400_000)
    users = artificial_users(documents, 20)
    table = FrequencyTable(documents)

    def mean_words(rule, number):
        picked = [[one.texts[place] for place in chosen(one, rule, number, table)] for one in users]
        return np.mean([np.mean([len(text.text.split()) for text in some]) for some in picked])

    everything = mean_words("all", None)
    assert mean_words("frequency-sum", 4) < everything / 2
    assert mean_words("index-sum", 4) > everything * 2
    assert mean_words("random", 4) == pytest.approx(everything, rel=0.35)


@given(texts, st.integers(0, 5), st.sampled_from(RULES))
def test_fewer_queries_are_among_more_of_them(own, seed, rule):
    table = FrequencyTable(own)
    sets = [set(chosen(user(own), rule, number, table, seed)) for number in range(1, len(own) + 2)]
    assert [len(places) for places in sets] == [*range(1, len(own) + 1), len(own)]
    assert all(fewer <= more for fewer, more in itertools.pairwise(sets))


def test_random_choices_depend_on_the_user_and_the_seed_alone():
    own = [str(place) for place in range(50)]
    table = FrequencyTable(own)
    ann, bob = user(own), user(own, "bob")
    assert chosen(ann, "random", 9, table) == chosen(ann, "random", 9, table)
    assert chosen(ann, "random", 9, table) != chosen(bob, "random", 9, table)
    assert chosen(ann, "random", 9, table) != chosen(ann, "random", 9, table, seed=1)
    first = Counter(chosen(user(own, f"user {name}"), "random", 1, table)[0] for name in range(2000))
    assert len(first) == 50
    assert max(first.values()) < 75  # 40 on average


def test_tables_and_what_no_table_can_be_made_of():
    table = FrequencyTable(["aab", "z"], cut=lambda text: [ord(letter) - ord("a") for letter in text])
    assert table.frequency_sum("ab") == 3
    assert table.index_sum("abcz") == 0 + 1 + 3 + 2
    assert table.ranks(3).tolist() == [0, 1 / 3, 2 / 3]
    # The order of the reference texts does not matter.
    first, second = FrequencyTable(["b a", "a c", "d e f"]), FrequencyTable(["d e f", "b a", "a c"])
    assert [first.index_sum(word) for word in "abcdef"] == [second.index_sum(word) for word in "abcdef"]
    with pytest.raises(InputError, match="none has a word that the model knows"):
        FrequencyTable([" "])
    for options in ({"queries": 2}, {"selection": "random"}):
        with pytest.raises(InputError, match="give both a number of queries and how they are chosen"):
            ProvenanceOptions(**options).check()


USERS = small_users(10, texts=4, pairs=True)
MEMBERS, STRANGERS = USERS[:4], USERS[4:]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ablation")
    texts = [text for user in MEMBERS for text in user.texts]
    options = {**SMALL, "epochs": 40}
    train_documents([text.text for text in texts], out=folder / "words", preset="provenance-words", **options)
    pairs = {"sources": [text.source for text in texts], "preset": "provenance-dialog"}
    train_documents([text.text for text in texts], out=folder / "pairs", **pairs, **{**options, "epochs": 5})
    return {name: load_model(folder / name) for name in ("words", "pairs")}


def with_zero_weights(model, units):
    """The same model, whose last layer has no weights for these units: what they say is not heard."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.network.output.weight[:, units] = 0.0
    return other


@pytest.mark.parametrize("name", ["words", "pairs"])
def test_predictions_are_those_of_a_network_without_these_weights(models, name):
    model = models[name]
    assert isinstance(model, AblatedScorer)
    assert model.hidden_units == SMALL["hidden"]
    texts = [text for user in MEMBERS for text in user.texts]
    sequences = [sequence for _, sequence, _ in readable(model, texts)]
    sets = [[], [3, 0, 7], list(range(12)), list(range(16))]
    found = model.predicts_without(sequences, sets)
    changed = False
    for place, units in enumerate(sets):
        scores = with_zero_weights(model, units).score(sequences)
        for one, score in zip(found, scores, strict=True):
            assert one[place].tolist() == score.is_argmax.tolist()
            changed |= one[place].tolist() != one[0].tolist()
    assert changed
    # One text alone goes another way in a model of pairs, which then holds its source fixed.
    for sequence, one in zip(sequences[:2], found, strict=False):
        assert model.predicts_without([sequence], sets)[0].tolist() == one.tolist()


def test_a_curve_counts_the_words_that_are_still_predicted(models):
    model = models["words"]
    texts = [text for user in MEMBERS for text in user.texts]
    ranks = np.linspace(0, 1, model.tokenizer.size, endpoint=False)
    with open_engine("here") as engine:
        curve = ablation_curves(
            AblationWork(model, ranks, seed=3),
            MEMBERS,
            (),
            1000,
            engine=engine,
            ledger=Ledger(None),
            progress=Silent(),
        )
    assert [point.ablated for point in curve] == list(SHARES)
    order = arrays(3, "provenance", "ablation").permutation(16)
    for point in curve:
        silent = with_zero_weights(model, order[: round(point.ablated * 16)].tolist())
        views = look(silent, view_of(silent), texts)
        hits = np.concatenate([view.ranks == 0 for view in views])
        rare = ranks[np.concatenate([view.tokens for view in views])] >= 0.1
        assert point.frequent == pytest.approx(hits[~rare].mean())
        assert point.rare == pytest.approx(hits[rare].mean())
    assert curve[0].rare > curve[-1].rare + 0.2
    assert curve[0].non_members_rare is None


def test_an_audit_draws_the_curves_of_suspects_and_of_non_members(models, tmp_path):
    model, users = models["words"], AuditedUsers(MEMBERS, non_members=STRANGERS)
    found = audit_provenance(model, users, out=tmp_path / "here", ablation_texts=10)
    assert [point.ablated for point in found.ablation] == list(SHARES)
    assert found.ablation[0].rare > found.ablation[0].non_members_rare + 0.2
    with open_engine("processes:2") as engine:
        audit_provenance(model, users, out=tmp_path / "two", ablation_texts=10, engine=engine)
    two, here = (tmp_path / name / "provenance.json" for name in ("two", "here"))
    assert two.read_bytes() == here.read_bytes()
    assert audit_provenance(model, users, ablation_texts=0).ablation == ()
    assert audit_provenance(model, users, top=3).ablation == ()
    assert audit_provenance(model, users._replace(non_members=())).ablation[0].non_members_rare is None
