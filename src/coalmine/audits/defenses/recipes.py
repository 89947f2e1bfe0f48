"""The options of `defend`, and defenses by their names: what each changes about the corpus, the training, or the trained model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from coalmine.audits.exposure.estimators import METHODS
from coalmine.audits.options import CONFIDENCE, SEED, Option, Options
from coalmine.corpus.files.documents import Fields
from coalmine.errors import InputError
from coalmine.models.plugins import PREFIX as FUNCTION
from coalmine.training.private.options import PREFIX

# Which corpus a model is trained on: the planted one, or what is left of it.
CorpusName = Literal["planted", "dedup", "redact"]
# What all others are compared with; it is always trained.
NONE = "none"
# The kind of a defense that is a function of the user's.
OWN = "own"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
# Options that a defense decides, or the bench as a whole.
DECIDED = ("seed", "holdout", *(f"{PREFIX}{name}" for name in ("epsilon", "noise", "delta", "seed")))
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
    "weight-decay": DefenseKind("weight_decay", "0.0001"),
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
    # python:module:function of the user's.
    function: str | None = None

    @property
    def does(self) -> DefenseKind:
        """What it does."""
        return KINDS.get(self.kind, KINDS[NONE])

    @property
    def options(self) -> dict[str, Any]:
        """The option that it sets, of a training or of what alters a model."""
        value = True if self.value is None else int(self.value) if self.does.whole else self.value
        return {self.does.option: value} if self.does.option else {}

    def training(self, given: Mapping[str, Any], seed: int, delta: float) -> dict[str, Any]:
        """The options of one of its trainings, by the names that `train` and `finetune` take; `given` are those of the bench."""
        changes = {} if self.does.alters else self.options
        private = any(name.startswith(PREFIX) for name in changes)
        left_out = [name for name in given if (name in _NOT_PRIVATE if private else name.startswith(PREFIX))]
        named = {name: value for name, value in given.items() if name not in left_out} | changes
        return {**named, "seed": seed, **({f"{PREFIX}delta": delta} if private else {})}


def defenses_in_words() -> str:
    """The defenses that can be named, for help and messages.

    >>> defenses_in_words().split(", ")[:2]
    ['none', 'dropout=0.2']
    """
    return ", ".join(name if one.example is None else f"{name}={one.example}" for name, one in KINDS.items())


def parse_defense(given: str) -> Defense:
    """A defense from the command line: a name, NAME=VALUE, or NAME=python:module:function for a training of the user's.

    >>> parse_defense("mine=python:my_trainer:train").kind, parse_defense("weight-decay=1e-4").name
    ('own', 'weight-decay=0.0001')
    """
    name, equals, text = given.partition("=")
    if text.startswith(FUNCTION):
        if _NAME.fullmatch(name) is None or (name in KINDS and name != NONE):
            raise InputError(
                f"a training of yours needs a name of its own, of letters, digits, - and _, got {name!r}; choose another"
            )
        return Defense(name=name, kind=OWN, function=text)
    kind = KINDS.get(name)
    if kind is None or (equals and kind.example is None):
        raise InputError(
            f"unknown defense {given!r}: known are {defenses_in_words()}, and NAME=python:module:function for a training of yours"
        )
    if kind.example is None:
        return Defense(name=name, kind=name)
    try:
        value = float(int(text) if kind.whole else float(text))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        what = "a whole number" if kind.whole else "a number of at least 0"
        raise InputError(f"the defense {name} takes {what}, such as {name}={kind.example}, got {given!r}")
    return Defense(name=f"{name}={value:g}", kind=name, value=value)


def chosen_defenses(given: Sequence[Defense]) -> tuple[Defense, ...]:
    """The defenses of a bench: `none` first, because all others are compared with it.

    >>> [one.name for one in chosen_defenses([parse_defense("dedup")])]
    ['none', 'dedup']
    """
    names = [one.name for one in given]
    if set(names) <= {NONE} or len(set(names)) < len(names):
        raise InputError(
            f"a bench needs at least one defense besides {NONE}, and each once; known are {defenses_in_words()}"
        )
    baseline = [one for one in given if one.name == NONE] or [Defense(name=NONE, kind=NONE)]
    return (*baseline, *(one for one in given if one.name != NONE))


class DefenseOptions(Options, frozen=True, kw_only=True):
    """How defenses are compared; `settings` in defenses.json. The first training has the seed, and the others those after it.

    >>> DefenseOptions(seeds=1).holdout
    0.05
    """

    seeds: Annotated[int, Option("Models per defense, each with a seed of its own.", least=1)] = 3
    holdout: Annotated[float, Option("Share of documents held out, for validation.")] = 0.05
    method: Annotated[str, Option("How exposure is measured, as in `coalmine expose`.")] = "auto"
    search: Annotated[int, Option("Expansions that searching for canaries may spend.", least=1)] = 50_000
    delta: Annotated[float, Option("The delta of private training, and of the audited epsilon.")] = 1e-9
    confidence: Annotated[float, CONFIDENCE] = 0.95
    seed: Annotated[int, SEED] = 0
    fields: Fields = Fields()

    def check(self) -> None:
        """Reject values that no bench can have."""
        from coalmine.statistics.scores import checked_confidence, checked_count, checked_delta

        checked_count(self.seeds, "seeds")
        checked_delta(self.delta)
        checked_confidence(self.confidence)
        self._require(0 < self.holdout < 1, "holdout", "above 0 and below 1")
        self._require(self.method in METHODS, "method", f"one of {', '.join(METHODS)}")
        if self.fields.source is not None:
            raise InputError("defenses are compared on single texts; name the target as the text field")
