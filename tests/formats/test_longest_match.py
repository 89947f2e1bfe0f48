"""The longest member that a text has at a place, by looking at every end."""

import pytest

from coalmine import Format

TEXTS = ["aab", "ab", "abab", "b", "", "xab", "abx", "aabbaab"]


@pytest.mark.parametrize("template", ["{re:ab?}", "{re:(ab){1,2}}", "{re:a{1,3}b?|b}", "{re:[ab]{2,3}}"])
@pytest.mark.parametrize("text", TEXTS)
def test_the_longest_match_is_the_last_end_at_which_a_member_ends(template, text):
    form = Format(template)
    for position in range(len(text) + 1):
        ends = [end for end in range(position, len(text) + 1) if text[position:end] in form]
        assert form.automaton.longest_match(text, position) == max(ends, default=None)


def test_from_a_state_at_which_a_member_ends_nothing_more_is_needed():
    automaton = Format("{re:ab?}").automaton
    after = automaton.walk(automaton.start, "a")
    assert [automaton.longest_match(text, 0, after) for text in ("", "x", "b", "bb")] == [0, 0, 1, 1]
    assert automaton.longest_match("x", 0) is None
