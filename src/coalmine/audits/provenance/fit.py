"""`fit_provenance`: shadow models on halves of the reference users, and the audit classifier, into a directory that audits reuse."""

from __future__ import annotations

import hashlib
import io
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine.audits.provenance.data_checks import HashedUser, hashed_users, name_hash, told_by_case
from coalmine.audits.provenance.options import FitOptions
from coalmine.audits.provenance.scores import answers
from coalmine.audits.provenance.shadows import (
    OwnTraining,
    Recipe,
    Train,
    check_reference,
    documents_of,
    halves,
    mismatched,
    recipe_like,
    recipe_of_preset,
    train_shadows,
    varied,
)
from coalmine.audits.provenance.users import User, UserText
from coalmine.audits.provenance.views import look_at_each, text_units, view_of
from coalmine.engines.engine import Engine, open_engine
from coalmine.engines.ledger import UNITS_FILE, Ledger
from coalmine.engines.units import Arrays, Running, Unit
from coalmine.errors import (
    AlteredError,
    CoalmineError,
    InputError,
    MissingExtraError,
    ModelOutputError,
    NoNumberError,
    NotMeasurableError,
    WorkerLostError,
)
from coalmine.models.loading import load_model
from coalmine.models.protocols import FloatArray, IntArray, Model
from coalmine.models.works import ModelWork
from coalmine.progress import Progress, Silent
from coalmine.records.documents import Document
from coalmine.statistics.provenance.rank_histograms import RankHistogram
from coalmine.storage.directories import sole_use
from coalmine.storage.files import (
    PRIVATE,
    check_places,
    no_empty_directory,
    remove_abandoned,
    sha256_of_file,
    to_json,
    whole_file,
)
from coalmine.training.family import TrainedModel
from coalmine.training.options import TrainingOptions

SCHEMA = "coalmine.provenance-fit/2"
FIT_FILE = "provenance-fit.json"
SHADOWS_FOLDER = "shadows"
_RUN = "provenance fit/2"
_TEXTS_AT_A_TIME = 2048


class AuditClassifier(msgspec.Struct, frozen=True, kw_only=True):
    """A linear classifier that tells users whose texts a shadow model was trained on from others; NumPy is enough to score with it.

    Features are first put on one scale: `mean` is subtracted from each, and the rest is divided by `scale`.

    >>> found = AuditClassifier(mean=(0.5,), scale=(2.0,), coefficients=(3.0,), intercept=1.0, examples=8, members=4)
    >>> found.score([[0.5], [2.5]]).tolist()
    [1.0, 4.0]
    """

    mean: tuple[float, ...]
    scale: tuple[float, ...]
    coefficients: tuple[float, ...]
    intercept: float
    # How many rows it was fitted to, each a user and a shadow model, and in how many the shadow was trained on the user.
    examples: int
    members: int
    # Whether the solver reached its tolerance.
    converged: bool = True

    @property
    def width(self) -> int:
        """The number of features of a user."""
        return len(self.coefficients)

    def score(self, features: ArrayLike) -> FloatArray:
        """The decision value of each row of (users, width) features, without a unit: above 0 where it decides "was trained on"."""
        scaled = (np.asarray(features, dtype=np.float64) - np.array(self.mean)) / np.array(self.scale)
        # Sums of products one by one: a matrix product rounds by how many rows there are.
        return np.asarray((scaled * np.array(self.coefficients)).sum(axis=1) + self.intercept)


class Shadow(msgspec.Struct, frozen=True, kw_only=True):
    """A shadow model, and what it was trained on."""

    # The places of the reference users that it was trained on, from 0.
    users: tuple[int, ...]
    # Where it is: a path from the directory of the fit, or what the user's own function returned; None if it was never saved.
    location: str | None
    # Of its weights, and how it was trained; None for one that the user's own function trained.
    weights_sha256: str | None = None
    options: TrainingOptions | None = None
    # The file beside this one with the ranks that it gives to the texts of all reference users.
    ranks: str
    ranks_sha256: str


class FitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Shadow models and the audit classifier; provenance-fit.json."""

    schema: str = SCHEMA
    settings: FitOptions
    # The user's own function that trained the shadows, as python:module:function.
    trained_by: str | None = None
    # Of the options and the vocabulary of all trainings, or of the name of that function.
    recipe_sha256: str
    # Of all texts of the reference users; it also salts the hashes below, so that these cannot be looked up in a table.
    reference_sha256: str
    # Whether the names of reference users are told apart by their case; where they are not, case does not matter.
    names_cased: bool
    # In the order of the corpus.
    reference: tuple[HashedUser, ...]
    shadows: tuple[Shadow, ...]
    # Why others could not be trained, or asked.
    left_out: tuple[str, ...] = ()
    # For targets that show all ranks; None if there is none, and `no_classifier` says why.
    classifier: AuditClassifier | None = None
    no_classifier: str = ""
    warnings: tuple[str, ...] = ()

    def hashed_name(self, name: str) -> str:
        """The hash under which a reference user of this name is recorded."""
        return name_hash(name, self.reference_sha256, cased=self.names_cased)


FITS = Document(
    record=FitRecord,
    schema=SCHEMA,
    file=FIT_FILE,
    title="shadow models",
    by="`coalmine provenance --only-fit`",
    others={"ranks-*.npz": "the ranks that each shadow model gives to the texts of reference users"},
    companions=lambda record: {shadow.ranks: shadow.ranks_sha256 for shadow in record.shadows},
    other_models=SHADOWS_FOLDER,
)


class ShadowRanks(NamedTuple):
    """What a shadow model says about the texts of all reference users.

    Attributes:
        ranks: of the tokens that count of all texts, one text after the other; from 0, and -1 for one that is not listed.
        lengths: how many of them each text has; 0 for a text that the model cannot read.
        ranked: how many tokens the model ranks; None where that is not known.
        top: the ranks of how many of the likeliest tokens are known; None for all.
        location: where the model is, if it can be loaded again.
    """

    ranks: IntArray
    lengths: IntArray
    ranked: int | None
    top: int | None
    location: str | None = None

    def features(
        self, histogram: RankHistogram, texts: Sequence[int], places: Sequence[Sequence[int]] | None = None
    ) -> FloatArray:
        """(users, width): the histogram of each user, with the vocabulary of this model, and NaN for a user of whom nothing could be read.

        `texts` is how many texts each user has, and `places` which of them are looked at; without it, all.
        """
        histogram = msgspec.structs.replace(histogram, vocabulary=self.ranked or histogram.vocabulary)
        of_texts = np.split(self.ranks, np.cumsum(self.lengths)[:-1])
        found = np.full((len(texts), histogram.width), np.nan)
        first = 0
        for user, number in enumerate(texts):
            chosen = range(number) if places is None else places[user]
            ranks = [of_texts[first + place] for place in chosen]
            if any(map(len, ranks)):
                found[user] = histogram.features(np.concatenate(ranks))
            first += number
        return found

    def why_not(self, histogram: RankHistogram) -> str | None:
        """Why ranks cannot be counted as for this target; None where they can be."""
        if self.top is not None and (histogram.top is None or histogram.top > self.top):
            return f"the shadow models list the {self.top:,} likeliest tokens only, and the target shows more"
        if self.ranked is None or (histogram.top or 1) > self.ranked:
            return "the shadow models rank fewer tokens than the target lists"
        if msgspec.structs.replace(histogram, vocabulary=self.ranked).width != histogram.width:
            return "the vocabulary of the target or of the shadow models is smaller than the number of bins"
        return None

    def write(self, path: Path, key: str) -> None:
        """Write them to a file that only its owner can read. `key` says of what they are the ranks."""
        stream = io.BytesIO()
        limits = np.array([-1 if one is None else one for one in (self.ranked, self.top)], dtype=np.int64)
        said = np.frombuffer(msgspec.json.encode([key, self.location]), dtype=np.uint8)
        np.savez_compressed(stream, ranks=self.ranks, lengths=self.lengths, limits=limits, said=said)
        with whole_file(path, mode=PRIVATE) as temporary:
            temporary.write_bytes(stream.getvalue())


def read_ranks(path: Path, key: str | None = None) -> ShadowRanks | None:
    """The ranks in a file; None where they are those of something else than `key`."""
    with np.load(path, allow_pickle=False) as saved:
        of, location = msgspec.json.decode(saved["said"].tobytes(), type=tuple[str, str | None])
        ranked, top = (None if one < 0 else int(one) for one in saved["limits"])
        found = ShadowRanks(saved["ranks"], saved["lengths"], ranked, top, location)
    return found if key in {None, of} else None


class Fit:
    """Shadow models and audit classifier, from `fit_provenance` or `load_fit`; `record` is provenance-fit.json in `directory`.

    >>> fit = load_fit("fit/")  # doctest: +SKIP
    >>> len(fit.shadows), fit.record.classifier.examples  # doctest: +SKIP
    (10, 3000)
    """

    def __init__(self, record: FitRecord, directory: Path, live: Sequence[Model | None] = ()) -> None:
        self.record, self.directory = record, directory
        self._live = list(live) or [None] * len(record.shadows)

    @property
    def sha256(self) -> str:
        """That of provenance-fit.json."""
        return sha256_of_file(self.directory / FIT_FILE)

    @property
    def no_shadows(self) -> str | None:
        """Why the shadow models cannot be asked any more; None where they can."""
        pairs = zip(self.record.shadows, self._live, strict=True)
        if any(shadow.location is None and model is None for shadow, model in pairs):
            return "the shadow models were trained by a function that did not save them"
        return None

    @cached_property
    def shadows(self) -> tuple[Model, ...]:
        """The shadow models, loaded when they are first needed; none where they cannot be loaded, see `no_shadows`."""
        if self.no_shadows is not None:
            return ()
        return tuple(
            self._loaded(shadow) if live is None else live
            for shadow, live in zip(self.record.shadows, self._live, strict=True)
        )

    def trained_on(self, users: Sequence[User]) -> NDArray[np.bool_]:
        """(users, shadows): whether each shadow was trained on each user; those who are not reference users are in none."""
        rows = {user.name: row for row, user in enumerate(self.record.reference)}
        own = [rows.get(self.record.hashed_name(user.name), -1) for user in users]
        members = [set(shadow.users) for shadow in self.record.shadows]
        found = [[row in some for some in members] for row in own]
        return np.array(found, dtype=bool).reshape(len(users), len(members))

    def made_with(self, users: Sequence[User]) -> bool:
        """Whether these are the reference users that the fit was made with, with the same texts and in the same order."""
        names = [self.record.hashed_name(user.name) for user in users]
        same = names == [user.name for user in self.record.reference]
        return same and documents_of(users).sha256 == self.record.reference_sha256

    def classifier_for(
        self, histogram: RankHistogram, places: Sequence[Sequence[int]] | None = None
    ) -> tuple[AuditClassifier | None, str]:
        """The audit classifier for a target whose ranks are counted in this way; or None, and why there is none.

        `places` are the texts of each reference user that are looked at: as many as of a suspect. Without it, all.
        """
        settings, known = self.record.settings, self.record.classifier
        counted = (settings.bins, settings.scaling, settings.top)
        alike = counted == (histogram.bins, histogram.scaling, histogram.top)
        if places is None and alike and known is not None and known.width == histogram.width:
            return known, ""
        return _fitted(self.record, self.directory, histogram, places)

    def _loaded(self, shadow: Shadow) -> Model:
        # The user's own function says where its models are; ours are found from the directory of the fit.
        location = shadow.location or ""
        where = location if shadow.weights_sha256 is None else self.directory / location
        model: Model = load_model(where)
        if shadow.weights_sha256 not in {None, model.describe().get("weights_sha256")}:
            raise AlteredError(
                f"{where} is another model than the one that was fitted with: its SHA-256 is not the one in {FIT_FILE}; fit again"
            )
        return model


def load_fit(path: str | os.PathLike[str]) -> Fit:
    """A fit that was written before: its directory, or the provenance-fit.json in it.

    >>> load_fit("fit").settings.pairs  # doctest: +SKIP
    5
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
    shadows_at: str | os.PathLike[str] | None = None,
    engine: Engine | str | None = None,
    progress: Progress | None = None,
    snapshot_seconds: float | None = None,
    **changes: Any,
) -> Fit:
    """Train shadow models on random halves of the reference users, and fit the audit classifier to the ranks that they give.

    Shadows that are there already are not trained again, and a fit that was stopped resumes when the same call is made again. The fields
    of `FitOptions` can be given as keywords, such as `shadows=4`, instead of a record or on top of one.

    >>> fit = fit_provenance(read_users("reference.jsonl", Fields(user="who")), "fit/", like="model/")  # doctest: +SKIP
    >>> fit.record.classifier.examples  # doctest: +SKIP
    3000

    Args:
        reference: users whose texts are like those that the target was trained on, and who are not suspects. From unlabeled text,
            `artificial_users` makes some.
        out: the directory for provenance-fit.json and the shadow models.
        options: how many shadows there are, how they are trained, and how ranks are counted.
        like: a model that `coalmine train` wrote, usually the target: shadows are trained as it was, with its vocabulary.
        preset: a name of `PRESETS`, for a target of another kind. Without any, that of the paper for texts or for pairs.
        training: options of the trainings that differ; a list of values is for the shadows in turn, such as `{"hidden": [64, 96]}`.
        train: your own function instead, from the texts of some users to a model, or to the location of one for `load_model`; or its name,
            python:module:function. It runs in this process.
        shadows_at: where shadow models are kept; by default in `out`. Several fits may share them.
        engine: where shadows are trained and asked, such as "processes:2"; the results are the same.
        progress: is advanced by characters that are trained on, and by texts that are asked about.
        snapshot_seconds: how often each training is saved, in seconds; by default every 10.
        changes: fields of `FitOptions`.
    """
    given = FitOptions.of(options, changes)
    given.check()
    check_reference(reference)
    require_scikit_learn()
    given, how = _how(reference, given, like, preset, training, train)
    folder, shown = Path(out), progress or Silent()
    trained_on = halves(len(reference), given.shadows, seed=given.seed)
    check_places(folder, FIT_FILE, UNITS_FILE, *map(_ranks_file, range(given.shadows)))
    digest = documents_of(reference).sha256
    cased = told_by_case(user.name for user in reference)
    record = FitRecord(
        settings=given,
        trained_by=how.name if isinstance(how, OwnTraining) else None,
        recipe_sha256=how.sha256,
        reference_sha256=digest,
        names_cased=cased,
        reference=hashed_users(reference, digest, cased=cased),
        shadows=(),
    )
    with no_empty_directory(folder), sole_use(folder):
        _refuse_another(folder, record)
        ledger = Ledger(folder, seconds_between_saves=snapshot_seconds)
        # Created before the first training, so that reports see by it what the models in `shadows` are.
        ledger.begin(_RUN, instead=not os.path.lexists(folder / UNITS_FILE))
        with open_engine("here" if isinstance(how, OwnTraining) else engine) as opened:
            if isinstance(how, OwnTraining):
                made = _made_by(how, [_users_of(reference, column) for column in trained_on.T], shown)
            else:
                place = folder / SHADOWS_FOLDER if shadows_at is None else Path(shadows_at)
                trained = train_shadows(
                    reference,
                    trained_on,
                    how,
                    place,
                    seed=given.seed,
                    engine=opened,
                    progress=shown,
                    snapshot_seconds=snapshot_seconds,
                )
                made = _made_with(trained, folder)
            ask = partial(_ask_ranks, users=reference, engine=opened, ledger=ledger, progress=shown)
            shadows: list[Shadow] = []
            live: list[Model | None] = []
            left_out: list[tuple[int, CoalmineError]] = []
            for number, one in enumerate(made):
                path = folder / _ranks_file(number)
                try:
                    if isinstance(one, CoalmineError):
                        raise one
                    ranks, model = _known_or_asked(one, path, digest, ask)
                except (NotMeasurableError, NoNumberError, ModelOutputError) as problem:
                    left_out.append((number, problem))
                    continue
                _refuse_same_place(ranks.location, path, shadows)
                shadows.append(
                    Shadow(
                        users=tuple(np.flatnonzero(trained_on[:, number]).tolist()),
                        location=ranks.location,
                        ranks=path.name,
                        ranks_sha256=sha256_of_file(path),
                        **one.facts,
                    )
                )
                live.append(model)
        if not shadows:
            raise left_out[0][1]
        reasons = tuple(f"shadow {number + 1}: {problem}" for number, problem in left_out)
        record = msgspec.structs.replace(record, shadows=tuple(shadows), left_out=reasons)
        record = _with_classifier(record, folder)
        FITS.save(folder, record)
        ledger.forget()
        remove_abandoned(folder)
    return Fit(record, folder, live)


def _users_of(users: Sequence[User], chosen: NDArray[np.bool_]) -> list[User]:
    return [user for user, is_chosen in zip(users, chosen, strict=True) if is_chosen]


def _refuse_same_place(location: str | None, path: Path, shadows: Sequence[Shadow]) -> None:
    """Refuse a model of the user's own function that replaced an earlier one, which audits would then ask in its place."""
    for shadow in shadows:
        if location is not None and shadow.location == location:
            for ranks in (path.with_name(shadow.ranks), path):
                ranks.unlink()
            raise InputError(
                f"your function put two shadow models in one place, {location}, so that one replaced the other; return another place for "
                "each"
            )


class _Made(NamedTuple):
    """A shadow model: what it depends on, how to get it and where it is, and what is recorded of it besides."""

    of: list[Any]
    get: Callable[[], tuple[Model, str | None]]
    facts: dict[str, Any]


def _made_with(
    trained: Sequence[TrainedModel | CoalmineError], folder: Path
) -> Iterator[_Made | CoalmineError]:
    """Reference models, which are all trained before the first is asked."""
    for one in trained:
        if isinstance(one, CoalmineError):
            yield one
            continue
        location, weights = os.path.relpath(one.path, folder), one.record.weights_sha256
        facts = {"weights_sha256": weights, "options": one.record.options}

        def load(path: Path = one.path, location: str = location) -> tuple[Model, str | None]:
            return load_model(path), location

        yield _Made([location, weights], load, facts)


def _made_by(
    own: OwnTraining, parts: Sequence[Sequence[User]], progress: Progress
) -> Iterator[_Made | CoalmineError]:
    """Models of the user's own function, each trained when it is to be asked."""
    for number, users in enumerate(parts):

        def train(users: Sequence[User] = users, number: int = number) -> tuple[Model, str | None]:
            progress.start(f"Training shadow {number + 1}", 1)
            model = own.trained([text for user in users for text in user.texts])
            progress.advance(1)
            progress.finish()
            return model

        yield _Made([own.name, documents_of(users).sha256], train, {})


def _how(
    reference: Sequence[User],
    options: FitOptions,
    like: str | os.PathLike[str] | None,
    preset: str | None,
    training: Mapping[str, Any] | None,
    train: Train | str | None,
) -> tuple[FitOptions, Recipe | OwnTraining]:
    """How shadows are trained, and the options with what follows from it."""
    named = [name for name, one in (("like", like), ("preset", preset), ("train", train)) if one is not None]
    if len(named) > 1:
        raise InputError(f"shadow models are trained in one way, got {' and '.join(named)}; give one of them")
    if train is not None and (training or options.recipe != "same"):
        raise InputError(
            "your own function decides how shadow models are trained; leave out the recipe and options of trainings"
        )
    if like is None:
        options = msgspec.structs.replace(options, vocabulary="own")
    if train is not None:
        return options, OwnTraining.of(train)
    if like is not None:
        recipe = recipe_like(like, own_vocabulary=options.vocabulary == "own")
    else:
        is_pairs = documents_of(reference).sources is not None
        recipe = recipe_of_preset(preset or ("provenance-translation" if is_pairs else "provenance-words"))
    recipe = mismatched(recipe) if options.recipe == "mismatched" else recipe
    return options, varied(recipe, training or {})


def _refuse_another(folder: Path, record: FitRecord) -> None:
    """Refuse a directory that holds a fit to other users or with other trainings; how ranks are counted may change."""
    if not (folder / FIT_FILE).exists():
        return
    before, wanted = (
        (one.settings.deciding(), one.reference_sha256, one.recipe_sha256)
        for one in (FITS.alone(folder / FIT_FILE), record)
    )
    if before != wanted:
        raise InputError(
            f"{folder} already holds shadow models of other reference users or with other options; choose another directory, or remove it"
        )


@dataclass(frozen=True)
class RanksWork(ModelWork):
    """Texts to ask one model about, in units of a few thousand."""

    model: Model

    name = "provenance-ranks/3"

    @property
    def models(self) -> tuple[Model, ...]:
        """The one that is asked."""
        return (self.model,)

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Ask about the texts of a unit."""
        texts = [UserText(*text) for text in zip(*unit.inputs, strict=True)]
        views, problems = look_at_each(self.model, view_of(self.model), texts)
        if problems and len(problems) == len(texts):
            raise problems[0]
        running.advance(len(texts))
        ranks = [np.empty(0, dtype=np.int32) if view is None else view.ranks for view in views]
        lengths = np.array([len(one) for one in ranks], dtype=np.int32)
        return {"ranks": np.concatenate(ranks).astype(np.int32), "lengths": lengths}


def _ask_ranks(
    model: Model, users: Sequence[User], *, engine: Engine, ledger: Ledger, progress: Progress
) -> ShadowRanks:
    """The ranks that a model gives to the tokens of all users; what an earlier run asked before it was stopped is not asked again.

    A text that the model has no number for has none; if it has none for any, the first problem is raised.
    """
    texts = [text for user in users for text in user.texts]
    units = text_units(texts, _TEXTS_AT_A_TIME)
    found, problems = answers(
        RanksWork(model), units, engine=engine, ledger=ledger, progress=progress, task="Asking a shadow"
    )
    for number, problem in problems.items():
        if isinstance(problem, WorkerLostError):  # another run may have more memory
            raise problem
        nothing = np.zeros(units[number].size, dtype=np.int32)
        found[number] = {"ranks": nothing[:0], "lengths": nothing}
    view = view_of(model)
    ranks, lengths = (np.concatenate([part[name] for part in found]) for name in ("ranks", "lengths"))
    return ShadowRanks(ranks, lengths, view.ranked, view.top)


def _known_or_asked(
    made: _Made, path: Path, digest: str, ask: Callable[[Model], ShadowRanks]
) -> tuple[ShadowRanks, Model | None]:
    """The ranks of a shadow, from its file or by asking it; and the model, if it was asked now and is nowhere else."""
    key = hashlib.sha256(to_json([*made.of, digest])).hexdigest()
    known = read_ranks(path, key) if path.is_file() else None
    if known is not None:
        return known, None
    model, location = made.get()
    ranks = ask(model)._replace(location=location)
    ranks.write(path, key)
    return ranks, None if made.facts else model


def _ranks_file(number: int) -> str:
    return f"ranks-{number + 1}.npz"


def _with_classifier(record: FitRecord, folder: Path) -> FitRecord:
    """The same with a classifier for targets that show all ranks, or as many as the options say."""
    options, first = record.settings, read_ranks(folder / record.shadows[0].ranks)
    ranked = 1 if first is None or first.ranked is None else first.ranked
    vocabulary = max(ranked, options.top or 1)
    histogram = RankHistogram(
        vocabulary=vocabulary, bins=options.bins, scaling=options.scaling, top=options.top
    )
    classifier, why = _fitted(record, folder, histogram)
    warned = [f"a shadow model is left out: {one}" for one in record.left_out]
    if classifier is not None and not classifier.converged:
        warned.append("the audit classifier did not converge, so that its scores are not the best possible")
    return msgspec.structs.replace(record, classifier=classifier, no_classifier=why, warnings=tuple(warned))


def _fitted(
    record: FitRecord,
    directory: Path,
    histogram: RankHistogram,
    places: Sequence[Sequence[int]] | None = None,
) -> tuple[AuditClassifier | None, str]:
    """A classifier from the ranks that the shadows gave, counted as `histogram` says; or None, and why there is none."""
    texts = [len(user.texts) for user in record.reference]
    features, labels = [], []
    for shadow in record.shadows:
        ranks = read_ranks(directory / shadow.ranks)
        if ranks is None:
            continue
        why = ranks.why_not(histogram)
        if why is not None:
            return None, why
        found = ranks.features(histogram, texts, places)
        read = ~np.isnan(found).any(axis=1)
        features.append(found[read])
        labels.append(np.isin(np.arange(len(texts)), shadow.users)[read])
    try:
        return fit_classifier(np.concatenate(features), np.concatenate(labels)), ""
    except NotMeasurableError as problem:
        return None, str(problem)


def require_scikit_learn() -> None:
    """Raise a clear error if scikit-learn is not installed; called before shadow models are trained for hours."""
    if find_spec("sklearn") is None:
        raise MissingExtraError("fitting the audit classifier", "scikit-learn", "provenance")


def fit_classifier(features: FloatArray, trained_on: ArrayLike) -> AuditClassifier:
    """Fit scikit-learn's LinearSVC, with its default options, to (examples, width) features of users under shadow models.

    `trained_on` is whether that shadow was trained on that user. The same numbers always give the same classifier: the problem that
    LinearSVC solves has one solution, and it is solved in its primal form, which draws no random numbers.

    >>> found = fit_classifier(np.array([[0.0], [0.2], [0.8], [1.0]]), [False, False, True, True])
    >>> (found.score([[0.1], [0.9]]) > 0).tolist()
    [False, True]
    """
    require_scikit_learn()
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    labels = np.asarray(trained_on, dtype=bool)
    if labels.all() or not labels.any():
        raise NotMeasurableError(
            f"the audit classifier needs users that shadow models were trained on and users that they were not, and has {len(labels):,} of "
            "one kind only; give more reference users"
        )
    mean, scale = features.mean(axis=0), features.std(axis=0)
    # A bin that is equally full for all tells nothing; its deviation may still be a rounding error.
    scale[scale <= 10 * np.finfo(np.float64).eps * np.abs(mean)] = 1.0
    machine = LinearSVC(dual=False, random_state=0)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        machine.fit((features - mean) / scale, labels)
    return AuditClassifier(
        mean=tuple(map(float, mean)),
        scale=tuple(map(float, scale)),
        coefficients=tuple(map(float, machine.coef_[0])),
        intercept=float(machine.intercept_[0]),
        examples=len(labels),
        members=int(labels.sum()),
        converged=not any(issubclass(one.category, ConvergenceWarning) for one in raised),
    )
