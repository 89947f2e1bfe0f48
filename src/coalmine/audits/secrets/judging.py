"""Each secret with what is known about it, and the secrets of each kind together: the second table of the Secret Sharer.

Without memorization a secret is as likely as its references, so its rank gives a p-value; see `coalmine.audits.exposure.chance`. The
secrets of one kind have spaces and references of their own, so their p-values are independent, and their order is tested as
that of canaries is.

The Secret Sharer: Evaluating and Testing Unintended Memorization in Neural Networks, Carlini, Liu, Erlingsson, Kos and Song, 2019,
arXiv:1802.08232, section 8.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

import msgspec

from coalmine.audits.exposure.chance import Judged, judged, secrets_test
from coalmine.audits.exposure.results import EXPOSURES, Exposures
from coalmine.audits.exposure.single_canaries import canary_suspicions
from coalmine.audits.extraction.results import VERIFIED, CanaryExtraction
from coalmine.evidence.run import Run
from coalmine.grouped import grouped


class Secret(NamedTuple):
    """One secret that was found in the training data.

    Attributes:
        exposure: what is known about its exposure; None where that was not measured at all.
        extraction: whether a search found it; None where none was made.
        p_value: how likely as much is without memorization; None where nothing was measured.
    """

    canary_id: str
    kind: str
    user: str | None
    copies: int
    exposure: Judged | None
    extraction: CanaryExtraction | None
    p_value: float | None

    @property
    def bits(self) -> float | None:
        """Its exposure, or the lower bound of one that is only bounded."""
        if self.exposure is None or not self.exposure.known:
            return None
        value = self.exposure.result.exposure
        return self.exposure.low if value is None else value

    @property
    def extracted(self) -> bool:
        """Whether a search found it."""
        return self.extraction is not None and self.extraction.extracted


def secrets_of(run: Run | None) -> list[Secret]:
    """All secrets of the results about them, in the order of the manifest; those that are not in the training data too."""
    if run is None:
        return []
    document = run.first(EXPOSURES)
    exposures = {one.result.canary_id: one for one in ([] if document is None else judged(document))}
    extractions = {one.canary_id: one for located in run.all(VERIFIED) for one in located.document.canaries}
    p_values = {one.key[0]: one.p_value for one in canary_suspicions(run)}
    found = []
    for name in dict.fromkeys((*exposures, *extractions)):
        exposure, extraction = exposures.get(name), extractions.get(name)
        kind = exposure.result.kind if exposure is not None else extraction.kind if extraction else ""
        user = None if exposure is None or exposure.result.user is msgspec.UNSET else exposure.result.user
        copies = (
            exposure.result.repetitions
            if exposure is not None
            else extraction.repetitions
            if extraction
            else 0
        )
        found.append(Secret(name, str(kind), user, copies, exposure, extraction, p_values.get(name)))
    return found


def trained_on(run: Run | None) -> list[Secret]:
    """The secrets that are in the training data, as far as that is known."""
    return [one for one in secrets_of(run) if one.copies > 0]


def kind_p_value(secrets: Iterable[Secret]) -> float | None:
    """How likely secrets as exposed as the best of these are without memorization; None where none was measured."""
    measured = [one for one in secrets if one.p_value is not None]
    judged_ones = [one.exposure for one in measured if one.exposure is not None]
    return secrets_test([one.p_value or 0.0 for one in measured], judged_ones).p_value if measured else None


class SecretsOfKind(msgspec.Struct, frozen=True, kw_only=True):
    """The secrets of one kind; exposures are in bits."""

    kind: str
    secrets: int
    measured: int
    # How often the least and the most repeated of them occur.
    fewest_copies: int
    most_copies: int
    # Without memorization it is about 1.
    median_bits: float | None
    # Of the most exposed one: its value or lower bound, its limits, and what the first guess would have.
    highest_bits: float | None
    highest_low: float | None
    highest_high: float | None
    most_possible_bits: float | None
    searched: int
    extracted: int
    # How likely exposures as high as these are without memorization.
    p_value: float | None


def by_kind(secrets: Sequence[Secret]) -> list[SecretsOfKind]:
    """A row for each kind, in the order in which they come."""
    rows = []
    for kind, some in grouped((one.kind, one) for one in secrets).items():
        bits = [(one.bits, one) for one in some if one.bits is not None]
        best = max(bits, key=lambda pair: pair[0])[1].exposure if bits else None
        copies = [one.copies for one in some]
        rows.append(
            SecretsOfKind(
                kind=kind,
                secrets=len(some),
                measured=len(bits),
                fewest_copies=min(copies),
                most_copies=max(copies),
                median_bits=median([value for value, _ in bits]) if bits else None,
                highest_bits=max(value for value, _ in bits) if bits else None,
                highest_low=None if best is None else best.result.interval[0],
                highest_high=None if best is None else best.result.interval[1],
                most_possible_bits=None if best is None else best.result.most_possible_bits,
                searched=sum(one.extraction is not None for one in some),
                extracted=sum(one.extracted for one in some),
                p_value=kind_p_value(some),
            )
        )
    return rows


def of_exposures(document: Exposures) -> list[SecretsOfKind]:
    """The same of exposures alone, which `coalmine expose` has just measured."""
    secrets = [
        Secret(
            one.result.canary_id,
            str(one.result.kind),
            None,
            one.result.repetitions,
            one,
            None,
            one.p_value if one.known else None,
        )
        for one in judged(document)
        if one.result.repetitions > 0
    ]
    return by_kind(secrets)
