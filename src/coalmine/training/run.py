"""One training run, from the first batch or from a snapshot to the best weights."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from coalmine.errors import CorpusError, InputError, ModelOutputError
from coalmine.interrupts import deferred_interrupt
from coalmine.models.reference.checkpoint import CONFIG_FILE, WEIGHTS_FILE, model_of, save_model
from coalmine.models.reference.networks import State, parameter_count
from coalmine.progress import Progress
from coalmine.randomness import child_seed
from coalmine.records.watching import Moment
from coalmine.storage.files import remove_file, sha256_of_file
from coalmine.storage.work_files import remove_abandoned
from coalmine.training.data import IGNORED, TrainingData
from coalmine.training.lessons import LessonBatch, lessons_of
from coalmine.training.options import TrainingOptions
from coalmine.training.record import EpochRecord, TrainingRecord, Watcher, fingerprint
from coalmine.training.snapshot import SNAPSHOT_FILE, read_snapshot, restore, save_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BITS = 1 / float(np.log(2))

_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "momentum": lambda parameters, **given: torch.optim.SGD(parameters, momentum=0.9, **given),
    "adam": lambda parameters, **given: torch.optim.Adam(parameters, fused=True, **given),
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
    "adadelta": torch.optim.Adadelta,
}


class _Position(msgspec.Struct, forbid_unknown_fields=True):
    """How far a run has come; plain JSON, so that a snapshot can hold it."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    # Sums over the current epoch, in nats and tokens.
    loss: float = 0.0
    tokens: int = 0
    epochs: list[EpochRecord] = msgspec.field(default_factory=list)
    watched: list[Moment] = msgspec.field(default_factory=list)
    best_epoch: int = 0


class TrainingRun:
    """Holds the network, the optimizer and the position, and moves them forward."""

    def __init__(
        self,
        data: TrainingData,
        options: TrainingOptions,
        directory: Path,
        *,
        watch: Watcher | None,
        progress: Progress,
        snapshot_seconds: float,
    ) -> None:
        if not data.training:
            raise CorpusError("there are no documents to train on; check the corpus")
        self.data, self.options, self.directory = data, options, directory
        self.watch, self.progress, self.snapshot_seconds = watch, progress, snapshot_seconds
        self._watch_facts = None if watch is None else watch.describe()
        self._fingerprint = fingerprint(
            options, data.sha256, self._watch_facts, data.fields, data.validation_sha256
        )
        self._tokens = sum(len(document) + 1 for document in data.training)

    def is_same(self, finished: TrainingRecord) -> bool:
        """Whether a finished training is this one."""
        theirs = fingerprint(
            finished.options,
            finished.data_sha256,
            finished.watch,
            finished.fields,
            finished.validation_sha256,
        )
        return theirs == self._fingerprint

    def finish(self) -> TrainingRecord:
        """Train to the end, from a snapshot if there is one, and write the best weights."""
        self._prepare()
        options, position = self.options, self.position
        self.progress.start("Training", self._tokens * options.epochs)
        self.progress.advance(
            len(position.epochs) * self._tokens + position.tokens, "resumed" if position.step else ""
        )
        stopped_early = self._should_stop()
        with _threads(options.threads), deferred_interrupt() as self._interrupted:
            while position.epoch < options.epochs and not stopped_early:
                self._run_epoch()
                stopped_early = self._should_stop()
                if self._interrupted():  # while the epoch was being validated
                    self._snapshot()
                    raise KeyboardInterrupt
        self.progress.finish()
        self.network.load_state_dict(self.best)
        save_model(self.directory, self.network, self.data.tokenizer)
        return TrainingRecord(
            options=options,
            data_sha256=self.data.sha256,
            weights_sha256=sha256_of_file(self.directory / WEIGHTS_FILE),
            config_sha256=sha256_of_file(self.directory / CONFIG_FILE),
            fields=self.data.fields,
            validation_sha256=self.data.validation_sha256,
            documents=len(self.data.training),
            tokens=self._tokens,
            parameters=parameter_count(self.network),
            epochs=position.epochs,
            best_epoch=position.best_epoch,
            stopped_early=stopped_early,
            watch=self._watch_facts,
            watched=position.watched,
        )

    def forget_snapshot(self) -> None:
        """Remove what was only needed to resume."""
        remove_file(self.directory / SNAPSHOT_FILE)
        remove_abandoned(self.directory)  # by a run that was killed while writing

    def _prepare(self) -> None:
        options = self.options
        torch.manual_seed(child_seed(options.seed, "train", "torch") % 2**63)
        self.lessons = lessons_of(self.data, options)
        self.network = self.lessons.network
        self.optimizer = _OPTIMIZERS[options.optimizer](
            self.network.parameters(), lr=options.rate, weight_decay=options.weight_decay
        )
        self.position = _Position()
        self.best = self._copied_weights()
        self.carried: State = ()
        kept = read_snapshot(self.directory)
        if kept is not None:
            facts, tensors = kept
            if facts["fingerprint"] != self._fingerprint:
                raise InputError(
                    f"{self.directory} holds an unfinished training on other data or with other options; "
                    f"choose another directory, or remove {self.directory / SNAPSHOT_FILE}"
                )
            try:
                self.position = msgspec.convert(facts["position"], _Position)
            except msgspec.ValidationError:
                raise InputError(
                    f"{self.directory / SNAPSHOT_FILE} was written by another version of coalmine, and cannot be resumed; "
                    "remove it to train from the start"
                ) from None
            self.best, self.carried = restore(tensors, self.network, self.optimizer)
        self._saved_at = time.monotonic()

    def _run_epoch(self) -> None:
        position = self.position
        batches = self.lessons.training(position.epoch)
        self.network.train()
        while position.batch < len(batches):
            batch = batches[position.batch]
            position.loss += self._learn(batch)
            position.tokens += batch.tokens
            position.batch += 1
            position.step += 1
            self.progress.advance(
                batch.tokens, f"epoch {position.epoch + 1}, {self._mean_bits():.3f} bits per token"
            )
            if (
                self.watch is not None
                and position.step % self.watch.every == 0
                and position.batch < len(batches)
            ):
                self._measure()
            interrupted = self._interrupted()
            if interrupted or time.monotonic() - self._saved_at >= self.snapshot_seconds:
                self._snapshot()
            if interrupted:
                raise KeyboardInterrupt
        self._end_epoch(len(batches))

    def _learn(self, batch: LessonBatch) -> float:
        """One batch; returns its loss in nats, summed over its tokens."""
        self.optimizer.zero_grad(set_to_none=True)
        logits, state = self.lessons.predict(batch, self.carried)
        self.carried = tuple(part.detach() for part in state)
        summed = _summed_loss(logits, batch)
        (summed / batch.tokens).backward()  # type: ignore[no-untyped-call]  # torch leaves this one without types
        if self.options.clip:
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.options.clip)
        self.optimizer.step()
        loss = float(summed.detach())
        bits = loss * BITS / batch.tokens
        # A loss far worse than guessing is as useless as NaN.
        if not bits < 100 * np.log2(self.data.tokenizer.size):
            raise ModelOutputError(
                f"training diverged at step {self.position.step + 1}: the loss became {bits:.3g} bits per token; "
                f"use a smaller learning rate than {self.options.rate}"
            )
        return loss

    def _end_epoch(self, steps: int) -> None:
        position = self.position
        validation = self._validation_bits()
        record = EpochRecord(
            epoch=position.epoch + 1,
            steps=steps,
            training_loss_bits=self._mean_bits(),
            validation_loss_bits=validation,
        )
        seen = [r.validation_loss_bits for r in position.epochs if r.validation_loss_bits is not None]
        position.epochs.append(record)
        if validation is None or validation < min(seen, default=float("inf")):
            position.best_epoch = record.epoch
            self.best = self._copied_weights()
        if self.watch is not None:
            self._measure()
        position.epoch += 1
        position.batch = position.tokens = 0
        position.loss = 0.0
        self.carried = ()

    def _should_stop(self) -> bool:
        """Whether the validation loss has passed its minimum."""
        if not self.data.validation or not self.position.epochs:
            return False
        return len(self.position.epochs) - self.position.best_epoch > self.options.patience

    @torch.inference_mode()
    def _validation_bits(self) -> float | None:
        if not self.data.validation:
            return None
        self.network.eval()
        carried: State = ()
        loss, tokens = 0.0, 0
        for batch in self.lessons.validation():
            logits, carried = self.lessons.predict(batch, carried)
            loss += float(_summed_loss(logits, batch))
            tokens += batch.tokens
        self.network.train()
        return loss * BITS / tokens

    def _measure(self) -> None:
        if self.watch is None:
            return
        self.network.eval()
        # A new adapter for each measurement: one of pairs caches encoded sources, which depend on the weights.
        seen = self.watch.measure(model_of(self.network, self.data.tokenizer, name="training", origin={}))
        self.network.train()
        record = Moment(step=self.position.step, epoch=self.position.epoch + 1, seen=seen)
        self.position.watched.append(record)

    def _snapshot(self) -> None:
        facts: dict[str, Any] = {
            "fingerprint": self._fingerprint,
            "position": msgspec.to_builtins(self.position),
        }
        save_snapshot(
            self.directory,
            weights=self.network.state_dict(),
            best=self.best,
            optimizer=self.optimizer,
            carried=self.carried,
            facts=facts,
        )
        self._saved_at = time.monotonic()

    def _mean_bits(self) -> float:
        return self.position.loss * BITS / max(1, self.position.tokens)

    def _copied_weights(self) -> dict[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in self.network.state_dict().items()}


def _summed_loss(logits: Tensor, batch: LessonBatch) -> Tensor:
    """In nats, over all places with a loss."""
    return F.cross_entropy(
        logits.flatten(0, 1), batch.expected.flatten(), ignore_index=IGNORED, reduction="sum"
    )


@contextlib.contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
