"""`fit_provenance`: shadow models on halves of the reference users; and the classifier of users by the ranks that models give."""

from __future__ import annotations

import hashlib
import os
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine.audits.provenance.options import FitOptions
from coalmine.audits.provenance.users import User, UserText
from coalmine.engines.engine import Engine
from coalmine.engines.ledger import UNITS_FILE, Ledger
from coalmine.errors import InputError, MissingExtraError
from coalmine.models.loading import load_model
from coalmine.models.plugins import named_function
from coalmine.models.protocols import FloatArray, Model
from coalmine.models.reference.checkpoint import CONFIG_FILE, MODELS
from coalmine.models.reference.tokens import ReferenceTokenizer, tokenizer_from_dict
from coalmine.progress import Progress, Silent
from coalmine.randomness import arrays, child_seed
from coalmine.records.documents import Document
from coalmine.records.estimate import Count
from coalmine.storage.directories import sole_use
from coalmine.storage.files import (
    check_places,
    make_directory,
    no_empty_directory,
    remove_abandoned,
    sha256_of_file,
    to_json,
)
from coalmine.training.data import Documents, text_of
from coalmine.training.family import Goal, InMemory, TrainedModel, reach
from coalmine.training.options import TrainingOptions, changed, options_of
from coalmine.training.record import read_training
from coalmine.training.work import Member, TrainingWork

SCHEMA = "coalmine.provenance-fit/3"
FIT_FILE, SHADOWS_FOLDER = "provenance-fit.json", "shadows"
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
# Trains a model on the texts of some users, and saves it in a directory.
Train = Callable[[list[UserText], Path], object]


class FitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Shadow models, and the reference users on halves of whom they were trained; provenance-fit.json."""

    schema: str = SCHEMA
    settings: FitOptions
    # Of the options and the vocabulary of all trainings, or of the name of the user's own function.
    recipe_sha256: str
    # Of the names and texts of the reference users, in the order of the corpus, and how many there are.
    reference_sha256: str
    users: Count
    # The models, by the names of their directories, and the places of the users that each was trained on, from 0.
    shadows: dict[str, tuple[int, ...]] = {}


FITS = Document(
    record=FitRecord,
    schema=SCHEMA,
    file=FIT_FILE,
    title="shadow models",
    by="`coalmine provenance --reference`",
    other_models=SHADOWS_FOLDER,
)


class AuditClassifier(NamedTuple):
    """A linear classifier that tells users whose texts a shadow model was trained on from others.

    Features are first put on one scale: `mean` is subtracted from each, and the rest is divided by `scale`.
    """

    mean: FloatArray
    scale: FloatArray
    coefficients: FloatArray
    intercept: float

    def score(self, features: ArrayLike) -> FloatArray:
        """The decision value of each row of (users, width) features, without a unit: above 0 where it decides "was trained on".

        >>> AuditClassifier(np.array([0.5]), np.array([2.0]), np.array([3.0]), 1.0).score([[0.5], [2.5]]).tolist()
        [1.0, 4.0]
        """
        scaled = (np.asarray(features, dtype=np.float64) - self.mean) / self.scale
        # Sums of products one by one: a matrix product rounds by how many rows there are.
        return np.asarray((scaled * self.coefficients).sum(axis=1) + self.intercept)


def fit_classifier(features: FloatArray, trained_on: ArrayLike) -> AuditClassifier:
    """Fit scikit-learn's LinearSVC, with its default options, to (examples, width) features of users under shadow models.

    `trained_on` is whether that shadow was trained on that user. The same numbers always give the same classifier: the problem that
    LinearSVC solves has one solution, and it is solved in its primal form, which draws no random numbers.

    >>> found = fit_classifier(np.array([[0.0], [0.2], [0.8], [1.0]]), [False, False, True, True])
    >>> (found.score([[0.1], [0.9]]) > 0).tolist()
    [False, True]
    """
    _require_scikit_learn()
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    mean, scale = features.mean(axis=0), features.std(axis=0)
    # A bin that is equally full for all tells nothing; its deviation may still be a rounding error.
    scale[scale <= 10 * np.finfo(np.float64).eps * np.abs(mean)] = 1.0
    machine = LinearSVC(dual=False, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine.fit((features - mean) / scale, np.asarray(trained_on, dtype=bool))
    return AuditClassifier(mean, scale, machine.coef_[0], float(machine.intercept_[0]))


@dataclass(frozen=True)
class Fit:
    """Shadow models, from `fit_provenance` or `load_fit`; `record` is provenance-fit.json in `directory`.

    >>> len(load_fit("fit/").shadows)  # doctest: +SKIP
    10
    """

    record: FitRecord
    directory: Path

    @property
    def sha256(self) -> str:
        """That of provenance-fit.json."""
        return sha256_of_file(self.directory / FIT_FILE)

    @cached_property
    def shadows(self) -> tuple[Model, ...]:
        """The shadow models, loaded when they are first needed."""
        return tuple(load_model(self.directory / SHADOWS_FOLDER / name) for name in self.record.shadows)

    @property
    def trained_on(self) -> NDArray[np.bool_]:
        """(users, shadows): whether each shadow was trained on each reference user."""
        found = np.zeros((self.record.users, len(self.record.shadows)), dtype=bool)
        for place, users in enumerate(self.record.shadows.values()):
            found[list(users), place] = True
        return found

    def made_with(self, users: Sequence[User]) -> bool:
        """Whether these are the reference users that the fit was made with, with the same texts and in the same order."""
        return _digest(users) == self.record.reference_sha256


def load_fit(path: str | os.PathLike[str]) -> Fit:
    """A fit that was written before: its directory, or the provenance-fit.json in it.

    >>> load_fit("fit/").record.settings.shadows  # doctest: +SKIP
    10
    """
    place = Path(path)
    return Fit(FITS.load(place), place if place.is_dir() else place.parent)


def fit_provenance(
    reference: Sequence[User],
    out: str | os.PathLike[str],
    options: FitOptions | None = None,
    *,
    like: str | os.PathLike[str] | None = None,
    preset: str | None = None,
    training: Mapping[str, Any] | None = None,
    train: Train | str | None = None,
    engine: Engine | str | None = None,
    progress: Progress | None = None,
    **changes: Any,
) -> Fit:
    """Train shadow models on random halves of the reference users.

    A fit that was stopped resumes when the same call is made again. The fields of `FitOptions` can be given as keywords, such as
    `shadows=4`, instead of a record or on top of one.

    >>> fit = fit_provenance(read_users("reference.jsonl", Fields(user="who")), "fit/", like="model/")  # doctest: +SKIP

    Args:
        reference: users whose texts are like those that the target was trained on, and who are not suspects.
        out: the directory for provenance-fit.json and the shadow models.
        options: how many shadows there are, and whether they are trained as the target was.
        like: a model that `coalmine train` wrote, usually the target: shadows are trained as it was, with its vocabulary.
        preset: a name of `PRESETS`, for a target of another kind. Without any, that of the paper for texts or for pairs.
        training: options of the trainings that differ; a list of values is for the shadows in turn, such as `{"hidden": [64, 96]}`.
        train: your own function instead, which trains a model on a list of texts, its first argument, and saves it in a directory, its
            second; or its name, python:module:function. It runs in this process.
        engine: where shadows are trained, such as "processes:2"; the results are the same.
        progress: is advanced by characters that are trained on.
        changes: fields of `FitOptions`.
    """
    given = FitOptions.of(options, changes)
    given.check()
    _require_scikit_learn()
    named = [one for one in (like, preset, train) if one is not None]
    if len(named) > 1 or (train is not None and (training or given.recipe != "same")):
        raise InputError(
            "shadow models are trained like a model, by a preset or by your own function, which decides by itself how; give one of these"
        )
    usual = "provenance-words" if documents_of(reference).sources is None else "provenance-translation"
    recipe = recipe_of(given, like=like, preset=preset or usual, training=training)
    own = named_function(train) if isinstance(train, str) else train
    if own is None:
        described: Any = [recipe.options, None if recipe.tokenizer is None else recipe.tokenizer.to_dict()]
    else:  # what the function does is not known
        described = train if isinstance(train, str) else [own.__module__, getattr(own, "__qualname__", "")]
    folder, shown, digest = Path(out), progress or Silent(), _digest(reference)
    trained_on = halves(len(reference), given.shadows, seed=given.seed)
    record = FitRecord(
        settings=given,
        recipe_sha256=hashlib.sha256(to_json(described)).hexdigest(),
        reference_sha256=digest,
        users=len(reference),
    )
    check_places(folder, FIT_FILE, UNITS_FILE)
    with no_empty_directory(folder), sole_use(folder):
        if (folder / FIT_FILE).exists():
            fit = load_fit(folder)
            if msgspec.structs.replace(fit.record, shadows={}) != record:
                raise InputError(
                    f"{folder} already holds shadow models of other reference users or with other options; choose another directory, or "
                    "remove it"
                )
            return fit
        ledger = Ledger(folder)
        # Created before the first training, so that reports see by it what the models in `shadows` are.
        ledger.begin(
            f"{SCHEMA} {record.recipe_sha256} {digest}", instead=not os.path.lexists(folder / UNITS_FILE)
        )
        place = folder / SHADOWS_FOLDER
        if own is None:
            trained = train_shadows(reference, trained_on, recipe, place, engine=engine, progress=shown)
            names = [model.path.name for model in trained]
        else:
            names = _trained_by(own, reference, trained_on, place, shown)
        users = [tuple(np.flatnonzero(column).tolist()) for column in trained_on.T]
        record = msgspec.structs.replace(record, shadows=dict(zip(names, users, strict=True)))
        FITS.save(folder, record)
        ledger.forget()
        remove_abandoned(folder)
    return Fit(record, folder)


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
            f"shadow models are trained on halves of at least {least} reference users, got {users}; give more"
        )
    trained_on = np.zeros((users, shadows), dtype=bool)
    for place in range(0, shadows, 2):
        chosen = arrays(seed, "provenance", "halves", place).permutation(users)[: users // 2]
        trained_on[chosen, place] = True
        trained_on[:, place + 1 : place + 2] = ~trained_on[:, place : place + 1]
    return trained_on


class Recipe(NamedTuple):
    """The options of the training of each shadow model, and the target's tokenizer, or None for that of each shadow's texts."""

    options: tuple[TrainingOptions, ...]
    tokenizer: ReferenceTokenizer | None = None


def recipe_of(
    fit: FitOptions,
    *,
    like: str | os.PathLike[str] | None = None,
    preset: str = "provenance-words",
    training: Mapping[str, Any] | None = None,
) -> Recipe:
    """How shadow models are trained: as a model that `coalmine train` wrote, with its vocabulary, or by a preset.

    Mismatched shadows differ from that in everything that appendix B.2 of the paper changes: GRU layers for LSTM layers (and the other way
    around), momentum SGD, ten sizes, and 5 epochs for every 3. The paper's rate of 0.01 is for losses that are summed over the tokens of
    a text; ours are means over tokens, so the rate is the optimizer's usual one.

    >>> [one.hidden for one in recipe_of(FitOptions(shadows=3), training={"hidden": [64, 96]}).options]
    [64, 96, 64]
    """
    if like is None:
        target, tokenizer = options_of(preset, {}), None
    else:
        target = read_training(like).options
        tokenizer = tokenizer_from_dict(MODELS.alone(Path(like) / CONFIG_FILE).tokenizer)
    found = []
    for place in range(fit.shadows):
        options = target
        if fit.recipe == "mismatched":
            size = MISMATCHED_SIZES[place % len(MISMATCHED_SIZES)]
            options = msgspec.structs.replace(
                options,
                architecture=_OTHER_CELLS.get(options.architecture, "gru"),
                embedding=size,
                hidden=size,
                optimizer="momentum",
                learning_rate=None,
                epochs=round(options.epochs * _MORE_EPOCHS),
            )
        changes = {
            name: value[place % len(value)] if isinstance(value, (list, tuple)) else value
            for name, value in (training or {}).items()
        }
        options = changed(options, changes)
        seed = child_seed(fit.seed, "provenance", "shadow", place) % 2**31
        private = options.private
        if private:
            private = msgspec.structs.replace(private, seed=seed, seed_check=msgspec.UNSET)
        found.append(msgspec.structs.replace(options, seed=seed, private=private))
    return Recipe(tuple(found), tokenizer)


def documents_of(users: Sequence[User]) -> Documents:
    """The texts of all users, one user after the other; pairs if every text has a source."""
    texts = [text for user in users for text in user.texts]
    sources = [text.source for text in texts if text.source is not None]
    if len(sources) not in {0, len(texts)}:
        raise InputError(
            f"{len(sources):,} of the {len(texts):,} texts of reference users have a source; give pairs only, or single texts only"
        )
    return Documents([text.text for text in texts], sources or None)


def train_shadows(
    users: Sequence[User],
    trained_on: NDArray[np.bool_],
    recipe: Recipe,
    directory: str | os.PathLike[str],
    *,
    engine: Engine | str | None = None,
    progress: Progress | None = None,
    snapshot_seconds: float | None = None,
) -> list[TrainedModel]:
    """Train a shadow model on each column of `trained_on` (users, shadows), each into a directory below `directory`.

    What was stopped resumes, and what is there is not trained again. The texts of all users are sent to each worker once.
    """
    documents = documents_of(users)
    if any(one.private and one.private.unit == "user" for one in recipe.options):
        documents = documents._replace(users=[user.name for user in users for _ in user.texts])
    text = text_of(documents, tokenizer=recipe.tokenizer)
    owners = np.repeat(np.arange(len(users)), [len(user.texts) for user in users])
    members = tuple(
        Member(options, None, label=f"shadow {number}", part=np.flatnonzero(column[owners]))
        for number, (options, column) in enumerate(zip(recipe.options, trained_on.T, strict=True), 1)
    )
    work, place = TrainingWork(text, members), Path(directory)
    goals = [
        Goal(place / f"shadow-{work.fingerprint(number)[:16]}", member)
        for number, member in enumerate(members)
    ]
    ledger = Ledger(place, seconds_between_saves=snapshot_seconds)
    return reach(
        goals,
        InMemory(text),
        ledger,
        named=lambda _: "provenance shadows/1",
        engine=engine,
        progress=progress,
    )


def _trained_by(
    train: Train, users: Sequence[User], trained_on: NDArray[np.bool_], directory: Path, progress: Progress
) -> list[str]:
    """The names of the directories of models that the user's own function trains; one that is there is complete."""
    names = [f"own-{number}" for number in range(1, trained_on.shape[1] + 1)]
    begun = directory / "unfinished"
    progress.start("Training shadows", len(names))
    for name, column in zip(names, trained_on.T, strict=True):
        if not (directory / name).is_dir():
            shutil.rmtree(begun, ignore_errors=True)
            chosen = [user for user, is_chosen in zip(users, column, strict=True) if is_chosen]
            train([text for user in chosen for text in user.texts], make_directory(begun))
            if not any(begun.iterdir()):
                raise InputError("your function saved no model in the directory that is its second argument")
            begun.rename(directory / name)
        progress.advance(1)
    progress.finish()
    return names


def _digest(users: Sequence[User]) -> str:
    named = [(user.name, [text[:2] for text in user.texts]) for user in users]
    return hashlib.sha256(to_json(named)).hexdigest()


def _require_scikit_learn() -> None:
    """Raise a clear error if scikit-learn is not installed; called before shadow models are trained for hours."""
    if find_spec("sklearn") is None:
        raise MissingExtraError("fitting the audit classifier", "scikit-learn", "provenance")
