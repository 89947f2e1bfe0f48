"""Results of `membership`, and their file, membership.json."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from coalmine.audits.exposure.results import EXPOSURES
from coalmine.audits.membership.options import MembershipOptions
from coalmine.records import Estimate
from coalmine.records.documents import Document, Origin, SaidOfCanary, SaidOfFormat, differences
from coalmine.records.estimate import Amount, Count, Positive, Share
from coalmine.statistics.epsilon.claimed import Verdict
from coalmine.statistics.roc import RateEstimate
from coalmine.storage.files import sha256_of_file

SCHEMA = "coalmine.membership/4"
RESULTS_FILE = "membership.json"


class EpsilonBound(msgspec.Struct, frozen=True, kw_only=True):
    """One way to bound epsilon: for a canary as a whole, and for one of its copies."""

    canary: Estimate
    # By group privacy: the same as `canary` where each was planted once; None where there is no honest number.
    one_copy: Estimate | None


WRONG_SIDE = (
    "members score lower than non-members, which memorization does not explain: either the scores have the wrong sign, or something "
    "pushed members away, as unlearning does"
)


class Population(msgspec.Struct, frozen=True, kw_only=True):
    """Canaries that can be compared with each other, and what their scores say."""

    name: str
    format_id: str | None
    # How often each was planted; the largest number where several are pooled.
    copies: Positive
    pooled: bool
    in_count: Positive
    out_count: Positive
    # Of the out scores, how many are of canaries that a coin withheld.
    withheld_count: Count
    # The median exposure, in bits; without memorization it is about 1.
    exposure: Estimate
    # The probability of a median as high without memorization; exact.
    guessing_p_value: Share
    auc: Estimate
    tpr_at_fpr: tuple[RateEstimate, ...]
    # For each of these the probability of one as high without memorization; None where it is not measured. Exact.
    tpr_p_values: tuple[float | None, ...] = ()
    epsilon: tuple[EpsilonBound, ...]
    # The headline: it assumes only what the training runs provide; for one run, its coins.
    best: EpsilonBound
    # The highest bound that this many scores could prove, for a canary as a whole; 0 where none is measured.
    epsilon_ceiling: Amount
    # The highest for one copy, by group privacy.
    one_copy_ceiling: Amount
    # The tighter bound that also assumes independent scores.
    independent: EpsilonBound | None = None
    # The p-value of epsilon = 0 for a canary as a whole, at the delta of the audit, by the test that `best` uses.
    epsilon_p_value: Share | None = None
    verdict: Verdict | None = None
    # That of the format, by which people know it.
    template: str | None = None
    canary_ids: tuple[str, ...] = ()

    @property
    def p_value(self) -> float:
        """The probability of such scores without memorization: the smallest of the exact p-values, times their number.

        They are those that findings rest on: of the order, of the rate at the lowest false-positive rate, and of epsilon.
        """
        rates = [one for one in self.tpr_p_values if one is not None]
        known = [self.guessing_p_value, *rates[-1:]]
        known += [] if self.epsilon_p_value is None else [self.epsilon_p_value]
        return min(1.0, len(known) * min(known))

    @property
    def no_answer(self) -> str | None:
        """Why these scores cannot show that nothing was memorized, whatever else is measured of them; None where they can.

        Half of the error of the area's interval is on this side, and the other half is for what accuses the model.
        """
        if self.auc.high is None:
            return self.auc.statement
        return f"{self.auc.statement}; {WRONG_SIDE}" if self.auc.high < 0.5 else None


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """What the scores of each population say; membership.json. The same scores, options and seed give the same bytes.

    Exposures are in bits; AUC and rates are between 0 and 1.

    >>> for one in membership_of_results("model-audit/exposure").populations:  # doctest: +SKIP
    ...     print(one.name, one.auc.value, one.best.canary.low)
    """

    schema: str = SCHEMA
    # What a score is; higher means "was trained on".
    score: str
    # With the claim that was judged, and the probability with which a canary was planted; None where it is not known.
    settings: MembershipOptions
    populations: tuple[Population, ...]
    verdict: Verdict | None = None
    model: dict[str, Any] = {}
    reference_model: dict[str, Any] | None = None
    manifest_sha256: str | None = None
    # Of the exposure.json that the scores come from; None where it was never written.
    exposures_sha256: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def single(self) -> list[Population]:
        """Those that do not pool others, which add nothing new."""
        return [one for one in self.populations if not one.pooled]

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Write membership.json, readable by its owner only; returns its path."""
        return MEMBERSHIPS.save(directory, self)


def _again(path: Path, found: Membership) -> Iterator[str]:
    """All of it follows from the exposures that the scores come from, where these are in a directory next to it."""
    from coalmine.audits.membership.measure import membership

    folders = path.absolute().parent.parent
    places = [path.with_name(EXPOSURES.file), *sorted(folders.glob(f"*/{EXPOSURES.file}"))]
    for source in places if found.reference_model is None else ():
        if source.is_file() and sha256_of_file(source) == found.exposures_sha256:
            yield from differences(found, membership(source, found.settings))
            return


MEMBERSHIPS = Document(
    record=Membership,
    schema=SCHEMA,
    file=RESULTS_FILE,
    title="membership",
    by="`coalmine membership`",
    again=_again,
    origin=Origin(
        model=lambda found: found.model,
        manifests=lambda found: [found.manifest_sha256],
        canaries=lambda found: [
            SaidOfCanary(name, one.format_id) for one in found.populations for name in one.canary_ids
        ],
        formats=lambda found: [
            SaidOfFormat(one.format_id, one.template)
            for one in found.populations
            if one.format_id is not None
        ],
    ),
)
"""membership.json: `run.all(MEMBERSHIPS)` gives the results of `coalmine membership` in a run."""


def read_membership(path: str | os.PathLike[str]) -> Membership:
    """A membership.json, or the one in a directory.

    >>> read_membership("model-audit/exposure").populations[0].auc.value  # doctest: +SKIP
    0.93
    """
    return MEMBERSHIPS.load(path)
