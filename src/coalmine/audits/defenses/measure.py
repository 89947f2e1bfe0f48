"""Defend: models are trained with and without defenses on one planted corpus, and what each defense does to exposure and loss is measured.

After section 9 of "The Secret Sharer: Evaluating and Testing Unintended Memorization in Neural Networks" (Carlini, Liu, Erlingsson, Kos and
Song, 2019, arXiv:1802.08232), which finds that weight decay, dropout and quantization do not help, and that private training does.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from coalmine.audits.defenses.corpora import BenchCorpora, make_corpora
from coalmine.audits.defenses.recipes import (
    DECIDED,
    NONE,
    OWN,
    Defense,
    DefenseOptions,
    chosen_defenses,
    parse_defense,
)
from coalmine.audits.defenses.records import (
    BENCHES,
    TRAININGS_FOLDER,
    Bench,
    BenchCanary,
    BenchedModel,
    with_rows,
)
from coalmine.audits.exposure.estimators import ExposureOptions
from coalmine.audits.exposure.measuring import expose
from coalmine.audits.exposure.results import ExposureResult
from coalmine.audits.extraction.measuring import verify_extraction
from coalmine.audits.extraction.options import ExtractionOptions
from coalmine.audits.extraction.results import save_verification
from coalmine.audits.framing import framed
from coalmine.audits.membership.measure import membership
from coalmine.corpus.files.documents import Fields
from coalmine.corpus.files.reading import open_corpus
from coalmine.corpus.planting.manifest import MANIFEST_NAME
from coalmine.corpus.planting.options import PlantOptions
from coalmine.engines.engine import Engine, open_engine
from coalmine.engines.failures import foreign_failure
from coalmine.engines.ledger import Ledger
from coalmine.errors import (
    CoalmineError,
    InputError,
    ModelError,
    NotMeasurableError,
    SomeFailedError,
    WriteError,
)
from coalmine.evidence.directories import audit_directory
from coalmine.formats.format import Format
from coalmine.models.loading import load_model
from coalmine.models.plugins import missing_members, named_function
from coalmine.models.protocols import Model
from coalmine.models.reference.checkpoint import require_torch
from coalmine.progress import Progress, Silent
from coalmine.records.privacy import claim_of_model
from coalmine.search.walks.scoring import score_texts
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


def defend(
    corpus: str | os.PathLike[str],
    out: str | os.PathLike[str],
    defenses: Sequence[str],
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
    """Train models with each of several defenses and without any, audit all alike, and compare loss, exposure and epsilon.

    Some documents are held out, and canaries are planted in the others, half of them withheld by coins. The models of all defenses are
    trained from the same seeds, read texts with the same tokenizer, and are asked about the same canaries, references and held-out
    documents. Exposures are in bits and losses in bits per character. All models, with their audits beside them, are in `trainings`
    below `out`.

    A run that was stopped resumes when the same call is made again. A call with further defenses trains only what is missing. A model
    that cannot be trained or audited does not stop the others: `missing` says why.

    Args:
        corpus: a corpus file of any kind that `read_documents` reads, with single texts.
        out: the directory for everything.
        defenses: names such as "dropout=0.2" or "dedup", or "mine=python:module:function" for a function `train(corpus, out, seed)` of
            yours. It trains on the file `corpus`, may write to the directory `out`, and returns a model or the place of one. Under the
            name `none` it is what the others are compared with.
        options: how many seeds, what is held out, and how models are asked.
        format: the format of the canaries, such as "my code is {unseen:4}", which gives bounds on epsilon more power than digits do.
        planting: how many canaries, and how often; seed and fields are those of `options`.
        preset: a name of `PRESETS`, by which models are trained.
        base: the directory of a causal transformers checkpoint, which is fine-tuned, as `finetune` does, instead of training from the
            start; `lora=8` is a defense of such a bench.
        training: options of `train` or `finetune` for all trainings, such as `{"epochs": 5}`; a defense changes some of them. Those of
            private training, such as `dp_clip`, are for private trainings only.
        engine: where models are trained and asked, such as "processes:4"; the results are the same.
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
    chosen = chosen_defenses([parse_defense(one) for one in defenses])
    private = any(option.startswith(PREFIX) for one in chosen for option in one.options)
    for name in shared:
        if name in DECIDED or (name.startswith(PREFIX) and not private):
            raise InputError(
                f"{name} is not an option of all trainings of this bench: the defenses decide it; leave it out"
            )
    start, plan = None if base is None else Path(base), planting or PlantOptions()
    trainings = []
    for defense in chosen:
        if defense.does.alters == "quantize":
            QuantizeOptions(**defense.options)  # which says what is wrong with them
        if defense.function is not None:
            named_function(defense.function)
        for seed in range(given.seed, given.seed + given.seeds):
            named = defense.training(shared, seed, given.delta)
            whole = options_of(preset, named) if start is None else finetuning_options(named)
            place = folder / TRAININGS_FOLDER / f"{defense.name.replace('=', '-')}-seed{seed}"
            trainings.append(_Training(defense, seed, place, named, whole))
    if any(one.kind != OWN for one in chosen):
        require_torch("training")
    check_places(folder, BENCHES.file)
    with no_empty_directory(folder), sole_use(folder), open_engine(engine) as opened:
        shown, usual = progress or Silent(), trainings[0].options
        corpora = make_corpora(
            Path(corpus),
            folder,
            dict.fromkeys(one.does.corpus for one in chosen),
            format=format,
            planting=plan,
            options=given,
            usual=usual,
            engine=opened,
            progress=shown,
        )
        canaries = corpora.canaries()
        [form] = canaries.formats.values()
        populations = len(plan.repeat) + (len(plan.repeat) > 1)
        bench = Bench(
            corpus_sha256=corpora.sha256,
            manifest_sha256=canaries.sha256,
            format=form.template,
            defenses=chosen,
            settings=given,
            planting=plan,
            training={**shared, **msgspec.to_builtins(usual)},
            base=None if start is None else base_in(start.absolute()),
            bound_confidence=1.0 - (1.0 - given.confidence) / (populations * given.seeds),
            most_bits=math.log2(form.size),
            canaries=tuple(
                BenchCanary(canary_id=one.canary_id, copies=one.repetitions, planted=one.planted)
                for one in canaries
            ),
        )
        bench = msgspec.structs.replace(bench, models=_known(folder, bench))
        BENCHES.save(folder, with_rows(bench))  # so that reports see whose the models in `trainings` are
        there = {(one.defense, one.seed) for one in bench.models}
        missing = [one for one in trainings if (one.defense.name, one.seed) not in there]
        failed = {} if start is not None else _train(missing, corpora, opened, shown)
        shown.start("Auditing", len(missing))
        for one in missing:
            try:
                if one.directory in failed:
                    raise failed[one.directory]
                model = _made(one, corpora, given.fields, start, opened, shown)
                found = audited(model, one, bench, corpora, opened)
                bench = msgspec.structs.replace(bench, models=(*bench.models, found))
            except WriteError:
                raise
            except CoalmineError as problem:
                why = f"{one.defense.name}, seed {one.seed}: {problem}"
                bench = msgspec.structs.replace(bench, failed=(*bench.failed, why))
            BENCHES.save(folder, with_rows(bench))
            shown.advance(1, one.directory.name)
        shown.finish()
        bench = with_rows(msgspec.structs.replace(bench, finished=True))
        BENCHES.save(folder, bench)
        if record is not None:
            record(bench)
    return bench


class _Training(NamedTuple):
    """One training: where its model goes, and the options of `train` or `finetune`: those named, and all."""

    defense: Defense
    seed: int
    directory: Path
    named: dict[str, Any]
    options: Any


def _known(folder: Path, bench: Bench) -> tuple[BenchedModel, ...]:
    """The models that an earlier run of this bench finished; a directory with another bench is refused."""
    if not os.path.lexists(folder / BENCHES.file):
        return ()
    before = BENCHES.alone(folder / BENCHES.file)
    parts = ("corpus_sha256", "manifest_sha256", "settings", "training", "base")
    same = all(getattr(before, part) == getattr(bench, part) for part in parts)
    if not same or not all(one in bench.defenses for one in before.defenses):
        raise InputError(
            f"{folder / BENCHES.file} is a bench with other options, of another corpus, or with defenses that are not named now; name all "
            "that it has, or choose another directory"
        )
    return before.models


def _train(
    missing: Sequence[_Training], corpora: BenchCorpora, engine: Engine, progress: Progress
) -> dict[Path, CoalmineError]:
    """Train what `train` makes, several at a time; the problems of those that failed. Those that are there are checked."""
    failed: dict[Path, CoalmineError] = {}
    for name, text in corpora.texts.items():
        goals = [
            Goal(one.directory, Member(one.options, None, label=one.directory.name))
            for one in missing
            if one.defense.kind != OWN and one.defense.does.alters is None and one.defense.does.corpus == name
        ]
        try:
            if goals:
                reach(
                    goals,
                    InMemory(text),
                    Ledger(corpora.paths[name].parent),
                    named=lambda text: f"defend {text.sha256}",
                    engine=engine,
                    progress=progress,
                )
        except SomeFailedError as problem:
            failed |= problem.failed
    return failed


def _made(
    one: _Training,
    corpora: BenchCorpora,
    fields: Fields,
    base: Path | None,
    engine: Engine,
    progress: Progress,
) -> Model:
    """The model of a training, which is made now unless `train` made it."""
    defense = one.defense
    if defense.function is not None:
        try:
            made = named_function(defense.function)(
                corpora.paths["planted"], make_directory(one.directory), one.seed
            )
        except ModelError as problem:  # the message of what it raised may quote the corpus
            raise (problem.__cause__ and foreign_failure(problem.__cause__)) or problem from None
        if isinstance(made, (str, os.PathLike)):
            made = load_model(made)
        if missing_members(made):
            raise ModelError(
                f"{defense.function} returned {type(made).__name__}; return a model, or where it is"
            )
        return cast("Model", made)
    source = one.directory.with_name(f"{NONE}-seed{one.seed}")
    if defense.does.alters is not None and not source.is_dir():
        raise NotMeasurableError(
            f"there is no model without a defense and with seed {one.seed} in a directory, which could be changed"
        )
    if defense.does.alters == "unlearn":
        canaries = corpora.paths["planted"].with_name(MANIFEST_NAME)
        unlearn(source, canaries, one.directory, keep=corpora.part, seed=one.seed, fields=fields)
    elif defense.does.alters == "quantize":
        quantize(source, one.directory, **defense.options)
    elif base is not None:
        finetune(
            base,
            corpora.paths[defense.does.corpus],
            out=one.directory,
            valid=corpora.validation,
            fields=fields,
            progress=progress,
            engine=engine,
            **one.named,
        )
    return cast("Model", load_model(one.directory))


def audited(
    model: Model, one: _Training, bench: Bench, corpora: BenchCorpora, engine: Engine
) -> BenchedModel:
    """Ask a model everything, as all others of its bench; results go beside it."""
    given, out = bench.settings, audit_directory(one.directory)
    canaries = corpora.canaries(one.defense.does.corpus)
    described, claim = model.describe(), claim_of_model(model.describe())
    asked = ExposureOptions(method=given.method, confidence=given.confidence, seed=given.seed)
    exposures = expose(model, canaries, asked, engine=engine)
    exposures.save(out / "exposure")
    held_out = corpora.texts["planted"].held_out
    texts = [] if held_out is None else held_out.texts
    losses = score_texts(model, texts).tolist()
    # Whether each canary is among as many members as were planted.
    top = max(1, sum(canary.planted for canary in canaries))
    every, extractions = verify_extraction(
        model, canaries, ExtractionOptions(top=top, budget=given.search), engine=engine
    )
    save_verification(
        make_directory(out / "extraction"),
        every,
        extractions,
        manifest_sha256=canaries.sha256,
        model=framed(model, canaries, writes=True).describe(),
    )
    claimed = {} if claim is None else msgspec.structs.asdict(claim)
    judged = membership(
        exposures,
        delta=claimed.get("delta", given.delta),
        confidence=bench.bound_confidence,
        seed=given.seed,
        **{f"claimed_{name}": value for name, value in claimed.items()},
    )
    judged.save(make_directory(out / "membership"))
    whole = judged.settings.claimed_unit == "user"
    bounds = [one.best.canary if whole else one.best.one_copy for one in judged.populations]
    planted = {one.canary_id for one in exposures.results if one.planted}
    searched = [one for one in every if one.canary_id in planted and one.problem is None]
    return BenchedModel(
        defense=one.defense.name,
        seed=one.seed,
        model=described,
        copies_left=sum(one.times_trained_on for one in canaries if one.planted),
        loss_bits=math.fsum(losses) / sum(map(len, texts)),
        exposures=tuple(map(_limits, exposures.results)),
        extracted=tuple(one.canary_id for one in searched if one.extracted),
        searched=len(searched),
        bound=max((one.low for one in bounds if one is not None and one.low is not None), default=None),
        privacy=claim,
        verdict=judged.verdict,
    )


def _limits(result: ExposureResult) -> tuple[float, float]:
    """What is known of an exposure: the value twice, a lower bound and the most that is possible, or anything."""
    estimate, most = result.estimate, result.most_possible_bits
    if estimate.value is not None:
        return estimate.value, estimate.value
    return (estimate.low or 0.0) if estimate.status == "lower_bound" else 0.0, most
