"""What can be chosen about a training run, and the presets that the command line offers by name."""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

from coalmine.errors import InputError

OptimizerName = Literal["sgd", "momentum", "adam", "rmsprop", "adagrad", "adadelta"]
Architecture = Literal["lstm", "gru", "cnn", "transformer", "encoder-decoder", "attention"]
TokenKind = Literal["characters", "words"]

# Trained on pairs of a source and a target; the others on single texts.
PAIR_ARCHITECTURES = ("encoder-decoder", "attention")

# What works for recurrent language models of this size; each optimizer needs a scale of its own.
DEFAULT_LEARNING_RATES: dict[str, float] = {
    "sgd": 2.0,
    "momentum": 0.3,
    "adam": 3e-3,
    "rmsprop": 2e-3,
    "adagrad": 2e-2,
    "adadelta": 1.0,
}


# More than any machine can use: what is larger is a slip, and would be built without end or beyond what libraries count to.
_MOST = {
    **dict.fromkeys(("embedding", "hidden", "kernel", "heads"), 1 << 16),
    **dict.fromkeys(("layers", "threads"), 1 << 10),
}


class TrainingOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides the weights, apart from the data; two runs with equal options and data end alike."""

    architecture: Architecture = "lstm"
    tokens: TokenKind = "characters"
    embedding: int = 100
    hidden: int = 200
    layers: int = 2
    kernel: int = 5
    heads: int = 4
    # Words of the vocabulary, for word models.
    vocabulary: int = 10_000
    dropout: float = 0.0
    optimizer: OptimizerName = "adam"
    # None takes the optimizer's own default.
    learning_rate: float | None = None
    weight_decay: float = 0.0
    # Gradients are scaled down to this norm; 0 leaves them alone.
    clip: float = 1.0
    batch_size: int = 32
    # Tokens that a gradient reaches back over; pairs are always read whole.
    window: int = 64
    epochs: int = 10
    # Epochs without a new minimum of the validation loss before training stops.
    patience: int = 2
    # Share of the documents that is held out for validation where no validation file is given; canaries never are.
    holdout: float = 0.05
    # Whether documents are put in a new order for each epoch.
    shuffle: bool = True
    seed: int = 0
    # CPU threads. Sums are rounded by how they are split, so the number is part of what decides the bytes. One is the
    # default because two give little for models of this size, and lose much where the cores are shared.
    threads: int = 1

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
        for name in ("dropout", "holdout"):
            self._require(0 <= getattr(self, name) < 1, name, "in [0, 1)")
        self._require(self.learning_rate is None or self.learning_rate > 0, "learning_rate", "positive")

    def _require(self, holds: bool, name: str, condition: str) -> None:
        if not holds:
            raise InputError(f"{name} must be {condition}, got {getattr(self, name)}")

    @property
    def reads_pairs(self) -> bool:
        """Whether it is trained on pairs of a source and a target."""
        return self.architecture in PAIR_ARCHITECTURES

    @property
    def rate(self) -> float:
        """The learning rate in force."""
        return DEFAULT_LEARNING_RATES[self.optimizer] if self.learning_rate is None else self.learning_rate


_CHOICES = {
    name: get_args(kind)
    for name, kind in (("optimizer", OptimizerName), ("architecture", Architecture), ("tokens", TokenKind))
}
# The shape of the Secret Sharer's translation model.
_TRANSLATION = {"embedding": 128, "hidden": 128}
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
}


def options_of(preset: str, changes: dict[str, Any]) -> TrainingOptions:
    """A preset with some options changed.

    >>> options_of("char-lstm", {"hidden": 64}).hidden
    64
    """
    if preset not in PRESETS:
        raise InputError(f"unknown preset {preset!r}: known are {', '.join(PRESETS)}")
    known = set(TrainingOptions.__struct_fields__)
    unknown = [name for name in changes if name not in known]
    if unknown:
        raise InputError(f"unknown training option {unknown[0]!r}: known are {', '.join(sorted(known))}")
    for name, allowed in _CHOICES.items():
        if name in changes and changes[name] not in allowed:
            raise InputError(f"unknown {name} {changes[name]!r}: known are {', '.join(allowed)}")
    try:
        return msgspec.convert({**PRESETS[preset], **changes}, TrainingOptions)
    except msgspec.ValidationError as problem:
        raise InputError(f"a training option has a value that it cannot have: {problem}") from None
