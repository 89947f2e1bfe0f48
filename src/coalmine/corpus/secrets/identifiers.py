"""Numbers that identify people and their money: social security numbers, payment cards and bank accounts."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any

from coalmine.corpus.secrets import specimens
from coalmine.corpus.secrets.kind import SecretKind
from coalmine.errors import MissingExtraError

_SAME = 2
_SECURITY_CODE = re.compile("(?: {1,2}|-)[0-9]{3}$")


def needs(package: str) -> MissingExtraError:
    """The error for a package of the extra `secrets` that is not installed."""
    return MissingExtraError("scanning for secrets", package, "secrets")


@cache
def _stdnum(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(f"stdnum.{module}")
    except ImportError:
        raise needs("python-stdnum") from None


def _digits(text: str) -> str:
    return "".join(character for character in text if character.isdigit())


def _separated(text: str) -> bool:
    """Whether all groups are separated in the same way."""
    return len({character for character in text if not character.isalnum()}) < _SAME


# What is between a word such as SSN and a number, also as the name and the value of a field.
GAP = r"[ .:#=()\"'_-]"

# Social security numbers.

# Areas 001 to 899 without 666, groups 01 to 99, serials 0001 to 9999.
SSN_CHANCE = 898 / 1000 * 99 / 100 * 9999 / 10000


def _social_security_number(text: str) -> str | None:
    """The nine digits, if area, group and serial are ones that are issued."""
    digits = _digits(text)
    area, group, serial = digits[:3], digits[3:5], digits[5:]
    issued = area not in {"000", "666"} and area[0] != "9" and group != "00" and serial != "0000"
    return digits if issued and _separated(text) else None


SSN = SecretKind(
    name="ssn",
    title="social security numbers",
    # Nine digits without anything between them are common, so they need a word before them.
    pattern=r"\b[0-9]{3}(?:-[0-9]{2}-| [0-9]{2} )[0-9]{4}\b"
    rf"|(?:\b|_)(?i:ssn|soc(?:ial)?{GAP}{{0,2}}sec(?:urity)?){GAP}{{0,5}}(?i:(?:no|nr|num|number|id|is|was|ssn){GAP}{{1,5}}){{0,3}}([0-9]{{9}})\b",
    begins="[0-9]{2}|[Ss][SsOo]|_[Ss]",
    check=_social_security_number,
    is_specimen=lambda value: value in specimens.SOCIAL_SECURITY_NUMBERS,
    chance=SSN_CHANCE,
    sensitivity=5,
    is_number=True,
)

# Payment cards.


def _gap(*lengths: int) -> str:
    return "".join(f"(?: {{0,2}}|-)[0-9]{{{length}}}" for length in lengths)


# Issuer, and the groups of digits in which its cards are printed.
_ISSUERS = (
    "4[0-9]{3}" + _gap(4, 4, 4) + "(?:(?: {0,2}|-)[0-9]{3})?",  # Visa
    "4[0-9]{12}",  # Visa, earlier
    "(?:5[1-5][0-9]{2}|222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)" + _gap(4, 4, 4),  # Mastercard
    "3[47][0-9]{2}" + _gap(6, 5),  # American Express
    "(?:30[0-5]|309|36[0-9]|3[89][0-9])[0-9]" + _gap(6, 4),  # Diners Club
    "(?:6011|64[4-9][0-9]|65[0-9]{2})" + _gap(4, 4, 4),  # Discover
    "35(?:2[89]|[3-8][0-9])" + _gap(4, 4, 4),  # JCB
    "62[0-9]{2}" + _gap(4, 4, 4) + "(?:(?: {0,2}|-)[0-9]{3})?",  # UnionPay
    "(?:5018|5020|5038|5893|6304|6759|676[1-3])" + _gap(4, 4, 4),  # Maestro
)


def _card_part(text: str) -> str:
    """Without three digits after a card of sixteen, which are its security code and not the end of a card of nineteen."""
    shorter = _SECURITY_CODE.sub("", text)
    return shorter if shorter != text and _card(shorter) is not None else text


def _card(text: str) -> str | None:
    """The digits, if the last one is their Luhn check digit."""
    digits = _digits(text)
    return digits if _separated(text) and _stdnum("luhn").is_valid(digits) else None


def _issuer(text: str) -> int:
    """Where the first six digits end, which name the issuer."""
    seen = 0
    for place, character in enumerate(text):
        seen += character.isdigit()
        if seen == 6:
            return place + 1
    return len(text)


CARD = SecretKind(
    name="card",
    title="payment cards",
    pattern=rf"\b(?:{'|'.join(_ISSUERS)})\b",
    begins="[2-6][0-9]",
    part=_card_part,
    check=_card,
    is_specimen=lambda value: value in specimens.CARDS or len(set(value)) <= _SAME,
    chance=1 / 10,
    sensitivity=5,
    is_number=True,
    kept=_issuer,
)

# Bank accounts.


@cache
def _iban_lengths() -> dict[str, int]:
    """The length of an IBAN by country."""
    from itertools import product
    from string import ascii_uppercase

    iban = _stdnum("iban")
    lengths = {}
    for country in map("".join, product(ascii_uppercase, ascii_uppercase)):
        found = iban._ibandb.info(country)[0][1].get("bban")  # noqa: SLF001 - it has no other way to ask
        if found:
            lengths[country] = 4 + sum(length for length, _ in _bban_parts(found))
    return lengths


def _bban_parts(structure: str) -> list[tuple[int, str]]:
    """Such as 8!n10!n as lengths and what they are made of."""
    return [(int(length), of) for length, of in re.findall(r"([0-9]+)!([nac])", structure)]


def _iban_part(text: str) -> str | None:
    """What is long enough for the country; what follows is another word."""
    wanted = _iban_lengths().get(text[:2])
    if wanted is None:
        return None
    seen = 0
    for place, character in enumerate(text):
        seen += character.isalnum()
        if seen == wanted:
            rest = text[place + 1 :]
            return text[: place + 1] if not rest or not rest[0].isalnum() else None
    return None


@lru_cache(maxsize=1 << 14)
def _iban(text: str) -> str | None:
    """Without spaces, if the check digits are right and it is made as those of its country are."""
    compact = text.replace(" ", "").replace("-", "")
    # Examples may name banks that do not exist.
    known = compact in specimens.IBANS
    return compact if _separated(text) and (known or _stdnum("iban").is_valid(compact)) else None


def _bank(text: str) -> int:
    """Where the country, the check digits and four characters of the bank end."""
    seen = 0
    for place, character in enumerate(text):
        seen += character.isalnum()
        if seen == 8:
            return place + 1
    return len(text)


IBAN = SecretKind(
    name="iban",
    title="bank accounts (IBAN)",
    pattern=r"\b[A-Z]{2}[0-9]{2}(?:[ -]?[A-Z0-9]{4}){2,7}(?:[ -]?[A-Z0-9]{1,3})?\b",
    begins="[A-Z]{2}",
    part=_iban_part,
    check=_iban,
    is_specimen=lambda value: value in specimens.IBANS,
    chance=1 / 97,
    sensitivity=4,
    kept=_bank,
)
