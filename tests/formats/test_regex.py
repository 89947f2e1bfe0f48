from __future__ import annotations

import re
import warnings
from itertools import product

import pytest
from automata.fa.dfa import DFA
from automata.fa.nfa import NFA
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coalmine import Format
from coalmine.errors import FormatError
from coalmine.formats.fragments import Fragments
from coalmine.formats.regex import compiled
from formats.format_strategies import LOOKING_REGEXES, REGEXES, matches_of

QUICK = settings(max_examples=300, derandomize=True, suppress_health_check=list(HealthCheck))


def members(regex):
    """The members of a re hole; a second hole keeps a regex of one member from being refused."""
    return [text[:-1] for text in Format("{re:" + regex + "}{choice:!|?}") if text.endswith("!")]


@QUICK
@given(REGEXES.filter(matches_of))
def test_members_are_what_python_matches(regex):
    assert members(regex) == sorted(matches_of(regex))


@QUICK
@given(LOOKING_REGEXES)
def test_look_ahead_means_what_python_means(regex):
    if matches_of(regex):
        # No text after the hole: a look-ahead sees to the end of the hole, and so does Python with the match alone.
        assert members(regex) == sorted(matches_of(regex))
    else:
        with pytest.raises(FormatError, match="nothing can fill"):
            Format("{re:" + regex + "}")


@pytest.mark.parametrize(
    "regex",
    [
        "(a|b){0,9}a?",
        "[ab]{12}c|abc",
        "(ab|a){7}(b|ba)?",
        "[0-9]{3}-[a-f]{4}",
        "(a|ab|abc){6}c?",
        "([0-9]{2}|[0-9]{3}){3}",
    ],
)
def test_sizes_agree_with_another_library(regex):
    automaton = DFA.from_nfa(NFA.from_regex(regex))  # its methods need it to have a name
    assert Format("{re:" + regex + "}").size == automaton.cardinality()


@pytest.mark.parametrize(
    "regex",
    [
        r"[]a]",
        r"[a\]]",
        r"[a-]|[-b]",
        r"[+--]",
        r"[\d]",
        r"\d|\w|\s",
        r"[\t\n\x41\b]",
        r"\.\*\+\?\(\)\[\]\{\}\|\\\^\$",
        r"a{2}b{0,1}c{,2}",
        r"a??b{1,2}?",
        r"a||b",
        r"(?P<x>a)(?:b)(c)",
        r"[[]|[{}]",
        r"\012|\x20",
        r"[.^$|?*+()]",
        r"[é-ë]",
        r"-|,|=|:|!|<|>|#| ",
    ],
)
@pytest.mark.filterwarnings("ignore:Possible (nested set|set difference):FutureWarning")
def test_single_constructs_mean_what_python_means(regex):
    pattern = re.compile(regex, re.ASCII)
    found = members(regex)
    assert all(pattern.fullmatch(text) for text in found)
    # Every string of up to one character, over all of Latin-1, and a little beyond.
    for text in ["", *map(chr, range(0x180))]:
        assert (text in found) == bool(pattern.fullmatch(text)), repr(text)


def test_look_ahead_can_take_single_strings_out():
    secret = Format("{re:(?!000|666)[0-9]{3}}-x")
    assert secret.size == 998
    assert "666-x" not in secret


def test_large_alternations_and_repetitions_are_quick():
    words = "|".join(f"{number:04d}" for number in range(1500))
    assert Format("{re:" + words + "}").size == 1500
    assert Format("{re:[a-z]{0,300}}").size == sum(26**n for n in range(301))
    assert Format("{re:(?:){1000000000}a?}").size == 2


_BITS = [
    "a",
    "b",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    "|",
    "?",
    "*",
    "+",
    "^",
    "$",
    ".",
    "-",
    ",",
    "0",
    "1",
    "2",
    "\\",
    "d",
    "]]",
]
_BITS += [
    "(?:",
    "(?=",
    "(?!",
    "(?P<a>",
    "(?<=",
    "[^",
    "[ab]",
    "{1,2}",
    "{2}",
    "\\{",
    "\\-",
    "\\x61",
    "\\0",
    "\\s",
    "[]",
]
SHORT_TEXTS = ["".join(letters) for n in range(4) for letters in product("ab-0{", repeat=n)]


@settings(max_examples=600, derandomize=True)
@given(st.lists(st.sampled_from(_BITS), min_size=1, max_size=7).map("".join))
def test_any_text_is_either_refused_or_means_what_python_means(regex):
    store = Fragments()

    def refuse(problem, offset, advice):
        raise FormatError(problem, regex, offset, advice)

    try:
        fragment = compiled(regex, store, refuse)
    except FormatError as error:
        assert 0 <= error.position <= len(regex)  # noqa: PT017 - not every expression is refused
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pattern = re.compile(regex, re.ASCII)
    automaton = store.automaton(fragment)
    for text in SHORT_TEXTS:
        assert (text in automaton) == bool(pattern.fullmatch(text))
    step = max(1, automaton.counts[0] // 20)
    for index in range(0, automaton.counts[0], step):
        assert pattern.fullmatch(automaton.at(index))
