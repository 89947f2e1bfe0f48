"""The options of `provenance`: how users are asked about, and how their scores are judged."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from coalmine.errors import InputError
from coalmine.records.options import SEED, Option, Options

By = Literal["user", "document", "person"]
Selection = Literal["all", "random", "frequency-sum", "index-sum"]
StatisticName = Literal[
    "rank-histogram", "likelihood-ratio", "rmia", "windowed-ratio", "min-k++", "listed-share"
]
# Which of them decides where the user names none: the first that can be computed. Ratios come first, because each user is compared with
# what another model makes of the same texts, so that one unusual non-member hides fewer members.
_AGAINST_NON_MEMBERS: tuple[StatisticName, ...] = (
    "likelihood-ratio",
    "rank-histogram",
    "min-k++",
    "listed-share",
)
# Without non-members only the audit classifier can decide.
_ALONE: tuple[StatisticName, ...] = ("rank-histogram", "likelihood-ratio", "min-k++", "listed-share")
# Those of `RankHistogram`, which cannot be imported here without NumPy.
Scaling = Literal["shares", "counts", "unit"]


def candidates(statistic: StatisticName | None, *, non_members: bool) -> tuple[StatisticName, ...]:
    """The statistics of which the first that can be computed decides; known before anyone is asked about.

    >>> candidates(None, non_members=True)[0], candidates(None, non_members=False)[0], candidates("rmia", non_members=True)
    ('likelihood-ratio', 'rank-histogram', ('rmia',))
    """
    if statistic is not None:
        return (statistic,)
    return _AGAINST_NON_MEMBERS if non_members else _ALONE


class ProvenanceOptions(Options, frozen=True, kw_only=True):
    """What is asked about each user, and how scores become decisions.

    `queries` counts texts per user, `fdr` and `min_share` are between 0 and 1, and `gamma` is a ratio of likelihoods.

    >>> ProvenanceOptions(queries=8, selection="frequency-sum").fdr
    0.05
    """

    by: Annotated[
        By,
        Option(
            "user; document: each is then judged by itself; or person: suspects and non-members are one person's texts, and there is one "
            "answer about all of them.",
            decides=True,
        ),
    ] = "user"
    queries: Annotated[
        int | None,
        Option("Texts of each user that the target is asked about; default: all.", decides=True, least=1),
    ] = None
    selection: Annotated[
        Selection,
        Option(
            "Which texts are asked about: all, random, frequency-sum (rarest words; the paper's) or index-sum (its code's).",
            decides=True,
        ),
    ] = "all"
    statistic: Annotated[
        StatisticName | None,
        Option(
            "Which statistic decides: rank-histogram, likelihood-ratio, rmia, windowed-ratio, min-k++ or listed-share; default: the "
            "first that can be computed of likelihood-ratio, rank-histogram, min-k++ and listed-share (without non-members rank-histogram)."
        ),
    ] = None
    drop_shared: Annotated[
        bool,
        Option(
            "Leave out texts that several users have, of suspects and of non-members alike, and users who are in two groups."
        ),
    ] = False
    fdr: Annotated[float, Option("False-discovery rate: the share of wrong names among those found.")] = 0.05
    top: Annotated[
        int | None,
        Option(
            "Look at the k likeliest tokens only, as if the target listed no others.", decides=True, least=1
        ),
    ] = None
    bins: Annotated[int, Option("Bins of the rank histogram.", decides=True, least=1)] = 100
    scaling: Annotated[
        Scaling,
        Option("Rank histograms as shares, counts, or unit vectors (as in the 2019 code).", decides=True),
    ] = "shares"
    gamma: Annotated[float, Option("rmia: by how much a user's likelihood ratio must exceed another's.")] = (
        1.0
    )
    min_share: Annotated[
        float, Option("min-k++: the share of tokens, the least likely ones, that is looked at.", decides=True)
    ] = 0.2
    ablation_texts: Annotated[
        int,
        Option(
            "Texts of suspects, and of non-members, that are asked about with hidden units set to zero, for a figure; 0 for none.",
            decides=True,
            least=0,
        ),
    ] = 100
    confidence: float = 0.95
    seed: Annotated[int, SEED] = 0

    def check(self) -> None:
        """Reject values that nothing can be asked or judged with."""
        for name, kind in (("by", By), ("selection", Selection), ("scaling", Scaling)):
            if getattr(self, name) not in get_args(kind):
                raise InputError(f"{name} is one of {', '.join(get_args(kind))}, got {getattr(self, name)!r}")
        if self.statistic is not None and self.statistic not in get_args(StatisticName):
            raise InputError(
                f"statistic is one of {', '.join(get_args(StatisticName))}, got {self.statistic!r}"
            )
        for name in ("fdr", "min_share", "confidence"):
            if not 0 < getattr(self, name) < 1:
                raise InputError(f"{name} must be above 0 and below 1, got {getattr(self, name)}")
        for name in ("queries", "top", "bins"):
            given = getattr(self, name)
            if given is not None and given < 1:
                raise InputError(f"{name} must be at least 1, got {given}")
        if self.ablation_texts < 0:
            raise InputError(f"ablation_texts must be at least 0, got {self.ablation_texts}")
        if not 0 < self.gamma < float("inf"):
            raise InputError(f"gamma must be a positive ratio, got {self.gamma}; 1 is usual")
        if self.queries is not None and self.selection == "all":
            raise InputError(
                f"{self.queries} texts per user were asked for, and selection is all; choose random, frequency-sum or index-sum"
            )
        if self.queries is None and self.selection != "all":
            raise InputError(
                f"selection {self.selection} chooses among the texts of a user; say how many with queries, 8 for example"
            )
