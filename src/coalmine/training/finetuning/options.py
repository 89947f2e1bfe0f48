"""What can be chosen about fine-tuning a checkpoint: `FinetuningOptions`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

import msgspec

from coalmine.errors import InputError
from coalmine.models.contexts import CHOICES, Choice
from coalmine.records.options import SEED, Option, Options, described
from coalmine.training.private.options import PREFIX, PrivateOptions, private_options
from coalmine.training.private.refusals import check_choices

OptimizerName = Literal["adamw", "sgd"]
PrecisionName = Literal["float32", "float64"]
# By optimizer, for all weights and for LoRA alone, whose few weights take larger steps.
DEFAULT_LEARNING_RATES = {"adamw": (5e-5, 5e-4), "sgd": (1e-2, 1e-1)}
USUAL_WINDOW = 256
# More than any machine can use: a larger number is a typo.
_MOST = {"lora_rank": 1 << 16, "threads": 1 << 10}
_CHOICES = {
    "optimizer": get_args(OptimizerName),
    "precision": get_args(PrecisionName),
    "context": CHOICES,
}


class FinetuningOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides the weights, apart from the base and the data; two runs with equal options end alike.

    `finetune` and `coalmine train --base` take these. `clip`, the norm of gradients, has no unit; losses are in bits.

    >>> FinetuningOptions(lora_rank=8).rate
    0.0005
    """

    lora_rank: Annotated[
        int, Option("Train LoRA adapters of this rank; 0, the default, trains all weights.", least=0)
    ] = 0
    # None takes twice the rank.
    lora_alpha: Annotated[float | None, Option("Scale of LoRA; default: twice the rank.")] = None
    lora_targets: Annotated[
        str | None,
        Option(
            "Layers that get LoRA, by name with commas between, or all-linear; default: those that PEFT has for the architecture."
        ),
    ] = None
    optimizer: Annotated[OptimizerName, Option("adamw (the default) or sgd.")] = "adamw"
    # None takes one for the optimizer, and for LoRA or all weights.
    learning_rate: Annotated[
        float | None, Option("Default: 5e-5 for adamw and 0.01 for sgd, ten times that with LoRA.")
    ] = None
    weight_decay: Annotated[float, Option("Pull of weights towards 0.")] = 0.0
    clip: Annotated[
        float, Option("Norm that the gradient of a step is scaled down to; 0 for none; default: 1.")
    ] = 1.0
    batch_size: Annotated[
        int, Option("Windows in a step, or documents or users in a private one on average; default: 16.")
    ] = 16
    # None takes USUAL_WINDOW, or what the model can read if that is less.
    window: Annotated[
        int | None,
        Option("Tokens read at once; longer documents are cut. Default: 256, or the model's limit."),
    ] = None
    epochs: Annotated[int, Option("Passes over the data; the weights of the last are kept; default: 3.")] = 3
    # Of the documents, where no validation file is given.
    holdout: Annotated[float, Option("Share of documents held out; canaries never are; default: 0.05.")] = (
        0.05
    )
    context: Annotated[
        Choice,
        Option(
            "What each document follows: auto (BOS, or end of text), bos, eot or none; docs/guides/models.md."
        ),
    ] = "auto"
    # Recorded as the one that was taken: the weights end alike on one device only.
    device: Annotated[
        str, Option("Where the model is trained, such as cpu or cuda:1; auto takes cuda, mps, xpu or cpu.")
    ] = "auto"
    precision: Annotated[PrecisionName, Option("float32 (the default) or float64.")] = "float32"
    seed: Annotated[int, SEED] = 0
    # Sums are rounded by how they are split, so the number is part of what decides the bytes.
    threads: Annotated[int, Option("CPU threads; another number may change the last digits.")] = 1

    # Of differentially private fine-tuning; absent for any other.
    private: PrivateOptions | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        for name in ("batch_size", "epochs", "threads"):
            self._require(getattr(self, name) >= 1, name, "at least 1")
        for name in ("lora_rank", "weight_decay", "clip"):
            self._require(getattr(self, name) >= 0, name, "at least 0")
        for name, most in _MOST.items():
            self._require(getattr(self, name) <= most, name, f"at most {most:,}")
        for name, usual in (("learning_rate", 1e-4), ("lora_alpha", 16), ("window", USUAL_WINDOW)):
            self._require((given := getattr(self, name)) is None or given > 0, name, "positive", usual)
        self._require(0 <= self.holdout < 1, "holdout", "at least 0 and below 1")
        for name, allowed in _CHOICES.items():
            self._require(getattr(self, name) in allowed, name, f"one of {', '.join(allowed)}")
        if not self.lora_rank and (self.lora_alpha is not None or self.lora_targets is not None):
            raise InputError(
                "lora_alpha and lora_targets are for LoRA, and lora_rank is 0; set lora_rank, such as 8"
            )

    def without_seed_of_noise(self) -> FinetuningOptions:
        """The same for records, which others may read."""
        if self.private is msgspec.UNSET or self.private.seed is None:
            return self
        return msgspec.structs.replace(self, private=self.private.without_seed())

    @property
    def rate(self) -> float:
        """The learning rate in force."""
        if self.learning_rate is not None:
            return self.learning_rate
        return DEFAULT_LEARNING_RATES[self.optimizer][self.lora_rank > 0]

    @property
    def scale(self) -> float:
        """The alpha of LoRA in force."""
        return 2.0 * self.lora_rank if self.lora_alpha is None else self.lora_alpha


def finetuning_options(changes: dict[str, Any]) -> FinetuningOptions:
    """The defaults with some options changed.

    >>> finetuning_options({"epochs": 1}).epochs
    1
    """
    known = {*FinetuningOptions.__struct_fields__, *(PREFIX + name for name in described(PrivateOptions))} - {
        "private"
    }
    unknown = [name for name in changes if name not in known]
    if unknown:
        raise InputError(
            f"unknown option of fine-tuning {unknown[0]!r}: known are {', '.join(sorted(known))}"
        )
    for name in _CHOICES.keys() & changes.keys():
        FinetuningOptions(**{name: changes[name]})  # which says what there is to choose from
    private = {name: value for name, value in changes.items() if name.startswith(PREFIX)}
    others = {name: value for name, value in changes.items() if name not in private}
    if private:
        check_choices(others)
    try:
        options = msgspec.convert(others, FinetuningOptions)
    except msgspec.ValidationError as problem:
        raise InputError(f"an option of fine-tuning has a value that it cannot have: {problem}") from None
    return msgspec.structs.replace(options, private=private_options(private)) if private else options
