"""A fit as audits use it: shadow models, audit classifiers for what a target shows, and who is among the reference users."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.provenance.classifier import AuditClassifier, fit_classifier
from coalmine.audits.provenance.fit_results import FIT_FILE, FitRecord
from coalmine.audits.provenance.shadow_ranks import read_ranks
from coalmine.audits.provenance.shadows import documents_of
from coalmine.audits.provenance.users import User
from coalmine.errors import AlteredError, NotMeasurableError
from coalmine.models.loading import load_model
from coalmine.models.protocols import Model
from coalmine.statistics.provenance.rank_histograms import RankHistogram
from coalmine.storage.files import sha256_of_file


class AmongReference(NamedTuple):
    """Which of some users are reference users too, by name or by text.

    Attributes:
        users: the places of those whose names are among the reference users'.
        texts: how many of each user's texts are among the reference users' texts.
    """

    users: tuple[int, ...]
    texts: tuple[int, ...]


class Fit:
    """Shadow models and audit classifier, from `fit_provenance` or `load_fit`.

    >>> fit = load_fit("fit/")  # doctest: +SKIP
    >>> len(fit.shadows), fit.record.classifier.examples  # doctest: +SKIP
    (10, 3000)

    Attributes:
        record: what is in provenance-fit.json.
        directory: where it is.
    """

    def __init__(self, record: FitRecord, directory: Path, live: Sequence[Model | None] = ()) -> None:
        self.record, self.directory = record, directory
        self._live = list(live) or [None] * len(record.shadows)
        self._rows = {user.name: row for row, user in enumerate(record.reference)}
        self._classifiers: dict[RankHistogram, tuple[AuditClassifier | None, str]] = {}

    @property
    def sha256(self) -> str:
        """That of provenance-fit.json."""
        return sha256_of_file(self.directory / FIT_FILE)

    @property
    def no_shadows(self) -> str | None:
        """Why the shadow models cannot be asked any more; None where they can."""
        for shadow, model in zip(self.record.shadows, self._live, strict=True):
            if shadow.location is None and model is None:
                return "the shadow models were trained by a function that did not save them"
        return None

    @cached_property
    def shadows(self) -> tuple[Model, ...]:
        """The shadow models, loaded when they are first needed; none where they cannot be loaded, see `no_shadows`."""
        if self.no_shadows is not None:
            return ()
        return tuple(self._loaded(place) for place in range(len(self.record.shadows)))

    def trained_on(self, users: Sequence[User]) -> NDArray[np.bool_]:
        """(users, shadows): whether each shadow was trained on each user; those who are not reference users are in none."""
        table = self._table()
        rows = [self._rows.get(self.record.hashed_name(user.name)) for user in users]
        found = np.zeros((len(users), table.shape[1]), dtype=bool)
        for place, row in enumerate(rows):
            if row is not None:
                found[place] = table[row]
        return found

    def made_with(self, users: Sequence[User]) -> bool:
        """Whether these are the reference users that the fit was made with, with the same texts and in the same order."""
        record = self.record
        names = tuple(record.hashed_name(user.name) for user in users)
        return names == tuple(user.name for user in record.reference) and (
            documents_of(users).sha256 == record.reference_sha256
        )

    def overlap(self, users: Sequence[User]) -> AmongReference:
        """Who of these users is a reference user too, and how many of their texts are those of reference users."""
        texts = {text for user in self.record.reference for text in user.texts}
        named = (
            place for place, user in enumerate(users) if self.record.hashed_name(user.name) in self._rows
        )
        shared = (sum(self.record.hashed_text(text) in texts for text in user.texts) for user in users)
        return AmongReference(tuple(named), tuple(shared))

    def classifier_for(
        self, histogram: RankHistogram, places: Sequence[Sequence[int]] | None = None
    ) -> tuple[AuditClassifier | None, str]:
        """The audit classifier for a target whose ranks are counted in this way; or None, and why there is none.

        Args:
            histogram: how the target's ranks are counted, with its vocabulary.
            places: which texts of each reference user are looked at, in the order of the corpus: as many as of a suspect. Without it, all.
        """
        if places is not None:
            return fitted(self.record, self.directory, histogram, places)
        if histogram not in self._classifiers:
            self._classifiers[histogram] = self._classifier(histogram)
        return self._classifiers[histogram]

    def _classifier(self, histogram: RankHistogram) -> tuple[AuditClassifier | None, str]:
        settings, known = self.record.settings, self.record.classifier
        asked = (histogram.bins, histogram.scaling, histogram.top)
        same = asked == (settings.bins, settings.scaling, settings.top)
        if known is not None and same and known.width == histogram.width:
            return known, ""
        return fitted(self.record, self.directory, histogram)

    def _loaded(self, place: int) -> Model:
        shadow, live = self.record.shadows[place], self._live[place]
        if live is not None or shadow.location is None:
            return live  # type: ignore[return-value]  # one of the two is there
        # The user's own function says where its models are; ours are found from the directory of the fit.
        where = shadow.location if shadow.weights_sha256 is None else self.directory / shadow.location
        model: Model = load_model(where)
        found = model.describe().get("weights_sha256")
        if shadow.weights_sha256 is not None and found != shadow.weights_sha256:
            raise AlteredError(
                f"{where} is another model than the one that was fitted with: its SHA-256 is not the one in {FIT_FILE}; fit again"
            )
        return model

    def _table(self) -> NDArray[np.bool_]:
        """(reference users, shadows)."""
        table = np.zeros((len(self.record.reference), len(self.record.shadows)), dtype=bool)
        for number, shadow in enumerate(self.record.shadows):
            table[list(shadow.users), number] = True
        return table


def fitted(
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
        found = ranks.features(ranks.histogram(histogram), texts, places)
        read = ~np.isnan(found).any(axis=1)
        trained = np.zeros(len(texts), dtype=bool)
        trained[list(shadow.users)] = True
        features.append(found[read])
        labels.append(trained[read])
    try:
        return fit_classifier(np.concatenate(features), np.concatenate(labels)), ""
    except NotMeasurableError as problem:
        return None, str(problem)
