"""The search for secrets against `in`, one secret and one text at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine.corpus.files.documents import BOUNDARY
from coalmine.corpus.planting.occurrences import OccurrenceSearch


def every_occurrence(groups: list[list[str]], text: str) -> set[tuple[int, str]]:
    return {
        (len(text[:start].encode()), member)
        for group in groups
        for member in group
        for start in range(len(text))
        if text.startswith(member, start)
    }


# A small alphabet, so that members overlap, contain one another and occur often; é takes two bytes.
texts = st.text(alphabet="abé", min_size=1, max_size=12)


@given(
    st.lists(st.lists(texts, min_size=1, max_size=6), min_size=1, max_size=3),
    st.text(alphabet="abé", max_size=60),
)
def test_finds_every_occurrence_and_nothing_else(groups, text):
    assert set(OccurrenceSearch(groups).find(text.encode())) == every_occurrence(groups, text)


@given(st.lists(texts, min_size=1, max_size=6), st.text(alphabet="abé", max_size=40))
def test_finds_members_that_begin_alike(endings, text):
    members = [f"my code is {ending}" for ending in endings]
    text = f"{text}my code is {text} my code is aab"
    assert set(OccurrenceSearch([members]).find(text.encode())) == every_occurrence([members], text)


def test_finds_across_the_pieces_of_a_long_text():
    member = "0123456789"
    # The pieces are a power of two long, so each of these places is near the end of one.
    for place in (32760, 32765, 32767, 32768, 65530, 100_000):
        text = "x" * place + member + "x" * 50_000
        assert list(OccurrenceSearch([[member, "abcdefgh"]]).find(text.encode())) == [(place, member)]


def test_nothing_is_found_across_two_documents():
    haystack = BOUNDARY.join([b"my code ", b"is 17", b"\xc3\xa9"])
    assert not list(OccurrenceSearch([["my code is 17"], ["17é"]]).find(haystack))


def test_the_empty_text_is_refused():
    with pytest.raises(ValueError, match="everywhere"):
        OccurrenceSearch([["", "a"]])


def test_no_members_are_found_nowhere():
    assert not list(OccurrenceSearch([]).find(b"some text"))
    assert not list(OccurrenceSearch([[]]).find(b"some text"))
