"""The estimators of exposure: one record each, which says all that other modules need to know about it.

To add an estimator, write the function that measures, and add its record to `ESTIMATORS`. The command line, `auto`, the files, the
findings, the gate and the report go by the fields of the record, never by its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Literal

from coalmine.grouped import grouped

if TYPE_CHECKING:
    from coalmine.audits.exposure.question import FormatQuestion, Measured
    from coalmine.engines.courses import Course

# What the rows of scores.parquet are: all members of the space, draws of some kind, references, or the canaries themselves.
CandidateKind = Literal["member", "guided", "sample", "reference", "canary"]
# What `auto` needs an estimator for: spaces whose members can all be ranked in time, those of them where most of that time would go into
# the text after the holes, larger ones for a model that supports incremental decoding or only gives scores, and texts without a format.
Automatic = Literal["all members", "text after holes", "incremental decoding", "scores", "texts"]
# Members drawn where the caller does not say how many.
SAMPLES = 10_000
_MORE_DRAWS = "more draws (`coalmine expose --samples`), or exact ranks (--method exact)"


@dataclass(frozen=True, kw_only=True)
class Estimator:
    """One way to measure exposure, and how far its numbers can be relied on.

    Attributes:
        name: what users call it, and what results have as their `method`.
        summary: what it does, in a phrase that follows its name.
        home: the function that measures the canaries of one format, as "module:function"; it is imported when it is first used.
        needs: what the model or the manifest must provide.
        among: what the rank that it states is a rank among.
        strength: "proven" (bounds that hold with certainty), "interval" (they hold at the confidence of the estimate), or "curve" (they
            hold only if a curve fits beyond the sample, so they are not evidence for a finding or the gate).
        keeps: the kind of scores that it leaves in scores.parquet; None where it keeps none.
        samples: how many members it draws, or begins with, where the caller does not say.
        begins_with: whether these are only the first of those that it draws.
        automatic: what `auto` takes it for; None where it must be named.
        may_return: the names of other estimators whose estimates it may return, where they answer better for the same cost.
        degrees_of_freedom: of the error of its intervals; infinite for normal errors.
        to_narrow: what to measure where its interval is too wide to decide.
    """

    name: str
    summary: str
    home: str
    needs: Literal["incremental decoding", "scores", "references"] = "scores"
    among: Literal["space", "samples", "references"] = "space"
    strength: Literal["proven", "interval", "curve"] = "interval"
    keeps: CandidateKind | None = None
    samples: int = SAMPLES
    begins_with: bool = False
    automatic: Automatic | None = None
    may_return: tuple[str, ...] = ()
    degrees_of_freedom: float = math.inf
    to_narrow: str = _MORE_DRAWS

    @property
    def is_evidence(self) -> bool:
        """Whether findings and the gate may go by its limits."""
        return self.strength != "curve"

    @property
    def among_others(self) -> bool:
        """Whether canaries are counted among drawn members or references that all of them share."""
        return self.among != "space"

    @property
    def draws(self) -> bool:
        """Whether it draws members of the space."""
        return self.keeps not in {None, "member", "reference"}

    @property
    def measure(self) -> Callable[[FormatQuestion], Course[Measured]]:
        """The function that measures the canaries of one format, step by step."""
        found: Callable[[FormatQuestion], Course[Measured]] = resolve_name(self.home)
        return found


_ROOM = "coalmine.audits.exposure"
EXACT = Estimator(
    name="exact",
    summary="the rank among all members of the space; a model that supports incremental decoding reads shared prefixes once",
    home=f"{_ROOM}.ranked:exact",
    strength="proven",
    keeps="member",
    automatic="all members",
    may_return=("bounded",),  # where some members have no number
)
BOUNDED = Estimator(
    name="bounded",
    summary="the same rank without the members that cost more than the canary; after `budget` expansions, the bounds proven so far",
    home=f"{_ROOM}.searched:bounded",
    needs="incremental decoding",
    strength="proven",
    automatic="text after holes",
    to_narrow="a larger --budget, or --method guided",
)
GUIDED = Estimator(
    name="guided",
    summary="an unbiased estimate for every rank, from members drawn where the model expects them",
    home=f"{_ROOM}.searched:guided",
    needs="incremental decoding",
    keeps="guided",
    automatic="incremental decoding",
    # Guided draws share most of their prefixes, so they are cheaper, and past the first proofs they narrow an interval more than
    # further proofs do: see docs/explanation/methods.md.
    samples=50_000,
    may_return=(
        "bounded",
    ),  # where the search alone proved every rank, or draws meet a member that has no number
)
SPLITTING = Estimator(
    name="splitting",
    summary="an unbiased estimate for every rank from scores alone: eight runs go down to the canary level by level",
    home=f"{_ROOM}.splitting:splitting",
    keeps="sample",
    automatic="scores",
    samples=1_600,  # the first members of all runs together
    begins_with=True,
    # Where the space is no larger than what the runs begin with, and where a run meets a member that has no number.
    may_return=("exact", "bounded", "sampled"),
    degrees_of_freedom=7,  # of eight runs
)
SAMPLED = Estimator(
    name="sampled",
    summary="the rank among members drawn uniformly; exposure beyond what they can show is given as a lower bound",
    home=f"{_ROOM}.ranked:sampled",
    among="samples",
    keeps="sample",
)
REFERENCES = Estimator(
    name="references",
    summary="the rank among the manifest's references",
    home=f"{_ROOM}.ranked:references",
    needs="references",
    among="references",
    keeps="reference",
    automatic="texts",
)
EXTRAPOLATED = Estimator(
    name="extrapolated",
    summary="a skew-normal curve through members drawn uniformly, with a test of the fit on samples it has not seen",
    home=f"{_ROOM}.ranked:extrapolated",
    strength="curve",
    keeps="sample",
)

# The best first: of two measurements that leave equally many canaries unmeasured, results go by the one that comes first here.
ESTIMATORS = (EXACT, BOUNDED, GUIDED, SPLITTING, SAMPLED, REFERENCES, EXTRAPOLATED)
AUTO = "auto"
METHODS = (AUTO, *(one.name for one in ESTIMATORS))
_BY_NAME = {one.name: one for one in ESTIMATORS}
_UNKNOWN = Estimator(name="", summary="", home="")


def is_known(method: str) -> bool:
    """Whether there is an estimator of this name."""
    return method in _BY_NAME


def estimator_of(method: str) -> Estimator:
    """The estimator of this name; for any other name one that claims nothing but an interval in the whole space.

    >>> estimator_of("references").among, estimator_of("extrapolated").is_evidence
    ('references', False)
    """
    return _BY_NAME.get(method, _UNKNOWN)


def automatic(case: Automatic) -> Estimator:
    """The estimator that `auto` takes in a case.

    >>> automatic("scores").name
    'splitting'
    """
    return next(one for one in ESTIMATORS if one.automatic == case)


def samples_in_words() -> str:
    """How many members each estimator draws, those with the same number together."""
    drawing = grouped(((one.samples, one.begins_with), f"`{one.name}`") for one in ESTIMATORS if one.draws)
    return ", ".join(
        f"{number:,} by {' and '.join(names)}{' to begin with' if begins else ''}"
        for (number, begins), names in drawing.items()
    )


def preference(method: str) -> int:
    """The place of an estimator among all of them, the best first; what is not known comes last."""
    return METHODS.index(method) if is_known(method) else len(METHODS)
