"""`LightningExposureCallback`: exposure while Lightning trains a transformers model."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import coalmine
from coalmine.audits.watching.records import WATCHES, ExposureWatch, WatchOptions
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.errors import MissingExtraError, ModelError
from coalmine.integrations.exposure_log import ExposureLog
from coalmine.records.watching import When

try:
    import lightning
    from lightning.pytorch import Callback
except ImportError:
    raise MissingExtraError("a callback of Lightning", "lightning", "lightning") from None


class LightningExposureCallback(Callback):
    """As `ExposureCallback`, for `lightning.pytorch.Trainer`; metrics (in bits) go to all of its loggers.

    >>> callback = LightningExposureCallback("planted/canaries.json", tokenizer, every=100)  # doctest: +SKIP
    >>> trainer = Trainer(callbacks=[callback])  # doctest: +SKIP

    The model is the transformers model inside the trained module. If there is more than one, `network` is a function from the module to
    the model. If `out` is not given, the file is in the trainer's `default_root_dir`.
    """

    def __init__(
        self,
        canaries: CanarySet | str | os.PathLike[str],
        tokenizer: Any,
        options: WatchOptions | None = None,
        *,
        out: str | os.PathLike[str] | None = None,
        network: Callable[[Any], Any] | None = None,
        **changes: Any,
    ) -> None:
        watch = ExposureWatch(canaries, options, **changes)
        self.tokenizer, self.out, self.network = tokenizer, out, network or _only_model
        self.log_of_exposure = ExposureLog(
            watch, trainer=f"lightning {lightning.__version__}, coalmine {coalmine.__version__}"
        )

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Start the file, and measure the model before training."""
        if type(trainer.strategy).__name__ in {"FSDPStrategy", "DeepSpeedStrategy", "ModelParallelStrategy"}:
            raise ModelError(
                "exposure cannot be watched while the model is sharded over processes; remove the callback, and measure the "
                "saved checkpoints with expose"
            )
        out = Path(trainer.default_root_dir) / WATCHES.file if self.out is None else Path(self.out)
        self.log_of_exposure.begin(out, trainer.global_step)
        self._look(trainer, pl_module, "start", epoch=float(trainer.current_epoch))

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Measure if it is due."""
        del outputs, batch
        # The number of batches is infinite for a stream; the fraction is then 0.
        done = (batch_idx + 1) / trainer.num_training_batches
        self._look(trainer, pl_module, "step", epoch=trainer.current_epoch + done)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Measure, unless the last step of the epoch was measured."""
        self._look(trainer, pl_module, "epoch", epoch=trainer.current_epoch + 1.0)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Measure, unless the last step was measured."""
        self._look(trainer, pl_module, "end", epoch=float(trainer.current_epoch))

    def _look(self, trainer: Any, pl_module: Any, when: When, *, epoch: float) -> None:
        step = int(trainer.global_step)
        if not trainer.is_global_zero or not self.log_of_exposure.is_due(step, when):
            return
        metrics = self.log_of_exposure.look(
            self.network(pl_module), self.tokenizer, step=step, epoch=epoch, when=when
        )
        for logger in trainer.loggers:
            logger.log_metrics(metrics, step=step)


def _only_model(pl_module: Any) -> Any:
    """The one transformers model in a module that is not inside another model; with its adapter, if PEFT wrapped it in one."""
    from transformers import PreTrainedModel

    # The model inside an adapter of prompts or prefixes does not use them, and would be measured as if it had not been trained.
    peft = sys.modules.get("peft")  # if it was not imported, there is no adapter
    kinds = (PreTrainedModel,) if peft is None else (PreTrainedModel, peft.PeftModel)
    models = [module for module in pl_module.modules() if isinstance(module, kinds)]
    inside = {id(part) for model in models for part in model.modules() if part is not model}
    outer = [model for model in models if id(model) not in inside]
    if len(outer) != 1:
        raise ModelError(
            f"{type(pl_module).__name__} holds {len(outer)} transformers models; "
            "choose the one to measure with network=, such as network=lambda module: module.model"
        )
    return outer[0]
