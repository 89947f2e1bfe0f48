"""One run of a bench: what is missing is trained or rounded and audited, and every finished model is kept."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from coalmine.audits.defenses.auditing import AuditedModel, Auditor, bound_of
from coalmine.audits.defenses.corpora import BenchCorpora, CorporaMaker
from coalmine.audits.defenses.defense import NONE, Defense
from coalmine.audits.defenses.making import MadeModel, ModelMaker
from coalmine.audits.defenses.options import DefenseOptions
from coalmine.audits.defenses.results import (
    BENCHES,
    RESULT_FILE,
    TRAININGS_FOLDER,
    Bench,
    BenchCanary,
    BenchedModel,
    FailedTraining,
)
from coalmine.audits.defenses.rows import with_rows
from coalmine.audits.defenses.training import BenchTraining, BenchWork
from coalmine.audits.exposure.results import EXPOSURES, ExposureResult
from coalmine.audits.provenance.own_training import OwnTraining
from coalmine.engines.engine import Engine
from coalmine.engines.ledger import UNITS_FILE, Ledger
from coalmine.errors import CoalmineError, InputError, WriteError
from coalmine.evidence.directories import audit_directory
from coalmine.progress import Progress
from coalmine.storage.work_files import remove_abandoned
from coalmine.training.finetuning.options import FinetuningOptions
from coalmine.training.options import TrainingOptions

# The keys of its units tell runs apart.
_RUN = "defend/1"


class _KeyedTraining(NamedTuple):
    """A training with its key, by which it is known to be there already."""

    training: BenchTraining
    key: str

    @property
    def name(self) -> tuple[str, int]:
        """Its defense and its seed."""
        return self.training.name


class BenchRun:
    """One bench: what it is about, and where its files go."""

    def __init__(
        self,
        maker: CorporaMaker,
        defenses: tuple[Defense, ...],
        functions: Mapping[str, OwnTraining],
    ) -> None:
        self._maker, self._defenses, self._functions = maker, defenses, functions
        self._folder, self._options = maker.folder, maker.options

    def result(self, engine: Engine, progress: Progress) -> Bench:
        """Train and audit what is missing, and write after each model."""
        ledger = Ledger(self._folder)
        # Created before the first training, so that reports see by it whose the models in `trainings` are.
        ledger.begin(_RUN, instead=not os.path.lexists(self._folder / UNITS_FILE))
        corpora = self._maker.made(dict.fromkeys(one.corpus for one in self._defenses), engine, progress)
        work = BenchWork(
            self._maker.recipe,
            {name: one.text for name, one in corpora.by_name.items()},
            tuple(self._training(one, seed) for one in self._defenses for seed in self._seeds),
        )
        bench = self._begun(corpora)
        asked = [
            _KeyedTraining(one, self._key(work, place, corpora)) for place, one in enumerate(work.trainings)
        ]
        auditor = Auditor(
            corpora,
            self._options,
            bench.bound_confidence,
            self._folder / TRAININGS_FOLDER,
            engine,
        )
        known = self._known(bench, asked, auditor)
        bench = self._saved(msgspec.structs.replace(bench, models=known))
        there = {(one.defense, one.seed) for one in known}
        missing = [place for place, one in enumerate(asked) if one.name not in there]
        before = {(one.defense, one.seed): one.seconds for one in known}
        models = ModelMaker(work, self._functions, corpora, before)
        models.train(missing, ledger, engine, progress)
        progress.start("Auditing", len(missing))
        for place in missing:
            bench = self._saved(self._with_model(bench, place, asked[place], models, corpora, auditor))
            progress.advance(1, asked[place].training.label)
        progress.finish()
        bench = self._saved(msgspec.structs.replace(bench, finished=True))
        ledger.forget()
        remove_abandoned(self._folder)
        return bench

    @property
    def _seeds(self) -> range:
        return range(self._options.seed, self._options.seed + self._options.seeds)

    def _training(self, defense: Defense, seed: int) -> BenchTraining:
        options = self._maker.recipe.options(defense.changes(), defense.name, seed, self._options.delta)
        directory = self._folder / TRAININGS_FOLDER / f"{defense.folder}-seed{seed}"
        return BenchTraining(defense, seed, directory, options)

    def _key(self, work: BenchWork, place: int, corpora: BenchCorpora) -> str:
        """What decides a model: its training, or the model that it was made from."""
        one = work.trainings[place]
        if one.defense.function is not None:
            return f"{one.defense.function} {corpora.planted.text.sha256} {one.seed}"
        if one.defense.altering() is not None:
            [source] = [
                other
                for other, training in enumerate(work.trainings)
                if training.defense.name == NONE and training.seed == one.seed
            ]
            return f"{one.defense.name} of {self._key(work, source, corpora)}"
        return work.key(place)

    def _begun(self, corpora: BenchCorpora) -> Bench:
        """A bench without models."""
        canaries, planting = corpora.planted.canaries, self._maker.planting
        usual = self._maker.recipe.usual
        populations = len(planting.repeat) + (len(planting.repeat) > 1)
        error = (1.0 - self._options.confidence) / (populations * self._options.seeds)
        return Bench(
            corpus_sha256=corpora.sha256,
            manifest_sha256=canaries.sha256,
            format=corpora.form.template,
            defenses=self._defenses,
            settings=self._options,
            planting=planting,
            training=usual if isinstance(usual, TrainingOptions) else None,
            finetuning=usual if isinstance(usual, FinetuningOptions) else None,
            base=self._maker.recipe.base,
            bound_confidence=1.0 - error,
            most_bits=math.log2(corpora.form.size),
            canaries=tuple(
                BenchCanary(canary_id=one.canary_id, copies=one.repetitions, planted=one.planted)
                for one in canaries
            ),
        )

    def _known(
        self, bench: Bench, asked: Sequence[_KeyedTraining], auditor: Auditor
    ) -> tuple[BenchedModel, ...]:
        """The models that an earlier run of this bench finished; a directory with another bench is refused."""
        path = self._folder / RESULT_FILE
        if not os.path.lexists(path):
            return ()
        before = BENCHES.alone(path)
        keys = {one.name: one.key for one in asked}
        others = [one for one in before.models if (one.defense, one.seed) not in keys]
        if others:
            raise InputError(
                f"{path} has models of {others[0].defense} with seed {others[0].seed}, which were not asked for now; name all that it has, "
                "or choose another directory"
            )
        facts = [(one.corpus_sha256, one.manifest_sha256, _deciding(one.settings)) for one in (before, bench)]
        if facts[0] != facts[1] or any(one.key != keys[one.defense, one.seed] for one in before.models):
            raise InputError(
                f"{path} is a bench with other options, or of another corpus; choose another directory, or remove this one"
            )
        if before.bound_confidence == bench.bound_confidence:
            return before.models
        return self._judged_again(before.models, auditor)

    def _judged_again(self, before: Sequence[BenchedModel], auditor: Auditor) -> tuple[BenchedModel, ...]:
        """Models of an earlier run at the confidence of this one, which depends on the number of seeds; no model is asked."""
        found = []
        for one in before:
            audit = audit_directory(self._folder / TRAININGS_FOLDER / one.folder)
            judged = auditor.judged(EXPOSURES.load(audit / "exposure"), one.privacy, audit / "membership")
            found.append(msgspec.structs.replace(one, bound=bound_of(judged), verdict=judged.verdict))
        return tuple(found)

    def _with_model(
        self,
        bench: Bench,
        place: int,
        asked: _KeyedTraining,
        models: ModelMaker,
        corpora: BenchCorpora,
        auditor: Auditor,
    ) -> Bench:
        """The bench with one more model, or with the reason why it has none."""
        one, corpus = asked.training, corpora.by_name[asked.training.defense.corpus]
        try:
            made = models.made(place)
            audit = auditor.audited(made.model, corpus, made.privacy, audit_directory(one.directory))
        except WriteError:
            raise
        except CoalmineError as problem:
            failed = FailedTraining(defense=one.defense.name, seed=one.seed, problem=str(problem))
            return msgspec.structs.replace(bench, failed=(*bench.failed, failed))
        copies = sum(canary.times_trained_on for canary in corpus.canaries if canary.planted)
        return msgspec.structs.replace(bench, models=(*bench.models, _benched(asked, made, copies, audit)))

    def _saved(self, bench: Bench) -> Bench:
        """The bench with its rows, as it is now on disk."""
        order = {one.name: place for place, one in enumerate(self._defenses)}
        models = sorted(bench.models, key=lambda one: (order[one.defense], one.seed))
        bench = with_rows(msgspec.structs.replace(bench, models=tuple(models)))
        BENCHES.save(self._folder, bench)
        return bench


def _deciding(options: DefenseOptions) -> DefenseOptions:
    """The options without the number of seeds, which may grow."""
    return msgspec.structs.replace(options, seeds=1)


def _benched(asked: _KeyedTraining, made: MadeModel, copies_left: int, audit: AuditedModel) -> BenchedModel:
    one = asked.training
    planted = {result.canary_id for result in audit.exposures.results if result.planted}
    searched = [found for found in audit.extracted if found.canary_id in planted and found.problem is None]
    return BenchedModel(
        defense=one.defense.name,
        seed=one.seed,
        folder=one.directory.name,
        key=asked.key,
        model=made.model.describe(),
        seconds=round(made.seconds, 3),
        corpus=one.defense.corpus,
        copies_left=copies_left,
        loss_bits=audit.loss_bits,
        exposures=tuple(_limits(result) for result in audit.exposures.results),
        extracted=tuple(found.canary_id for found in searched if found.extracted),
        searched=len(searched),
        bound=bound_of(audit.membership),
        privacy=made.privacy,
        verdict=audit.membership.verdict,
        recited=audit.recited,
        problems=audit.problems,
    )


def _limits(result: ExposureResult) -> tuple[float, float]:
    """What is known of an exposure: the value twice, a lower bound and the most that is possible, or anything."""
    estimate, most = result.estimate, result.most_possible_bits
    if estimate.value is not None:
        return estimate.value, estimate.value
    return (estimate.low or 0.0) if estimate.status == "lower_bound" else 0.0, most
