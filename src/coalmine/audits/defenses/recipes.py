"""Defenses by their names: what each changes about the corpus, about the training, or about the trained model."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from coalmine.errors import InputError
from coalmine.models.plugins import PREFIX as FUNCTION
from coalmine.models.plugins import NamedFunction
from coalmine.randomness import child_seed
from coalmine.training.private.options import PREFIX

# Which corpus a model is trained on: the planted one, or what is left of it.
CorpusName = Literal["planted", "dedup", "redact"]
# What all others are compared with; it is always trained.
NONE = "none"
# The kind of a defense that is a function of the user's.
OWN = "own"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
# What a defense decides, or the bench as a whole.
_DECIDED = ("seed", "holdout", *(f"{PREFIX}{name}" for name in ("epsilon", "noise", "delta")))
# What private training does not take; as options of all trainings they are for the others.
_NOT_PRIVATE = ("patience", "clip")


class DefenseKind(NamedTuple):
    """What a defense that can be named does; one that neither changes an option nor alters a model changes the corpus."""

    # The option of `train`, of `finetune` or of what alters a model that gets its value; one without a value turns it on.
    option: str = ""
    # A value, for one that needs a value.
    example: str | None = None
    whole: bool = False
    corpus: CorpusName = "planted"
    # What makes its model from the one without a defense; none is trained then.
    alters: Literal["quantize", "unlearn"] | None = None


KINDS: dict[str, DefenseKind] = {
    NONE: DefenseKind(),
    "dropout": DefenseKind("dropout", "0.2"),
    "weight-decay": DefenseKind("weight_decay", "1e-4"),
    "early-stopping": DefenseKind("patience", "1", whole=True),
    "epochs": DefenseKind("epochs", "2", whole=True),
    "quantize": DefenseKind("values", "256", whole=True, alters="quantize"),
    "int8": DefenseKind("int8", alters="quantize"),
    "unlearn": DefenseKind(alters="unlearn"),
    "lora": DefenseKind("lora_rank", "8", whole=True),
    "dedup": DefenseKind(corpus="dedup"),
    "redact": DefenseKind(corpus="redact"),
    "dp": DefenseKind(f"{PREFIX}epsilon", "8"),
    "dp-noise": DefenseKind(f"{PREFIX}noise", "1"),
}


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
    def does(self) -> DefenseKind:
        """What it does."""
        return KINDS.get(self.kind, KINDS[NONE])

    @property
    def options(self) -> dict[str, Any]:
        """The option that it sets, of a training or of what alters a model."""
        if not self.does.option:
            return {}
        value = True if self.value is None else int(self.value) if self.does.whole else self.value
        return {self.does.option: value}

    def training(self, given: Mapping[str, Any], seed: int, delta: float) -> dict[str, Any]:
        """The options of one of its trainings, by the names that `train` and `finetune` take; `given` are those of the bench."""
        changes = {} if self.does.alters else self.options
        private = any(name.startswith(PREFIX) for name in changes)
        left_out = [name for name in given if (name in _NOT_PRIVATE if private else name.startswith(PREFIX))]
        named = {name: value for name, value in given.items() if name not in left_out} | changes
        noise = named.get(f"{PREFIX}seed")
        if noise is not None:
            # Another noise for every training.
            named[f"{PREFIX}seed"] = child_seed(noise, "defend", "noise", self.name, str(seed)) % 2**63
        return {**named, "seed": seed, **({f"{PREFIX}delta": delta} if private else {})}


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
    name, equals, text = given.partition("=")
    if equals and text.startswith(FUNCTION):
        NamedFunction.parse(text)  # which says what is wrong with it
        return own_defense(name, text)
    kind = KINDS.get(name)
    if kind is None or (equals and kind.example is None):
        raise InputError(
            f"unknown defense {given!r}: known are {defenses_in_words()}, and NAME=python:module:function for a training of yours"
        )
    if kind.example is None:
        return Defense(name=name, kind=name)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0 or (kind.whole and value != int(value)):
        what = "a whole number" if kind.whole else "a number of at least 0"
        raise InputError(
            f"the defense {name} takes {what}, such as {name}={kind.example}, got {given!r}; give one"
        )
    return Defense(name=f"{name}={_shown(value)}", kind=name, value=value)


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


def _shown(value: float) -> str:
    if not 0 < value < 1e-3:
        return f"{value:g}"
    digits, _, exponent = f"{value:e}".partition("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"


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


def check_shared(training: Mapping[str, Any], defenses: Sequence[Defense]) -> None:
    """Refuse options of all trainings that are not for the user to choose, or that none of these defenses takes."""
    for name in training:
        private = any(option.startswith(PREFIX) for one in defenses for option in one.options)
        if name in _DECIDED or (name.startswith(PREFIX) and not private):
            raise InputError(
                f"{name} is not an option of all trainings of this bench: the defenses decide it, such as dp=8; leave it out"
            )
