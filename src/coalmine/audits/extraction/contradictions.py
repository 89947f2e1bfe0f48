"""Whether the certificate of an extraction follows from what was found, and what is said of canaries from the extraction."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from coalmine.errors import InputError
from coalmine.formats.format import Format

if TYPE_CHECKING:
    from coalmine.audits.extraction.results import Extraction, Verified
    from coalmine.corpus.planting.manifest import CanarySet

# The bound and the costs that a gap is the difference of.
_GAP_ROUNDING = 1e-6


def extraction_problems(extraction: Extraction) -> Iterator[str]:
    """What cannot be true in an extraction, whatever the model is."""
    yield from _format_problems(extraction)
    found, certificate = extraction.found, extraction.certificate
    if [one.place for one in found] != list(range(1, 1 + len({one.text for one in found}))):
        yield "the places are not numbered from 1 on, or the same member was found twice"
    costs = [one.log_perplexity_bits for one in found if one.log_perplexity_bits is not None]
    if any(one > other for one, other in itertools.pairwise(costs)):
        yield "the members are not in the order of their costs"
    if any(one.expansions > certificate.expansions for one in found):
        yield f"a member was found after more expansions than the {certificate.expansions:,} that there were"
    bound, last = certificate.best_open_bits, costs[-1] if costs else None
    wanted = min(extraction.top or len(found), int(extraction.size))
    proves = (
        extraction.method in {"search", "brute"}
        and 0 < len(found) == len(costs) == wanted
        and (bound is None) == certificate.exhausted
        and (bound is None or last is None or last <= bound < math.inf)
    )
    if (certificate.proven or certificate.exhausted) and not proves:
        yield f"it says that nothing cheaper is left, and what it found by {extraction.method} does not prove that"
    gap = 0.0 if certificate.proven or bound is None or last is None else last - bound
    if certificate.gap_bits is not None and abs(certificate.gap_bits - gap) > _GAP_ROUNDING:
        yield f"the gap is {gap:.6f} bits, and the certificate says {certificate.gap_bits:.6f}"


def _format_problems(extraction: Extraction) -> Iterator[str]:
    """Whether the texts are members of the format; of one with a word list, only the manifest knows the words."""
    try:
        form = Format(extraction.format_template)
    except InputError:
        if extraction.words_sha256 is None and "{word" not in extraction.format_template:
            yield "its format does not compile"
        return
    yield from _of_format(extraction, form, "its format", "it")
    if extraction.method != "prompt" and not all(
        one.text.startswith(extraction.given) for one in extraction.found
    ):
        yield "it found a text that does not begin with what was given"


def _of_format(extraction: Extraction, form: Format, what: str, whose: str) -> Iterator[str]:
    size = int(extraction.size)
    if size > form.size or (not extraction.given and size != form.size):
        yield f"{whose} is of {size:,} members, and {what} has {form.size:,}"
    if any(one.text not in form for one in extraction.found):
        yield f"{whose} found a text that is not a member of {what}"


def search_problems(document: Verified, format_id: str, extraction: Extraction) -> Iterator[str]:
    """What is said of the canaries of one format, and the extraction that it comes from does not say."""
    found = {one.place: one.expansions for one in extraction.found}
    for one in document.canaries:
        if one.format_id != format_id:
            continue
        name = f"canary {one.canary_id!r}"
        if one.proven != extraction.proven:
            yield f"{name} is said to be {'proven' if one.proven else 'not proven'}, and the extraction of its format is not"
        if one.extracted != (one.place is not None) or one.expansions != found.get(one.place or 0):
            yield f"{name} is said to have come out at another place, or after another number of expansions, than in the extraction"


def search_manifest_problems(
    document: Verified, format_id: str, extraction: Extraction, canaries: CanarySet
) -> Iterator[str]:
    """What is said of the canaries of one format, and the texts that its search found do not say."""
    form = canaries.formats.get(format_id)
    if form is None or extraction.format_template != form.template:
        yield f"the search of format {format_id!r} is of another template than that of the manifest"
        return
    yield from _of_format(extraction, form, "the format", f"the search of format {format_id!r}")
    places = {one.text: one.place for one in extraction.found}
    said = {one.canary_id: one.place for one in document.canaries}
    for canary in canaries:
        if canary.format_id != format_id or canary.canary_id not in said:
            continue
        found, told = places.get(canary.text), said[canary.canary_id]
        if found != told:
            yield (
                f"canary {canary.canary_id!r} is said to have {_place(told)}, and its text has {_place(found)} in the extraction of "
                "its format"
            )


def _place(place: int | None) -> str:
    return "no place" if place is None else f"place {place:,}"
