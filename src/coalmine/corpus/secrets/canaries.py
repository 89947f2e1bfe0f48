"""`canaries_of`: secrets that are already in a corpus, as canaries that every audit can measure.

Each secret is a canary of a format of its own: its context in the document and the part of it that can be guessed stay, and the rest is
a hole of its kind. Its references are other fillings, in the same context, that do not occur in the corpus.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple

from msgspec import UNSET

from coalmine.corpus.planting.manifest import CanarySet
from coalmine.corpus.secrets.addresses import ALONE, FEWEST_REFERENCES, AddressBook, split_address
from coalmine.corpus.secrets.contexts import context_of, shares_a_piece
from coalmine.corpus.secrets.folding import folded_text
from coalmine.corpus.secrets.natural import NaturalOptions, NaturalSecret
from coalmine.corpus.secrets.shapes import Shape, shape_of
from coalmine.errors import FormatError
from coalmine.formats.format import Format
from coalmine.randomness import child_seed
from coalmine.records import Canary

TOO_SHORT = "nothing of it is left to draw once what can be guessed stays"
ROUND = "its last digits are round or repeat, so they can be guessed"
IN_CONTEXT = "it can be guessed from the sentence it is asked with"
# The digits of a phone number that are left of it where the country is known.
_NATIONAL = 9
_FEW_DIGITS = 2
_NEITHER_LETTER_NOR_DIGIT = re.compile(r"[\W_]+")
# Draws for one reference, before there seem to be no more that do not occur.
_TRIES = 20


class NaturalCanaries(NamedTuple):
    """Secrets as canaries.

    Attributes:
        canaries: those that can be measured; what `CanarySet.save` writes to secrets.json.
        left_out: how many cannot be measured, by kind and reason.

    >>> made = canaries_of([NaturalSecret(kind="phone", text="713-853-1234", before="call me: ")])
    >>> len(made.canaries), made.left_out
    (1, {})
    """

    canaries: CanarySet
    left_out: Mapping[tuple[str, str], int]


def canaries_of(
    secrets: Iterable[NaturalSecret],
    options: NaturalOptions | None = None,
    *,
    others: Iterable[tuple[str, str]] = (),
) -> NaturalCanaries:
    """Secrets as canaries, in the given order, each with references that do not occur among them.

    `others` are further secrets of the corpus, each with its kind, which are no references either.

    >>> found = canaries_of([NaturalSecret(kind="phone", text="713-853-1234", before="call me: ", copies=2)])
    >>> found.canaries[0].canary_id, found.canaries[0].text, found.canaries[0].times_trained_on
    ('phone-1', 'call me: 713-853-1234', 2)
    >>> found.canaries.formats["phone-1"].size, len(found.canaries.references["phone-1"])
    (10000, 100)
    """
    these = list(secrets)
    known = chain(((one.kind, one.text) for one in these), others)
    return _Making(these, NaturalOptions() if options is None else options, known).made()


class _OneFormat(NamedTuple):
    """The format of one secret, its text, and its references."""

    form: Format
    text: str
    references: Sequence[str]
    # Whether the format is only a list of texts, which are not equally likely members of a space.
    listed: bool = False


class _Making:
    """All secrets, while canaries are made of them."""

    def __init__(
        self, secrets: Sequence[NaturalSecret], options: NaturalOptions, known: Iterable[tuple[str, str]]
    ) -> None:
        self._secrets, self._options = secrets, options
        # What is not a reference. Of all secrets, only this is in memory.
        self._known: set[tuple[str, str]] = set()
        addresses: dict[str, None] = {}
        for kind, text in known:
            if kind == "email":
                addresses[text] = None
            else:
                self._known.add(_essence(kind, text))
        self._book = AddressBook(addresses)
        # No two canaries have the same text.
        self._taken: set[str] = set()

    def made(self) -> NaturalCanaries:
        canaries: list[Canary] = []
        formats: dict[str, _OneFormat] = {}
        left_out: Counter[tuple[str, str]] = Counter()
        numbers: Counter[str] = Counter()
        for secret in self._secrets:
            canary_id = f"{_in_a_name(secret.kind)}-{numbers[secret.kind] + 1}"
            one = self._format(secret, canary_id)
            if isinstance(one, str):
                left_out[secret.kind, one] += 1
                continue
            numbers[secret.kind] += 1
            formats[canary_id] = one
            self._taken.add(one.text)
            canaries.append(_canary(secret, canary_id, one.text))
        made = CanarySet(
            canaries,
            {name: one.form for name, one in formats.items()},
            references={name: one.references for name, one in formats.items()},
            seed=self._options.seed,
            listed=[name for name, one in formats.items() if one.listed],
        )
        return NaturalCanaries(made, dict(left_out))

    def _format(self, secret: NaturalSecret, canary_id: str) -> _OneFormat | str:
        """The format of a secret, or why it cannot be measured."""
        if secret.kind == "email":
            return self._address(secret, canary_id)
        if secret.template is None:
            shape = shape_of(secret.kind, secret.text)
        else:
            shape = _as_given(secret.template, secret.text)
        if shape is None:
            return TOO_SHORT
        if secret.kind == "phone" and _is_round(shape.drawn):
            return ROUND
        filled = (
            shape.drawn
            if secret.template is None
            else " ".join(Format(secret.template).fillings(secret.text))
        )
        context = self._context(secret, filled)
        if context is None:
            return IN_CONTEXT
        fixed = context + shape.fixed
        try:
            # The context is a word, and not part of the template, which goes into tables and reports.
            form = Format("{word:1}" + shape.template, words=[fixed]) if fixed else Format(shape.template)
        except FormatError:
            return TOO_SHORT
        text = fixed + shape.drawn
        if text not in form or text in self._taken:
            return TOO_SHORT
        return _OneFormat(form, text, self._references(secret, canary_id, shape, context))

    def _context(self, secret: NaturalSecret, drawn: str) -> str | None:
        if secret.whole:
            return None if shares_a_piece(secret.before, drawn) else secret.before
        return context_of(secret.before, drawn, self._options.context)

    def _references(self, secret: NaturalSecret, canary_id: str, shape: Shape, context: str) -> list[str]:
        """Members that do not occur in the corpus, drawn uniformly."""
        form = Format(shape.template)
        wanted = min(self._options.references, form.size - 1)
        seed = child_seed(self._options.seed, "secrets", canary_id)
        found: list[str] = []
        draws = wanted
        while len(found) < wanted and draws < min(form.size, _TRIES * wanted):
            draws = min(form.size, 2 * draws)
            others = (
                one
                for one in map(form.at, form.sample_indices(draws, seed, replace=False))
                if one != shape.drawn and _essence(secret.kind, shape.fixed + one) not in self._known
            )
            found = list(islice(others, wanted))
        return [context + shape.fixed + one for one in found]

    def _address(self, secret: NaturalSecret, canary_id: str) -> _OneFormat | str:
        """An e-mail address among others that look as real."""
        name, _ = split_address(secret.text)
        why = self._book.guessable(secret.text)
        if why is not None:
            return why
        context = self._context(secret, name)
        if context is None:
            return IN_CONTEXT
        text = context + secret.text
        asked = self._options
        others = self._book.others(secret.text, asked.references, asked.seed, canary_id)
        others = [context + one for one in others]
        if len(others) < FEWEST_REFERENCES or text in self._taken:
            return ALONE
        return _OneFormat(Format("{word:1}", words=sorted([text, *others])), text, others, listed=True)


def _as_given(template: str, text: str) -> Shape | None:
    """A secret of a format that the user gave: all of its holes are drawn."""
    try:
        form = Format(template)
        return Shape("", template, text) if text in form else None
    except FormatError:
        return None


def _is_round(drawn: str) -> bool:
    """Whether digits are those of a switchboard, such as 3000 or 1212, which are given out more often than others.

    >>> _is_round("3400"), _is_round("12 12"), _is_round("1234")
    (True, True, False)
    """
    digits = [one for one in drawn if one.isdecimal()]
    return digits[-2:] == ["0", "0"] or len(set(digits)) <= _FEW_DIGITS


def _in_a_name(kind: str) -> str:
    """A kind as the names of files have it."""
    return re.sub(r"[^A-Za-z0-9]+", "-", kind).strip("-") or "secret"


def _canary(secret: NaturalSecret, canary_id: str, text: str) -> Canary:
    return Canary(
        canary_id=canary_id,
        format_id=canary_id,
        text=text,
        repetitions=max(1, secret.copies),
        planted=secret.copies > 0,
        natural=True,
        kind=secret.kind,
        user=UNSET if secret.user is None else secret.user,
    )


def _essence(kind: str, text: str) -> tuple[str, str]:
    """A kind, and the letters and digits in which all spellings of a secret are alike; of a phone number, without its country."""
    plain = _NEITHER_LETTER_NOR_DIGIT.sub("", folded_text(text).lower())
    return kind, plain[-_NATIONAL:] if kind == "phone" else plain


def left_out_in_words(left_out: Mapping[tuple[str, str], int]) -> Iterator[str]:
    """Which secrets cannot be measured, a sentence for each kind and reason.

    >>> list(left_out_in_words({("email", "its name can be guessed"): 2}))
    ['2 of the kind email cannot be measured: its name can be guessed']
    """
    for (kind, why), count in left_out.items():
        yield f"{count:,} of the kind {kind} cannot be measured: {why}"
