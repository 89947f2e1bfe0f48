"""What the callbacks share: measuring a live model without disturbing its training, metrics for a logger, and the file."""

from __future__ import annotations

import copy
import re
import statistics
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from coalmine.audits.watching.records import WATCHES, ExposureWatch, WatchedTraining, read_watched
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.errors import CoalmineError, InputError
from coalmine.formats.naming import format_name
from coalmine.grouped import grouped
from coalmine.records import Canary
from coalmine.records.watching import Moment, When
from coalmine.training.undisturbed import undisturbed

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# The folder in the audit directory.
FOLDER = "watching"
# The most characters of a template in the names of metrics.
_ENDING = 40


class ExposureLog:
    """Measures a live model during its training and records the results in one file."""

    def __init__(self, watch: ExposureWatch, *, trainer: str) -> None:
        self.watch, self.trainer = watch, trainer
        self.path: Path | None = None
        self.moments: list[Moment] = []
        self._template: str | msgspec.UnsetType = msgspec.UNSET

    def begin(self, path: Path, step: int) -> None:
        """Start a file, or resume the file of the run that is resumed at `step`."""
        self.path, self.moments = path, []
        if step > 0 and path.is_file():
            earlier = read_watched(path)
            if earlier.watch == self.watch.describe():
                self.moments = [moment for moment in earlier.watched if moment.step <= step]

    def is_due(self, step: int, when: When) -> bool:
        """Whether to measure now: every `every` steps, and at other moments if this step was not measured yet.

        A resumed run is not measured before its first step: a run that was never stopped is not measured there, and its file should be
        the same.
        """
        looked_at = bool(self.moments) and self.moments[-1].step == step
        resumed = when == "start" and bool(self.moments)
        return not looked_at and not resumed and (when != "step" or step % self.watch.every == 0)

    def look(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None,
        *,
        step: int,
        epoch: float,
        when: When,
    ) -> dict[str, float]:
        """Measure, record and write; returns metrics for a logger.

        At the start, a failure to measure or write is an error, before any training is spent. Later it is a warning, and a moment with
        its problem: a measurement must not end a training.
        """
        import torch

        seen: list[dict[str, Any]] = []
        problem = None
        try:
            seen = self._measure(model, tokenizer)
        except (CoalmineError, torch.OutOfMemoryError) as error:
            if when == "start":
                raise
            problem = f"{type(error).__name__}: {error}"
            warnings.warn(f"exposure was not measured at step {step} ({problem})", stacklevel=2)
        self.moments.append(Moment(step=step, epoch=epoch, when=when, seen=seen, problem=problem))
        if self.path is not None:
            record = WatchedTraining(
                watch=self.watch.describe(),
                trainer=self.trainer,
                watched=self.moments,
                formats={name: one.template for name, one in self.watch.canaries.formats.items()},
                chat_template_sha256=self._template,
            )
            try:
                WATCHES.save(self.path.parent, record, self.path.name)
            except InputError as error:
                if when == "start":
                    raise
                warnings.warn(f"the exposure at step {step} was not written: {error}", stacklevel=2)
        return metrics_of(seen, self.watch.canaries)

    def _measure(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None
    ) -> list[dict[str, Any]]:
        from coalmine.models.transformers.causal import from_transformers
        from coalmine.models.transformers.chat import template_sha256

        if tokenizer is None:
            raise InputError("the callback has no tokenizer; give it the one that the model is trained with")
        if self.watch.canaries.frame is not None:
            self._template = template_sha256(tokenizer)
        with undisturbed(model):
            # Inside, because the adapter tests the model, and a model in training mode draws its dropout.
            return self.watch.measure(from_transformers(model, _untruncated(tokenizer), name="training"))


def _untruncated(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """A copy that encodes whole texts: a call with truncation or padding leaves them switched on for later calls."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or (backend.truncation is None and backend.padding is None):
        return tokenizer
    whole: Any = copy.deepcopy(tokenizer)
    whole.backend_tokenizer.no_truncation()
    whole.backend_tokenizer.no_padding()
    return cast("PreTrainedTokenizerBase", whole)


def metrics_of(seen: Sequence[dict[str, Any]], canaries: CanarySet) -> dict[str, float]:
    """Medians over the canaries of one format that were trained on equally often, by the names that a logger shows.

    For canaries planted 64 times: `coalmine/exposure_median_x64` and `coalmine/log_perplexity_bits_median_x64`, both in bits. If only a
    lower bound of an exposure is known, that bound is used, and `coalmine/lower_bounds_x64` is the share of such canaries. Canaries
    without a number are in no median. Withheld canaries have `withheld` instead of `x64`. Formats are never mixed: if there are several,
    each name ends in the words of the template, as in `exposure_median_x64_my_pin_is_digits_4`.
    """
    of_id = {canary.canary_id: canary for canary in canaries}
    endings = _endings(canaries)
    pairs = ((of_id[entry["canary_id"]], entry) for entry in seen)
    groups = grouped((f"{_group_of(one)}{endings[one.format_id]}", entry) for one, entry in pairs)
    metrics: dict[str, float] = {}
    for group, entries in groups.items():
        known = [entry for entry in entries if entry["status"] != "not_measured"]
        exposures = [
            float(entry["low"] if entry["exposure"] is None else entry["exposure"]) for entry in known
        ]
        if exposures:
            metrics[f"coalmine/exposure_median_{group}"] = statistics.median(exposures)
            bounds = [entry for entry in known if entry["status"] == "lower_bound"]
            metrics[f"coalmine/lower_bounds_{group}"] = len(bounds) / len(known)
        bits = [float(entry["log_perplexity_bits"]) for entry in entries]
        metrics[f"coalmine/log_perplexity_bits_median_{group}"] = statistics.median(bits)
    return metrics


def _endings(canaries: CanarySet) -> dict[str, str]:
    """The endings of the names of each format's metrics: empty if there is only one format.

    All loggers accept letters, digits and underscores. A format that is only a list of known texts is named by its id, because its
    template contains these texts.
    """
    if len(canaries.formats) == 1:
        return dict.fromkeys(canaries.formats, "")
    words = {
        format_id: re.sub(r"[^0-9A-Za-z]+", "_", format_name(secret.template, _ENDING)).strip("_")
        if format_id not in canaries.listed
        else ""
        for format_id, secret in canaries.formats.items()
    }
    alike = Counter(words.values())
    return {
        format_id: f"_{word}" if word and alike[word] == 1 else f"_{word}_{format_id}".replace("__", "_")
        for format_id, word in words.items()
    }


def _group_of(canary: Canary) -> str:
    return f"x{canary.times_trained_on}" if canary.times_trained_on else "withheld"
