"""What was seen during a training: moments, and the exposure of each canary at a moment."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from coalmine.errors import InputError
from coalmine.records.contradictions import (
    count_problems,
    estimate_problems,
    in_range,
    refuse_contradictions,
    twice,
)
from coalmine.records.estimate import Estimate, Status
from coalmine.storage.decoding import without_values

# Methods whose estimates may end beyond what a space allows, because a curve does not know the size of the space.
BEYOND_THE_SPACE = frozenset({"extrapolated"})

When = Literal["start", "step", "epoch", "end"]


class SeenCanary(msgspec.Struct, frozen=True, kw_only=True):
    """The exposure of one canary at one moment, in bits: what a report needs of it."""

    canary_id: str
    repetitions: int
    # None in what earlier versions wrote.
    format_id: str | None = None
    status: Status
    exposure: float | None
    low: float | None
    high: float | None = None

    @property
    def estimate(self) -> Estimate:
        """The exposure as an estimate, of which a moment keeps no more than this."""
        return Estimate(
            method="watched",
            status=self.status,
            value=self.exposure,
            low=self.low,
            high=self.high,
            confidence=None,
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


def check_moments(path: Path, moments: Sequence[Moment]) -> None:
    """Refuse what was seen during a training if a report cannot read it, or if it cannot be true."""
    try:
        seen = msgspec.convert([moment.seen for moment in moments], list[list[SeenCanary]])
    except msgspec.ValidationError as problem:
        raise InputError(
            f"{path} is damaged (what was seen during training: {without_values(str(problem))}); restore it, or train again"
        ) from None
    steps = [moment.step for moment in moments]
    refuse_contradictions(path, _moment_problems(steps, seen), "the training")


def _moment_problems(steps: Sequence[int], seen_at: Sequence[Sequence[SeenCanary]]) -> Iterator[str]:
    if any(one > other for one, other in itertools.pairwise(steps)):
        yield "what was seen during training is not in the order of its steps"
    for step, seen in zip(steps, seen_at, strict=True):
        yield from twice(f"step {step}: canary", [one.canary_id for one in seen])
        for one in seen:
            name = f"step {step}: canary {one.canary_id!r}"
            yield from estimate_problems(name, one.estimate, 0)
            yield from count_problems(f"{name}: the number of copies", one.repetitions)


class Limits(NamedTuple):
    """What the exposure of a canary can be at most, in bits.

    `value` is for its value and its lower limit, `high` for its upper limit.
    """

    value: float
    high: float = math.inf


def limit_problems(
    watch: Mapping[str, Any] | None,
    moments: Sequence[Moment],
    limits_of: Callable[[SeenCanary], Limits | None],
) -> Iterator[str]:
    """Exposures during a training that are above what is possible; `limits_of` returns None where that is not known."""
    if (watch or {}).get("method") in BEYOND_THE_SPACE:
        return
    for moment in moments:
        for one in seen_at(moment):
            limits = limits_of(one)
            if limits is None:
                continue
            name = f"step {moment.step}: canary {one.canary_id!r}"
            for part, number, most in (
                ("value", one.exposure, limits.value),
                ("lower limit", one.low, limits.value),
                ("upper limit", one.high, limits.high),
            ):
                yield from in_range(f"{name}: the {part}", number, 0, most)


def seen_at(moment: Moment) -> list[SeenCanary]:
    """What was seen at a moment; nothing where a report could not read it, which `check_moments` refuses."""
    try:
        return msgspec.convert(moment.seen, list[SeenCanary])
    except msgspec.ValidationError:
        return []


def manifests_of_watch(watch: Mapping[str, Any] | None) -> list[str]:
    """The SHA-256 of each manifest that a watch says it measured."""
    found = [(watch or {}).get(name) for name in ("manifest_sha256", "earlier_manifest_sha256")]
    return [one for one in found if isinstance(one, str)]
