r"""Regular expressions for finite sets of strings.

The syntax and its meaning are those of Python's `re` with `re.ASCII`, matched against a whole hole, and restricted to finite sets
whose characters are all named: literals, escapes, classes such as `[a-z]`, `\d`, `\w` and `\s`, groups, alternatives, `?`, `{m}`,
`{m,n}`, and look-ahead, which sees to the end of its hole. Rejected, each with its position: repetition without an upper limit, `.`
and other ways to name characters by what they are not (the set of all characters is not a plausible secret space), and anything
that is not regular or not about a whole string (references, anchors, look-behind, flags).

`re` checks the syntax, a scan here rejects what is not supported, and interegular parses the rest.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, Protocol

from coalmine.formats.fragments import BLANK, MAX_STATES, Fragments, TooLargeError

_QUANTIFIER = re.compile(r"\{(?:[0-9]+(?:,[0-9]*)?|,[0-9]*)\}")
_GROUPS_READ = ("(?:", "(?P<", "(?=", "(?!")
_GROUPS_REFUSED = {
    "(?<=": "look-behind is not supported",
    "(?<!": "look-behind is not supported",
    "(?P=": "a reference to a group is not supported",
    "(?(": "a conditional group is not supported",
    "(?>": "an atomic group is not supported",
    "(?#": "a comment is not supported",
}
_ANCHOR_ADVICE = "leave it out, since a hole is always matched as a whole"
_WIDE_ADVICE = "name the characters that are meant, as in [A-Za-z0-9]"


class Refusal(Protocol):
    """Raises a FormatError that points at an offset in the regular expression."""

    def __call__(self, problem: str, offset: int, advice: str) -> NoReturn:
        """Raise."""


@dataclass(frozen=True)
class RegexToken:
    """A token of a regular expression: a class, an escape or one character."""

    kind: Literal["class", "open class", "escape", "character"]
    text: str
    start: int

    @property
    def end(self) -> int:
        """The offset just after it."""
        return self.start + len(self.text)


def tokens(text: str, start: int = 0) -> Iterator[RegexToken]:
    """The tokens of a regular expression that begins at `start`; it may be followed by other text.

    A class that is never closed is an "open class", which runs to the end of the text.

    >>> [token.text for token in tokens("a[]}]{2}")]
    ['a', '[]}]', '{', '2', '}']
    """
    while start < len(text):
        kind: Literal["class", "open class", "escape", "character"]
        if text[start] == "\\":
            kind, end = "escape", min(start + 2, len(text))
        elif text[start] == "[":
            # A closing bracket in first position is a literal.
            found = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*\]", re.DOTALL).match(text, start)
            kind, end = ("class", found.end()) if found else ("open class", len(text))
        else:
            kind, end = "character", start + 1
        yield RegexToken(kind, text[start:end], start)
        start = end


def compiled(regex: str, fragments: Fragments, refuse: Refusal) -> int:
    """The fragment of all strings that match the whole regular expression; it may be the empty set."""
    _check_syntax(regex, refuse)
    readable = _checked(regex, refuse)
    from interegular.patterns import InvalidSyntax, Unsupported, parse_pattern

    try:
        return _built(parse_pattern(readable), BLANK, fragments)
    except (InvalidSyntax, Unsupported):
        refuse(
            "the regular expression uses syntax that is not supported",
            0,
            "write it with groups, classes and {m,n}",
        )
    except RecursionError:
        refuse("the regular expression is nested too deeply", 0, "write it with fewer groups inside groups")


def _check_syntax(regex: str, refuse: Refusal) -> None:
    try:
        with warnings.catch_warnings():
            # Syntax that may change its meaning in a later Python is still read as today.
            warnings.simplefilter("ignore")
            re.compile(regex, re.ASCII)
    except re.error as error:
        refuse(f"the regular expression is wrong ({error.msg})", error.pos or 0, "correct it")
    except OverflowError:
        refuse("the regular expression repeats something too often", 0, "use a smaller number")
    except RecursionError:
        refuse("the regular expression is nested too deeply", 0, "write it with fewer groups inside groups")


def _checked(regex: str, refuse: Refusal) -> str:
    """The expression in a form that interegular parses correctly, after unsupported syntax is rejected; `regex` has valid syntax."""
    readable: list[str] = []
    # For each open group, whether it is, or is inside, a look-ahead.
    looking = [False]
    after_quantifier = False
    skip_to = 0
    for token in tokens(regex):
        readable.append(token.text)
        if token.start < skip_to:
            continue
        is_quantifier = False
        if token.kind == "class":
            readable[-1] = _checked_class(token, refuse)
        elif token.kind == "escape":
            _check_escape(token.text, token.start, refuse)
        elif token.text == "(":
            looking.append(_opens_look_ahead(regex, token.start, refuse, inside=looking[-1]))
        elif token.text == ")":
            looking.pop()
        elif token.text in "*+?{":
            skip_to = _check_quantifier(regex, token.start, refuse, after_quantifier=after_quantifier)
            is_quantifier = True
        else:
            _check_character(token, refuse)
        if token.text == "(" and regex.startswith("?", token.end):
            skip_to = token.end + 1  # this question mark is not a quantifier
        after_quantifier = is_quantifier
    return "".join(readable)


def _checked_class(token: RegexToken, refuse: Refusal) -> str:
    if token.text.startswith("[^"):
        refuse("a negated class matches every other character there is", token.start, _WIDE_ADVICE)
    # Inside a class an opening bracket is a plain character; replacing it with another one keeps the offsets.
    for inner in tokens(token.text[1:-1].replace("[", " ")):
        if inner.kind == "escape" and inner.text[1] in "DWSuUN":
            _check_escape(inner.text, token.start + 1 + inner.start, refuse)
    # interegular reads "[]" as an empty class.
    return "[\\]" + token.text[2:] if token.text.startswith("[]") else token.text


def _check_escape(escape: str, offset: int, refuse: Refusal) -> None:
    letter = escape[1]
    if letter in "DWS":
        refuse(f"{escape} matches every other character there is", offset, _WIDE_ADVICE)
    if letter in "AZbBz":
        refuse(f"the anchor {escape} is not supported", offset, _ANCHOR_ADVICE)
    if letter in "uUN":
        refuse(f"the escape {escape} is not supported", offset, "write the character itself")
    if letter in "123456789":
        refuse("a reference to a group is not supported", offset, "write out what the group matches")


def _check_character(token: RegexToken, refuse: Refusal) -> None:
    if token.text == ".":
        refuse("a dot matches every character there is", token.start, _WIDE_ADVICE)
    if token.text in "^$":
        refuse(f"the anchor {token.text} is not supported", token.start, _ANCHOR_ADVICE)


def _opens_look_ahead(regex: str, offset: int, refuse: Refusal, *, inside: bool) -> bool:
    if not regex.startswith("(?", offset):
        return inside
    for opening, problem in _GROUPS_REFUSED.items():
        if regex.startswith(opening, offset):
            refuse(problem, offset, "write out the alternatives")
    if not regex.startswith(_GROUPS_READ, offset):
        refuse("flags are not supported", offset, "write out what is meant, as in [Aa] for either case")
    looks = regex.startswith(("(?=", "(?!"), offset)
    if looks and inside:
        refuse("a look-ahead inside a look-ahead is not supported", offset, "write out the alternatives")
    return looks or inside


def _check_quantifier(regex: str, offset: int, refuse: Refusal, *, after_quantifier: bool) -> int:
    """The offset just after the quantifier."""
    if regex[offset] == "{":
        found = _QUANTIFIER.match(regex, offset)
        if found is None:
            refuse(
                "a brace that is not a repetition is not supported",
                offset,
                "write \\{ for the character itself",
            )
        if found.group().endswith(",}"):
            refuse(
                "the regular expression is unbounded",
                offset,
                "give the repetition an upper limit, as in {0,8}",
            )
        return found.end()
    if regex[offset] == "+" and after_quantifier:
        refuse("a possessive repetition is not supported", offset, "leave out the +")
    if regex[offset] in "*+":
        least = "0" if regex[offset] == "*" else "1"
        refuse(
            "the regular expression is unbounded",
            offset,
            f"write {{{least},8}} or another upper limit for {regex[offset]}",
        )
    return offset + 1


def _built(node: Any, then: int, fragments: Fragments) -> int:
    """The strings of a parsed node, each followed by each string of `then`.

    Look-ahead is exact because strings are built backwards: it only filters what follows.
    """
    from interegular import patterns

    # The types of the parse tree are private names of interegular, which is why this module alone knows them.
    match node:
        case patterns.Pattern():
            return fragments.union([_built(option, then, fragments) for option in node.options])
        case patterns._Concatenation():  # noqa: SLF001
            for part in reversed(node.parts):
                then = _built(part, then, fragments)
            return then
        case patterns._CharGroup(negated=False):  # noqa: SLF001
            return fragments.any_of(node.chars, then)
        case patterns._Repeated(max=int()):  # noqa: SLF001
            return _repeated(node, then, fragments)
        case patterns._NonCapturing(backwards=False):  # noqa: SLF001
            ahead = _built(node.inner, BLANK, fragments)
            return (
                fragments.not_beginning_with(then, ahead)
                if node.negate
                else fragments.beginning_with(then, ahead)
            )
    raise patterns.Unsupported(repr(node))


def _repeated(node: Any, then: int, fragments: Fragments) -> int:
    def once_more(following: int, times: int, *, optional: bool) -> int:
        for _ in range(times):
            longer = _built(node.base, following, fragments)
            if optional:
                longer = fragments.union([longer, then])
            if longer == following:
                break  # one more repetition changes nothing, and neither do the rest
            if times > MAX_STATES:  # each repetition takes at least one state, so there is no need to try
                raise TooLargeError
            following = longer
        return following

    return once_more(once_more(then, node.max - node.min, optional=True), node.min, optional=False)
