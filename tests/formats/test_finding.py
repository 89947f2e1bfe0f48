from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coalmine import Format
from coalmine.formats import Match
from coalmine.formats.automaton import Automaton
from formats.format_strategies import PIECES, WORDS, template_and_members


def leftmost_longest(members, text):
    """Every place in turn, the longest member first."""
    longest_first = sorted(filter(None, members), key=len, reverse=True)
    found, start = [], 0
    while start < len(text):
        member = next((member for member in longest_first if text.startswith(member, start)), None)
        if member is None:
            start += 1
        else:
            found.append((start, start + len(member), member))
            start += len(member)
    return found


@settings(max_examples=150, derandomize=True, suppress_health_check=list(HealthCheck))
@given(PIECES, st.data())
def test_finds_the_leftmost_longest_members(pieces, data):
    template, members = template_and_members(pieces)
    around = st.text(alphabet="ab {}\n0é", max_size=8)
    text = "".join(data.draw(st.lists(st.one_of(around, st.sampled_from(members)), max_size=8)))
    found = list(Format(template, words=WORDS).finditer(text))
    assert [(match.start, match.end, match.text) for match in found] == leftmost_longest(members, text)


def test_finds_after_a_false_start_that_overlaps():
    assert [match.start for match in Format("aab{digits:1}").finditer("aaab1 aaaaab2")] == [1, 9]
    assert [match.text for match in Format("{re:1?212}-{digits:1}").finditer("1212212-3")] == ["212-3"]


def test_a_match_is_a_frozen_record():
    match = next(Format("pin {digits:4}").finditer("my pin 12345"))
    assert match == Match(3, 11, "pin 1234")
    with pytest.raises(AttributeError):
        match.start = 0


def test_characters_with_a_meaning_in_regular_expressions_are_plain_text_here():
    assert [m.text for m in Format("{choice:^|]|-|\\}{digits:1}").finditer("a^1 b]2 c-3 d\\4 e5")] == [
        "^1",
        "]2",
        "-3",
        "\\4",
    ]


@pytest.mark.parametrize("template", ["My SSN is {ssn}", "{ssn}", "{card}", "({phone})"])
def test_the_automaton_is_asked_only_where_a_member_may_begin(template, monkeypatch):
    secret = Format(template)
    planted = secret.sample(20, seed=0)
    text = ("the quick (brown) fox met 14 dogs in 2019; My oh my. " * 2000).join(["", *planted, ""])
    asked = []
    longest_match = Automaton.longest_match

    def counted(self, text, position, state=0):
        asked.append(position)
        return longest_match(self, text, position, state)

    monkeypatch.setattr(Automaton, "longest_match", counted)
    # Two million characters, and the slow part runs once for each member.
    assert [match.text for match in secret.finditer(text)] == planted
    assert len(asked) <= 2 * len(planted)
