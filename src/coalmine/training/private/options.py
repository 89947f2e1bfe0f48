"""What can be chosen about private training: `PrivateOptions`, which training takes with names that begin with dp_."""

from __future__ import annotations

import hashlib
import math
from functools import cache
from typing import Annotated, Any

import msgspec

from coalmine.errors import InputError
from coalmine.records.options import Option, Options
from coalmine.records.privacy import PrivacyUnit

PREFIX = "dp_"
# About 20 ms for each number that someone tries.
_ROUNDS = 100_000


class PrivateOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What private training guarantees, for which unit, and with how much noise.

    >>> PrivateOptions(epsilon=1.0).delta
    1e-09
    """

    epsilon: Annotated[
        float | None, Option("Train privately, with as much noise as this epsilon needs (see --dp-delta).")
    ] = None
    delta: Annotated[float, Option("The delta of the claim; default: 1e-9.")] = 1e-9
    noise: Annotated[
        float | None,
        Option("Train privately with this noise instead: its standard deviation, in units of --dp-clip."),
    ] = None
    clip: Annotated[float, Option("Norm that the gradient of each unit is scaled down to; default: 1.")] = 1.0
    unit: Annotated[
        PrivacyUnit, Option("What one coin puts into a step: a document (the default), or all of a user's.")
    ] = "document"
    seed: Annotated[
        int | None,
        Option(
            "Draw the noise from this number and not from the system; anyone who knows it can subtract the noise.",
            least=0,
        ),
    ] = None
    rows: Annotated[
        int | None,
        Option("Most windows in a forward pass, which bounds memory and changes nothing else.", least=1),
    ] = None
    # In records, instead of the seed: a slow hash of it, which tells two seeds apart.
    seed_check: str | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.noise is None):
            given = "neither was given" if self.epsilon is None else "both were given"
            raise InputError(
                f"private training takes either dp_epsilon or dp_noise, and {given}; give the epsilon to reach, or the noise to add"
            )
        for name, least, usual in (("noise", 0, 1), ("seed", 0, 0), ("rows", 1, 64)):
            given = getattr(self, name)
            holds = given is None or least <= given < math.inf
            self._require(holds, name, f"at least {least}", usual, prefix=PREFIX)
        for name in ("epsilon", "clip"):
            given = getattr(self, name)
            holds = given is None or 0 < given < math.inf
            self._require(holds, name, "a positive number", 1, prefix=PREFIX)
        self._require(0 < self.delta < 1, "delta", "between 0 and 1", 1e-9, prefix=PREFIX)

    def without_seed(self) -> PrivateOptions:
        """The same for a record that others may read: a check of the seed, which tells two seeds apart, and not the seed."""
        if self.seed is None:
            return self
        return msgspec.structs.replace(self, seed=None, seed_check=_check_of(self.seed))


@cache
def _check_of(seed: int) -> str:
    """A hash that is slow to compute: records are public, and anyone who finds the seed by trying numbers can subtract the noise."""
    return hashlib.pbkdf2_hmac("sha256", str(seed).encode(), b"coalmine dp_seed", _ROUNDS, 16).hex()


def private_options(changes: dict[str, Any]) -> PrivateOptions:
    """Options from names that begin with dp_.

    >>> private_options({"dp_noise": 1.0, "dp_unit": "user"}).unit
    'user'
    """
    named = {name.removeprefix(PREFIX): value for name, value in changes.items() if value is not None}
    if "epsilon" not in named and "noise" not in named:
        raise InputError(
            f"{next(iter(changes))} was given without dp_epsilon or dp_noise, so the training would not be private; give one of them"
        )
    try:
        return msgspec.convert(named, PrivateOptions)
    except msgspec.ValidationError as problem:
        raise InputError(
            f"an option of private training has a value that it cannot have: {problem}"
        ) from None
