"""What was seen during a training: moments, and the exposure of each canary at a moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from coalmine.errors import ContradictionError
from coalmine.records.documents import SaidOfCanary
from coalmine.records.estimate import Bits, Count, Estimate, Status
from coalmine.storage.decoding import without_values

When = Literal["start", "step", "epoch", "end"]


class SeenCanary(msgspec.Struct, frozen=True, kw_only=True):
    """The exposure of one canary at one moment, in bits: what a report needs of it."""

    canary_id: str
    repetitions: Count
    # None in what earlier versions wrote.
    format_id: str | None = None
    status: Status
    exposure: Bits | None
    low: Bits | None
    high: Bits | None = None

    def __post_init__(self) -> None:
        _ = self.estimate  # which checks its numbers

    @property
    def estimate(self) -> Estimate:
        """The exposure as an estimate, of which a moment keeps no more than this."""
        return Estimate(
            method="watched",
            status=self.status,
            value=self.exposure,
            low=self.low,
            high=self.high,
            n=0,
            statement="",
        )


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen after some number of optimizer steps."""

    step: int
    # How many epochs were trained by then; 1.5 is the middle of the second.
    epoch: int | float
    # A callback records "end" a second time for the last step if the trainer has put other weights in place, such as the best ones.
    when: When | msgspec.UnsetType = msgspec.UNSET
    # One entry per canary, as ExposureWatch.measure returns them; empty where nothing could be measured.
    seen: list[dict[str, Any]]
    # Why nothing could be measured, or None.
    problem: str | msgspec.UnsetType | None = msgspec.UNSET

    @property
    def canaries(self) -> list[SeenCanary]:
        """What was seen of each canary; a ContradictionError where that cannot be."""
        try:
            return msgspec.convert(self.seen, list[SeenCanary])
        except (msgspec.ValidationError, ContradictionError) as problem:
            raise ContradictionError(
                f"what was seen at step {self.step} of a training cannot be ({without_values(str(problem))}); train again"
            ) from None


def manifests_of_watch(watch: Mapping[str, Any] | None) -> list[str]:
    """The SHA-256 of each manifest that a watch says it measured."""
    found = [(watch or {}).get(name) for name in ("manifest_sha256", "earlier_manifest_sha256")]
    return [one for one in found if isinstance(one, str)]


def said_of_canaries(moments: Sequence[Moment]) -> Iterator[SaidOfCanary]:
    """What each look says of each canary, for the comparison with their manifest."""
    for moment in moments:
        for one in moment.canaries:
            yield SaidOfCanary(one.canary_id, one.format_id, one.repetitions)
