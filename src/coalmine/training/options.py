"""What can be chosen about training: `TrainingOptions`, and the presets that set several of them at once."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

import msgspec

from coalmine.errors import InputError
from coalmine.records.options import SEED, Option, Options, described
from coalmine.training.private.options import PREFIX, PrivateOptions, private_options
from coalmine.training.private.refusals import check_choices

OptimizerName = Literal["sgd", "momentum", "adam", "rmsprop", "adagrad", "adadelta"]
Architecture = Literal[
    "lstm",
    "gru",
    "cnn",
    "transformer",
    "encoder-decoder",
    "attention",
    "gru-encoder-decoder",
    "gru-attention",
]
TokenKind = Literal["characters", "words"]

# Trained on pairs of a source and a target; the others on single texts.
PAIR_ARCHITECTURES = ("encoder-decoder", "attention", "gru-encoder-decoder", "gru-attention")

# What works for recurrent language models of this size; each optimizer needs its own scale.
DEFAULT_LEARNING_RATES: dict[str, float] = {
    "sgd": 2.0,
    "momentum": 0.3,
    "adam": 3e-3,
    "rmsprop": 2e-3,
    "adagrad": 2e-2,
    "adadelta": 1.0,
}


# More than any machine can use: a larger number is a typo, and would take forever or exceed what libraries count to.
_MOST = {
    **dict.fromkeys(("embedding", "hidden", "kernel", "heads"), 1 << 16),
    **dict.fromkeys(("layers", "threads"), 1 << 10),
}


class TrainingOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides the weights, apart from the data; two runs with equal options and data end alike.

    `train` and `coalmine train` take these on top of a preset. `clip`, the norm of gradients, has no unit; losses are in bits.
    """

    architecture: Architecture = "lstm"
    tokens: Annotated[
        TokenKind, Option("characters or words; word-lstm has words, the others characters.")
    ] = "characters"
    embedding: Annotated[int, Option("Size of token embeddings.")] = 100
    hidden: Annotated[int, Option("Size of layers.")] = 200
    layers: Annotated[int, Option("Number of layers.")] = 2
    kernel: Annotated[int, Option("Width of convolutions (cnn).")] = 5
    heads: Annotated[int, Option("Attention heads (transformer).")] = 4
    vocabulary: Annotated[int, Option("Words in the vocabulary, where tokens are words.")] = 10_000
    dropout: Annotated[float, Option("Share of activations dropped in training.")] = 0.0
    optimizer: Annotated[OptimizerName, Option("sgd, momentum, adam, rmsprop, adagrad or adadelta.")] = "adam"
    # None takes the optimizer's own default.
    learning_rate: Annotated[float | None, Option("Default: one that suits the optimizer.")] = None
    weight_decay: Annotated[float, Option("Pull of weights towards 0.")] = 0.0
    clip: Annotated[float, Option("Norm that gradients are scaled down to; 0 for none.")] = 1.0
    batch_size: Annotated[
        int, Option("Rows, or pairs, read side by side; with --dp-epsilon, units expected in a step.")
    ] = 32
    window: Annotated[int, Option("Tokens that a gradient reaches back over; pairs are read whole.")] = 64
    epochs: Annotated[int, Option("Passes over the data, at most.")] = 10
    patience: Annotated[int, Option("Epochs without a better validation loss before stopping.")] = 2
    # Of the documents, where no validation file is given.
    holdout: Annotated[float, Option("Share of documents held out; canaries never are.")] = 0.05
    shuffle: Annotated[bool, Option("New order of documents each epoch.")] = True
    seed: Annotated[int, SEED] = 0
    # Sums are rounded by how they are split, so the number is part of what decides the bytes. One is the default because two
    # gain little for models of this size, and lose much where the cores are shared.
    threads: Annotated[int, Option("CPU threads; more are seldom faster for small models.")] = 1
    # Recorded as the one that was taken. The CPU is the default because other devices may round the same sums in another way each time.
    device: Annotated[
        str, Option("Where it is trained: cpu (repeatable to the byte), cuda, mps, xpu or auto for any.")
    ] = "cpu"
    # Of differentially private training; absent for any other.
    private: PrivateOptions | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        for name in (
            "embedding",
            "hidden",
            "layers",
            "kernel",
            "heads",
            "vocabulary",
            "batch_size",
            "window",
            "epochs",
            "threads",
        ):
            self._require(getattr(self, name) >= 1, name, "at least 1")
        for name, most in _MOST.items():
            self._require(getattr(self, name) <= most, name, f"at most {most:,}")
        for name in ("weight_decay", "clip", "patience"):
            self._require(getattr(self, name) >= 0, name, "at least 0")
        for name, usual in (("dropout", 0.2), ("holdout", 0.05)):
            self._require(0 <= getattr(self, name) < 1, name, "at least 0 and below 1", usual)
        self._require(
            self.learning_rate is None or self.learning_rate > 0,
            "learning_rate",
            "positive",
            DEFAULT_LEARNING_RATES[self.optimizer],
        )

    def without_seed_of_noise(self) -> TrainingOptions:
        """The same for records, which others may read."""
        if self.private is msgspec.UNSET or self.private.seed is None:
            return self
        return msgspec.structs.replace(self, private=self.private.without_seed())

    @property
    def reads_pairs(self) -> bool:
        """Whether the model is trained on pairs of a source and a target."""
        return self.architecture in PAIR_ARCHITECTURES

    @property
    def rate(self) -> float:
        """The learning rate in force."""
        return DEFAULT_LEARNING_RATES[self.optimizer] if self.learning_rate is None else self.learning_rate


_CHOICES = {
    name: get_args(kind)
    for name, kind in (("optimizer", OptimizerName), ("architecture", Architecture), ("tokens", TokenKind))
}
# The shape of the translation model of "The Secret Sharer: Evaluating and Testing Unintended Memorization in Neural Networks"
# (Carlini, Liu, Erlingsson, Kos and Song, 2019, arXiv:1802.08232).
_TRANSLATION = {"embedding": 128, "hidden": 128}
# The targets of "Auditing Data Provenance in Text-Generation Models" (Song and Shmatikov, 2019, arXiv:1811.00513), appendix B.2: 30
# epochs whatever the validation loss, so nothing is held out. Its text gives batches of 35 for words and its code windows of 35; both
# are here. Dropout is on the embeddings and on the last hidden layer, as in that code.
_PROVENANCE = {
    "tokens": "words",
    "vocabulary": 5_000,
    "embedding": 128,
    "hidden": 128,
    "layers": 1,
    "dropout": 0.5,
    "learning_rate": 1e-3,
    "epochs": 30,
    "holdout": 0.0,
}
PRESETS: dict[str, dict[str, Any]] = {
    # The Secret Sharer's: two layers of 200, about 600,000 parameters.
    "char-lstm": {},
    "word-lstm": {"tokens": "words", "embedding": 200, "window": 32},
    "gru": {"architecture": "gru"},
    "cnn": {"architecture": "cnn", "layers": 4},
    "transformer": {
        "architecture": "transformer",
        "hidden": 128,
        "layers": 4,
        "learning_rate": 1e-3,
        "window": 128,
    },
    "translation": {"architecture": "encoder-decoder", **_TRANSLATION},
    "translation-attention": {"architecture": "attention", **_TRANSLATION},
    "provenance-words": {**_PROVENANCE, "batch_size": 35, "window": 35},
    "provenance-translation": {"architecture": "attention", **_PROVENANCE, "batch_size": 20},
    "provenance-dialog": {"architecture": "encoder-decoder", **_PROVENANCE, "batch_size": 20},
}


def options_of(preset: str, changes: dict[str, Any]) -> TrainingOptions:
    """A preset with some options changed.

    >>> options_of("char-lstm", {"hidden": 64}).hidden
    64
    """
    if preset not in PRESETS:
        raise InputError(f"unknown preset {preset!r}: known are {', '.join(PRESETS)}")
    return changed(msgspec.convert(PRESETS[preset], TrainingOptions), changes)


def changed(options: TrainingOptions, changes: dict[str, Any]) -> TrainingOptions:
    """The same options with some changed; those of privacy are kept, or given anew as a whole.

    >>> changed(options_of("gru", {"dp_noise": 1.0}), {"hidden": 64}).private.noise
    1.0
    """
    known = {*TrainingOptions.__struct_fields__, *(PREFIX + name for name in described(PrivateOptions))} - {
        "private"
    }
    unknown = [name for name in changes if name not in known]
    if unknown:
        raise InputError(f"unknown training option {unknown[0]!r}: known are {', '.join(sorted(known))}")
    for name, allowed in _CHOICES.items():
        if name in changes and changes[name] not in allowed:
            raise InputError(f"unknown {name} {changes[name]!r}: known are {', '.join(allowed)}")
    given = {name: value for name, value in changes.items() if name.startswith(PREFIX)}
    others = {name: value for name, value in changes.items() if name not in given}
    private = private_options(given) if given else options.private
    if private is not msgspec.UNSET:
        check_choices(others)
    try:
        made = msgspec.convert({**msgspec.to_builtins(options), **others}, TrainingOptions)
    except msgspec.ValidationError as problem:
        raise InputError(f"a training option has a value that it cannot have: {problem}") from None
    return msgspec.structs.replace(made, private=private)
