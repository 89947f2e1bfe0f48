"""Where people can be reached: phone numbers and e-mail addresses."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any

from coalmine.corpus.secrets.identifiers import GAP, needs
from coalmine.corpus.secrets.kind import SecretKind

# Phone numbers.

_NATIONAL_DIGITS = 10
_AREA_DIGITS = 3
# After a number that is too long, this many groups of digits may belong to something else.
_FOREIGN_GROUPS = 3
# An extension is not part of a number, and nothing is between the two.
_END = r"(?:\b|(?i:x|ext)[0-9]{1,6}\b)"
_EXTENSION = re.compile("[xe]", re.IGNORECASE)
_LAST_GROUP = re.compile(r"[ .()/-]+[0-9]+$")
# Services such as 411 and 911, and the areas that are toll-free, where these are exchanges as well.
_SERVICE = re.compile("[2-9]11")
_TOLL_FREE = re.compile("8(?:00|22|33|44|55|66|77|88)")
# How a number of another country begins: what is dialed or written before the country code.
_ABROAD = re.compile(r"\(?\+ ?(?!1)|011[ )-]{1,2}\(?|(?=44-)")
# Reserved for fiction: 555-0100 to 555-0199 in North America; the ranges of Ofcom (+44), Arcep (+33) and ACMA (+61).
_FICTION = re.compile(
    r"\+1[0-9]{3}55501[0-9]{2}"
    r"|\+44(?:1632960|1134960|1144960|1154960|1164960|1174960|1184960|1214960|1314960|1414960|1514960|1614960|2079460|1914980"
    r"|2890180|2920180|7700900|8081570|9098790|3069990)[0-9]{3}"
    r"|\+33(?:199|261|353|465|536)(?:00|91|01|71|49)[0-9]{4}|\+33639(?:98)[0-9]{4}"
    r"|\+61(?:[2378](?:5550|7010)[0-9]{4}|491570[0-9]{3})"
)
# Text is wrapped after a hyphen or at a blank, and may be quoted. Where the area code is followed by one of these or by a hyphen with a
# blank, a hyphen or dot follows the exchange too, because "page 713 - 853 1411" and "(571) - 2488320" are something else.
_LINE_END = r" ?\r?\n[> ]{0,3}"
_HYPHEN = rf"(?: ?-(?:{_LINE_END}| )?|\.)"
_AREA_AND_EXCHANGE = (
    rf"[0-9]{{3}}(?:(?: ?[/-](?:{_LINE_END}| )?|\.| {{1,2}})[0-9]{{3}}{_HYPHEN}"
    rf"|(?:[./-]| {{1,2}})[0-9]{{3}} {{1,2}}|{_LINE_END}[0-9]{{3}}-|\. [0-9]{{3}}\. )"
)
_IN_PARENTHESES = rf"\( ?[0-9]{{3}} ?\)(?: {{0,2}}-?[0-9]{{3}}(?:{_HYPHEN}| {{0,2}})|(?: ?[/-] ?|{_LINE_END})[0-9]{{3}}{_HYPHEN})"
_PHONE_DIRECTORY = re.compile(r"\+1[0-9]{3}5551212")


@cache
def _phonenumbers() -> Any:
    try:
        import phonenumbers
    except ImportError:
        raise needs("phonenumbers") from None
    return phonenumbers


@cache
def _is_area(code: str) -> bool:
    """Whether an area code of the North American Numbering Plan is in use."""
    library = _phonenumbers()
    return bool(library.is_valid_number(library.parse(f"+1{code}2345678")))


def _north_american(digits: str) -> str | None:
    area, exchange = digits[:_AREA_DIGITS], digits[_AREA_DIGITS : 2 * _AREA_DIGITS]
    number = f"+1{digits}"
    if exchange[0] in "01" or (_SERVICE.fullmatch(exchange) and not _TOLL_FREE.fullmatch(area)):
        return None
    # Islands such as the Bahamas use some exchanges only.
    return number if _is_area(area) else _international(number)


@lru_cache(maxsize=1 << 14)
def _international(text: str) -> str | None:
    """The number as the International Telecommunication Union writes it (E.164)."""
    plain = "+" + "".join(character for character in text if character.isdigit())
    if _FICTION.fullmatch(plain):  # which no operator assigns
        return plain
    library = _phonenumbers()
    try:
        number = library.parse(text)
    except library.NumberParseException:
        return None
    if not library.is_valid_number(number):
        return None
    return str(library.format_number(number, library.PhoneNumberFormat.E164))


def _phone_part(text: str) -> str | None:
    """The number without what follows it: of a number with a country code, the longest beginning that is valid."""
    text = _EXTENSION.split(text, maxsplit=1)[0]
    if _ABROAD.match(text) is None:
        return text
    shorter = text
    for _ in range(_FOREIGN_GROUPS):
        if _phone(shorter) is not None:
            return shorter
        cut = _LAST_GROUP.search(shorter)
        if cut is None:
            break
        shorter = shorter[: cut.start()]
    return text


def _phone(text: str) -> str | None:
    abroad = _ABROAD.match(text)
    if abroad is not None:
        return _international(f"+{text[abroad.end() :]}")
    digits = "".join(filter(str.isdigit, text))
    national = digits.removeprefix("1") if len(digits) == _NATIONAL_DIGITS + 1 else digits
    return _north_american(national) if len(national) == _NATIONAL_DIGITS else None


def _area(text: str) -> int:
    """Where the country and area code end: of other countries, where the group after the country code does."""
    abroad = _ABROAD.match(text)
    if abroad is not None:
        found = re.compile(r"[0-9]+[ .()/-]*[0-9]{1,3}").match(text, abroad.end())
        return 0 if found is None else min(found.end(), len(text) - 4)
    seen, wanted = 0, _AREA_DIGITS + (len(re.sub("[^0-9]", "", text)) > _NATIONAL_DIGITS)
    for place, character in enumerate(text):
        seen += character.isdigit()
        if seen == wanted:
            return place + 1
    return 0


PHONE = SecretKind(
    name="phone",
    title="phone numbers",
    pattern=rf"(?:(?:\b|\+ ?)(?:1[ .-]?)?(?:\b{_AREA_AND_EXCHANGE}|{_IN_PARENTHESES})|{_IN_PARENTHESES})[0-9]{{4}}{_END}"
    rf"|(?:\+[1-9]|\+ [1-9][0-9]{{0,2}}(?: ?\(| |-)[0-9]|\(\+ ?[1-9][0-9]{{0,2}}\))(?:[ .()/-]{{0,3}}[0-9]){{5,14}}{_END}"
    # No dots, which are decimal points: 0.011.
    rf"|\b011[ )-]{{1,2}}\(?[2-9][0-9]{{0,2}}[ ()-]{{1,3}}[0-9](?:[ ()-]{{0,3}}[0-9]){{4,11}}{_END}"
    rf"|\b44-(?:\(?0\)? ?)?[1-9](?:[ ()-]{{0,3}}[0-9]){{9}}{_END}"
    # Ten digits without anything between them are common, so they need a country code, a word or a dash before them.
    rf"|(?:(?:\b|_)(?i:phone|telephone|tel|cell|mobile|fax|call|ph){GAP}{{0,5}}(?i:(?:me|at|no|nr|num|number|is|us|on){GAP}{{1,5}}){{0,3}}"
    r"|[A-Za-z]{2} - )(1?[2-9][0-9]{9})\b",
    begins="[0-9][0-9]|1[ .(-]|[(+]|[A-Za-z]{2}|_[PpTtFfCcMm]",
    part=_phone_part,
    check=_phone,
    is_specimen=lambda value: bool(_FICTION.fullmatch(value) or _PHONE_DIRECTORY.fullmatch(value)),
    sensitivity=3,
    is_number=True,
    kept=_area,
)

# E-mail addresses.

# Letters of Latin scripts with two bytes in UTF-8.
_LATIN = r"[\xc3-\xc5][\x80-\xbf]"
# The standard allows characters such as / and | in names too, but in text they nearly always come before one; so do quotation marks, dots
# and hyphens. All is reversed, because a name is found from its end.
_LATIN_REVERSED = r"[\x80-\xbf][\xc3-\xc5]"
_IN_NAME, _BEGINS_NAME = "A-Za-z0-9_+'&-", "A-Za-z0-9_"


def _name_reversed(within: str, begins: str) -> str:
    """A name without two dots in a row, and the name of a list before it, as in list+ann=firm.org@host.org."""
    name = rf"(?>(?:{within}+\.)*{within}*{begins})"
    return rf"{name}(?:=(?=[{_IN_NAME}.]*\+){name})?"


# 64 characters before the @ and 253 after it, in labels of up to 63 (RFC 5321).
_ADDRESS = re.compile(
    r"(?=[^@]{1,64}@.{1,253}\Z)[^.@]+(?:\.[^.@]+)*@(?:(?!-)[^.@]{1,63}(?<!-)\.)+(?:xn--[A-Za-z0-9-]{2,59}|[A-Za-z]{2,24})"
)
# What Microsoft Exchange makes of an entry in a directory, and no address of anybody.
_EXCHANGE = re.compile("IMCEA[A-Z]*-", re.IGNORECASE)
_NOT_IN_DIRECTORY = "(?!=[Nn][Cc](?![A-Za-z0-9]))"
# Domains that are reserved for examples and tests (RFC 2606 and 6761).
_EXAMPLE_ENDS = (
    "example.com",
    "example.org",
    "example.net",
    "example.edu",
    "example",
    "test",
    "invalid",
    "localhost",
)
_EXAMPLE_DOMAIN = re.compile(r"(?:.*\.)?(?:example\.(?:com|org|net|edu)|example|test|invalid|localhost)")
# What ends as a domain does and is the name of a file, such as logo@2x.png.
_FILES = (
    ".png",
    ".jpg",
    ".jpeg",
    ".gif",
    ".svg",
    ".webp",
    ".css",
    ".html",
    ".htm",
    ".php",
    ".pdf",
    ".txt",
    ".xml",
    ".json",
)


def _email(text: str) -> str | None:
    """The address in small letters, if its parts have lengths that mail servers take."""
    if not _ADDRESS.fullmatch(text) or text.endswith(_FILES) or _EXCHANGE.match(text):
        return None
    return text.lower()


def _is_example(address: str) -> bool:
    return address.endswith(_EXAMPLE_ENDS) and bool(_EXAMPLE_DOMAIN.fullmatch(address.rpartition("@")[2]))


EMAIL = SecretKind(
    name="email",
    title="e-mail addresses",
    # Only its end: what comes before is found from there, so that long words cost nothing. No label has a dot, so no text is slow.
    pattern=rf"@(?:(?:[A-Za-z0-9-]++|{_LATIN})++\.)+(?:xn--[A-Za-z0-9-]{{2,59}}|[A-Za-z]{{2,24}})(?![A-Za-z0-9])",
    begins="@",
    by_rare_byte=True,
    # Where no character has two bytes, which is nearly always, there is no choice at each of them.
    before=_name_reversed(f"[{_IN_NAME}]", f"[{_BEGINS_NAME}]")
    + rf"(?![.+'&-]*[\x80-\xbf]){_NOT_IN_DIRECTORY}|"
    + _name_reversed(f"(?:[{_IN_NAME}]|{_LATIN_REVERSED})", f"(?:[{_BEGINS_NAME}]|{_LATIN_REVERSED})")
    + _NOT_IN_DIRECTORY,
    check=_email,
    is_specimen=_is_example,
    sensitivity=2,
)
