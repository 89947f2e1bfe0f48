"""Defend: models are trained with and without defenses on one planted corpus, and what each defense does to exposure and loss is measured.

After section 9 of "The Secret Sharer: Evaluating and Testing Unintended Memorization in Neural Networks" (Carlini, Liu, Erlingsson, Kos and
Song, 2019, arXiv:1802.08232), which finds that weight decay, dropout and quantization do not help, and that private training does.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coalmine.audits.defenses.auditing import AuditedModel, Auditor, Claim, bound_of
from coalmine.audits.defenses.corpora import BenchCorpora, CorporaMaker
from coalmine.audits.defenses.defense import OWN, Defense, chosen_defenses, own_defense, parse_defense
from coalmine.audits.defenses.options import DefenseOptions
from coalmine.audits.defenses.own_training import train_own
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
from coalmine.audits.provenance.own_training import OwnTraining, Train
from coalmine.corpus.planting.options import PlantOptions
from coalmine.engines.engine import Engine, open_engine
from coalmine.engines.ledger import UNITS_FILE, Ledger
from coalmine.errors import CoalmineError, InputError, WriteError
from coalmine.evidence.directories import audit_directory
from coalmine.formats.format import Format
from coalmine.models.loading import load_model
from coalmine.models.reference.checkpoint import require_torch
from coalmine.progress import Progress, Silent
from coalmine.storage.files import check_places, make_directory, no_empty_directory
from coalmine.storage.unfinished import sole_use
from coalmine.storage.work_files import remove_abandoned
from coalmine.training.options import TrainingOptions, options_of

DEFAULT_FORMAT = "the random number is {digits:6}"
# The keys of its units tell runs apart.
_RUN = "defend/1"

Defenses = Sequence[str] | Mapping[str, "Train | str | None"]


def defend(
    corpus: str | os.PathLike[str],
    out: str | os.PathLike[str],
    defenses: Defenses,
    options: DefenseOptions | None = None,
    *,
    format: Format | str = DEFAULT_FORMAT,
    planting: PlantOptions | None = None,
    preset: str = "char-lstm",
    training: Mapping[str, Any] | None = None,
    engine: Engine | str | None = None,
    progress: Progress | None = None,
    record: Callable[[Bench], None] | None = None,
    **changes: Any,
) -> Bench:
    """Train models with each of several defenses and without any, audit all alike, and compare loss, exposure, epsilon and time.

    Some documents are held out, and canaries are planted in the others, half of them withheld by coins. The models of all defenses are
    trained from the same seeds, read texts with the same tokenizer, and are asked about the same canaries, references and held-out
    documents. Exposures are in bits and losses in bits per character. All models, with their audits beside them, are in `trainings`
    below `out`.

    A run that was stopped resumes when the same call is made again. A call with further defenses or seeds trains only what is missing. A
    model that cannot be trained or audited does not stop the others: its row says why.

    Args:
        corpus: a corpus file of any kind that `read_documents` reads, with single texts.
        out: the directory for everything.
        defenses: names such as "dropout=0.2" or "dedup"; or a mapping, in which these have the value None, and a name of yours has a
            function `train(corpus, out)` or `train(corpus, out, seed)`. It trains on the file `corpus`, may write to the directory
            `out`, and returns a model or the place of one. Under the name `none` it is what the others are compared with.
        options: how many seeds, what is held out, and how models are asked.
        format: the format of the canaries.
        planting: how many canaries, and how often; seed and fields are those of `options`.
        preset: a name of `PRESETS`, by which models are trained.
        training: options of all trainings that differ from the preset's, such as `{"epochs": 5}`; a defense changes some of them.
        engine: where models are trained and asked, such as "processes:4"; the results are the same, except for the time.
        progress: gets each part of the work.
        record: called with the finished result.
        changes: fields of `DefenseOptions` by name, such as `seeds=5`.

    >>> bench = defend("mail.jsonl", "bench/", ["dropout=0.2", "dedup"], training={"epochs": 5})  # doctest: +SKIP
    >>> bench.row("dedup").difference.estimate.statement  # doctest: +SKIP
    '6.10 bits less (95% interval 4.80 to 7.40), p = 0.0001, 48 pairs'
    """
    given = DefenseOptions.of(options, changes)
    given.check()
    if given.fields.source is not None:
        raise InputError(
            "defenses are compared on single texts, and the fields name pairs; name the target as the text field"
        )
    if "seed" in (training or {}) or "holdout" in (training or {}):
        raise InputError("seed and holdout are options of the whole bench; give them as such")
    chosen, functions = _named(defenses)
    if len(functions) < len(chosen):
        require_torch("training")
    run = _BenchRun(
        CorporaMaker(
            Path(corpus),
            Path(out),
            Path(out) / TRAININGS_FOLDER,
            format if isinstance(format, Format) else Format(format),
            planting or PlantOptions(),
            given,
            options_of(preset, {**(training or {}), "seed": given.seed}),
        ),
        chosen,
        functions,
    )
    folder = Path(out)
    check_places(folder, RESULT_FILE, UNITS_FILE)
    with no_empty_directory(folder), sole_use(folder), open_engine(engine) as opened:
        bench = run.result(opened, progress or Silent())
        if record is not None:
            record(bench)
    return bench


def _named(defenses: Defenses) -> tuple[tuple[Defense, ...], dict[str, OwnTraining]]:
    """The defenses in their order, and the functions of those that are the user's, by their names."""
    if isinstance(defenses, str):
        raise InputError(f"defenses are a list of names, got {defenses!r}; put it in a list")
    functions: dict[str, OwnTraining] = {}
    found = []
    for name in defenses:
        function = defenses[name] if isinstance(defenses, Mapping) else None
        if function is None:
            one = parse_defense(name)
        else:
            one = own_defense(name, OwnTraining.of(function).name)
        found.append(one)
        if one.function is not None:
            functions[one.name] = OwnTraining.of(one.function if function is None else function)
    return chosen_defenses(found), functions


class _KeyedTraining(NamedTuple):
    """A training with its key, by which it is known to be there already."""

    training: BenchTraining
    key: str

    @property
    def name(self) -> tuple[str, int]:
        """Its defense and its seed."""
        return self.training.defense.name, self.training.seed


class _BenchRun:
    """One bench: what it is about, and where its files go."""

    def __init__(
        self, maker: CorporaMaker, defenses: tuple[Defense, ...], functions: Mapping[str, OwnTraining]
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
        trained = self._trained(work, missing, ledger, engine, progress)
        progress.start("Auditing", len(missing))
        for place in missing:
            bench = self._saved(self._with_model(bench, asked[place], trained.get(place), corpora, auditor))
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
        options = msgspec.structs.replace(self._maker.training, seed=seed)
        changed = {**msgspec.structs.asdict(options), **defense.changes()}
        return BenchTraining(
            defense,
            seed,
            self._folder / TRAININGS_FOLDER / f"{defense.folder}-seed{seed}",
            TrainingOptions(**changed),
        )

    def _key(self, work: BenchWork, place: int, corpora: BenchCorpora) -> str:
        one = work.trainings[place]
        if one.defense.function is not None:
            return f"{one.defense.function} {corpora.planted.text.sha256} {one.seed}"
        return work.key(place)

    def _begun(self, corpora: BenchCorpora) -> Bench:
        """A bench without models."""
        canaries, planting = corpora.planted.canaries, self._maker.planting
        populations = len(planting.repeat) + (len(planting.repeat) > 1)
        error = (1.0 - self._options.confidence) / (populations * self._options.seeds)
        return Bench(
            corpus_sha256=corpora.sha256,
            manifest_sha256=canaries.sha256,
            format=self._maker.format.template,
            defenses=self._defenses,
            settings=self._options,
            planting=planting,
            training=self._maker.training,
            bound_confidence=1.0 - error,
            most_bits=math.log2(self._maker.format.size),
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
            claim = _claim(one.claimed_epsilon, one.claimed_delta)
            judged = auditor.judged(EXPOSURES.load(audit / "exposure"), claim, audit / "membership")
            found.append(msgspec.structs.replace(one, bound=bound_of(judged), verdict=judged.verdict))
        return tuple(found)

    def _trained(
        self, work: BenchWork, missing: Sequence[int], ledger: Ledger, engine: Engine, progress: Progress
    ) -> dict[int, float | CoalmineError]:
        """The seconds that each of our own trainings took, or why it failed."""
        own = [place for place in missing if work.trainings[place].defense.kind != OWN]
        if not own:
            return {}
        units = [work.unit(place) for place in own]
        progress.start("Training", sum(unit.size for unit in units))
        found: dict[int, float | CoalmineError] = {}
        make_directory(self._folder / TRAININGS_FOLDER)
        for outcome in engine.map(work, units, ledger=ledger, progress=progress, store=work.save):
            place = own[outcome.number]
            if outcome.arrays is None:
                found[place] = outcome.problem or CoalmineError("no result; please report this")
            else:
                found[place] = float(outcome.arrays["seconds"])
        progress.finish()
        return found

    def _with_model(
        self,
        bench: Bench,
        asked: _KeyedTraining,
        trained: float | CoalmineError | None,
        corpora: BenchCorpora,
        auditor: Auditor,
    ) -> Bench:
        """The bench with one more model, or with the reason why it has none."""
        one = asked.training
        try:
            if isinstance(trained, CoalmineError):
                raise trained
            if trained is None:
                model, seconds = train_own(one, self._functions[one.defense.name], corpora.planted.path)
            else:
                model, seconds = load_model(one.directory), trained
            corpus = corpora.by_name[one.defense.corpus]
            audit = auditor.audited(model, corpus, None, audit_directory(one.directory))
        except WriteError:
            raise
        except CoalmineError as problem:
            failed = FailedTraining(defense=one.defense.name, seed=one.seed, problem=str(problem))
            return msgspec.structs.replace(bench, failed=(*bench.failed, failed))
        copies = sum(canary.times_trained_on for canary in corpus.canaries if canary.planted)
        made = _benched(asked, model.describe(), seconds, copies, audit, None)
        return msgspec.structs.replace(bench, models=(*bench.models, made))

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


def _benched(
    asked: _KeyedTraining,
    description: dict[str, Any],
    seconds: float,
    copies_left: int,
    audit: AuditedModel,
    claim: Claim | None,
) -> BenchedModel:
    one = asked.training
    planted = {result.canary_id for result in audit.exposures.results if result.planted}
    searched = [found for found in audit.extracted if found.canary_id in planted and found.problem is None]
    return BenchedModel(
        defense=one.defense.name,
        seed=one.seed,
        folder=one.directory.name,
        key=asked.key,
        model=description,
        seconds=round(seconds, 3),
        corpus=one.defense.corpus,
        copies_left=copies_left,
        loss_bits=audit.loss_bits,
        exposures=tuple(_limits(result) for result in audit.exposures.results),
        extracted=tuple(found.canary_id for found in searched if found.extracted),
        searched=len(searched),
        bound=bound_of(audit.membership),
        claimed_epsilon=None if claim is None else claim.epsilon,
        claimed_delta=None if claim is None else claim.delta,
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


def _claim(epsilon: float | None, delta: float | None) -> Claim | None:
    return None if epsilon is None or delta is None else Claim(epsilon, delta)
