"""The kinds of holes and their fillings: digits, payment cards, personal numbers (SSN, phone), words, unseen text, regular expressions."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NoReturn

from coalmine.errors import FormatError
from coalmine.formats import regex
from coalmine.formats.checksums import Weight, luhn_weight, place_value, with_checksum
from coalmine.formats.fragments import BLANK, EMPTY, MAX_STATES, Fragments, TooLargeError
from coalmine.formats.template import Hole

HEX_DIGITS = string.digits + "abcdef"
# A checksum, and digits (*) with what may be between them.
_CHECKED = re.compile(r"(?P<total>[0-9]{1,2})\+(?P<pattern>[* .\/-]*\*[* .\/-]*)")


@dataclass(frozen=True)
class HoleContext:
    """A hole with its template, and what is needed to fill it."""

    hole: Hole
    template: str
    words: tuple[str, ...] | None
    fragments: Fragments

    def refuse(self, problem: str, position: int, advice: str) -> NoReturn:
        """Raise a FormatError that points at `position` in the template."""
        raise FormatError(problem, self.template, position, advice)


def fillings_of(place: HoleContext) -> int:
    """The fragment of all fillings of a hole; never the empty set."""
    hole = place.hole
    if hole.name not in KINDS:
        _refuse_name(place)
    kind = KINDS[hole.name]
    if hole.argument is not None and "{" + hole.name + "}" == kind.usage:
        place.refuse(
            f"the hole {hole.name!r} takes nothing after its name",
            hole.argument_position,
            f"write {kind.usage}",
        )
    if not hole.argument and "{" + hole.name + "}" != kind.usage:
        place.refuse(
            f"the hole {hole.name!r} is incomplete", hole.argument_position, f"write it like {kind.usage}"
        )
    fragment = kind.build(place)
    if fragment == EMPTY:
        place.refuse(
            "nothing can fill this hole", hole.position, "change it so that at least one string matches"
        )
    return fragment


def _refuse_name(place: HoleContext) -> NoReturn:
    from difflib import get_close_matches

    name = place.hole.name
    if not name:
        place.refuse(
            "a hole has no name", place.hole.position, f"use one of {', '.join(KINDS)}, or {{{{ for a brace"
        )
    near = get_close_matches(name.strip().lower(), KINDS, n=1)
    advice = f"did you mean {near[0]!r}? Known" if near else "known"
    place.refuse(
        f"{name!r} is not a kind of hole", place.hole.name_position, f"{advice} are {', '.join(KINDS)}"
    )


def _length(place: HoleContext) -> int:
    argument = place.hole.argument or ""
    if not re.fullmatch(r"[1-9][0-9]{0,8}", argument):
        place.refuse(
            f"the length of a {place.hole.name!r} hole must be a whole number from 1 to 999999999, got {argument!r}",
            place.hole.argument_position,
            f"write it like {KINDS[place.hole.name].usage}",
        )
    if int(argument) > MAX_STATES:  # each position takes at least one state, so there is no need to try
        raise TooLargeError
    return int(argument)


def _repeated(characters: str) -> Callable[[HoleContext], int]:
    def build(place: HoleContext) -> int:
        result = BLANK
        for _ in range(_length(place)):
            result = place.fragments.any_of(characters, result)
        return result

    return build


def _sequence(fragments: Fragments, characters_at: Iterable[str], then: int = BLANK) -> int:
    """One character of each string, in order."""
    for characters in reversed(list(characters_at)):
        then = fragments.any_of(characters, then)
    return then


def _in_order(fragments: Fragments, parts: Iterable[int]) -> int:
    result = BLANK
    for part in reversed(list(parts)):
        result = fragments.joined(part, result)
    return result


def social_security_number(place: HoleContext) -> int:
    """AAA-GG-SSSS as issued since 2011: no area 000, 666 or 900 to 999, no group 00, no serial 0000."""
    make = place.fragments
    digits = {n: _sequence(make, [string.digits] * n) for n in (2, 3, 4)}
    area = make.not_beginning_with(digits[3], make.strings(["000", "666", "9"]))
    group = make.not_beginning_with(digits[2], make.literal("00"))
    serial = make.not_beginning_with(digits[4], make.literal("0000"))
    return _in_order(make, [area, make.literal("-"), group, make.literal("-"), serial])


def payment_card(place: HoleContext) -> int:
    """Sixteen digits of which the last is the Luhn check digit, so exactly 10^15; no rule about issuers."""
    return with_checksum(place.fragments, "*" * 16, luhn_weight, 10, 0)


def _checked(weight: Weight, modulus: int) -> Callable[[HoleContext], int]:
    def build(place: HoleContext) -> int:
        name, argument = place.hole.name, place.hole.argument or ""
        found = _CHECKED.fullmatch(argument)
        if found is None or int(found["total"]) >= modulus:
            place.refuse(
                f"a {name!r} hole must have a checksum from 0 to {modulus - 1}, a plus sign, and a * for each digit, got {argument!r}",
                place.hole.argument_position,
                f"write it like {KINDS[name].usage}",
            )
        if len(found["pattern"]) > MAX_STATES // modulus:  # each position takes a state per remainder
            raise TooLargeError
        return with_checksum(place.fragments, found["pattern"], weight, modulus, int(found["total"]))

    return build


def phone_number(place: HoleContext) -> int:
    """A phone number of the North American Numbering Plan, NXX-NXX-XXXX.

    The area code is a digit 2-9, a digit 0-8, any digit; the exchange is a digit 2-9 and any two digits; neither ends in 11,
    which is reserved for services such as 911.
    """
    make = place.fragments
    services = _sequence(make, ["23456789", "1", "1"])
    area = make.not_beginning_with(_sequence(make, ["23456789", "012345678", string.digits]), services)
    exchange = make.not_beginning_with(_sequence(make, ["23456789", string.digits, string.digits]), services)
    line = _sequence(make, [string.digits] * 4)
    return _in_order(make, [area, make.literal("-"), exchange, make.literal("-"), line])


def random_uuid(place: HoleContext) -> int:
    """A version 4 UUID in lower case: 122 free bits."""
    shape = "xxxxxxxx-xxxx-4xxx-yxxx-xxxxxxxxxxxx"
    return _sequence(place.fragments, [{"x": HEX_DIGITS, "y": "89ab"}.get(c, c) for c in shape])


def words_with_spaces(place: HoleContext) -> int:
    """The given number of words from the list, joined by single spaces."""
    number = _length(place)
    advice = "give one, as in Format(template, words=[...]) or with --words"
    word = place.fragments.strings(_listed(place, "a word list", advice))
    result = word
    for _ in range(number - 1):
        result = place.fragments.joined(word, place.fragments.literal(" ", result))
    return result


def unseen_texts(place: HoleContext) -> int:
    """Texts of the list, which never occur in the training data: characters one after the other, longer ones with single spaces."""
    advice = (
        "`coalmine plant` finds them in the corpus; elsewhere give the canaries.json that has them with --words, or "
        "Format(template, words=[...])"
    )
    texts = _listed(place, "texts that never occur in the training data", advice)
    if max(map(len, texts)) > 1:
        return words_with_spaces(place)
    return _repeated("".join(texts))(place)


def _listed(place: HoleContext, what: str, advice: str) -> tuple[str, ...]:
    """The list that a hole draws from."""
    name = place.hole.name
    if place.words is None:
        place.refuse(
            f"{'an' if name == 'unseen' else 'a'} {name!r} hole needs {what}", place.hole.position, advice
        )
    if not place.words or "" in place.words:
        which = "has an empty word in it" if place.words else "is empty"
        place.refuse(
            f"the word list of {'an' if name == 'unseen' else 'a'} {name!r} hole {which}",
            place.hole.position,
            "give words of one letter or more",
        )
    return place.words


def one_of(place: HoleContext) -> int:
    """One of the alternatives, which are separated by bars."""
    offset = place.hole.argument_position
    alternatives = (place.hole.argument or "").split("|")
    for alternative in alternatives:
        if not alternative:
            place.refuse(
                "a choice has an empty alternative",
                offset,
                "write {choice:a|b}, or {re:(a|b)?} if the hole may be empty",
            )
        offset += len(alternative) + 1
    return place.fragments.strings(alternatives)


def regular_expression(place: HoleContext) -> int:
    """All strings that match a regular expression as a whole."""

    def refuse(problem: str, offset: int, advice: str) -> NoReturn:
        place.refuse(problem, place.hole.argument_position + offset, advice)

    return regex.compiled(place.hole.argument or "", place.fragments, refuse)


@dataclass(frozen=True)
class HoleKind:
    """A kind of hole: how it is written, and what may fill it."""

    usage: str
    build: Callable[[HoleContext], int]


KINDS = {
    "digits": HoleKind("{digits:9}", _repeated(string.digits)),
    "letters": HoleKind("{letters:8}", _repeated(string.ascii_lowercase)),
    "hex": HoleKind("{hex:32}", _repeated(HEX_DIGITS)),
    "alnum": HoleKind("{alnum:12}", _repeated(string.digits + string.ascii_lowercase)),
    "ssn": HoleKind("{ssn}", social_security_number),
    "card": HoleKind("{card}", payment_card),
    "luhn": HoleKind("{luhn:0+**** **** **** ****}", _checked(luhn_weight, 10)),
    "mod97": HoleKind("{mod97:1+*** **** **}", _checked(place_value, 97)),
    "phone": HoleKind("{phone}", phone_number),
    "uuid": HoleKind("{uuid}", random_uuid),
    "word": HoleKind("{word:3}", words_with_spaces),
    "unseen": HoleKind("{unseen:4}", unseen_texts),
    "choice": HoleKind("{choice:a|b|c}", one_of),
    "re": HoleKind("{re:[A-Z]{2}[0-9]{6}}", regular_expression),
}
