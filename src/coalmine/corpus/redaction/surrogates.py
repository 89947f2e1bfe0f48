"""Surrogates: what a secret is replaced with, which looks like one of its kind, is nobody's, and is not found by a scan.

The same secret gets the same surrogate in every spelling and document, as long as the key is the same. A surrogate is reserved or invalid,
so that it can never be the secret of somebody else: social security numbers of areas that are never issued, phone numbers of fiction
(555-01xx) or of a country code that does not exist, addresses at example.com, cards and bank accounts with wrong check digits, and keys and
tokens with the word EXAMPLE. A scan does not find such, or calls them specimens.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable
from functools import lru_cache

from coalmine.corpus.redaction.keys import SurrogateKey
from coalmine.corpus.secrets.folding import folded_text
from coalmine.corpus.secrets.kind import SecretKind

# How many draws are tried until one is not a valid secret; a tenth of all cards are valid, and a 97th of all bank accounts.
_TRIES = 64
_WORD = "EXAMPLE"
_CONSONANTS, _VOWELS = "bdfghklmnprstvz", "aeiou"
_DOMAINS = ("example.com", "example.org", "example.net")
_CLASSES = (string.digits, string.ascii_lowercase, string.ascii_uppercase)
# Groups of numbers that begin with 9 and are neither social security numbers nor those of taxpayers: 50 and above are the latter.
_GROUPS = 49
_NO_COUNTRY = "999"
Draw = Callable[[int, int], int]


class Surrogates:
    """Makes surrogates with one key."""

    def __init__(self, key: SurrogateKey) -> None:
        self._key = key
        self._plain = lru_cache(maxsize=1 << 14)(self._made)

    def of(self, kind: SecretKind, text: str, value: str) -> str | None:
        """The surrogate of a secret, in its spelling `text`; None where none can be made, so that it is masked.

        >>> surrogates = Surrogates(SurrogateKey(b"0123456789abcdef"))
        >>> from coalmine.corpus.secrets.kinds import KINDS
        >>> one, other = (surrogates.of(KINDS["ssn"], text, "219099998") for text in ("219-09-9998", "219 09 9998"))
        >>> one[0], one.replace("-", " ") == other
        ('9', True)
        """
        plain = self._plain(kind, value)
        if plain is None:
            return None
        return plain if kind.name == "email" or folded_text(text) == value else _spelled(text, plain)

    def _made(self, kind: SecretKind, value: str) -> str | None:
        """The surrogate in its plain form: the first draw that is not a valid secret, or a well-known example."""
        maker = _MAKERS.get(kind.name, _token if _holds_word(kind) else _alike)
        for attempt in range(_TRIES):

            def draw(below: int, place: int, attempt: int = attempt) -> int:
                return self._key.number(kind.name, value, below, use=place * _TRIES + attempt)

            made = maker(value, kind, draw)
            checked = None if made == value else kind.check(made)
            if made != value and (checked is None or kind.is_specimen(checked)):
                return made
        return None


def _social_security_number(value: str, kind: SecretKind, draw: Draw) -> str:
    del value, kind
    return f"9{draw(100, 0):02d}{1 + draw(_GROUPS, 1):02d}{1 + draw(9999, 2):04d}"


def _phone(value: str, kind: SecretKind, draw: Draw) -> str:
    del kind
    digits = re.sub(r"\D", "", value)
    if value.startswith("+1") and len(digits) == len("15555550100"):
        return f"+1{2 + draw(8, 0)}{draw(9, 1)}{draw(10, 2)}55501{draw(100, 3):02d}"
    rest = len(digits) - len(_NO_COUNTRY)
    return f"+{_NO_COUNTRY}{draw(10**rest, 0):0{rest}d}"


def _email(value: str, kind: SecretKind, draw: Draw) -> str:
    del value, kind
    letters = [
        _CONSONANTS[draw(len(_CONSONANTS), 2 * syllable)] + _VOWELS[draw(len(_VOWELS), 2 * syllable + 1)]
        for syllable in range(5)
    ]
    return f"{''.join(letters[:3])}.{''.join(letters[3:])}@{_DOMAINS[draw(len(_DOMAINS), 10)]}"


def _alike(value: str, kind: SecretKind, draw: Draw) -> str:
    """Another digit for each digit and another letter for each letter; the first two stay, which name the network or the country."""
    del kind
    return value[:2] + "".join(_another(one, draw, place) for place, one in enumerate(value[2:]))


def _token(value: str, kind: SecretKind, draw: Draw) -> str:
    """What all tokens of a kind begin with stays, the word EXAMPLE follows, and the rest is drawn."""
    kept = kind.kept(value)
    rest = "".join(_another(one, draw, place) for place, one in enumerate(value[kept:]))
    run = re.search(rf"[A-Za-z0-9]{{{len(_WORD)},}}\b", rest) or re.search(
        rf"[A-Za-z0-9]{{{len(_WORD)},}}", rest
    )
    if run is None:
        return value[:kept] + rest
    at = run.end() - len(_WORD)
    return value[:kept] + rest[:at] + _WORD + rest[run.end() :]


def _signed(value: str, kind: SecretKind, draw: Draw) -> str:
    """All three parts are drawn, because the second one holds what somebody said about a person."""
    del kind
    return (
        "eyJ"
        + _WORD
        + "".join(_another(one, draw, place) for place, one in enumerate(value[len("eyJ" + _WORD) :]))
    )


def _private_key(value: str, kind: SecretKind, draw: Draw) -> str:
    """The lines that begin and end a key stay, and the others are drawn."""
    del kind
    parts = re.split(r"(-----[A-Z0-9 ]*-----)", value)
    drawn = [
        part
        if place % 2
        else "".join(_another(one, draw, place * len(value) + at) for at, one in enumerate(part))
        for place, part in enumerate(parts)
    ]
    return "".join(
        re.sub(rf"[A-Za-z0-9]{{{len(_WORD)}}}", _WORD, part, count=1) if not place % 2 else part
        for place, part in enumerate(drawn)
    )


def _another(character: str, draw: Draw, place: int) -> str:
    """A character of the same class: a digit for a digit, a letter for a letter."""
    same = next((one for one in _CLASSES if character in one), None)
    return character if same is None else same[draw(len(same), place)]


def _holds_word(kind: SecretKind) -> bool:
    """Whether a scan calls secrets of this kind examples if they hold the word."""
    return kind.is_specimen(f"q7{_WORD}z3")


def _spelled(text: str, plain: str) -> str:
    """The letters and digits of a surrogate in the places of those of a spelling, from the end: a country code may be missing there."""
    letters = [one for one in plain if one.isalnum()]
    spelled = []
    for character in reversed(text):
        if not character.isalnum():
            spelled.append(character)
            continue
        # A spelling may have more digits than the plain form, such as the 0 in +44 (0)20.
        own = letters.pop() if letters else "9"
        value = unicodedata.decimal(character, None)
        written = chr(ord(character) - value + int(own)) if value is not None and own.isdigit() else own
        spelled.append(written)
    return "".join(reversed(spelled))


_MAKERS: dict[str, Callable[[str, SecretKind, Draw], str]] = {
    "ssn": _social_security_number,
    "phone": _phone,
    "email": _email,
    "jwt": _signed,
    "private-key": _private_key,
}
