"""A kind of secret: its shape, the rules that it must follow, and a format that has it as a member."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

_SSN = re.compile("[0-9]{3}-[0-9]{2}-[0-9]{4}")


@dataclass(frozen=True, kw_only=True)
class SecretKind:
    """One kind of secret. `KINDS` of `kinds.py` lists those that coalmine knows; nothing else knows a kind by name.

    What `part` and `check` get is ASCII: digits of other scripts, no-break spaces and unusual hyphens are folded before.

    Attributes:
        name: what options and files call it, such as "ssn".
        title: what tables call it, such as "social security numbers".
        pattern: what it looks like, as a regular expression of google-re2 on bytes (Latin-1); its one group, if it has one, is the
            secret within its context. What it matches is short, and never has a byte that is not named in it.
        begins: the one or two bytes that a match can begin with, as a regular expression of Python's `re`; the fewer, the faster.
        check: the secret in its plain form, such as digits without hyphens, or None if it breaks a rule of its kind.
        part: the part of a match that has the shape of this kind, from its beginning on; None if it does not have it after all.
        is_specimen: whether a plain form is a well-known example, which is nobody's secret.
        chance: which share of random texts of this shape passes the check; None where there is no such number.
        sensitivity: from 1 to 5; what is audited first.
        before: for a pattern that matches the end of a secret: what comes before it, as a regular expression for reversed bytes.
        after: for a pattern that matches the beginning of a secret: what follows, as a regular expression of google-re2.
        by_rare_byte: whether the pattern begins with a byte that is rare in text; it is then one of Python's `re`, which finds such a
            byte faster than anything else, and has to be linear.
        is_number: whether it must not be part of a longer number.
        kept: how many characters at the beginning anyone can guess, such as the issuer of a card.
        kept_at_end: how many characters at the end, such as the domain of an e-mail address.
        alphabet: what a random character may be, as in a character class; without it, a digit, a small or a capital letter.
        written_as: the template of a format of which all secrets of this kind are members, where the user gave one.
    """

    name: str
    title: str
    pattern: str
    begins: str
    check: Callable[[str], str | None]
    part: Callable[[str], str | None] = lambda text: text
    is_specimen: Callable[[str], bool] = lambda _: False
    chance: float | None = None
    sensitivity: int = 3
    before: str | None = None
    after: str | None = None
    by_rare_byte: bool = False
    is_number: bool = False
    kept: Callable[[str], int] = lambda _: 0
    kept_at_end: Callable[[str], int] = lambda _: 0
    alphabet: str | None = None
    written_as: str | None = None

    def template(self, text: str) -> str:
        """The template of a format that a secret is a member of: what can be guessed is kept, and the rest is drawn.

        >>> from coalmine.corpus.secrets.kinds import KINDS
        >>> KINDS["ssn"].template("219-09-9998"), KINDS["card"].template("4111 1111 1111 1111")
        ('{ssn}', '4111 11{digits:2} {digits:4} {digits:4}')
        """
        if self.written_as is not None:
            return self.written_as
        if self.name == "ssn" and _SSN.fullmatch(text):
            return "{ssn}"
        kept, end = self.kept(text), len(text) - self.kept_at_end(text)
        return literal(text[:kept]) + self._drawn(text[kept:end]) + literal(text[end:])

    def _drawn(self, text: str) -> str:
        if self.alphabet is not None:
            runs = re.split(f"([{self.alphabet}]+)", text)
            return "".join(
                f"{{re:[{self.alphabet}]{{{len(run)}}}}}" if place % 2 else literal(run)
                for place, run in enumerate(runs)
            )
        return "".join(_hole(run) for run in _runs(text))


def literal(text: str) -> str:
    """Text as it is written in a template.

    >>> literal("a{b}")
    'a{{b}}'
    """
    return text.replace("{", "{{").replace("}", "}}")


def _runs(text: str) -> list[str]:
    """The text cut into runs of ASCII digits, small and capital letters, runs of digits of one script, and single other characters."""
    runs: list[str] = []
    last = ""
    for character in text:
        kind = _kind(character)
        if runs and kind and kind == last:
            runs[-1] += character
        else:
            runs.append(character)
        last = kind
    return runs


def _kind(character: str) -> str:
    """What a run is made of: a class of characters, or nothing for a character that stays."""
    if character.isascii():
        return (
            "0-9"
            if character.isdigit()
            else "a-z"
            if character.islower()
            else "A-Z"
            if character.isupper()
            else ""
        )
    if unicodedata.category(character) == "Nd":
        zero = ord(character) - unicodedata.digit(character)
        return f"{chr(zero)}-{chr(zero + 9)}"
    return ""


def _hole(run: str) -> str:
    kind = _kind(run[0])
    if not kind:
        return literal(run)
    named = {"0-9": "digits", "a-z": "letters"}.get(kind)
    return f"{{{named}:{len(run)}}}" if named else f"{{re:[{kind}]{{{len(run)}}}}}"
