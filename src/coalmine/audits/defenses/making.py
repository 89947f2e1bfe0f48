"""Where the models of a bench come from: our trainings on an engine, the model without a defense altered, or the user's function."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from coalmine.audits.defenses.corpora import BenchCorpora
from coalmine.audits.defenses.defense import NONE, OWN, UNLEARN
from coalmine.audits.defenses.own_training import train_own
from coalmine.audits.defenses.training import BenchTraining, BenchWork
from coalmine.audits.provenance.own_training import OwnTraining
from coalmine.corpus.planting.manifest import MANIFEST_NAME
from coalmine.engines.engine import Engine
from coalmine.engines.ledger import Ledger
from coalmine.errors import CoalmineError, NotMeasurableError
from coalmine.models.loading import load_model
from coalmine.models.protocols import Model
from coalmine.progress import Progress
from coalmine.records.privacy import DescribedClaim, claim_of_model
from coalmine.storage.files import make_directory
from coalmine.training.quantizing.quantizing import quantize
from coalmine.training.unlearning.unlearning import unlearn


class MadeModel(NamedTuple):
    """A model, and the seconds that it took to train."""

    model: Model
    seconds: float

    @property
    def privacy(self) -> DescribedClaim | None:
        """What it says that its training claims, whoever trained it; None for one that is not private."""
        return claim_of_model(self.model.describe())


class ModelMaker:
    """Makes the models of a bench, by their places among its trainings.

    `before` are the seconds that trainings of an earlier run took, by defense and seed.
    """

    def __init__(
        self,
        work: BenchWork,
        functions: Mapping[str, OwnTraining],
        corpora: BenchCorpora,
        before: Mapping[tuple[str, int], float],
    ) -> None:
        self._work, self._functions, self._corpora = work, functions, corpora
        self._seconds = dict(before)
        self._failed: dict[tuple[str, int], CoalmineError] = {}

    def train(self, missing: Sequence[int], ledger: Ledger, engine: Engine, progress: Progress) -> None:
        """Run those trainings that are ours; what fails is raised when its model is asked for."""
        ours = [place for place in missing if self._is_trained_here(self._work.trainings[place])]
        if not ours:
            return
        units = [self._work.unit(place) for place in ours]
        progress.start("Training", sum(unit.size for unit in units))
        make_directory(self._work.trainings[ours[0]].directory.parent)
        for outcome in engine.map(self._work, units, ledger=ledger, progress=progress, store=self._work.save):
            name = self._work.trainings[ours[outcome.number]].name
            if outcome.arrays is None:
                self._failed[name] = outcome.problem or CoalmineError("no result; please report this")
            else:
                self._seconds[name] = float(outcome.arrays["seconds"])
        progress.finish()

    def made(self, place: int) -> MadeModel:
        """A model; raises where it could not be trained."""
        one = self._work.trainings[place]
        if one.name in self._failed:
            raise self._failed[one.name]
        if one.defense.kind == OWN:
            model, seconds = train_own(one, self._functions[one.defense.name], self._corpora.planted.path)
            self._seconds[one.name] = seconds
            return MadeModel(model, seconds)
        if one.defense.altering() is not None:
            self._seconds[one.name] = self._altered(one)
        return MadeModel(load_model(one.directory), self._seconds[one.name])

    def _is_trained_here(self, one: BenchTraining) -> bool:
        return one.defense.kind != OWN and one.defense.altering() is None

    def _altered(self, one: BenchTraining) -> float:
        """Round the weights of the model without a defense, or let it unlearn the canaries; the seconds that both took."""
        plain, options = (NONE, one.seed), one.defense.altering() or {}
        source = one.directory.with_name(f"{NONE}-seed{one.seed}")
        if plain not in self._seconds or not source.is_dir():
            raise NotMeasurableError(
                f"there is no model without a defense and with seed {one.seed} in a directory, which could be changed"
            )
        began, corpora = time.perf_counter(), self._corpora
        if one.defense.kind == UNLEARN:
            forgotten = corpora.planted.path.with_name(MANIFEST_NAME)
            unlearn(source, forgotten, one.directory, keep=corpora.part, seed=one.seed, fields=corpora.fields)
        else:
            quantize(source, one.directory, **options)
        return self._seconds[plain] + time.perf_counter() - began
