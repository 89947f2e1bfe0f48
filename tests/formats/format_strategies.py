"""Random formats and finite regular expressions, each with the slow, obviously right list of what it can make."""

from __future__ import annotations

import re
from functools import cache
from itertools import product

from hypothesis import strategies as st

ALPHABET = "ab"
LONGEST = 6
WORDS = ("a", "ab", "b", "b a")


@cache
def all_strings(longest=LONGEST):
    return ["".join(letters) for n in range(longest + 1) for letters in product(ALPHABET, repeat=n)]


@cache
def matches_of(regex):
    """All strings over the alphabet, up to the length that the strategies keep to, that match as a whole."""
    pattern = re.compile(regex, re.ASCII)
    return frozenset(text for text in all_strings() if pattern.fullmatch(text))


_LEAVES = st.sampled_from(
    [
        ("a", 1),
        ("b", 1),
        ("[ab]", 1),
        (r"\x61", 1),
        ("[a-b]", 1),
        ("(?:)", 0),
        ("a{0}", 0),
        ("b??", 1),
        ("a{,2}", 2),
    ]
)


def _grown(parts):
    def repeated(part, least, more):
        return f"(?:{part[0]}){{{least},{least + more}}}", part[1] * (least + more)

    return st.one_of(
        st.builds(lambda x, y: (x[0] + y[0], x[1] + y[1]), parts, parts),
        st.builds(lambda x, y: (f"({x[0]}|{y[0]})", max(x[1], y[1])), parts, parts),
        st.builds(lambda x: (f"(?P<name>{x[0]})?" if "(?P" not in x[0] else f"(?:{x[0]})?", x[1]), parts),
        st.builds(repeated, parts, st.integers(0, 2), st.integers(0, 2)),
    ).filter(lambda part: part[1] <= LONGEST)


_PLAIN = st.recursive(_LEAVES, _grown, max_leaves=6)
# Two named groups of one name are an error, so parts are joined only where there is at most one.
REGEXES = _PLAIN.map(lambda part: part[0]).filter(lambda regex: regex.count("(?P") <= 1)


def _looking(parts):
    plain = _PLAIN.filter(lambda part: "(?P" not in part[0])
    return st.one_of(
        st.builds(lambda x, y: (f"(?:(?={x[0]}){y[0]})", y[1]), plain, parts),
        st.builds(lambda x, y: (f"(?:(?!{x[0]}){y[0]})", y[1]), plain, parts),
        st.builds(lambda x, y: (f"(?:{y[0]}(?!{x[0]}))", y[1]), plain, parts),
        st.builds(lambda x, y: (x[0] + y[0], x[1] + y[1]), parts, parts),
        st.builds(lambda x, y: (f"(?:{x[0]}|{y[0]})", max(x[1], y[1])), parts, parts),
    ).filter(lambda part: part[1] <= LONGEST)


LOOKING_REGEXES = st.recursive(_PLAIN.filter(lambda part: "(?P" not in part[0]), _looking, max_leaves=4).map(
    lambda part: part[0]
)


def _choice(alternatives):
    return "{choice:" + "|".join(alternatives) + "}", frozenset(alternatives)


def _words(number):
    return f"{{word:{number}}}", frozenset(" ".join(words) for words in product(WORDS, repeat=number))


def _literal(text):
    return text.replace("{", "{{").replace("}", "}}"), frozenset([text])


LITERALS = st.text(alphabet="ab {}\n", max_size=3).map(_literal)
HOLES = st.one_of(
    st.lists(st.text(alphabet="ab é", min_size=1, max_size=3), min_size=2, max_size=4).map(_choice),
    st.integers(1, 2).map(_words),
    st.just(("{digits:1}", frozenset("0123456789"))),
    REGEXES.filter(matches_of).map(lambda regex: ("{re:" + regex + "}", matches_of(regex))),
)


def _is_small(pieces):
    members = {""}
    for _, fillings in pieces:
        members = {before + filling for before in members for filling in fillings}
        if len(members) > 3000:
            return False
    return len(members) > 1


# Lists of (piece of a template, what may be there); a list always has a hole, and its format at least two members.
PIECES = (
    st.lists(st.one_of(LITERALS, HOLES), min_size=1, max_size=4)
    .filter(_is_small)
    .filter(lambda pieces: any(text.startswith("{") and not text.startswith("{{") for text, _ in pieces))
)


def template_and_members(pieces):
    """The template, and all strings it can make, in order."""
    members = {"".join(parts) for parts in product(*(sorted(fillings) for _, fillings in pieces))}
    return "".join(text for text, _ in pieces), sorted(members)
