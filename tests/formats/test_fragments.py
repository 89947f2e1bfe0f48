from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine import Format
from coalmine.formats.automaton import Automaton
from coalmine.formats.fragments import BLANK, EMPTY, Fragments

SETS = st.frozensets(st.text(alphabet="ab\U0001f600", max_size=4), max_size=8)
QUICK = settings(max_examples=150, derandomize=True)


def members(store, fragment):
    return [] if fragment == EMPTY else list(store.automaton(fragment))


@QUICK
@given(SETS, SETS)
def test_operations_on_fragments_are_those_on_sets_of_strings(first, second):
    store = Fragments()
    one, two = store.strings(first), store.strings(second)
    assert members(store, one) == sorted(first)
    assert members(store, store.union([one, two])) == sorted(first | second)
    assert members(store, store.joined(one, two)) == sorted({a + b for a in first for b in second})
    begun = {a for a in first if any(a.startswith(b) for b in second)}
    assert members(store, store.beginning_with(one, two)) == sorted(begun)
    assert members(store, store.not_beginning_with(one, two)) == sorted(first - begun)


@QUICK
@given(SETS, SETS)
def test_equal_sets_have_equal_numbers_however_they_were_made(first, second):
    store = Fragments()
    one, two = store.strings(first), store.strings(second)
    assert (one == two) == (first == second)
    assert store.union([one, two]) == store.union([two, one, EMPTY]) == store.strings(first | second)
    assert store.joined(one, two) == store.strings({a + b for a in first for b in second})
    assert store.joined(one, BLANK) == store.joined(BLANK, one) == one
    assert store.joined(one, EMPTY) == store.joined(EMPTY, one) == EMPTY


def rests(strings, beginning):
    return frozenset(text[len(beginning) :] for text in strings if text.startswith(beginning))


@QUICK
@given(SETS.filter(bool))
def test_the_automaton_is_minimal_trimmed_and_topological(strings):
    store = Fragments()
    automaton = store.automaton(store.strings(strings))
    # Myhill and Nerode: as many states as there are different non-empty sets of continuations.
    beginnings = {text[:n] for text in strings for n in range(len(text) + 1)}
    assert automaton.state_count == len({rests(strings, beginning) for beginning in beginnings})
    for beginning in beginnings:
        state = automaton.walk(automaton.start, beginning)
        going_on = rests(strings, beginning)
        assert automaton.counts[state] == len(going_on)
        assert (state in automaton.accepting) == ("" in going_on)
        assert [c for c, _ in automaton.edges(state)] == sorted({text[0] for text in going_on if text})
    for state in range(automaton.state_count):
        for character, target in automaton.edges(state):
            assert target > state
            assert automaton.next(state, character) == target
        assert automaton.next(state, "z") is None
    assert automaton.walk(automaton.start, "zz") is None


def test_words_and_cards_take_few_states():
    assert Format("{card}").automaton.state_count <= 16 * 10
    assert Format("{uuid}").automaton.state_count == 37
    assert isinstance(Format("{uuid}").automaton, Automaton)


def test_many_words_compile_without_listing_their_combinations():
    words = [
        f"{stem}{number:04d}" for stem in ("ember", "quartz", "violet", "ash", "a") for number in range(2000)
    ]
    secret = Format("{word:3}", words=words)
    assert secret.size == 10_000**3
    assert secret.at(secret.size - 1) == "violet1999 violet1999 violet1999"
