"""Whether the canaries that were seen during a training are those of the manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from coalmine.corpus.planting.manifest import CanarySet
from coalmine.records.watching import Moment, seen_at


def watched_manifest_problems(
    watch: Mapping[str, Any] | None, moments: Sequence[Moment], canaries: CanarySet
) -> Iterator[str]:
    """What was seen during a training, and the manifest that was watched contradicts."""
    told = watch or {}
    if told.get("manifest_sha256") != canaries.sha256:
        return
    known = {canary.canary_id: canary for canary in canaries}
    for moment in moments:
        for one in seen_at(moment):
            canary, name = known.get(one.canary_id), f"step {moment.step}: canary {one.canary_id!r}"
            if canary is None:
                yield f"{name} is not in the manifest"
            elif one.repetitions != canary.times_trained_on or one.format_id not in {None, canary.format_id}:
                yield f"{name} is of another format, or was planted another number of times, by the manifest"
