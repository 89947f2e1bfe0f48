"""Checks of a canary set: ids and texts are unique, and each text is a member of its format, with the source that belongs to it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import UNSET

from coalmine.errors import InputError, ManifestError
from coalmine.records import Canary

if TYPE_CHECKING:
    from coalmine.corpus.planting.manifest import CanarySet


def check_canaries(canaries: CanarySet, referenced: set[str]) -> None:
    """Raise a ManifestError for a set that cannot be audited; `referenced` are the formats that references were given for."""
    known = set(canaries.formats)
    for format_id in sorted((referenced | set(canaries.source_formats) | canaries.listed) - known):
        raise ManifestError(f"format {format_id!r} is used but not defined; plant again")
    for canary_id, times in Counter(canary.canary_id for canary in canaries).items():
        if times > 1:
            raise ManifestError(f"two canaries have the id {canary_id!r}; give each its own, or plant again")
    names: dict[str, str] = {}
    own = {canary.text for canary in canaries}
    for name, format_id, text in canaries.named_texts():
        if format_id not in known:
            raise ManifestError(f"{name} belongs to format {format_id!r}, which is not defined; plant again")
        if text not in canaries.formats[format_id]:
            raise ManifestError(
                f"{name} is not a member of its format, {format_id!r}; correct it, or plant again"
            )
        # Each secret that was found has a format and references of its own, and two of them may be compared with the same text.
        key = text if not canaries.natural or text in own else f"{format_id}\0{text}"
        if key in names:
            raise ManifestError(
                f"{names[key]} and {name} have the same text; keep one of them, or draw again with another seed"
            )
        names[key] = name
    for canary in canaries:
        _check_canary(canaries, canary)


def _check_canary(canaries: CanarySet, canary: Canary) -> None:
    if canary.repetitions < 1:
        raise ManifestError(
            f"canary {canary.canary_id!r} has {canary.repetitions} repetitions; "
            "give at least 1, and mark one that was not trained on as not planted"
        )
    if canary.counted is not UNSET and canary.counted < 0:
        raise ManifestError(
            f"canary {canary.canary_id!r} was counted {canary.counted} times; give at least 0, or plant again"
        )
    source_format = canaries.source_formats.get(canary.format_id)
    expected = None
    if source_format is not None:
        try:
            expected = source_format.fill(canaries.format_of(canary).fillings(canary.text))
        except InputError:  # which names no canary
            raise ManifestError(
                f"canary {canary.canary_id!r} does not fit the source template of its format, {canary.format_id!r}; correct it, or "
                "plant again"
            ) from None
    if canary.source != expected:
        raise ManifestError(
            f"canary {canary.canary_id!r} has {_in_words(canary.source)}, but its formats make {_in_words(expected, canary.source)}; "
            "correct it, or plant again"
        )


def _in_words(source: str | None, other: str | None = None) -> str:
    """Whether there is a source, and whether it is the other one; never the source itself, which holds the secret."""
    if source is None:
        return "no source"
    return "a source" if other is None else "another one"
