"""Which texts of a user are asked about: by all four rules, and how long they are."""

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine.audits import User, UserText, artificial_users
from coalmine.audits.provenance.queries import (
    FrequencyTable,
    choose_queries,
    choose_texts,
    mean_query_tokens,
    ordered_places,
)
from coalmine.corpus import embedded_documents
from coalmine.errors import InputError

RULES = ("random", "frequency-sum", "index-sum")
words = st.lists(
    st.sampled_from(["the", "a", "cat", "dog", "sat", "on", "mat", "emu", "zebra"]), min_size=1, max_size=8
)
texts = st.lists(words.map(" ".join), min_size=1, max_size=12)


def user(texts, name="ann"):
    return User(name, tuple(UserText(text) for text in texts))


@given(texts, texts, st.integers(1, 14))
def test_both_rules_choose_as_a_plain_loop_does(reference, own, number):
    counts = Counter(word for text in reference for word in text.split())
    table = [word for _, word in sorted((-count, word) for word, count in counts.items())]
    frequency = [sum(counts[word] for word in text.split()) for text in own]
    index = [sum(table.index(word) if word in table else len(table) for word in text.split()) for text in own]
    frequencies = FrequencyTable(reference)
    for rule, keys in (("frequency-sum", frequency), ("index-sum", [-one for one in index])):
        left, expected = list(range(len(own))), []
        while left and len(expected) < number:
            best = min(left, key=lambda place: (keys[place], place))
            left.remove(best)
            expected.append(best)
        chosen = choose_queries(user(own), rule, number, frequencies=frequencies)
        assert chosen.places == tuple(sorted(expected))
        assert [text.text for text in chosen.user.texts] == [own[place] for place in chosen.places]


def test_the_paper_s_rule_picks_short_texts_and_that_of_its_code_long_ones():
    documents = embedded_documents(limit_bytes=400_000)
    users = artificial_users(documents, 20)
    table = FrequencyTable(documents)
    lengths = {
        rule: mean_query_tokens([choose_queries(one, rule, 4, frequencies=table) for one in users])
        for rule in RULES
    }
    everything = mean_query_tokens([choose_queries(one, frequencies=table) for one in users])
    assert lengths["frequency-sum"] < everything / 2
    assert lengths["index-sum"] > everything * 2
    assert lengths["random"] == pytest.approx(everything, rel=0.35)


def test_tokens_can_be_those_of_a_tokenizer():
    def encode(text):
        return list(text.encode())

    table = FrequencyTable(["aaab", "ac"], cut=encode)
    assert len(table) == 3
    assert table.frequency_sum("ab") == 5
    assert table.index_sum("abcz") == 0 + 1 + 2 + 3
    assert choose_queries(user(["aaaa", "b"]), "frequency-sum", 1, frequencies=table).mean_tokens == 1.0
    assert choose_queries(user(["aaaa", "b"]), frequencies=table).mean_tokens == 2.5


@given(texts, st.integers(0, 5), st.sampled_from(RULES))
def test_fewer_queries_are_among_more_of_them(own, seed, rule):
    frequencies = FrequencyTable(own)
    ann = user(own)
    sets = [
        set(choose_queries(ann, rule, number, frequencies=frequencies, seed=seed).places)
        for number in range(1, len(own) + 2)
    ]
    assert [len(places) for places in sets] == [*range(1, len(own) + 1), len(own)]
    assert all(fewer <= more for fewer, more in itertools.pairwise(sets))


def test_random_choices_depend_on_the_user_and_the_seed_alone():
    own = [str(place) for place in range(50)]
    ann, bob = user(own), user(own, "bob")
    assert ordered_places(ann, "random") == ordered_places(ann, "random")
    assert ordered_places(ann, "random") != ordered_places(bob, "random")
    assert ordered_places(ann, "random") != ordered_places(ann, "random", seed=1)
    chosen = Counter(choose_queries(user(own, f"user {name}"), "random", 1).places[0] for name in range(2000))
    assert len(chosen) == 50
    assert max(chosen.values()) < 75  # 40 on average


def test_the_order_of_the_reference_texts_does_not_matter():
    reference = ["b a", "a c", "d e f"]
    shuffled = list(reference)
    random.Random(1).shuffle(shuffled)
    first, second = FrequencyTable(reference), FrequencyTable(shuffled)
    assert [first.index_sum(word) for word in "abcdef"] == [second.index_sum(word) for word in "abcdef"]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"selection": "random", "number": 0}, "at least 1 text of each user, got 0"),
        ({"selection": "all", "number": 2}, "2 texts of each user were asked for, and also all of them"),
        ({"selection": "frequency-sum", "number": 2}, "frequency-sum needs to know how frequent words are"),
        ({"selection": "rarest", "number": 2}, "chosen by one of all, random, frequency-sum, index-sum, got 'rarest'"),
    ],
)  # fmt: skip
def test_choices_that_make_no_sense_are_refused(how, message):
    with pytest.raises(InputError, match=message):
        choose_queries(user(["a"]), **how)
    with pytest.raises(InputError, match="none has a word that the model knows"):
        FrequencyTable([" "])


def test_counts_by_token_leave_out_what_is_not_in_the_vocabulary():
    table = FrequencyTable(["aab", "z"], cut=lambda text: [ord(letter) - ord("a") for letter in text])
    assert table.token_counts(3).tolist() == [2, 1, 0]


def test_users_keep_their_order():
    users = [user(["a b", "c"], name) for name in ("bob", "ann")]
    chosen = choose_texts(users, "random", 1, seed=5)
    assert [one.name for one in chosen] == ["bob", "ann"]
    assert [one.texts for one in chosen] == [
        choose_queries(one, "random", 1, seed=5).user.texts for one in users
    ]
