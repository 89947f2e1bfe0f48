"""Shadow models: reference models that imitate the target, each trained on a random half of the reference users; or your own training."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.audits.provenance.data_checks import name_hash
from coalmine.audits.provenance.users import User
from coalmine.engines.engine import Engine
from coalmine.engines.ledger import Ledger
from coalmine.errors import CoalmineError, InputError, ModelError, ModelOutputError, SomeFailedError
from coalmine.models.loading import load_model
from coalmine.models.plugins import missing_members, named_function
from coalmine.models.protocols import Model
from coalmine.models.reference.checkpoint import CONFIG_FILE, MODELS
from coalmine.models.reference.tokens import ReferenceTokenizer, tokenizer_from_dict
from coalmine.progress import Progress
from coalmine.randomness import arrays, child_seed
from coalmine.storage.files import to_json
from coalmine.training.data import Documents, text_of
from coalmine.training.family import Goal, InMemory, TrainedModel, reach
from coalmine.training.options import TrainingOptions, changed, options_of
from coalmine.training.record import read_training
from coalmine.training.work import Member, TrainingWork

# What all runs that train shadows in a directory have in common: each may finish what another one began.
_RUN = "provenance shadows/1"
# The sizes of embeddings and layers of mismatched shadows in appendix B.2 of Auditing Data Provenance in Text-Generation Models (Song and
# Shmatikov, 2019, arXiv:1811.00513), and by how many times more epochs they are trained there: 50 and not 30.
MISMATCHED_SIZES = tuple(range(64, 353, 32))
_MORE_EPOCHS = 50 / 30
_OTHER_CELLS = {
    "lstm": "gru",
    "gru": "lstm",
    "encoder-decoder": "gru-encoder-decoder",
    "attention": "gru-attention",
    "gru-encoder-decoder": "encoder-decoder",
    "gru-attention": "attention",
}


# From data, such as the texts of some users, to a model, or to what `load_model` takes.
Train = Callable[..., Model | str | os.PathLike[str]]


class Recipe(NamedTuple):
    """How shadow models are trained: the options of each in turn, and the target's tokenizer, or None for that of each shadow's texts."""

    options: tuple[TrainingOptions, ...]
    tokenizer: ReferenceTokenizer | None = None

    @property
    def sha256(self) -> str:
        """A hash of all of it."""
        tokenizer = None if self.tokenizer is None else self.tokenizer.to_dict()
        return hashlib.sha256(to_json([self.options, tokenizer])).hexdigest()

    def of_shadow(self, place: int, seed: int) -> TrainingOptions:
        """The options of one shadow, with a seed of its own; where the target was trained privately, its noise is drawn from it too."""
        own = child_seed(seed, "provenance", "shadow", place) % 2**31
        options = msgspec.structs.replace(self.options[place % len(self.options)], seed=own)
        if options.private is msgspec.UNSET:
            return options
        private = msgspec.structs.replace(options.private, seed=own, seed_check=msgspec.UNSET)
        return msgspec.structs.replace(options, private=private)

    @property
    def needs_users(self) -> bool:
        """Whether a training has to know whose each text is."""
        return any(one.private is not msgspec.UNSET and one.private.unit == "user" for one in self.options)


def recipe_like(directory: str | os.PathLike[str], *, own_vocabulary: bool = False) -> Recipe:
    """The recipe of a model that `coalmine train` wrote, from its training.json, and its vocabulary unless each shadow has its own."""
    place = Path(directory)
    tokenizer = None if own_vocabulary else tokenizer_from_dict(MODELS.alone(place / CONFIG_FILE).tokenizer)
    return Recipe((read_training(place).options,), tokenizer)


def recipe_of_preset(preset: str) -> Recipe:
    """The recipe of a preset, for a target whose training is not known.

    >>> recipe_of_preset("provenance-words").options[0].epochs
    30
    """
    return Recipe((options_of(preset, {}),))


def mismatched(recipe: Recipe) -> Recipe:
    """A recipe that differs from the target's in everything that appendix B.2 of the paper changes, with options for each of ten sizes.

    GRU layers for LSTM layers (and the other way around), momentum SGD, sizes from 64 to 352, and 5 epochs for every 3. The paper's rate of
    0.01 is for losses that are summed over the tokens of a text; ours are means over tokens, so the rate is the optimizer's usual one.

    >>> found = mismatched(Recipe((TrainingOptions(),))).options
    >>> [one.hidden for one in found[:3]], found[0].architecture
    ([64, 96, 128], 'gru')
    """
    (options,) = recipe.options
    return recipe._replace(
        options=tuple(
            msgspec.structs.replace(
                options,
                architecture=_OTHER_CELLS.get(options.architecture, "gru"),
                embedding=size,
                hidden=size,
                optimizer="momentum",
                learning_rate=None,
                epochs=round(options.epochs * _MORE_EPOCHS),
            )
            for size in MISMATCHED_SIZES
        )
    )


def varied(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """A recipe with some options changed; a list of values is for the shadows in turn.

    >>> recipe = varied(recipe_of_preset("provenance-words"), {"hidden": [64, 96, 128], "epochs": 5})
    >>> [(one.hidden, one.epochs) for one in recipe.options]
    [(64, 5), (96, 5), (128, 5)]
    """
    lists = {name: values for name, values in changes.items() if isinstance(values, (list, tuple))}
    if not all(lists.values()):
        raise InputError("an option of shadow models has an empty list of values; give at least one value")
    number = int(np.lcm.reduce([len(recipe.options), *map(len, lists.values())]))
    options = []
    for place in range(number):
        own = {name: values[place % len(values)] for name, values in lists.items()}
        options.append(changed(recipe.options[place % len(recipe.options)], {**changes, **own}))
    return Recipe(tuple(options), recipe.tokenizer)


def changes_of(texts: Sequence[str]) -> dict[str, Any]:
    """Changes of options as a command line has them: a name, and a value or several for the shadows in turn.

    >>> changes_of(["architecture=gru", "hidden=64,96", "dropout=0.5"])
    {'architecture': 'gru', 'hidden': [64, 96], 'dropout': 0.5}
    """
    changes: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise InputError(
                f"an option of shadow models is a name and a value, such as hidden=64,96, got {text!r}; write NAME=VALUE"
            )
        values = [_value(one) for one in value.split(",")]
        changes[name.strip().replace("-", "_")] = values if len(values) > 1 else values[0]
    return changes


def halves(users: int, shadows: int, *, seed: int) -> NDArray[np.bool_]:
    """Which users each shadow is trained on, of shape (users, shadows).

    Every second shadow is trained on the half that the one before it was not, so that of an even number of shadows, exactly half are
    trained on each user. (Of independent halves, some users would be in all.)

    >>> halves(5, 2, seed=0).sum(axis=1).tolist()
    [1, 1, 1, 1, 1]
    """
    least = 4
    if users < least:
        raise InputError(
            f"shadow models are trained on halves of at least {least} reference users, got {users}; give more, or cut unlabeled text into "
            "artificial users"
        )
    trained_on = np.zeros((users, shadows), dtype=bool)
    for place in range(0, shadows, 2):
        chosen = arrays(seed, "provenance", "halves", place).permutation(users)[: users // 2]
        trained_on[chosen, place] = True
        if place + 1 < shadows:
            trained_on[:, place + 1] = ~trained_on[:, place]
    return trained_on


def check_reference(users: Sequence[User]) -> None:
    """Refuse reference users that cannot be told apart, or of whom there is nothing to train on."""
    if len({name_hash(user.name, "", cased=True) for user in users}) < len(users):
        raise InputError("two reference users have the same name; join their texts, or give them other names")
    if not all(user.texts for user in users):
        raise InputError("a reference user has no text; leave such users out")


def documents_of(users: Sequence[User]) -> Documents:
    """The texts of all users, one user after the other; pairs if every text has a source."""
    texts = [text for user in users for text in user.texts]
    with_source = sum(text.source is not None for text in texts)
    if with_source not in {0, len(texts)}:
        raise InputError(
            f"{with_source:,} of the {len(texts):,} texts of reference users have a source, and the others have none; give pairs only, or "
            "single texts only"
        )
    sources = [text.source or "" for text in texts] if with_source else None
    return Documents([text.text for text in texts], sources)


def train_shadows(
    users: Sequence[User],
    trained_on: NDArray[np.bool_],
    recipe: Recipe,
    directory: str | os.PathLike[str],
    *,
    seed: int = 0,
    engine: Engine | str | None = None,
    progress: Progress | None = None,
    snapshot_seconds: float | None = None,
) -> list[TrainedModel | CoalmineError]:
    """Train a shadow model on each column of `trained_on` (users, shadows), each into a directory below `directory`.

    In place of one whose training diverged is the reason, if others did not; any other problem is raised. The name of a directory is a
    hash of the recipe and the texts, so several fits may share it: a shadow that is there is the same, and is not trained again. What was
    stopped resumes, whatever else is trained there. The texts of all users are sent to each worker once.
    """
    documents = documents_of(users)
    if recipe.needs_users:
        documents = documents._replace(users=[user.name for user in users for _ in user.texts])
    text = text_of(documents, tokenizer=recipe.tokenizer)
    owners = np.repeat(np.arange(len(users)), [len(user.texts) for user in users])
    members = tuple(
        Member(
            recipe.of_shadow(place, seed),
            None,
            label=f"shadow {place + 1}",
            part=np.flatnonzero(column[owners]),
        )
        for place, column in enumerate(trained_on.T)
    )
    work = TrainingWork(text, members)
    place = Path(directory)
    goals = [
        Goal(place / f"shadow-{work.fingerprint(number)[:16]}", member)
        for number, member in enumerate(members)
    ]
    ledger = Ledger(place, seconds_between_saves=snapshot_seconds)
    try:
        return [*reach(goals, InMemory(text), ledger, named=lambda _: _RUN, engine=engine, progress=progress)]
    except SomeFailedError as some:
        worse = [one for one in some.failed.values() if not isinstance(one, ModelOutputError)]
        if worse or not some.complete:
            raise
        complete = {one.path: one for one in some.complete}
        return [complete.get(goal.directory) or some.failed[goal.directory] for goal in goals]


def _value(text: str) -> Any:
    """A number or a truth value where it is one, else the text."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


class OwnTraining(NamedTuple):
    """A function that trains a model, and its name, by which a run that was stopped knows it again."""

    name: str
    train: Train

    @property
    def sha256(self) -> str:
        """A hash of the name: what the function does is not known."""
        return hashlib.sha256(self.name.encode()).hexdigest()

    @classmethod
    def of(cls, train: Train | str) -> OwnTraining:
        """From a function, or from its name."""
        if isinstance(train, str):
            return cls(train, named_function(train))
        if not callable(train):
            raise InputError(
                f"train must be a function from data to a model, or python:module:function, got {train!r}"
            )
        module, name = getattr(train, "__module__", "?"), getattr(train, "__qualname__", type(train).__name__)
        return cls(f"python:{module}:{name}", train)

    def trained(self, *data: Any) -> tuple[Model, str | None]:
        """A model that was trained on these data, and where it is, if the function says so."""
        made = self.train(*data)
        if isinstance(made, (str, os.PathLike)):
            where = os.fspath(made)
            location = os.path.abspath(where) if os.path.isdir(where) else where  # noqa: PTH100, PTH112 - it need not be a path
            return cast("Model", load_model(where)), location
        missing = missing_members(made)
        if missing:
            raise ModelError(
                f"{self.name} returned {type(made).__name__}, which is not a model: it has no {', '.join(missing)}; return a model, or "
                "where it is"
            )
        return made, None
