"""Draws the canaries and references of each format, and tosses the coins that withhold some."""

from __future__ import annotations

from collections.abc import Sequence

from coalmine.corpus.planting.manifest import CanarySet
from coalmine.corpus.planting.options import check_distinct
from coalmine.errors import CorpusError, NotMeasurableError
from coalmine.formats.format import Format
from coalmine.randomness import child_seed, integers
from coalmine.records import Canary


def draw_canaries(
    formats: Sequence[Format],
    source_formats: Sequence[Format] | None,
    *,
    repeat: Sequence[int],
    canaries: int,
    references: int,
    withhold: float,
    seed: int,
) -> CanarySet:
    """Draw canaries and references of each format, and toss the coins."""
    if source_formats is not None and len(source_formats) != len(formats):
        raise CorpusError(
            f"pairs need a source format for each format, but there are {len(source_formats)} for {len(formats)}"
        )
    check_distinct(formats, source_formats)
    drawn: list[Canary] = []
    others: dict[str, Sequence[str]] = {}
    named = {f"f{number}": secret for number, secret in enumerate(formats)}
    sources = {f"f{number}": secret for number, secret in enumerate(source_formats or ())}
    for format_id, secret in named.items():
        wanted = canaries * len(repeat)
        if wanted + references > secret.size:
            raise NotMeasurableError(
                f"format {secret.template!r} has {secret.size:,} members, too few for {wanted:,} canaries and "
                f"{references:,} references; ask for fewer, or use a larger format"
            )
        texts = secret.sample(wanted + references, child_seed(seed, "plant", format_id), replace=False)
        if "" in texts:
            raise CorpusError(
                f"the empty text is a member of {secret.template!r} and stands in every document; "
                "use a format whose members all have some text"
            )
        source = sources.get(format_id)
        if source is not None and source.words != secret.words:
            raise CorpusError(
                f"both sides of a pair need the same words, but those of {secret.template!r} differ"
            )
        for place, text in enumerate(texts[:wanted]):
            count = repeat[place // canaries]
            canary_id = f"{format_id}-x{count}-{place % canaries}"
            coin = integers(seed, "plant", "withhold", canary_id).random()
            drawn.append(
                Canary(
                    canary_id=canary_id,
                    format_id=format_id,
                    text=text,
                    repetitions=count,
                    planted=coin >= withhold,
                    source=None if source is None else source.fill(secret.fillings(text)),
                )
            )
        others[format_id] = texts[wanted:]
    return CanarySet(drawn, named, references=others, source_formats=sources, seed=seed, withhold=withhold)
