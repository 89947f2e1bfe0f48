"""The context of a secret: never longer than asked, and without anything that the secret could be copied from."""

from hypothesis import given
from hypothesis import strategies as st

from coalmine.corpus.secrets.contexts import COPIED, context_of, shares_a_piece


def test_a_context_begins_with_a_word():
    assert context_of("one two three four", "9999", 11) == "three four"
    assert context_of("one two three four", "9999", 10) == "three four"
    assert context_of("a" * 40, "9999", 12) == "a" * 12


def test_a_context_is_empty_where_the_document_begins_or_none_is_asked_for():
    assert context_of("", "1234", 64) == ""
    assert context_of("call me", "1234", 0) == ""


def test_a_number_that_is_given_twice_is_cut_off():
    assert context_of("home 713-853-1234, fax 713-853-", "1235", 64) == "4, fax 713-853-"


def test_a_name_in_front_of_its_address_is_cut_off():
    assert context_of('From: "Ann M. Lee" <', "ann.lee", 64) == '" <'
    assert context_of("ANN ", "ann.lee", 64) == " "


@given(st.text(max_size=80), st.text(min_size=1, max_size=12), st.integers(0, 60))
def test_no_piece_of_the_secret_is_left_in_its_context(before, drawn, most):
    context = context_of(before, drawn, most)
    assert len(context) <= most
    assert before.endswith(context)
    assert not shares_a_piece(context, drawn)
    runs = [one for one in "".join(c if c.isalnum() else " " for c in drawn).split() if len(one) >= COPIED]
    assert not any(one.lower() in context.lower() for one in runs)
