"""One training run, from the first batch or from the state that a stopped run kept to the best weights."""

from __future__ import annotations

import contextlib
import hashlib
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from coalmine.engines.units import Arrays, Running
from coalmine.errors import CorpusError, InputError, ModelOutputError
from coalmine.models.reference.checkpoint import ModelFiles, model_files, model_of
from coalmine.models.reference.networks import State, parameter_count
from coalmine.randomness import child_seed
from coalmine.records.watching import Moment
from coalmine.storage.files import to_json
from coalmine.training.data import TrainingData
from coalmine.training.lessons import LessonBatch, lessons_of
from coalmine.training.options import TrainingOptions
from coalmine.training.record import EpochRecord, TrainingRecord, Watcher
from coalmine.training.state import Learned, restore, state_arrays

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from coalmine.records.privacy import PrivacyClaim

BITS = 1 / float(np.log(2))

_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "momentum": lambda parameters, **given: torch.optim.SGD(parameters, momentum=0.9, **given),
    "adam": lambda parameters, **given: torch.optim.Adam(parameters, fused=True, **given),
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
    "adadelta": torch.optim.Adadelta,
}


class StepData(Protocol):
    """What one step learns from."""

    @property
    def tokens(self) -> int:
        """At how many places a loss is computed."""


class _Position(msgspec.Struct, forbid_unknown_fields=True):
    """How far a run has come; plain JSON, so that it can be kept."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    # Sums over the current epoch, in nats and tokens.
    loss: float = 0.0
    tokens: int = 0
    epochs: list[EpochRecord] = msgspec.field(default_factory=list)
    watched: list[Moment] = msgspec.field(default_factory=list)
    best_epoch: int = 0


class Trained(NamedTuple):
    """What a training ends with: the files of the model, and the record of how it was trained."""

    files: ModelFiles
    record: TrainingRecord


class TrainingRun:
    """Holds the network, the optimizer and the position, and moves them forward.

    `running` keeps the state and gets the progress, which is `size` in all; `label` begins its notes.
    """

    def __init__(
        self,
        data: TrainingData,
        options: TrainingOptions,
        running: Running,
        *,
        watch: Watcher | None,
        size: int,
        label: str,
    ) -> None:
        if not data.training:
            raise CorpusError("there are no documents to train on; check the corpus")
        self.data, self.options, self.running, self.watch = data, options, running, watch
        self._size, self._label, self._reported = size, label, 0
        self._tokens = sum(len(document) + 1 for document in data.training)

    def finish(self) -> Trained:
        """Train to the end, from what a stopped run kept if there is something."""
        self._prepare()
        options, position = self.options, self.position
        self._report("resumed" if position.step else "")
        stopped_early = self._should_stop()
        with _threads(options.threads):
            while position.epoch < options.epochs and not stopped_early:
                self._run_epoch()
                stopped_early = self._should_stop()
                self.running.keep(self._state)
        self.network.load_state_dict(self.best)
        files = model_files(self.network, self.data.tokenizer)
        return Trained(
            files,
            TrainingRecord(
                options=options.without_seed_of_noise(),
                privacy=self._claim(),
                data_sha256=self.data.sha256,
                weights_sha256=hashlib.sha256(files.weights).hexdigest(),
                config_sha256=hashlib.sha256(files.config).hexdigest(),
                fields=self.data.fields,
                validation_sha256=self.data.validation_sha256,
                tokenizer_sha256=self.data.tokenizer_sha256,
                documents=len(self.data.training),
                tokens=self._tokens,
                parameters=parameter_count(self.network),
                epochs=position.epochs,
                best_epoch=position.best_epoch,
                stopped_early=stopped_early,
                watch=None if self.watch is None else self.watch.describe(),
                watched=position.watched,
            ),
        )

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
        kept = self.running.kept()
        if kept is not None:
            try:
                (self.best, self.carried), position = restore(kept, self.network, self.optimizer)
                self.position = msgspec.json.decode(position, type=_Position)
            except (
                KeyError,
                RuntimeError,
                TypeError,
                ValueError,
            ):  # a part is missing, or of another kind or shape
                raise InputError(
                    "the training that was stopped here was begun by another version of coalmine, and cannot be resumed; "
                    "remove its unfinished files to train from the start"
                ) from None

    def _run_epoch(self) -> None:
        position = self.position
        batches = self._batches()
        self.network.train()
        while position.batch < len(batches):
            batch = batches[position.batch]
            position.loss += self._learn(batch)
            position.tokens += batch.tokens
            position.batch += 1
            position.step += 1
            self._report(f"epoch {position.epoch + 1}, {self._mean_bits():.3f} bits per token")
            if (
                self.watch is not None
                and position.step % self.watch.every == 0
                and position.batch < len(batches)
            ):
                self._measure()
            self.running.keep(self._state)
        self._end_epoch(len(batches))

    def _batches(self) -> Sequence[StepData]:
        """Those of the epoch that the run is in."""
        return self.lessons.training(self.position.epoch)

    def _claim(self) -> PrivacyClaim | msgspec.UnsetType:
        """What is claimed about privacy."""
        return msgspec.UNSET

    def _share_done(self) -> Fraction:
        """How much of the whole is done."""
        tokens = len(self.position.epochs) * self._tokens + self.position.tokens
        return Fraction(tokens, self._tokens * self.options.epochs)

    def _report(self, note: str) -> None:
        """Report how much of the whole is done."""
        done = int(self._size * self._share_done())
        amount, self._reported = done - self._reported, done
        with contextlib.suppress(KeyboardInterrupt):  # `keep` stops the run too, after keeping the state
            self.running.advance(amount, f"{self._label}: {note}" if self._label and note else note)

    def _learn(self, batch: Any) -> float:
        """One of `_batches`; returns its loss in nats, summed over its tokens."""
        tokens: int = batch.tokens
        self.optimizer.zero_grad(set_to_none=True)
        logits, state = self.lessons.predict(batch, self.carried)
        self.carried = tuple(part.detach() for part in state)
        summed = _summed_loss(logits, batch)
        (summed / tokens).backward()  # type: ignore[no-untyped-call]  # torch leaves this one without types
        if self.options.clip:
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.options.clip)
        self.optimizer.step()
        return self._checked_loss(float(summed.detach()), tokens)

    def _checked_loss(self, loss: float, tokens: int) -> float:
        """The summed loss of a step, unless it is useless."""
        bits = loss * BITS / tokens
        # A loss far worse than guessing is as useless as NaN.
        if not bits < 100 * np.log2(self.data.tokenizer.size):
            raise self._diverged(f"the loss became {bits:.3g} bits per token")
        return loss

    def _diverged(self, how: str) -> ModelOutputError:
        return ModelOutputError(
            f"training diverged at step {self.position.step + 1}: {how}; "
            f"use a smaller learning rate than {self.options.rate}"
        )

    def _end_epoch(self, steps: int) -> None:
        position = self.position
        validation = self._validation_bits()
        record = EpochRecord(
            epoch=position.epoch + 1,
            steps=steps,
            training_loss_bits=self._mean_bits() if position.tokens else None,
            validation_loss_bits=validation,
        )
        seen = [r.validation_loss_bits for r in position.epochs if r.validation_loss_bits is not None]
        position.epochs.append(record)
        if self._is_kept(validation, seen):
            position.best_epoch = record.epoch
            self.best = self._copied_weights()
        if self.watch is not None:
            self._measure()
        position.epoch += 1
        position.batch = position.tokens = 0
        position.loss = 0.0
        self.carried = ()

    def _is_kept(self, validation: float | None, earlier: Sequence[float]) -> bool:
        """Whether the weights of an epoch are better than those of the epochs before it."""
        return validation is None or validation < min(earlier, default=float("inf"))

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

    def _state(self) -> Arrays:
        learned = Learned(self.best, self.carried)
        return state_arrays(self.network, self.optimizer, learned, to_json(self.position))

    def _mean_bits(self) -> float:
        return self.position.loss * BITS / max(1, self.position.tokens)

    def _copied_weights(self) -> dict[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in self.network.state_dict().items()}


def _summed_loss(logits: Tensor, batch: LessonBatch) -> Tensor:
    """In nats, over all places with a loss."""
    return F.cross_entropy(logits, batch.with_loss(batch.expected), reduction="sum")


@contextlib.contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
