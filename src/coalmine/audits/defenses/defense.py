"""Defenses by their names: what each changes about the corpus, about the training, or about the trained model."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from coalmine.errors import InputError

# Which corpus a model is trained on: the planted one, or what is left of it.
CorpusName = Literal["planted", "dedup", "redact"]
# What all others are compared with; it is always trained.
NONE = "none"
# The kind of a defense that is a function of the user's.
OWN = "own"
UNLEARN = "unlearn"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")


class Defense(msgspec.Struct, frozen=True, kw_only=True):
    """One way of training, by the name that tables call it.

    >>> parse_defense("dropout=0.2")
    Defense(name='dropout=0.2', kind='dropout', value=0.2, function=None)
    """

    name: str
    # A name of `KINDS`, or "own" for a function of the user's.
    kind: str
    value: float | None = None
    # python:module:function, where the user's function was named so.
    function: str | None = None

    @property
    def folder(self) -> str:
        """What directories of its models begin with."""
        return self.name.replace("=", "-")

    def changes(self) -> dict[str, Any]:
        """The options of training that it changes."""
        known = KINDS.get(self.kind)
        return {} if known is None else dict(known.changes(self.value or 0.0))

    def altering(self) -> dict[str, Any] | None:
        """The options of what it does to the model without a defense; None where it trains a model of its own."""
        known = KINDS.get(self.kind)
        return None if known is None or known.alters is None else dict(known.alters(self.value or 0.0))

    @property
    def corpus(self) -> CorpusName:
        """What its models are trained on."""
        known = KINDS.get(self.kind)
        return "planted" if known is None else known.corpus


class DefenseKind(NamedTuple):
    """What the user can name, what it does, and the value that it needs, if any."""

    says: str
    # Options of `train`.
    changes: Callable[[float], Mapping[str, Any]] = lambda _: {}
    corpus: CorpusName = "planted"
    # Options of what changes the model without a defense, for a defense that trains none: `quantize`, or `unlearn`.
    alters: Callable[[float], Mapping[str, Any]] | None = None
    # None for one without a value.
    example: str | None = None
    whole: bool = False


KINDS: dict[str, DefenseKind] = {
    NONE: DefenseKind("the training as it is"),
    "dropout": DefenseKind(
        "this share of activations dropped", lambda value: {"dropout": value}, example="0.2"
    ),
    "weight-decay": DefenseKind(
        "a pull of weights towards 0", lambda value: {"weight_decay": value}, example="1e-4"
    ),
    "early-stopping": DefenseKind(
        "stop after this many epochs without a better validation loss",
        lambda value: {"patience": int(value)},
        example="1",
        whole=True,
    ),
    "epochs": DefenseKind(
        "this many passes over the data", lambda value: {"epochs": int(value)}, example="2", whole=True
    ),
    "quantize": DefenseKind(
        "weights rounded to this many values per tensor",
        alters=lambda value: {"values": int(value)},
        example="256",
        whole=True,
    ),
    "int8": DefenseKind("weights rounded to int8 by row", alters=lambda _: {"int8": True}),
    UNLEARN: DefenseKind("the planted canaries unlearned by gradient ascent", alters=lambda _: {}),
    "lora": DefenseKind(
        "LoRA of this rank instead of all weights, where a checkpoint is fine-tuned",
        lambda value: {"lora_rank": int(value)},
        example="8",
        whole=True,
    ),
    "dedup": DefenseKind("the corpus without repeated text and near duplicates", corpus="dedup"),
    "redact": DefenseKind("the corpus with the secrets of known kinds masked", corpus="redact"),
    "dp": DefenseKind(
        "differentially private training with this epsilon", lambda value: {"dp_epsilon": value}, example="8"
    ),
    "dp-noise": DefenseKind(
        "private training with this noise, in units of the clipping norm",
        lambda value: {"dp_noise": value},
        example="1",
    ),
}


def defenses_in_words() -> str:
    """The defenses that can be named, for help and messages.

    >>> defenses_in_words().split(", ")[:2]
    ['none', 'dropout=0.2']
    """
    return ", ".join(
        name if kind.example is None else f"{name}={kind.example}" for name, kind in KINDS.items()
    )


def parse_defense(given: str) -> Defense:
    """A defense from the command line: a name, NAME=VALUE, or NAME=python:module:function for a training of the user's.

    >>> parse_defense("mine=python:my_trainer:train").kind, parse_defense("weight-decay=0.0001").name
    ('own', 'weight-decay=1e-4')
    """
    from coalmine.models.plugins import PREFIX, NamedFunction

    name, equals, text = given.partition("=")
    if equals and text.startswith(PREFIX):
        NamedFunction.parse(text)  # which says what is wrong with it
        return own_defense(name, text)
    kind = KINDS.get(name)
    if kind is None:
        raise InputError(
            f"unknown defense {given!r}: known are {defenses_in_words()}, and NAME=python:module:function for a training of yours"
        )
    if kind.example is None:
        if equals:
            raise InputError(f"the defense {name} takes no value, got {given!r}; give {name} alone")
        return Defense(name=name, kind=name)
    return Defense(name=f"{name}={_shown(text, given, kind)}", kind=name, value=float(text))


def own_defense(name: str, function: str | None = None) -> Defense:
    """A defense that is a function of the user's; with the name `none` it is what the others are compared with.

    >>> own_defense("mine").name
    'mine'
    """
    if _NAME.fullmatch(name) is None or (name in KINDS and name != NONE):
        raise InputError(
            f"a training of yours needs a name of its own, of letters, digits, - and _, got {name!r}; choose another"
        )
    return Defense(name=name, kind=OWN, function=function)


def _shown(text: str, given: str, kind: DefenseKind) -> str:
    """The value as names have it: as it was given, if it is a number of the right kind."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0 or (kind.whole and value != int(value)):
        what = "a whole number" if kind.whole else "a number of at least 0"
        name = given.partition("=")[0]
        raise InputError(
            f"the defense {name} takes {what}, such as {name}={kind.example}, got {given!r}; give one"
        )
    if 0 < value < 1e-3:
        digits, _, exponent = f"{value:e}".partition("e")
        return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"
    return f"{value:g}"


def chosen_defenses(given: Sequence[Defense]) -> tuple[Defense, ...]:
    """The defenses of a bench: `none` first, because all others are compared with it.

    >>> [one.name for one in chosen_defenses([parse_defense("dedup")])]
    ['none', 'dedup']
    """
    names = [one.name for one in given]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"the defense {twice} was named twice; name each once")
    if names in ([], [NONE]):
        raise InputError(
            f"a bench needs at least one defense besides {NONE}; known are {defenses_in_words()}"
        )
    baseline = [one for one in given if one.name == NONE] or [Defense(name=NONE, kind=NONE)]
    return (*baseline, *(one for one in given if one.name != NONE))
