"""How the models of a bench are trained where a defense changes nothing: a reference model from the start, or a checkpoint further."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coalmine.audits.defenses.defense import UNLEARN, Defense
from coalmine.engines.units import Arrays, Run, Unit
from coalmine.errors import InputError
from coalmine.models.reference.tokens import ReferenceTokenizer
from coalmine.randomness import child_seed
from coalmine.training.data import TrainingText
from coalmine.training.finetuning.base_checkpoint import Base, base_in
from coalmine.training.finetuning.options import FinetuningOptions, finetuning_options
from coalmine.training.finetuning.tuner import save_finetuned
from coalmine.training.finetuning.work import FinetuningWork
from coalmine.training.options import TrainingOptions, options_of
from coalmine.training.private.options import PREFIX, private_options
from coalmine.training.private.refusals import check_choices
from coalmine.training.quantizing.options import QuantizeOptions
from coalmine.training.work import Member, TrainingWork, save_trained

# What a defense, or the bench as a whole, decides.
_DECIDED = ("seed", "holdout", *(f"{PREFIX}{name}" for name in ("epsilon", "noise", "delta")))
_NOISE_SEED, _UNIT = f"{PREFIX}seed", f"{PREFIX}unit"
Options = TrainingOptions | FinetuningOptions


class TrainingPiece(NamedTuple):
    """One training as a unit of work, the function that runs it, and the function that writes what it ends with."""

    unit: Unit
    prepare: Callable[[], Run]
    save: Callable[[Arrays, Path], Any]
    memory_bytes: int

    @property
    def key(self) -> str:
        """Equal for two trainings exactly when both should end with the same model."""
        return str(self.unit.inputs)


@dataclass(frozen=True, kw_only=True)
class BenchRecipe:
    """A way of training, which defenses change one option of.

    Attributes:
        usual: the options where a defense changes nothing.
        private: options that all private trainings have in common, with names that begin with dp_.
        start: the directory of the checkpoint that is trained further, and `base` which one that is; None for reference models.
    """

    usual: Options
    private: Mapping[str, Any] = field(default_factory=dict)
    start: Path | None = None
    base: Base | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any], *, preset: str, base: Path | None, seed: int) -> BenchRecipe:
        """From the options that the user named."""
        decided = next((name for name in given if name in _DECIDED), None)
        if decided is not None:
            raise InputError(
                f"{decided} is decided by the defenses, or for the bench as a whole, and not by the options of training; leave it out there"
            )
        private = {name: value for name, value in given.items() if name.startswith(PREFIX)}
        named = {name: value for name, value in given.items() if name not in private} | {"seed": seed}
        if base is None:
            return cls(usual=options_of(preset, named), private=private)
        start = base.absolute()
        return cls(usual=finetuning_options(named), private=private, start=start, base=base_in(start))

    @property
    def tokenizer(self) -> TrainingOptions | None:
        """The options that say which tokens texts are cut into; None for a checkpoint, which has a tokenizer."""
        return self.usual if isinstance(self.usual, TrainingOptions) else None

    @property
    def by_user(self) -> bool:
        """Whether the unit of privacy is the user."""
        return self.private.get(_UNIT) == "user"

    def options(self, changes: Mapping[str, Any], name: str, seed: int, delta: float) -> Options:
        """The options of one training; `changes` are those of its defense, which is called `name`."""
        private = {key: value for key, value in changes.items() if key.startswith(PREFIX)}
        others = {key: value for key, value in changes.items() if key not in private}
        unknown = next((key for key in others if key not in self.usual.__struct_fields__), None)
        if unknown is not None:
            what = (
                "a checkpoint" if self.base is not None else "a reference model, and not a checkpoint (base)"
            )
            raise InputError(f"the defense {name} is not known for the training of {what}; leave it out")
        options = type(self.usual)(**{**msgspec.structs.asdict(self.usual), **others, "seed": seed})
        if not private:
            return options
        if isinstance(options, TrainingOptions):
            # Patience and the clipping of batches are of the other trainings.
            check_choices({"shuffle": options.shuffle})
        shared = {**self.private, f"{PREFIX}delta": delta}
        if shared.get(_NOISE_SEED) is not None:
            # Another noise for every training.
            shared[_NOISE_SEED] = child_seed(shared[_NOISE_SEED], "defend", "noise", name, str(seed)) % 2**63
        return msgspec.structs.replace(options, private=private_options({**shared, **private}))

    def check_altering(self, defense: Defense) -> None:
        """Refuse what cannot be made of a model of this recipe, before any is trained."""
        altering = defense.altering()
        if altering is None:
            return
        if defense.kind != UNLEARN:
            QuantizeOptions(**altering)  # which says what is wrong with it
        elif self.base is not None:
            raise InputError(
                f"the defense {UNLEARN} is for reference models, and not for a checkpoint (base); leave it out"
            )

    def check_private(self, defenses: Sequence[Defense]) -> None:
        """Refuse options of private training where no defense is one."""
        given = next(iter(self.private), None)
        if given is not None and not any(
            name.startswith(PREFIX) for one in defenses for name in one.changes()
        ):
            raise InputError(
                f"{given} was given, and no defense trains privately with it; name one, such as dp=8, or leave {given} out"
            )

    def piece(self, text: TrainingText, options: Options, label: str) -> TrainingPiece:
        """One training on a text."""
        if isinstance(options, TrainingOptions):
            work = TrainingWork(text, (Member(options, None, label=label),))
            return TrainingPiece(work.unit(0), work.prepare, save_trained, work.memory_bytes)
        if self.start is None or self.base is None:
            raise TypeError("a checkpoint is fine-tuned, and there is none")
        start, tuning = self.start, FinetuningWork(self.start, self.base, text, options)
        return TrainingPiece(
            tuning.unit(),
            tuning.prepare,
            lambda arrays, directory: save_finetuned(arrays, directory, start, options),
            tuning.memory_bytes,
        )

    def with_tokenizer(self, text: TrainingText, tokenizer: ReferenceTokenizer | None) -> TrainingText:
        """A text, to be read with the tokenizer of the bench if it has one of its own."""
        return text if tokenizer is None else text._replace(tokenizer=tokenizer)
