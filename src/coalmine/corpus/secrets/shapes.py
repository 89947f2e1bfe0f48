"""What of a secret can be guessed and stays, and what is drawn: the shape of a secret, by its kind.

A model that never saw a secret may still know how such secrets begin: the area code of a phone number, the issuer of a card, the
bank of an IBAN, the prefix of a key. That part stays, and the rest is compared with other fillings that are as likely a priori.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

from coalmine.formats.checksums import luhn_weight

# Digits that are drawn: the line of a phone number, the account of an IBAN.
PHONE_DIGITS, IBAN_DIGITS = 4, 8
# Of a card, the digits that name its issuer.
ISSUER_DIGITS = 6
# Characters of a key that are drawn; more would take longer and show nothing more.
KEY_CHARACTERS = 32
FEWEST_CHARACTERS = 4
_SEPARATORS = " .-/"
_KEY_PREFIX = re.compile(r"(?:[A-Za-z]+ )?(?:AKIA|ASIA|AIza|(?:[A-Za-z]{2,10}[_-]){1,3})?")
_BASE64_LINE = re.compile(r"[A-Za-z0-9+/=]{16,}")


class Shape(NamedTuple):
    """A secret as a fixed beginning and holes.

    Attributes:
        fixed: the beginning, which stays as it is.
        template: the template of the rest, in which no part of the secret occurs.
        drawn: the rest of the secret; together with `fixed` it may be only the beginning of a long one.
    """

    fixed: str
    template: str
    drawn: str


def shape_of(kind: str, text: str) -> Shape | None:
    """The shape of a secret of a kind; None where too little of it is left to draw.

    >>> shape_of("phone", "713-853-1234")
    Shape(fixed='713-853-', template='{digits:4}', drawn='1234')
    """
    found = _SHAPES.get(kind, key)(text)
    return found if found is not None and len(found.drawn) >= FEWEST_CHARACTERS else None


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _from_last_digits(text: str, count: int) -> int | None:
    """Where the last so many digits of a text begin; None where there are fewer."""
    places = [place for place, one in enumerate(text) if unicodedata.decimal(one, None) is not None]
    return places[-count] if len(places) >= count else None


def digits(text: str) -> str:
    """A template that draws each digit of a text, and leaves everything else as it is.

    >>> digits("12 34")
    '{digits:2} {digits:2}'
    """
    parts: list[str] = []
    place = 0
    while place < len(text):
        value = unicodedata.decimal(text[place], None)
        if value is None:
            parts.append(_escaped(text[place]))
            place += 1
            continue
        zero = ord(text[place]) - value
        end = place
        while end < len(text) and zero <= ord(text[end]) <= zero + 9:
            end += 1
        count = end - place
        # Digits of other scripts have names of their own.
        parts.append(
            f"{{digits:{count}}}" if zero == ord("0") else f"{{re:[{chr(zero)}-{chr(zero + 9)}]{{{count}}}}}"
        )
        place = end
    return "".join(parts)


def phone(text: str) -> Shape | None:
    """Country, area and exchange stay, which neighbors and colleagues share; the last four digits are drawn."""
    begin = _from_last_digits(text, PHONE_DIGITS)
    return None if begin is None else Shape(text[:begin], digits(text[begin:]), text[begin:])


def social_security_number(text: str) -> Shape | None:
    """The area stays, which was that of a state; group and serial are drawn, without 00 and 0000."""
    parts = re.fullmatch(r"([0-9]{3}\D*)([0-9]{2})(\D*)([0-9]{4})", text)
    if parts is None:
        return phone(text)
    template = f"{{re:(?!00)[0-9]{{2}}}}{_escaped(parts[3])}{{re:(?!0000)[0-9]{{4}}}}"
    return Shape(parts[1], template, text[len(parts[1]) :])


def card(text: str) -> Shape | None:
    """The issuer stays; the other digits are drawn such that the Luhn sum is right."""
    begin = _from_last_digits(text, sum(one.isdigit() for one in text) - ISSUER_DIGITS)
    if begin is None or not _is_plain(text[begin:]):
        return None
    drawn = text[begin:]
    right = sum(one.isdigit() for one in drawn)
    issuer = [int(one) for one in text[:begin] if one.isdigit()]
    total = -sum(luhn_weight(one, right + place) for place, one in enumerate(reversed(issuer))) % 10
    return Shape(text[:begin], f"{{luhn:{total}+{_stars(drawn)}}}", drawn)


def iban(text: str) -> Shape | None:
    """Country, check digits and bank stay; the last eight digits are drawn such that the check digits are right."""
    tail = re.search(rf"(?:[0-9][{re.escape(_SEPARATORS)}]*){{4,{IBAN_DIGITS}}}$", text[4:])
    if tail is None or not text.isascii():
        return None
    begin = 4 + tail.start()
    drawn = text[begin:]
    if not _is_plain(drawn):
        return None
    plain = [one for one in text if one.isalnum()]
    count = sum(one.isdigit() for one in drawn)
    # The check is on the account, then the country and the check digits, with letters as numbers, and its remainder is 1.
    before = int("".join(str(int(one, 36)) for one in plain[4:-count]) or "0")
    after = "".join(str(int(one, 36)) for one in plain[:4])
    right = (1 - int(after)) * pow(10 ** len(after), -1, 97)
    total = (right - before * 10**count) % 97
    return Shape(text[:begin], f"{{mod97:{total}+{_stars(drawn)}}}", drawn)


def _is_plain(text: str) -> bool:
    return text.isascii() and all(one.isdigit() or one in _SEPARATORS for one in text)


def _stars(text: str) -> str:
    return re.sub(r"[0-9]", "*", text)


def key(text: str) -> Shape | None:
    """The prefix of a key or token stays; the rest is drawn from the characters that it is made of."""
    prefix = _KEY_PREFIX.match(text)
    begin = 0 if prefix is None else prefix.end()
    return _drawn_from(text, begin)


def web_token(text: str) -> Shape | None:
    """Header and claims of a JSON web token stay, which can be guessed in part; the signature is drawn."""
    return _drawn_from(text, text.rfind(".") + 1)


def private_key(text: str) -> Shape | None:
    """The first line of a private key stays, which begins alike in all of them; the second is drawn."""
    lines = list(_BASE64_LINE.finditer(text))
    if len(lines) < 2:
        return None
    begin = lines[1].start()
    return _drawn_from(text[: lines[1].end()], begin)


def _drawn_from(text: str, begin: int) -> Shape | None:
    drawn = text[begin : begin + KEY_CHARACTERS]
    if not drawn.isascii():
        return None
    hexadecimal = set(drawn) <= set(string.hexdigits) and len({drawn.lower(), drawn.upper()} & {drawn}) == 1
    alphabet = "".join(
        "a-f" if hexadecimal and group == string.ascii_lowercase
        else "A-F" if hexadecimal and group == string.ascii_uppercase
        else f"{group[0]}-{group[-1]}"
        for group in (string.ascii_uppercase, string.ascii_lowercase, string.digits)
        if set(group) & set(drawn)
    )  # fmt: skip
    if not alphabet:
        return None
    parts = []
    for run in re.finditer(r"[A-Za-z0-9]+|[^A-Za-z0-9]", drawn):
        one = run[0]
        parts.append(f"{{re:[{alphabet}]{{{len(one)}}}}}" if one[0].isalnum() else _escaped(one))
    return Shape(text[:begin], "".join(parts), drawn)


_SHAPES: dict[str, Callable[[str], Shape | None]] = {
    "phone": phone,
    "ssn": social_security_number,
    "card": card,
    "iban": iban,
    "jwt": web_token,
    "private-key": private_key,
}
"""What is drawn of a secret, by its kind; all others are keys."""
