"""One training run, from the first batch or from the state that a stopped run kept to the best weights."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import torch
from torch import Tensor
from torch.nn import functional as F

from coalmine.engines.threads import computing_threads
from coalmine.engines.units import Running
from coalmine.errors import CorpusError
from coalmine.models.reference.checkpoint import ModelFiles, model_files, model_of
from coalmine.models.reference.networks import State, parameter_count
from coalmine.randomness import child_seed
from coalmine.records.watching import Moment
from coalmine.training.data import TrainingData
from coalmine.training.epochs import BITS, EpochRun, Position, StepData
from coalmine.training.lessons import LessonBatch, lessons_of
from coalmine.training.options import TrainingOptions
from coalmine.training.record import EpochRecord, TrainingRecord, Watcher
from coalmine.training.state import Learned

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "momentum": lambda parameters, **given: torch.optim.SGD(parameters, momentum=0.9, **given),
    "adam": lambda parameters, **given: torch.optim.Adam(parameters, fused=True, **given),
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
    "adadelta": torch.optim.Adadelta,
}


class _TrainingPosition(Position, forbid_unknown_fields=True):
    """How far a training has come."""

    watched: list[Moment] = msgspec.field(default_factory=list)
    best_epoch: int = 0


class Trained(NamedTuple):
    """What a training ends with: the files of the model, and the record of how it was trained."""

    files: ModelFiles
    record: TrainingRecord


class TrainingRun(EpochRun):
    """Trains a reference network; `label` begins the notes of its progress."""

    position: _TrainingPosition

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
        super().__init__(options, running, size=size, label=label)
        self.data, self.options, self.watch = data, options, watch
        self.tokens = sum(len(document) + 1 for document in data.training)

    def finish(self) -> Trained:
        """Train to the end, from what a stopped run kept if there is something."""
        self._prepare()
        options, position = self.options, self.position
        with computing_threads(options.threads):
            stopped_early = self._run_epochs()
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
                tokens=self.tokens,
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
        self.network = self.learning = self.lessons.network
        self.optimizer = _OPTIMIZERS[options.optimizer](
            self.network.parameters(), lr=options.rate, weight_decay=options.weight_decay
        )
        self.position = _TrainingPosition()
        self.best = self._copied_weights()
        self.carried: State = ()
        resumed = self._resumed(_TrainingPosition)
        if resumed is not None:
            (self.best, carried), self.position = resumed
            self.carried = tuple(part.to(options.device) for part in carried)

    def _batches(self) -> Sequence[StepData]:
        return self.lessons.training(self.position.epoch)

    def _learn(self, batch: Any) -> float:
        tokens: int = batch.tokens
        batch = batch.on(self.options.device)
        self.optimizer.zero_grad(set_to_none=True)
        logits, state = self.lessons.predict(batch, self.carried)
        self.carried = tuple(part.detach() for part in state)
        summed = _summed_loss(logits, batch)
        (summed / tokens).backward()  # type: ignore[no-untyped-call]  # torch leaves this one without types
        if self.options.clip:
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.options.clip)
        self.optimizer.step()
        return self._checked_loss(float(summed.detach()), tokens)

    def _vocabulary(self) -> int:
        return self.data.tokenizer.size

    def _after_step(self) -> None:
        if self.watch is not None and self.position.step % self.watch.every == 0:
            self._measure()

    def _after_epoch(self, record: EpochRecord) -> None:
        position = self.position
        seen = [
            one.validation_loss_bits for one in position.epochs[:-1] if one.validation_loss_bits is not None
        ]
        if self._is_kept(record.validation_loss_bits, seen):
            position.best_epoch = record.epoch
            self.best = self._copied_weights()
        self._measure()
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
        for one in self.lessons.validation():
            batch = one.on(self.options.device)
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

    def _learned(self) -> Learned:
        return Learned(self.best, self.carried)

    def _copied_weights(self) -> dict[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in self.network.state_dict().items()}


def _summed_loss(logits: Tensor, batch: LessonBatch) -> Tensor:
    """In nats, over all places with a loss."""
    return F.cross_entropy(logits, batch.with_loss(batch.expected), reduction="sum")
