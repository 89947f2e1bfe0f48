"""`finetune`: a causal Hugging Face checkpoint, trained further on a corpus: what `coalmine train --base` calls."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from coalmine.corpus.files.documents import Fields
from coalmine.engines.engine import Engine, open_engine
from coalmine.engines.ledger import UNITS_FILE, Ledger
from coalmine.engines.units import Arrays
from coalmine.errors import CorpusError, InputError, ModelOutputError
from coalmine.models.devices import usable_device
from coalmine.models.reference.checkpoint import check_readable_name, finetuning_of, require_torch
from coalmine.progress import Progress, Silent
from coalmine.storage.directories import sole_use
from coalmine.storage.files import (
    PRIVATE,
    check_places,
    no_empty_directory,
    read_bytes,
    remove_abandoned,
    together,
    write_bytes,
)
from coalmine.training.data import TrainingText, read_corpus
from coalmine.training.finetuning.base_checkpoint import (
    base_in,
    check_trainable,
    result_files,
    taken_over_from,
)
from coalmine.training.finetuning.options import FinetuningOptions, finetuning_options
from coalmine.training.finetuning.record import (
    FINETUNINGS,
    RECORD_FILE,
    FinetuningRecord,
    fingerprint,
    read_finetuning,
)
from coalmine.training.finetuning.work import FinetuningWork
from coalmine.training.private.card import CARD_FILE, card_of
from coalmine.training.private.options import PrivateOptions


class FinetunedModel(msgspec.Struct, frozen=True, kw_only=True):
    """Where a model was written, and how it was fine-tuned."""

    path: Path
    record: FinetuningRecord
    # False where the directory already held the very same fine-tuning, finished.
    trained_now: bool


def finetune(
    base: str | os.PathLike[str],
    data: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str],
    valid: str | os.PathLike[str] | None = None,
    fields: Fields | None = None,
    progress: Progress | None = None,
    snapshot_seconds: float | None = None,
    engine: Engine | str | None = None,
    **options: Any,
) -> FinetunedModel:
    """Fine-tune a causal transformers checkpoint on a corpus, or on the directory that `plant` wrote, and write it to `out`.

    Texts are read as `load_model` and the audits read them: each document after the tokenizer's BOS (or end-of-text) token. A run that
    was stopped, by Ctrl-C or `kill -9`, resumes when the same call is made again, and ends with the same bytes; on one machine the same
    base, data and options always do, unless the noise of a private run comes from the system. Nothing is fetched, and no code that comes
    with a checkpoint is run.

    With `dp_epsilon` or `dp_noise` it is differentially private: what `record.privacy` claims holds for one document, all its windows
    included, or for one user (`dp_unit="user"`).

    Args:
        base: the directory of a checkpoint, with its tokenizer.
        data: a corpus file of any kind that `read_documents` reads, or the directory that `plant` wrote.
        out: the directory for the model, or for the adapter if `lora_rank` is set, and for finetuning.json.
        valid: a validation corpus; without it, a share of the documents is held out, never canaries.
        fields: which fields of a row hold what; without it, those that the canaries were planted with.
        progress: gets the characters that were trained on.
        snapshot_seconds: how often the run is saved, in seconds; by default every 10, and large models less often.
        engine: where it runs: "here", "processes" or "ray".
        options: fields of `FinetuningOptions`, such as `epochs=1` or `lora_rank=8`, and of `PrivateOptions` with names that begin with
            dp_, such as `dp_epsilon=8.0`. Losses are in bits per token.

    >>> tuned = finetune("gpt2/", "planted/", out="model/", lora_rank=8)  # doctest: +SKIP
    >>> tuned.record.epochs[-1].validation_loss_bits  # doctest: +SKIP
    4.87
    """
    chosen, directory = finetuning_options(options), Path(out)
    require_torch("fine-tuning")
    chosen = msgspec.structs.replace(chosen, device=usable_device(chosen.device, chosen.precision))
    check_readable_name(directory)
    start = Path(base).absolute()
    taken_over = [] if chosen.lora_rank else taken_over_from(start)
    further = [path.name for path in taken_over] + [CARD_FILE] * bool(chosen.private)
    check_places(directory, *result_files(chosen), *further, RECORD_FILE, UNITS_FILE)
    if start.resolve() == directory.resolve():
        raise InputError(f"{directory} is the base, which stays as it is; choose another directory")
    with no_empty_directory(directory), sole_use(directory):
        known = base_in(start)
        check_trainable(start, chosen)
        by_user = isinstance(chosen.private, PrivateOptions) and chosen.private.unit == "user"
        text = _read(Path(data), None if valid is None else Path(valid), fields, by_user=by_user)
        work = FinetuningWork(start, known, text, chosen)
        ledger = Ledger(directory, seconds_between_saves=snapshot_seconds)
        record = _finished(directory, work)
        trained_now = record is None
        if record is None:
            arrays = _run(work, ledger, engine, progress or Silent())
            record = save_finetuned(arrays, directory, start, chosen)
        ledger.forget()
        remove_abandoned(directory)  # by a run that was killed while writing
    return FinetunedModel(path=directory, record=record, trained_now=trained_now)


def _read(data: Path, valid: Path | None, fields: Fields | None, *, by_user: bool) -> TrainingText:
    text = read_corpus(data, valid, fields, by_user=by_user)
    if text.documents.sources is not None:
        raise CorpusError(
            f"{data} holds pairs, and causal checkpoints are trained on single texts; name the field of the texts to train on it alone"
        )
    return text


def _finished(directory: Path, work: FinetuningWork) -> FinetuningRecord | None:
    """The record of the same fine-tuning, if it is in the directory already; another one is refused."""
    names = (*result_files(work.options), RECORD_FILE)
    if not (directory / RECORD_FILE).is_file():
        present = next((name for name in names if (directory / name).exists()), None)
        if present is not None and not (directory / UNITS_FILE).exists():
            raise InputError(
                f"{directory} already holds a {present} that was not made here; choose another directory"
            )
        return None
    record = read_finetuning(directory)
    made = fingerprint(
        record.options, record.base, record.data_sha256, record.fields, record.validation_sha256
    )
    if made != work.fingerprint:
        raise InputError(
            f"{directory} already holds a model that was fine-tuned from another base, on other data or with other options; choose another "
            "directory, or remove it"
        )
    if not all((directory / name).is_file() for name in names):
        return None
    finetuning_of(directory)  # which refuses files that are not those of the record
    return record


def _run(work: FinetuningWork, ledger: Ledger, engine: Engine | str | None, progress: Progress) -> Arrays:
    unit = work.unit()
    ledger.begin(work.fingerprint)
    progress.start("Fine-tuning", unit.size)
    with open_engine(engine, threads=work.options.threads) as opened:
        [outcome] = opened.map(work, [unit], ledger=ledger, progress=progress)
    if isinstance(outcome.problem, ModelOutputError):
        ledger.forget()  # it would diverge again
    arrays = outcome.value()
    progress.finish()
    return arrays


def save_finetuned(
    arrays: Arrays, directory: Path, start: Path, options: FinetuningOptions
) -> FinetuningRecord:
    """Write the files; what a model memorizes is in its weights, so all but the record and the card are private.

    `start` is the directory of the base, whose tokenizer a whole model takes with it.
    """
    taken_over = [] if options.lora_rank else taken_over_from(start)
    contents = {path.name: read_bytes(path, "a file of the base") for path in taken_over}
    contents |= {name: array.tobytes() for name, array in arrays.items()}
    record = contents.pop(RECORD_FILE)
    claim = msgspec.json.decode(record, type=FinetuningRecord).privacy
    with together():
        for name, content in contents.items():
            write_bytes(directory / name, content, mode=PRIVATE)
        if claim is not msgspec.UNSET:
            write_bytes(directory / CARD_FILE, card_of(claim).encode(), mode=FINETUNINGS.mode)
        # Last, because it has the hashes of the others.
        write_bytes(directory / RECORD_FILE, record, mode=FINETUNINGS.mode)
    return read_finetuning(directory)
