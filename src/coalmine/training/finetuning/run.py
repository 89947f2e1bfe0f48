"""One fine-tuning, from the first batch or from the state that a stopped run kept to the files of the result."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from coalmine.engines.threads import computing_threads
from coalmine.engines.units import Arrays, Running
from coalmine.errors import CorpusError, InputError, ModelOutputError
from coalmine.models.transformers.libraries import quiet
from coalmine.randomness import child_seed
from coalmine.storage.files import to_json
from coalmine.training.data import IGNORED, TrainingText, hold_out
from coalmine.training.finetuning.base import Base, TunedNetwork, open_base, result_files, saved_network
from coalmine.training.finetuning.options import FinetuningOptions
from coalmine.training.finetuning.record import FinetuningRecord
from coalmine.training.finetuning.rows import (
    Batches,
    WindowBatch,
    Windows,
    batch_of,
    epoch_batches,
    validation_batches,
    window_length,
    windows_of,
)
from coalmine.training.record import EpochRecord
from coalmine.training.run import BITS, StepData
from coalmine.training.state import Learned, restore, state_arrays

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coalmine.records.privacy import PrivacyClaim

_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}


class Finetuned(NamedTuple):
    """What a fine-tuning ends with: the files of the network by name, and the record of how it was trained."""

    files: dict[str, bytes]
    record: FinetuningRecord


class _TuningPosition(msgspec.Struct, forbid_unknown_fields=True):
    """How far a run has come; plain JSON, so that it can be kept."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    # Sums over the current epoch, in nats and tokens.
    loss: float = 0.0
    tokens: int = 0
    epochs: list[EpochRecord] = msgspec.field(default_factory=list)


class FinetuningRun:
    """Holds the network, the optimizer and the position, and moves them forward; `running` keeps the state and gets the progress."""

    def __init__(
        self,
        directory: Path,
        base: Base,
        text: TrainingText,
        options: FinetuningOptions,
        running: Running,
        *,
        size: int,
        fingerprint: str,
    ) -> None:
        self.directory, self.base, self.text, self.options = directory, base, text, options
        self.running, self.fingerprint = running, fingerprint
        self._size, self._reported = size, 0

    def finish(self) -> Finetuned:
        """Train to the end, from what a stopped run kept if there is something."""
        options = self.options
        with computing_threads(options.threads), quiet():
            self._prepare()
            self._report("resumed" if self.position.step else "")
            while self.position.epoch < options.epochs:
                self._run_epoch()
                self.running.keep(self._state)
            self.network.eval()
            files = saved_network(self.network, self.directory)
        return Finetuned(files, self._record(files))

    def _prepare(self) -> None:
        options = self.options
        torch.manual_seed(child_seed(options.seed, "finetune", "torch") % 2**63)
        self.tuned: TunedNetwork = open_base(self.directory, options)
        self.network: Any = self.tuned.network
        self._takes_positions = "position_ids" in inspect.signature(_own(self.network).forward).parameters
        self._cut_texts()
        # As one module, so that the state of a run has what changes and not the rest of the base.
        self.trained = torch.nn.ParameterList(one for one in self.network.parameters() if one.requires_grad)
        self.optimizer = _OPTIMIZERS[options.optimizer](
            self.trained.parameters(), lr=options.rate, weight_decay=options.weight_decay
        )
        self.position = _TuningPosition()
        kept = self.running.kept()
        if kept is not None:
            try:
                _, position = restore(kept, self.trained, self.optimizer)
                self.position = msgspec.json.decode(position, type=_TuningPosition)
            except (KeyError, RuntimeError, TypeError, ValueError):
                raise InputError(
                    "the fine-tuning that was stopped here was begun by another version of coalmine, and cannot be resumed; "
                    "remove its unfinished files to train from the start"
                ) from None

    def _cut_texts(self) -> None:
        options, documents, held_out = self.options, self.text.documents, self.text.held_out
        if held_out is None:
            documents, held_out = hold_out(documents, self.text.planted, options.holdout, options.seed)
        self.length = window_length(self.tuned, options)
        self.documents, self.users = len(documents.texts), documents.users
        self.training: Windows = windows_of(documents.texts, self.tuned, self.length)
        self.validation: Windows = windows_of(held_out.texts, self.tuned, self.length)
        self._tokens = int(self.training.lengths.sum())
        if not self._tokens:
            raise CorpusError("there are no tokens to train on; check the corpus")

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
            self.running.keep(self._state)
        self._end_epoch(len(batches))

    def _batches(self) -> Sequence[StepData]:
        """Those of the epoch that the run is in."""
        return Batches(self.training, epoch_batches(self.training, self.options, self.position.epoch))

    def _claim(self) -> PrivacyClaim | msgspec.UnsetType:
        """What is claimed about privacy."""
        return msgspec.UNSET

    def _learn(self, batch: Any) -> float:
        """One of `_batches`; returns its loss in nats, summed over its tokens."""
        self.optimizer.zero_grad(set_to_none=True)
        summed = self._losses(batch).sum()
        (summed / batch.tokens).backward()
        if self.options.clip:
            torch.nn.utils.clip_grad_norm_(self.trained.parameters(), self.options.clip)
        self.optimizer.step()
        return self._checked_loss(float(summed.detach()), batch.tokens)

    def _checked_loss(self, loss: float, tokens: int) -> float:
        """The summed loss of a step, unless it is useless."""
        bits = loss * BITS / tokens
        # A loss far worse than guessing is as useless as NaN.
        if not bits < 100 * np.log2(self.tuned.reader.tokenizer.size):
            raise self._diverged(f"the loss became {bits:.3g} bits per token")
        return loss

    def _diverged(self, how: str) -> ModelOutputError:
        return ModelOutputError(
            f"fine-tuning diverged at step {self.position.step + 1}: {how}; use a smaller learning rate than {self.options.rate}"
        )

    def _losses(self, batch: WindowBatch) -> Tensor:
        return losses_of(self.network, batch, positions=self._takes_positions)

    def _end_epoch(self, steps: int) -> None:
        position = self.position
        position.epochs.append(
            EpochRecord(
                epoch=position.epoch + 1,
                steps=steps,
                training_loss_bits=self._mean_bits() if position.tokens else None,
                validation_loss_bits=self._validation_bits(),
            )
        )
        position.epoch += 1
        position.batch = position.tokens = 0
        position.loss = 0.0

    @torch.no_grad()
    def _validation_bits(self) -> float | None:
        if not self.validation.tokens:
            return None
        self.network.eval()
        loss = 0.0
        for places in validation_batches(self.validation, self.options):
            loss += float(self._losses(batch_of(self.validation, places)).sum())
        return loss * BITS / int(self.validation.lengths.sum())

    def _share_done(self) -> Fraction:
        """How much of the whole is done."""
        tokens = len(self.position.epochs) * self._tokens + self.position.tokens
        return Fraction(tokens, self._tokens * self.options.epochs)

    def _report(self, note: str) -> None:
        """Report how much of the whole is done."""
        done = int(self._size * self._share_done())
        amount, self._reported = done - self._reported, done
        with contextlib.suppress(KeyboardInterrupt):  # `keep` stops the run too, after keeping the state
            self.running.advance(amount, note)

    def _state(self) -> Arrays:
        return state_arrays(self.trained, self.optimizer, Learned({}, ()), to_json(self.position))

    def _mean_bits(self) -> float:
        return self.position.loss * BITS / max(1, self.position.tokens)

    def _record(self, files: dict[str, bytes]) -> FinetuningRecord:
        weights, config = (hashlib.sha256(files[name]).hexdigest() for name in result_files(self.options))
        return FinetuningRecord(
            options=self.options.without_seed_of_noise(),
            base=self.base,
            data_sha256=self.text.sha256,
            weights_sha256=weights,
            config_sha256=config,
            fields=self.text.fields,
            validation_sha256=self.text.validation_sha256,
            documents=self.documents,
            tokens=self._tokens,
            windows=len(self.training.tokens),
            window=self.length,
            context=str(self.tuned.reader.describe()["context"]),
            parameters=sum(one.numel() for one in self.network.parameters()),
            trained_parameters=sum(one.numel() for one in self.trained.parameters()),
            epochs=self.position.epochs,
            privacy=self._claim(),
        )


def _own(network: Any) -> Any:
    """The model inside the wrapper of an adapter."""
    return network.get_base_model() if hasattr(network, "peft_config") else network


def losses_of(network: Any, batch: WindowBatch, *, positions: bool) -> Tensor:
    """(rows,) losses in nats, each summed over the tokens of a window; padding has none.

    With `positions`, those of the tokens are given to the network, for each row.
    """
    device = network.device
    further = {"position_ids": batch.positions.to(device)} if positions else {}
    logits = network(input_ids=batch.read.to(device), use_cache=False, **further).logits
    expected = batch.expected.to(device)
    losses = F.cross_entropy(logits.flatten(0, 1), expected.flatten(), ignore_index=IGNORED, reduction="none")
    return losses.view(expected.shape).sum(dim=1)
