"""The options of `provenance`: how users are asked about and judged, and how shadow models are trained."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from coalmine.errors import InputError
from coalmine.records.options import SEED, Option, Options

By = Literal["user", "document", "person"]
Selection = Literal["index-sum", "frequency-sum", "random"]
StatisticName = Literal[
    "rank-histogram", "likelihood-ratio", "rmia", "windowed-ratio", "min-k++", "listed-share"
]
RecipeName = Literal["same", "mismatched"]
# Those of `RankHistogram`, which cannot be imported here without NumPy.
Scaling = Literal["shares", "counts", "unit"]
_CHOICES: dict[str, Any] = {
    "by": By,
    "selection": Selection,
    "scaling": Scaling,
    "recipe": RecipeName,
    "statistic": StatisticName,
}


def candidates(statistic: StatisticName | None, *, non_members: bool) -> tuple[StatisticName, ...]:
    """The statistics of which the first that can be computed decides; known before anyone is asked about.

    Ratios come first, because each user is compared with what another model makes of the same texts, so that one unusual non-member hides
    fewer members. Without non-members only the audit classifier can decide.

    >>> candidates(None, non_members=True)[0], candidates(None, non_members=False)[0], candidates("rmia", non_members=True)
    ('likelihood-ratio', 'rank-histogram', ('rmia',))
    """
    if statistic is not None:
        return (statistic,)
    if non_members:
        return ("likelihood-ratio", "rank-histogram", "min-k++", "listed-share")
    return ("rank-histogram", "likelihood-ratio", "min-k++", "listed-share")


def _check(options: Options) -> None:
    """Reject names that there are not, and numbers of nothing."""
    for name, kind in _CHOICES.items():
        value = getattr(options, name, None)
        if value is not None and value not in get_args(kind):
            raise InputError(f"{name} is one of {', '.join(get_args(kind))}, got {value!r}")
    for name in ("queries", "top", "bins", "shadows"):
        value = getattr(options, name, None)
        if value is not None and value < 1:
            raise InputError(f"{name} must be at least 1, got {value}")


class ProvenanceOptions(Options, frozen=True, kw_only=True):
    """What is asked about each user, and how scores become decisions; `queries` counts texts per user, and `fdr` is between 0 and 1.

    >>> ProvenanceOptions(queries=8).fdr
    0.05
    """

    by: Annotated[
        By,
        Option("user; document: each by itself; or person: both sides are texts of one.", decides=True),
    ] = "user"
    queries: Annotated[
        int | None,
        Option("Texts of each user that the target is asked about; default: all.", decides=True, least=1),
    ] = None
    selection: Annotated[
        Selection,
        Option("Which texts: those with rare words by index-sum or frequency-sum, or random.", decides=True),
    ] = "index-sum"
    statistic: Annotated[
        StatisticName | None,
        Option("Which statistic decides; default: the first that can be computed, likelihood-ratio first."),
    ] = None
    drop_shared: Annotated[
        bool,
        Option("Leave out texts that several users have, on both sides alike, and users in two groups."),
    ] = False
    fdr: Annotated[float, Option("False-discovery rate: the share of wrong names among those found.")] = 0.05
    top: Annotated[
        int | None,
        Option("Look at the k likeliest tokens only, as if the model listed no others.", least=1),
    ] = None
    # Of the histograms of ranks: the number of bins is that of the code of the paper's authors, as the paper has none.
    bins: int = 100
    # Shares, counts, or unit vectors (as in the 2019 code).
    scaling: Scaling = "shares"
    # Texts of suspects, and of non-members, that are asked about with hidden units set to zero, for a figure; 0 for none.
    ablation_texts: int = 100
    confidence: float = 0.95
    seed: Annotated[int, SEED] = 0

    def check(self) -> None:
        """Reject values that nothing can be asked or judged with."""
        _check(self)
        for name in ("fdr", "confidence"):
            self._require(0 < getattr(self, name) < 1, name, "above 0 and below 1")


class FitOptions(Options, frozen=True, kw_only=True):
    """How shadow models are trained.

    >>> FitOptions(recipe="mismatched").shadows
    10
    """

    shadows: Annotated[
        int,
        Option("Shadow models, each trained on a random half of the reference users.", decides=True, least=1),
    ] = 10
    recipe: Annotated[
        RecipeName,
        Option("same as the target's; or mismatched: other layers, sizes and optimizer.", decides=True),
    ] = "same"
    seed: Annotated[int, SEED] = 0

    def check(self) -> None:
        """Reject values that nothing can be trained with."""
        _check(self)
