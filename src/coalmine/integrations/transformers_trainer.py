"""`ExposureCallback`: exposure while a Hugging Face `Trainer`, or any trainer built on it, trains."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

import coalmine
from coalmine.audits.watching.records import WATCHES, ExposureWatch, WatchOptions
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.errors import MissingExtraError, ModelError
from coalmine.evidence.directories import audit_directory
from coalmine.integrations.exposure_log import FOLDER, ExposureLog
from coalmine.records.watching import When

try:
    import transformers
    from transformers.trainer_callback import CallbackHandler, TrainerCallback
except ImportError:
    raise MissingExtraError("a callback of the Trainer", "transformers", "transformers") from None


class ExposureCallback(TrainerCallback):
    """Measures the exposure of canaries in bits: before the first step, every `every` steps, after each epoch and at the end.

    >>> callback = ExposureCallback("planted/canaries.json", tokenizer, every=100)  # doctest: +SKIP
    >>> trainer = Trainer(model, args, train_dataset=data, callbacks=[callback])  # doctest: +SKIP

    The trainer logs medians for each number of repetitions, and all numbers go to `out`. The default is
    `watching/exposure-during-training.json` in the audit directory next to the trainer's output directory, which people upload: for
    `model`, that is `model-audit`. The final weights are the same with and without the callback.

    Args:
        canaries: the manifest of the planted corpus, or the set of canaries.
        tokenizer: that of the model; None uses the trainer's own.
        options: how to watch; the fields of `WatchOptions` can be given as keywords, instead of a record or on top of one. `every`
            counts optimizer steps.
        out: the file to write; it has mode 0600.
    """

    def __init__(
        self,
        canaries: CanarySet | str | os.PathLike[str],
        tokenizer: Any = None,
        options: WatchOptions | None = None,
        *,
        out: str | os.PathLike[str] | None = None,
        **changes: Any,
    ) -> None:
        watch = ExposureWatch(canaries, options, **changes)
        self.tokenizer, self.out = tokenizer, out
        self.log = ExposureLog(
            watch, trainer=f"transformers {transformers.__version__}, coalmine {coalmine.__version__}"
        )

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Start the file, and measure the model before training, which also shows that it can be measured at all."""
        if getattr(args, "deepspeed", None) or getattr(args, "fsdp", None):
            raise ModelError(
                "exposure cannot be watched while the model is sharded over processes (FSDP or DeepSpeed); remove the callback, "
                "and measure the saved checkpoints with expose"
            )
        out = audit_directory(args.output_dir, FOLDER) / WATCHES.file if self.out is None else Path(self.out)
        self.log.begin(out, state.global_step)
        self._look(args, state, control, given, "start")
        # The checkpoint of an epoch's last step is written before the epoch is measured; a run that was stopped in between needs both.
        if self.log.moments and state.global_step > 0 and float(state.epoch or 0.0).is_integer():
            self._look(args, state, control, given, "epoch")

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Measure if it is due."""
        self._look(args, state, control, given, "step")

    def on_epoch_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Measure, unless the last step of the epoch was measured."""
        self._look(args, state, control, given, "epoch")

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Measure the final weights, again if they are not those of the last step but the best ones."""
        replaced = bool(args.load_best_model_at_end and state.best_model_checkpoint)
        self._look(args, state, control, given, "end", always=replaced)

    def _look(
        self, args: Any, state: Any, control: Any, given: dict[str, Any], when: When, *, always: bool = False
    ) -> None:
        step = int(state.global_step)
        if not state.is_world_process_zero or not (always or self.log.is_due(step, when)):
            return
        tokenizer = given.get("processing_class") if self.tokenizer is None else self.tokenizer
        metrics = self.log.look(
            given["model"], tokenizer, step=step, epoch=float(state.epoch or 0.0), when=when
        )
        _hand_to_loggers(metrics, args, state, control)


def _hand_to_loggers(metrics: dict[str, float], args: Any, state: Any, control: Any) -> None:
    """Log as `Trainer.log` does, through the handler of its callbacks.

    A callback is given the trainer's state but not the trainer, and `Trainer.log` would not do anyway: subclasses average what they
    collected since the last call and start over. So the calling handler is used directly.
    """
    if not metrics:
        return
    logs = {**metrics, "epoch": float(state.epoch or 0.0)}
    state.log_history.append({**logs, "step": state.global_step})
    handler = _calling_handler()
    if handler is not None:
        wanted = control.should_log  # the handler takes any log for the due one, and would drop the loss
        handler.on_log(args, state, control, logs)
        control.should_log = wanted


def _calling_handler() -> CallbackHandler | None:
    """The handler that called a callback, found among the callers; None if something else called it."""
    frame = inspect.currentframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, CallbackHandler):
            return caller
        frame = frame.f_back
    return None
