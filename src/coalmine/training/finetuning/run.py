"""One fine-tuning, from the first batch or from the state that a stopped run kept to the files of the result."""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from coalmine.engines.threads import computing_threads
from coalmine.engines.units import Running
from coalmine.errors import CorpusError
from coalmine.models.transformers.libraries import quiet
from coalmine.models.transformers.quantization import parameters_in
from coalmine.randomness import child_seed
from coalmine.training.data import IGNORED, TrainingText, hold_out
from coalmine.training.epochs import BITS, EpochRun, Position, StepData
from coalmine.training.finetuning.base_checkpoint import (
    Base,
    TunedNetwork,
    open_base,
    result_files,
    saved_network,
)
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

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}


class Finetuned(NamedTuple):
    """What a fine-tuning ends with: the files of the network by name, and the record of how it was trained."""

    files: dict[str, bytes]
    record: FinetuningRecord


class FinetuningRun(EpochRun):
    """Fine-tunes a checkpoint."""

    what = "fine-tuning"

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
        super().__init__(options, running, size=size)
        self.directory, self.base, self.text, self.options = directory, base, text, options
        self.fingerprint = fingerprint

    def finish(self) -> Finetuned:
        """Train to the end, from what a stopped run kept if there is something."""
        with computing_threads(self.options.threads), quiet():
            self._prepare()
            self._run_epochs()
            self.network.eval()
            files = saved_network(self.network, self.directory)
        return Finetuned(files, self._record(files))

    def _prepare(self) -> None:
        options = self.options
        torch.manual_seed(child_seed(options.seed, "finetune", "torch") % 2**63)
        self.tuned: TunedNetwork = open_base(self.directory, options)
        self.network = self.tuned.network
        self._takes_positions = "position_ids" in inspect.signature(_own(self.network).forward).parameters
        self._cut_texts()
        # As one module, so that the state of a run has what changes and not the rest of the base.
        self.learning = torch.nn.ParameterList(one for one in self.network.parameters() if one.requires_grad)
        self.optimizer = _OPTIMIZERS[options.optimizer](
            self.learning.parameters(), lr=options.rate, weight_decay=options.weight_decay
        )
        resumed = self._resumed(Position)
        self.position = Position() if resumed is None else resumed[1]

    def _cut_texts(self) -> None:
        options, documents, held_out = self.options, self.text.documents, self.text.held_out
        if held_out is None:
            documents, held_out = hold_out(documents, self.text.planted, options.holdout, options.seed)
        self.length = window_length(self.tuned, options)
        self.documents, self.users = len(documents.texts), documents.users
        self.training: Windows = windows_of(documents.texts, self.tuned, self.length)
        self.validation: Windows = windows_of(held_out.texts, self.tuned, self.length)
        self.tokens = int(self.training.lengths.sum())
        if not self.tokens:
            raise CorpusError("there are no tokens to train on; check the corpus")

    def _batches(self) -> Sequence[StepData]:
        return Batches(self.training, epoch_batches(self.training, self.options, self.position.epoch))

    def _learn(self, batch: Any) -> float:
        self.optimizer.zero_grad(set_to_none=True)
        summed = self._losses(batch).sum()
        (summed / batch.tokens).backward()
        if self.options.clip:
            torch.nn.utils.clip_grad_norm_(self.learning.parameters(), self.options.clip)
        self.optimizer.step()
        return self._checked_loss(float(summed.detach()), batch.tokens)

    def _vocabulary(self) -> int:
        return self.tuned.reader.tokenizer.size

    def _losses(self, batch: WindowBatch) -> Tensor:
        return losses_of(self.network, batch, positions=self._takes_positions)

    @torch.no_grad()
    def _validation_bits(self) -> float | None:
        if not self.validation.tokens:
            return None
        self.network.eval()
        loss = 0.0
        for places in validation_batches(self.validation, self.options):
            loss += float(self._losses(batch_of(self.validation, places)).sum())
        return loss * BITS / int(self.validation.lengths.sum())

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
            tokens=self.tokens,
            windows=len(self.training.tokens),
            window=self.length,
            context=str(self.tuned.reader.describe()["context"]),
            parameters=parameters_in(self.network),
            trained_parameters=sum(one.numel() for one in self.learning.parameters()),
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
