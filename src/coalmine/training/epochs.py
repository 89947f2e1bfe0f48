"""Epochs of a run: the loop over them, its progress, and what it is resumed from; training and fine-tuning fill in the steps."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np
from torch import nn
from torch.optim import Optimizer

from coalmine.engines.units import Arrays, Running
from coalmine.errors import InputError, ModelOutputError
from coalmine.records.privacy import PrivacyClaim
from coalmine.storage.files import to_json
from coalmine.training.record import EpochRecord
from coalmine.training.state import Learned, restore, state_arrays

BITS = 1 / float(np.log(2))


class StepData(Protocol):
    """What one step learns from."""

    @property
    def tokens(self) -> int:
        """At how many places a loss is computed."""


class EpochOptions(Protocol):
    """What the loop has to know of the options."""

    @property
    def epochs(self) -> int:
        """Passes over the data, at most."""

    @property
    def rate(self) -> float:
        """The learning rate in force."""


class Position(msgspec.Struct, forbid_unknown_fields=True):
    """How far a run has come; plain JSON, so that it can be kept."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    # Sums over the current epoch, in nats and tokens.
    loss: float = 0.0
    tokens: int = 0
    epochs: list[EpochRecord] = msgspec.field(default_factory=list)


_Place = TypeVar("_Place", bound=Position)


class EpochRun(ABC):
    """Moves a network, an optimizer and a position forward; `running` keeps the state and gets the progress, which is `size` in all.

    A subclass prepares `network`, `learning` (the module whose weights are learned), `optimizer`, `position` and `tokens` (how many tokens
    of an epoch have a loss).
    """

    # What the run is called in messages.
    what = "training"
    network: Any
    learning: nn.Module
    optimizer: Optimizer
    position: Position
    tokens: int

    def __init__(self, options: EpochOptions, running: Running, *, size: int, label: str = "") -> None:
        self._options, self.running = options, running
        self._size, self._label, self._reported = size, label, 0

    @abstractmethod
    def _batches(self) -> Sequence[StepData]:
        """Those of the epoch that the run is in."""

    @abstractmethod
    def _learn(self, batch: Any) -> float:
        """Take a step with one of `_batches`; returns its loss in nats, summed over its tokens."""

    @abstractmethod
    def _validation_bits(self) -> float | None:
        """The validation loss; None where nothing was held out."""

    @abstractmethod
    def _vocabulary(self) -> int:
        """How many tokens the model knows."""

    def _run_epochs(self) -> bool:
        """Run all epochs that are left; returns whether that ended early."""
        self._report("resumed" if self.position.step else "")
        while self.position.epoch < self._options.epochs and not self._should_stop():
            self._run_epoch()
            self.running.keep(self._state)
        return self._should_stop()

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
            if position.batch < len(batches):
                self._after_step()
            self.running.keep(self._state)
        record = EpochRecord(
            epoch=position.epoch + 1,
            steps=len(batches),
            training_loss_bits=self._mean_bits() if position.tokens else None,
            validation_loss_bits=self._validation_bits(),
        )
        position.epochs.append(record)
        self._after_epoch(record)
        position.epoch += 1
        position.batch = position.tokens = 0
        position.loss = 0.0

    def _after_step(self) -> None:  # noqa: B027 - few runs look
        """Look at the network after a step that is not the last of its epoch."""

    def _after_epoch(self, record: EpochRecord) -> None:  # noqa: B027 - few runs look
        """Look at the network after an epoch."""

    def _should_stop(self) -> bool:
        """Whether no more epochs are needed."""
        return False

    def _claim(self) -> PrivacyClaim | msgspec.UnsetType:
        """What is claimed about privacy."""
        return msgspec.UNSET

    def _share_done(self) -> Fraction:
        """How much of the whole is done."""
        tokens = len(self.position.epochs) * self.tokens + self.position.tokens
        return Fraction(tokens, self.tokens * self._options.epochs)

    def _report(self, note: str) -> None:
        """Report how much of the whole is done."""
        done = int(self._size * self._share_done())
        amount, self._reported = done - self._reported, done
        with contextlib.suppress(KeyboardInterrupt):  # `keep` stops the run too, after keeping the state
            self.running.advance(amount, f"{self._label}: {note}" if self._label and note else note)

    def _mean_bits(self) -> float:
        return self.position.loss * BITS / max(1, self.position.tokens)

    def _checked_loss(self, loss: float, tokens: int) -> float:
        """The summed loss of a step, unless it is useless."""
        bits = loss * BITS / tokens
        # A loss far worse than guessing is as useless as NaN.
        if not bits < 100 * np.log2(self._vocabulary()):
            raise self._diverged(f"the loss became {bits:.3g} bits per token")
        return loss

    def _diverged(self, how: str) -> ModelOutputError:
        return ModelOutputError(
            f"{self.what} diverged at step {self.position.step + 1}: {how}; use a smaller learning rate than {self._options.rate}"
        )

    def _learned(self) -> Learned:
        """What was learned besides the weights."""
        return Learned({}, ())

    def _state(self) -> Arrays:
        return state_arrays(self.learning, self.optimizer, self._learned(), to_json(self.position))

    def _resumed(self, kind: type[_Place]) -> tuple[Learned, _Place] | None:
        """Put back what a stopped run kept, and return the rest of it; None where it kept nothing."""
        kept = self.running.kept()
        if kept is None:
            return None
        try:
            learned, position = restore(kept, self.learning, self.optimizer)
            return learned, msgspec.json.decode(position, type=kind)
        except (
            KeyError,
            RuntimeError,
            TypeError,
            ValueError,
        ):  # a part is missing, or of another kind or shape
            raise InputError(
                f"the {self.what} that was stopped here was begun by another version of coalmine, and cannot be resumed; "
                "remove its unfinished files to train from the start"
            ) from None
