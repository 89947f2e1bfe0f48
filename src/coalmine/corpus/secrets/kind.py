"""A kind of secret: what it looks like, and the rules that it must follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SecretKind:
    """One kind of secret. `KINDS` of `kinds.py` lists those that coalmine knows; `shapes.py` says what is drawn of each.

    What `part` and `check` get is ASCII: digits of other scripts, no-break spaces and unusual hyphens are folded before.

    Attributes:
        name: what options and files call it, such as "ssn".
        title: what tables call it, such as "social security numbers".
        pattern: what it looks like, as a regular expression on bytes (Latin-1) that google-re2 and `re` read alike; its one group, if
            it has one, is the secret within its context. What it matches is short, and never has a byte that is not named in it.
        begins: the one or two bytes that a match can begin with, as a regular expression of Python's `re`; the fewer, the faster.
        check: the secret in its plain form, such as digits without hyphens, or None if it breaks a rule of its kind.
        part: the part of a match that has the shape of this kind, from its beginning on; None if it does not have it after all.
        is_specimen: whether a plain form is a well-known example, which is nobody's secret.
        chance: which share of random texts of this shape passes the check; None where there is no such number.
        sensitivity: from 1 to 5; what is audited first.
        before: for a pattern that matches the end of a secret: what comes before it, as a regular expression for reversed bytes.
        after: for a pattern that matches the beginning of a secret: what follows, as a regular expression of google-re2.
        is_whole_run: whether it begins where a run of characters of its alphabet begins. Where something with an open end may fail its
            check, this keeps a run from being looked at more than once.
        by_rare_byte: whether the pattern begins with a byte that is rare in text; it is then one of Python's `re`, which finds such a
            byte faster than anything else, and has to be linear.
        is_number: whether it must not be part of a longer number.
        kept: how many characters at the beginning anyone can guess, such as the issuer of a card.
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
    is_whole_run: bool = False
    by_rare_byte: bool = False
    is_number: bool = False
    kept: Callable[[str], int] = lambda _: 0
    alphabet: str | None = None
    written_as: str | None = None
