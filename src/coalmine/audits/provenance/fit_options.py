"""The options of `provenance fit`: how many shadow models there are, how they are trained, and how ranks are counted."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from coalmine.audits.provenance.options import Scaling
from coalmine.errors import InputError
from coalmine.records.options import SEED, Option, Options

RecipeName = Literal["same", "mismatched"]
Vocabulary = Literal["target", "own"]


class FitOptions(Options, frozen=True, kw_only=True):
    """How shadow models are trained, and how the audit classifier sees the ranks that they give.

    >>> FitOptions(shadows=4).bins
    100
    """

    shadows: Annotated[
        int,
        Option("Shadow models, each trained on a random half of the reference users.", decides=True, least=1),
    ] = 10
    recipe: Annotated[
        RecipeName,
        Option(
            "same: trained as the target was; mismatched: other layers, sizes and optimizer, as in the paper.",
            decides=True,
        ),
    ] = "same"
    vocabulary: Annotated[
        Vocabulary,
        Option(
            "target: shadows have the target's vocabulary; own: each has that of its own texts.", decides=True
        ),
    ] = "target"
    bins: Annotated[int, Option("Bins of the rank histogram.", least=1)] = 100
    scaling: Annotated[
        Scaling, Option("Rank histograms as shares, counts, or unit vectors (as in the 2019 code).")
    ] = "shares"
    top: Annotated[
        int | None, Option("Look at the ranks of the k likeliest tokens only; default: all.", least=1)
    ] = None
    seed: Annotated[int, SEED] = 0

    def check(self) -> None:
        """Reject values that nothing can be fitted with."""
        for name, kind in (("recipe", RecipeName), ("vocabulary", Vocabulary), ("scaling", Scaling)):
            if getattr(self, name) not in get_args(kind):
                raise InputError(f"{name} is one of {', '.join(get_args(kind))}, got {getattr(self, name)!r}")
        for name in ("shadows", "bins", "top"):
            given = getattr(self, name)
            if given is not None and given < 1:
                raise InputError(f"{name} must be at least 1, got {given}")
