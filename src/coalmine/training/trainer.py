"""Training reference models, one or a family of them: what `coalmine train` calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from coalmine.corpus.files.documents import Fields
from coalmine.engines.engine import Engine
from coalmine.engines.ledger import Ledger
from coalmine.errors import InputError
from coalmine.models.devices import usable_device
from coalmine.models.reference.checkpoint import require_torch
from coalmine.models.reference.tokens import ReferenceTokenizer
from coalmine.progress import Progress
from coalmine.training.data import Documents, text_of
from coalmine.training.family import CorpusFiles, Goal, InMemory, TrainedModel, family_fingerprint, reach
from coalmine.training.options import TrainingOptions, options_of
from coalmine.training.record import Watcher
from coalmine.training.work import Member


def train(
    data: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str],
    preset: str = "char-lstm",
    valid: str | os.PathLike[str] | None = None,
    fields: Fields | None = None,
    watch: Watcher | None = None,
    progress: Progress | None = None,
    snapshot_seconds: float | None = None,
    engine: Engine | str | None = None,
    **options: Any,
) -> TrainedModel:
    """Train a reference model on a corpus, or on the directory that `plant` wrote, and write it to `out`.

    A run that was stopped, by Ctrl-C or `kill -9`, resumes when the same call is made again, and ends with the same bytes; the
    same data, options and number of threads always do. The whole tokenized corpus is held in memory.

    Args:
        data: a corpus file of any kind that `read_documents` reads, or the directory that `plant` wrote.
        out: the directory for model.safetensors, config.json and training.json.
        preset: a name of `PRESETS`, such as "char-lstm", "word-lstm", "gru", "cnn", "transformer" or "translation".
        valid: a validation corpus; without it, a share of the documents is held out, never canaries.
        fields: which fields of a row hold what; without it, those that the canaries were planted with.
        watch: measures the model at intervals, such as `ExposureWatch`.
        progress: gets the characters that were trained on.
        snapshot_seconds: how often the run is saved, in seconds; by default every 10.
        engine: where it runs: "here", "processes" or "ray"; the bytes are the same.
        options: fields of `TrainingOptions` that differ from the preset's, such as `epochs=3` or `optimizer="sgd"`. Losses are
            in bits per token. With `dp_epsilon` (or `dp_noise`) the training is differentially private; `dp_delta`, `dp_clip`,
            `dp_unit`, `dp_seed` and `dp_rows` are the other fields of `PrivateOptions`, and the claim is in the record.

    >>> trained = train("planted/", out="model/", epochs=3)  # doctest: +SKIP
    >>> trained.record.epochs[-1].validation_loss_bits  # doctest: +SKIP
    2.31
    """
    goal = Goal(Path(out), Member(_chosen(preset, options), _checked(watch)))
    ledger = Ledger(out, seconds_between_saves=snapshot_seconds)
    [trained] = reach([goal], CorpusFiles(data, valid, fields), ledger, engine=engine, progress=progress)
    return trained


def _chosen(preset: str, changes: dict[str, Any]) -> TrainingOptions:
    """The options, with the device that they mean on this machine."""
    found = options_of(preset, changes)
    if found.device == "cpu":
        return found
    if found.private is not msgspec.UNSET:
        raise InputError(
            f"private training of reference models runs on the CPU, got device={found.device!r}; leave it out"
        )
    require_torch("training")
    return msgspec.structs.replace(found, device=usable_device(found.device))


def train_documents(
    texts: Sequence[str],
    *,
    out: str | os.PathLike[str],
    sources: Sequence[str] | None = None,
    users: Sequence[str] | None = None,
    tokenizer: ReferenceTokenizer | None = None,
    preset: str = "char-lstm",
    progress: Progress | None = None,
    snapshot_seconds: float | None = None,
    engine: Engine | str | None = None,
    **options: Any,
) -> TrainedModel:
    """Train a reference model on documents that are in memory; `train` explains the other arguments.

    Args:
        texts: the documents, or the targets of pairs.
        out: the directory for model.safetensors, config.json and training.json.
        sources: the sources of pairs, in the order of their targets.
        users: whose each document is, for `dp_unit="user"`.
        tokenizer: the one to read them with, such as another model's; without it, one is made from the documents.
        preset: a name of `PRESETS`.
        progress: gets the characters that were trained on.
        snapshot_seconds: how often the run is saved, in seconds; by default every 10.
        engine: where it runs; the bytes are the same.
        options: fields of `TrainingOptions` that differ from the preset's. Losses are in bits per token.

    >>> train_documents(["to be", "or not to be"], out="model/", preset="provenance-words", epochs=3)  # doctest: +SKIP
    """
    for what, given in (("source", sources), ("user", users)):
        if given is not None and len(given) != len(texts):
            raise InputError(
                f"each text needs its {what}, got {len(texts):,} texts and {len(given):,} {what}s; give one for each"
            )
    documents = Documents(
        list(texts), None if sources is None else list(sources), None if users is None else list(users)
    )
    goal = Goal(Path(out), Member(_chosen(preset, options), None))
    ledger = Ledger(out, seconds_between_saves=snapshot_seconds)
    text = text_of(documents, tokenizer=tokenizer)
    [trained] = reach([goal], InMemory(text), ledger, engine=engine, progress=progress)
    return trained


def train_family(
    data: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str],
    presets: Sequence[str] = ("char-lstm",),
    seeds: Sequence[int] = (0,),
    valid: str | os.PathLike[str] | None = None,
    fields: Fields | None = None,
    watch: Watcher | Callable[[int], Watcher] | None = None,
    progress: Progress | None = None,
    snapshot_seconds: float | None = None,
    engine: Engine | str | None = None,
    **options: Any,
) -> list[TrainedModel]:
    """Train a model with every preset and every seed, each into a directory below `out` such as gru-seed2.

    Each ends with the same bytes as `train` alone, which explains the other arguments. Those that are finished are not trained again.
    With `engine="processes:4"`, four are trained at a time. `watch` may also be a function of the seed that gives what measures. If
    some fail, the others are finished, and then a `SomeFailedError` says which failed and why.

    >>> family = train_family("planted/", out="models/", seeds=[0, 1, 2], engine="processes:3")  # doctest: +SKIP
    >>> [trained.path.name for trained in family]  # doctest: +SKIP
    ['char-lstm-seed0', 'char-lstm-seed1', 'char-lstm-seed2']
    """
    if "seed" in options:
        raise InputError(f"a family takes a list of seeds, got seed={options['seed']!r}; give seeds instead")
    goals = []
    for directory, preset, seed in directories_of_family(out, presets, seeds):
        watcher = _checked(watch(seed) if callable(watch) else watch)
        chosen = _chosen(preset, {**options, "seed": seed})
        goals.append(Goal(directory, Member(chosen, watcher, label=directory.name)))
    ledger = Ledger(out, seconds_between_saves=snapshot_seconds)
    shared = options_of("char-lstm", options)
    return reach(
        goals,
        CorpusFiles(data, valid, fields),
        ledger,
        named=lambda text: family_fingerprint(text, shared),
        engine=engine,
        progress=progress,
    )


def directories_of_family(
    out: str | os.PathLike[str], presets: Sequence[str], seeds: Sequence[int]
) -> list[tuple[Path, str, int]]:
    """The directory for each preset and seed of a family.

    >>> [directory.name for directory, _, _ in directories_of_family("models", ["gru", "cnn"], [7])]
    ['gru-seed7', 'cnn-seed7']
    """
    for what, given in (("presets", presets), ("seeds", seeds)):
        if isinstance(given, str) or not given or len(set(given)) < len(given):
            raise InputError(f"{what} must be a list of at least one, each given once, got {given!r}")
    return [(Path(out) / f"{preset}-seed{seed}", preset, seed) for preset, seed in product(presets, seeds)]


def _checked(watch: Watcher | None) -> Watcher | None:
    if watch is not None and not hasattr(watch, "measure"):
        raise InputError(
            f"watch must be something that measures, such as ExposureWatch({str(watch)!r}), got {watch!r}"
        )
    return watch
