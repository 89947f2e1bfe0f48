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

from coalmine.audits.exposure.chance import Judged, canary_p_values, judged, measured_canaries, secrets_test
from coalmine.audits.exposure.results import ExposureResult, Exposures
from coalmine.audits.extraction.results import VERIFIED, CanaryExtraction
from coalmine.evidence.run import Run
from coalmine.grouped import grouped
from coalmine.records import Estimate


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
    exposures = {one.result.canary_id: one for one in measured_canaries(run)}
    extractions = {one.canary_id: one for located in run.all(VERIFIED) for one in located.document.canaries}
    p_values = canary_p_values(run)
    every: dict[str, ExposureResult | CanaryExtraction] = {
        name: one.result for name, one in exposures.items()
    }
    for name, extraction in extractions.items():
        every.setdefault(name, extraction)
    return [
        _secret(one, exposures.get(name), extractions.get(name), p_values.get(name))
        for name, one in every.items()
    ]


def _secret(
    one: ExposureResult | CanaryExtraction,
    exposure: Judged | None,
    extraction: CanaryExtraction | None,
    p_value: float | None,
) -> Secret:
    user = None if exposure is None or exposure.result.user is msgspec.UNSET else exposure.result.user
    return Secret(one.canary_id, str(one.kind), user, one.repetitions, exposure, extraction, p_value)


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
    # Of the most exposed one, with what the first guess would have.
    highest_bits: float | None
    highest: Estimate | None
    most_possible_bits: float | None
    searched: int
    extracted: int
    # How likely exposures as high as these are without memorization.
    p_value: float | None


def by_kind(secrets: Sequence[Secret]) -> list[SecretsOfKind]:
    """A row for each kind, in the order in which they come."""
    rows = []
    for kind, some in grouped((one.kind, one) for one in secrets).items():
        bits = {one.canary_id: one.bits for one in some if one.bits is not None}
        best = max(
            (one for one in some if one.canary_id in bits), key=lambda one: one.bits or 0.0, default=None
        )
        result = None if best is None or best.exposure is None else best.exposure.result
        rows.append(
            SecretsOfKind(
                kind=kind,
                secrets=len(some),
                measured=len(bits),
                fewest_copies=min(one.copies for one in some),
                most_copies=max(one.copies for one in some),
                median_bits=median(bits.values()) if bits else None,
                highest_bits=None if best is None else best.bits,
                highest=None if result is None else result.estimate,
                most_possible_bits=None if result is None else result.most_possible_bits,
                searched=sum(one.extraction is not None for one in some),
                extracted=sum(one.extracted for one in some),
                p_value=kind_p_value(some),
            )
        )
    return rows


def of_exposures(document: Exposures) -> list[SecretsOfKind]:
    """The same of exposures alone, which `coalmine expose` has just measured."""
    known = [one for one in judged(document) if one.result.repetitions > 0]
    return by_kind([_secret(one.result, one, None, one.p_value if one.known else None) for one in known])
