"""`fit_provenance`: shadow models on halves of the reference users, and the audit classifier, into a directory that audits reuse."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.audits.provenance.classifier import require_scikit_learn
from coalmine.audits.provenance.fit import Fit, fitted
from coalmine.audits.provenance.fit_options import FitOptions
from coalmine.audits.provenance.fit_results import (
    FIT_FILE,
    FITS,
    SHADOWS_FOLDER,
    FitRecord,
    Shadow,
    hashed_users,
)
from coalmine.audits.provenance.own_training import OwnTraining, Train
from coalmine.audits.provenance.shadow_ranks import ShadowRanks, ask_ranks, read_ranks
from coalmine.audits.provenance.shadows import (
    Recipe,
    check_reference,
    documents_of,
    halves,
    recipe_like,
    recipe_of_preset,
    train_shadows,
    varied,
)
from coalmine.audits.provenance.text_hashes import told_by_case
from coalmine.audits.provenance.users import User
from coalmine.engines.engine import Engine, open_engine
from coalmine.engines.ledger import UNITS_FILE, Ledger
from coalmine.errors import (
    CoalmineError,
    ContradictionError,
    InputError,
    NoNumberError,
    NotMeasurableError,
)
from coalmine.models.loading import load_model
from coalmine.models.protocols import Model
from coalmine.progress import Progress, Silent
from coalmine.statistics.provenance.rank_histograms import RankHistogram
from coalmine.storage.directories import sole_use
from coalmine.storage.files import check_places, no_empty_directory, remove_abandoned, sha256_of_file, to_json

_RUN = "provenance fit/1"


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
    folder = Path(out)
    trained_on = halves(len(reference), given.shadows, seed=given.seed)
    check_places(folder, FIT_FILE, UNITS_FILE, *(_ranks_file(number) for number in range(given.shadows)))
    digest = documents_of(reference).sha256
    with no_empty_directory(folder), sole_use(folder):
        _refuse_another(folder, given, digest, how)
        shadows = _Shadows(reference, trained_on, folder, digest, given.seed)
        ledger = Ledger(folder, seconds_between_saves=snapshot_seconds)
        # Created before the first training, so that reports see by it what the models in `shadows` are.
        ledger.begin(_RUN, instead=not os.path.lexists(folder / UNITS_FILE))
        with open_engine(engine) as opened:
            if isinstance(how, OwnTraining):
                found = list(shadows.trained_by(how, ledger, progress or Silent()))
            else:
                place = folder / SHADOWS_FOLDER if shadows_at is None else Path(shadows_at)
                found = list(
                    shadows.trained_with(how, place, opened, ledger, progress or Silent(), snapshot_seconds)
                )
        if not found:
            raise shadows.left_out[min(shadows.left_out)]
        lost = tuple(
            f"shadow {number + 1}: {problem}" for number, problem in sorted(shadows.left_out.items())
        )
        record = _record(reference, given, digest, how, [one.facts for one in found], lost, folder)
        FITS.save(folder, record)
        ledger.forget()
        remove_abandoned(folder)
    return Fit(record, folder, [one.model for one in found])


def load_fit(path: str | os.PathLike[str]) -> Fit:
    """A fit that was written before: its directory, or the provenance-fit.json in it.

    >>> load_fit("fit/").overlap(suspects).users  # doctest: +SKIP
    ()
    """
    place = Path(path)
    record = FITS.load(place)
    if record.names_cased is None:
        raise InputError(
            f"{place} was written by an earlier version, and cannot tell whether suspects are among its reference users; run the same "
            "`coalmine provenance fit` again, which keeps its shadow models"
        )
    drawn = halves(len(record.reference), record.settings.shadows, seed=record.settings.seed)
    for number, shadow in enumerate(record.shadows):
        if shadow.users != tuple(np.flatnonzero(drawn[:, number]).tolist()):
            raise ContradictionError(
                f"{place} says that shadow {number + 1} was trained on other reference users than its seed draws; restore it, or fit again"
            )
    return Fit(record, place if place.is_dir() else place.parent)


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
    if train is not None:
        if training or options.recipe != "same":
            raise InputError(
                "your own function decides how shadow models are trained; leave out the recipe and options of trainings"
            )
        return msgspec.structs.replace(options, vocabulary="own"), OwnTraining.of(train)
    if like is not None:
        own = options.vocabulary == "own"
        recipe = recipe_like(like, recipe=options.recipe, own_vocabulary=own)
    else:
        options = msgspec.structs.replace(options, vocabulary="own")
        is_pairs = documents_of(reference).sources is not None
        usual = "provenance-translation" if is_pairs else "provenance-words"
        recipe = recipe_of_preset(preset or usual, recipe=options.recipe)
    return options, varied(recipe, training or {})


class _AskedShadow(NamedTuple):
    """A shadow model once it was asked; the model is None if it was asked by an earlier run, and is not loaded."""

    facts: Shadow
    model: Model | None


class _Shadows:
    """The shadow models of a fit, each trained and then asked about all reference users; what is on disk already is not done again.

    Attributes:
        left_out: by their numbers, why some of them could not be trained, or have no number for any text.
    """

    def __init__(
        self,
        reference: Sequence[User],
        trained_on: NDArray[np.bool_],
        folder: Path,
        digest: str,
        seed: int,
    ) -> None:
        self._reference, self._trained_on, self._folder = reference, trained_on, folder
        self._digest, self._seed = digest, seed
        self.left_out: dict[int, CoalmineError] = {}

    def trained_with(
        self,
        recipe: Recipe,
        place: Path,
        engine: Engine,
        ledger: Ledger,
        progress: Progress,
        snapshot_seconds: float | None,
    ) -> Iterator[_AskedShadow]:
        """Reference models, all trained before the first is asked."""
        trained = train_shadows(
            self._reference,
            self._trained_on,
            recipe,
            place,
            seed=self._seed,
            engine=engine,
            progress=progress,
            snapshot_seconds=snapshot_seconds,
        )
        for number, one in enumerate(trained):
            if isinstance(one, CoalmineError):
                self.left_out[number] = one
                continue
            location = os.path.relpath(one.path, self._folder)
            of = [location, one.record.weights_sha256]
            try:
                ranks, _ = self._ranks(number, of, _loading(one.path, location), engine, ledger, progress)
            except (NotMeasurableError, NoNumberError) as problem:
                self.left_out[number] = problem
                continue
            facts = self._facts(number, ranks)
            yield _AskedShadow(
                msgspec.structs.replace(
                    facts, weights_sha256=one.record.weights_sha256, options=one.record.options
                ),
                None,
            )

    def trained_by(self, own: OwnTraining, ledger: Ledger, progress: Progress) -> Iterator[_AskedShadow]:
        """Models of the user's own function, each asked in this process as soon as it is trained."""
        places: dict[str, int] = {}
        with open_engine("here") as here:
            for number in range(self._trained_on.shape[1]):
                chosen = [self._reference[user] for user in self._users_of(number)]

                def made(chosen: Sequence[User] = chosen, number: int = number) -> tuple[Model, str | None]:
                    progress.start(f"Training shadow {number + 1}", 1)
                    model = own.trained([text for user in chosen for text in user.texts])
                    progress.advance(1)
                    progress.finish()
                    return model

                texts = documents_of(chosen).sha256
                ranks, model = self._ranks(number, [own.name, texts], made, here, ledger, progress)
                self._refuse_same_place(own, ranks.location, number, places)
                yield _AskedShadow(self._facts(number, ranks), model)

    def _refuse_same_place(
        self, own: OwnTraining, location: str | None, number: int, places: dict[str, int]
    ) -> None:
        """Refuse a model that replaced an earlier one, which audits would then ask in its place."""
        if location is None or places.setdefault(location, number) == number:
            return
        for one in (places[location], number):
            (self._folder / _ranks_file(one)).unlink()
        raise InputError(
            f"{own.name} put shadows {places[location] + 1} and {number + 1} in one place, {location}, so that one replaced the other; "
            "return another place for each"
        )

    def _ranks(
        self,
        number: int,
        of: Sequence[Any],
        made: Callable[[], tuple[Model, str | None]],
        engine: Engine,
        ledger: Ledger,
        progress: Progress,
    ) -> tuple[ShadowRanks, Model | None]:
        """The ranks of one shadow, from its file or by asking it; and the model, if it was asked now."""
        path = self._folder / _ranks_file(number)
        key = hashlib.sha256(to_json([*of, self._digest])).hexdigest()
        known = read_ranks(path, key) if path.is_file() else None
        if known is not None:
            return known, None
        model, location = made()
        task = f"Asking shadow {number + 1} of {self._trained_on.shape[1]}"
        ranks = ask_ranks(model, self._reference, engine=engine, ledger=ledger, progress=progress, task=task)
        ranks = ranks._replace(location=location)
        ranks.write(path, key)
        return ranks, model

    def _users_of(self, number: int) -> tuple[int, ...]:
        return tuple(np.flatnonzero(self._trained_on[:, number]).tolist())

    def _facts(self, number: int, ranks: ShadowRanks) -> Shadow:
        name = _ranks_file(number)
        return Shadow(
            users=self._users_of(number),
            location=ranks.location,
            ranks=name,
            ranks_sha256=sha256_of_file(self._folder / name),
        )


def _loading(path: Path, location: str) -> Callable[[], tuple[Model, str | None]]:
    return lambda: (load_model(path), location)


def _ranks_file(number: int) -> str:
    return f"ranks-{number + 1}.npz"


def _record(
    reference: Sequence[User],
    options: FitOptions,
    digest: str,
    how: Recipe | OwnTraining,
    shadows: Sequence[Shadow],
    left_out: tuple[str, ...],
    folder: Path,
) -> FitRecord:
    """All that was found, with a classifier for targets that show all ranks, or as many as the options say."""
    cased = told_by_case(user.name for user in reference)
    record = FitRecord(
        settings=options,
        trained_by=how.name if isinstance(how, OwnTraining) else None,
        recipe_sha256=how.sha256,
        reference_sha256=digest,
        names_cased=cased,
        reference=hashed_users(reference, digest, cased=cased),
        shadows=tuple(shadows),
        left_out=left_out,
        classifier=None,
    )
    first = read_ranks(folder / shadows[0].ranks)
    ranked = 1 if first is None or first.ranked is None else first.ranked
    histogram = RankHistogram(
        vocabulary=max(ranked, options.top or 1), bins=options.bins, scaling=options.scaling, top=options.top
    )
    classifier, why = fitted(record, folder, histogram)
    warnings = [f"a shadow model is left out: {one}" for one in left_out]
    if classifier is not None and not classifier.converged:
        warnings.append("the audit classifier did not converge, so that its scores are not the best possible")
    return msgspec.structs.replace(record, classifier=classifier, no_classifier=why, warnings=tuple(warnings))


def _refuse_another(folder: Path, options: FitOptions, digest: str, how: Recipe | OwnTraining) -> None:
    """Refuse a directory that holds a fit to other users or with other trainings; how ranks are counted may change."""
    if not (folder / FIT_FILE).exists():
        return
    before = FITS.alone(folder / FIT_FILE)
    wanted = (options.deciding(), digest, how.sha256)
    if (before.settings.deciding(), before.reference_sha256, before.recipe_sha256) != wanted:
        raise InputError(
            f"{folder} already holds shadow models of other reference users or with other options; choose another directory, or remove it"
        )
