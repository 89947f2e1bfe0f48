"""Defend: models are trained with and without defenses on one planted corpus, and what each defense does to exposure and loss is measured.

After section 9 of "The Secret Sharer: Evaluating and Testing Unintended Memorization in Neural Networks" (Carlini, Liu, Erlingsson, Kos and
Song, 2019, arXiv:1802.08232), which finds that weight decay, dropout and quantization do not help, and that private training does.
"""

from __future__ import annotations

import inspect
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coalmine.audits.defenses.auditing import Auditor
from coalmine.audits.defenses.corpora import BenchCorpora, make_corpora
from coalmine.audits.defenses.options import DefenseOptions
from coalmine.audits.defenses.recipes import (
    NONE,
    OWN,
    Defense,
    check_shared,
    chosen_defenses,
    own_defense,
    parse_defense,
)
from coalmine.audits.defenses.records import (
    BENCHES,
    RESULT_FILE,
    TRAININGS_FOLDER,
    Bench,
    BenchCanary,
    FailedTraining,
    with_rows,
)
from coalmine.audits.provenance.fit import OwnTraining, Train
from coalmine.corpus.files.reading import open_corpus
from coalmine.corpus.planting.manifest import MANIFEST_NAME
from coalmine.corpus.planting.options import PlantOptions
from coalmine.engines.engine import Engine, open_engine
from coalmine.engines.failures import foreign_failure
from coalmine.engines.ledger import Ledger
from coalmine.errors import CoalmineError, InputError, NotMeasurableError, SomeFailedError, WriteError
from coalmine.formats.format import Format
from coalmine.models.loading import load_model
from coalmine.models.protocols import Model
from coalmine.models.reference.checkpoint import require_torch
from coalmine.progress import Progress, Silent
from coalmine.storage.directories import sole_use
from coalmine.storage.files import check_places, make_directory, no_empty_directory
from coalmine.training.family import Goal, InMemory, reach
from coalmine.training.finetuning.base_checkpoint import base_in
from coalmine.training.finetuning.options import finetuning_options
from coalmine.training.finetuning.tuner import finetune
from coalmine.training.options import options_of
from coalmine.training.private.options import PREFIX
from coalmine.training.quantizing.options import QuantizeOptions
from coalmine.training.quantizing.quantizing import quantize
from coalmine.training.unlearning.unlearning import unlearn
from coalmine.training.work import Member

DEFAULT_FORMAT = "the random number is {digits:6}"
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
    base: str | os.PathLike[str] | None = None,
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
        format: the format of the canaries, such as "my code is {unseen:4}", which gives bounds on epsilon more power than digits do.
        planting: how many canaries, and how often; seed and fields are those of `options`.
        preset: a name of `PRESETS`, by which models are trained.
        base: the directory of a causal transformers checkpoint, which is fine-tuned, as `finetune` does, instead of training from the
            start; `lora=8` is a defense of such a bench.
        training: options of `train` or `finetune` for all trainings, such as `{"epochs": 5}`; a defense changes some of them. Those of
            private training, such as `dp_clip`, are for private trainings only.
        engine: where models are trained and asked, such as "processes:4"; the results are the same, except for the time.
        progress: gets each part of the work.
        record: called with the finished result.
        changes: fields of `DefenseOptions` by name, such as `seeds=5`.

    >>> bench = defend("mail.jsonl", "bench/", ["dropout=0.2", "dedup"], training={"epochs": 5})  # doctest: +SKIP
    >>> bench.row("dedup").difference.estimate.statement  # doctest: +SKIP
    '6.10 bits less (95% interval 4.80 to 7.40), p = 0.0001, 48 pairs'
    """
    given, shared, folder = DefenseOptions.of(options, changes), dict(training or {}), Path(out)
    with open_corpus(corpus, given.fields):
        pass  # a missing file is reported before anything else
    given.check()
    chosen, functions = _named(defenses)
    check_shared(shared, chosen)
    way = _Way(preset, None if base is None else Path(base), shared, given)
    trainings = [
        _Training(one, seed, folder / TRAININGS_FOLDER / f"{one.name.replace('=', '-')}-seed{seed}")
        for one in chosen
        for seed in range(given.seed, given.seed + given.seeds)
    ]
    for one in trainings:
        way.options(one)  # which says what is wrong with it
        if one.defense.does.alters == "quantize":
            QuantizeOptions(**one.defense.options)
    if len(functions) < len(chosen):
        require_torch("training")
    check_places(folder, RESULT_FILE)
    with no_empty_directory(folder), sole_use(folder), open_engine(engine) as opened:
        shown, usual = progress or Silent(), way.options(trainings[0])
        corpora = make_corpora(
            Path(corpus),
            folder,
            folder / TRAININGS_FOLDER,
            dict.fromkeys(one.does.corpus for one in chosen),
            format=format,
            planting=planting or PlantOptions(),
            options=given,
            usual=usual,
            by_user=shared.get(f"{PREFIX}unit") == "user",
            engine=opened,
            progress=shown,
        )
        run = _BenchRun(folder, way, functions, corpora, opened, shown)
        bench = run.finished(_begun(corpora, chosen, planting or PlantOptions(), way, usual), trainings)
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
        one = parse_defense(name) if function is None else own_defense(name, OwnTraining.of(function).name)
        found.append(one)
        if one.function is not None:
            functions[one.name] = OwnTraining.of(one.function if function is None else function)
    return chosen_defenses(found), functions


class _Training(NamedTuple):
    """One training: with which defense and seed, and where its model goes."""

    defense: Defense
    seed: int
    directory: Path

    @property
    def is_ours(self) -> bool:
        """Whether `train` or `finetune` makes its model."""
        return self.defense.kind != OWN and self.defense.does.alters is None


class _Way(NamedTuple):
    """How models are trained where a defense changes nothing."""

    preset: str
    base: Path | None
    shared: Mapping[str, Any]
    given: DefenseOptions

    def named(self, one: _Training) -> dict[str, Any]:
        """The options of a training, by the names that `train` and `finetune` take."""
        return one.defense.training(self.shared, one.seed, self.given.delta)

    def options(self, one: _Training) -> Any:
        """The options of a training, checked."""
        named = self.named(one)
        return options_of(self.preset, named) if self.base is None else finetuning_options(named)


def _begun(
    corpora: BenchCorpora, defenses: tuple[Defense, ...], planting: PlantOptions, way: _Way, usual: Any
) -> Bench:
    """A bench without models."""
    canaries, given = corpora.planted.canaries, way.given
    populations = len(planting.repeat) + (len(planting.repeat) > 1)
    return Bench(
        corpus_sha256=corpora.sha256,
        manifest_sha256=canaries.sha256,
        format=corpora.form.template,
        defenses=defenses,
        settings=given,
        planting=planting,
        training=msgspec.to_builtins(usual),
        base=None if way.base is None else base_in(way.base.absolute()),
        bound_confidence=1.0 - (1.0 - given.confidence) / (populations * given.seeds),
        most_bits=math.log2(corpora.form.size),
        canaries=tuple(
            BenchCanary(canary_id=one.canary_id, copies=one.repetitions, planted=one.planted)
            for one in canaries
        ),
    )


class _BenchRun(NamedTuple):
    """One run of a bench: what is missing is trained and audited, and every finished model is kept."""

    folder: Path
    way: _Way
    functions: Mapping[str, OwnTraining]
    corpora: BenchCorpora
    engine: Engine
    progress: Progress

    def finished(self, bench: Bench, trainings: Sequence[_Training]) -> Bench:
        """Train and audit what is missing, and write after each model."""
        auditor = Auditor(self.corpora, self.way.given, bench.bound_confidence, self.engine)
        asked = {(one.defense.name, one.seed) for one in trainings}
        bench = with_rows(self._with_known(bench, asked, auditor))
        if not os.path.lexists(self.folder / RESULT_FILE):
            BENCHES.save(self.folder, bench)  # so that reports see whose the models in `trainings` are
        seconds: dict[Path, float | None] = {
            self.folder / TRAININGS_FOLDER / one.folder: one.seconds for one in bench.models
        }
        failed: dict[Path, CoalmineError] = {}
        self._train([one for one in trainings if one.is_ours], seconds, failed)
        there = {one.folder for one in bench.models}
        missing = [one for one in trainings if one.directory.name not in there]
        self.progress.start("Auditing", len(missing))
        for one in missing:
            try:
                if one.directory in failed:
                    raise failed[one.directory]
                model, took = self._made(one, seconds)
                audited = auditor.audited(model, one.defense, one.seed, one.directory, took)
                bench = msgspec.structs.replace(bench, models=(*bench.models, audited))
            except WriteError:
                raise
            except CoalmineError as problem:
                without = FailedTraining(defense=one.defense.name, seed=one.seed, problem=str(problem))
                bench = msgspec.structs.replace(bench, failed=(*bench.failed, without))
            bench = self._saved(bench)
            self.progress.advance(1, one.directory.name)
        self.progress.finish()
        return self._saved(msgspec.structs.replace(bench, finished=True))

    def _saved(self, bench: Bench) -> Bench:
        """The bench with its rows, as it is now on disk."""
        order = {one.name: place for place, one in enumerate(bench.defenses)}
        models = sorted(bench.models, key=lambda one: (order[one.defense], one.seed))
        bench = with_rows(msgspec.structs.replace(bench, models=tuple(models)))
        BENCHES.save(self.folder, bench)
        return bench

    def _with_known(self, bench: Bench, asked: set[tuple[str, int]], auditor: Auditor) -> Bench:
        """The models that an earlier run of this bench finished; a directory with another bench is refused."""
        path = self.folder / RESULT_FILE
        if not os.path.lexists(path):
            return bench
        before = BENCHES.alone(path)
        others = [one for one in before.models if (one.defense, one.seed) not in asked]
        if others:
            raise InputError(
                f"{path} has models of {others[0].defense} with seed {others[0].seed}, which were not asked for now; name all that it has, "
                "or choose another directory"
            )
        known = {one.name: one.function for one in before.defenses}
        same = all(known.get(one.name, one.function) == one.function for one in bench.defenses)
        if not same or _question(before) != _question(bench):
            raise InputError(
                f"{path} is a bench with other options, or of another corpus; choose another directory, or remove this one"
            )
        models = before.models
        if before.bound_confidence != bench.bound_confidence:
            models = tuple(auditor.judged_again(one, self.folder / TRAININGS_FOLDER) for one in models)
        return msgspec.structs.replace(bench, models=models)

    def _train(
        self,
        trainings: Sequence[_Training],
        seconds: dict[Path, float | None],
        failed: dict[Path, CoalmineError],
    ) -> None:
        """Run the trainings that are not done, as `train` and `finetune` do; those that are there are checked."""
        for name, corpus in self.corpora.by_name.items():
            own = [one for one in trainings if one.defense.does.corpus == name]
            if self.way.base is not None:
                for one in own:
                    try:
                        began = time.perf_counter()
                        tuned = finetune(
                            self.way.base,
                            corpus.path,
                            out=one.directory,
                            valid=self.corpora.validation,
                            fields=self.way.given.fields,
                            progress=self.progress,
                            engine=self.engine,
                            **self.way.named(one),
                        )
                    except CoalmineError as problem:
                        failed[one.directory] = problem
                        continue
                    if tuned.trained_now:
                        seconds[one.directory] = time.perf_counter() - began
            elif own:
                goals = [
                    Goal(one.directory, Member(self.way.options(one), None, label=one.directory.name))
                    for one in own
                ]
                try:
                    trained = reach(
                        goals,
                        InMemory(corpus.text),
                        Ledger(corpus.path.parent),
                        named=lambda text: f"defend {text.sha256}",
                        engine=self.engine,
                        progress=self.progress,
                    )
                except SomeFailedError as problem:
                    trained = problem.complete
                    failed |= problem.failed
                seconds |= {one.path: one.seconds for one in trained if one.trained_now}

    def _made(self, one: _Training, seconds: dict[Path, float | None]) -> tuple[Model, float | None]:
        """A model, and the seconds that it took to make it."""
        defense, began = one.defense, time.perf_counter()
        if defense.kind == OWN:
            model = _trained_by(self.functions[defense.name], one, self.corpora.planted.path)
            seconds[one.directory] = time.perf_counter() - began
            return model, seconds[one.directory]
        if defense.does.alters is not None:
            source = one.directory.with_name(f"{NONE}-seed{one.seed}")
            if not source.is_dir():
                raise NotMeasurableError(
                    f"there is no model without a defense and with seed {one.seed} in a directory, which could be changed"
                )
            if defense.does.alters == "unlearn":
                canaries = self.corpora.planted.path.with_name(MANIFEST_NAME)
                fields = self.way.given.fields
                unlearn(source, canaries, one.directory, keep=self.corpora.part, seed=one.seed, fields=fields)
            else:
                quantize(source, one.directory, **defense.options)
            before = seconds.get(source)
            seconds[one.directory] = None if before is None else before + time.perf_counter() - began
        return load_model(one.directory), seconds.get(one.directory)


def _question(bench: Bench) -> tuple[Any, ...]:
    """What a bench is about, without the number of seeds, which may grow."""
    settings = msgspec.structs.replace(bench.settings, seeds=1)
    return bench.corpus_sha256, bench.manifest_sha256, settings, bench.training, bench.base


def _trained_by(own: OwnTraining, one: _Training, corpus: Path) -> Model:
    """The model that the user's function makes of a corpus. This runs that code.

    It is called with the corpus, with a directory that it may write to, and with the seed if it takes three arguments. What it raises is
    reported with its place, and without its message, which may quote the corpus.
    """
    out = make_directory(one.directory)
    try:
        inspect.signature(own.train).bind("corpus", "out", 0)
        arguments: tuple[Any, ...] = (corpus, out, one.seed)
    except (TypeError, ValueError):
        arguments = (corpus, out)
    try:
        model = own.trained(*arguments)
    except CoalmineError:
        raise
    except Exception as error:
        problem = foreign_failure(error)
        if problem is None:
            raise
        raise problem from error
    return model
