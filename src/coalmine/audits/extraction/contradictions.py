"""Whether what an extraction found, its certificate, and what it says of canaries can be true together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import UNSET

from coalmine.errors import InputError
from coalmine.formats.format import Format
from coalmine.records.contradictions import (
    count_problems,
    estimate_problems,
    hits_of,
    in_range,
    twice,
    whole_number,
)

if TYPE_CHECKING:
    from coalmine.audits.extraction.results import CanaryExtraction, Extraction, Verified
    from coalmine.corpus.planting.manifest import CanarySet

# Methods that prove their answer, or how far from proven it is.
_PROVING = frozenset({"search", "brute"})
# The bound and the costs that a gap is the difference of.
_GAP_ROUNDING = 1e-6


def extraction_problems(extraction: Extraction) -> Iterator[str]:
    """What cannot be true in an extraction, whatever the model is."""
    size = whole_number(extraction.size)
    if size is None:
        yield "the size of its format is not a whole number of at least 1"
        return
    yield from _format_problems(extraction, size)
    yield from _found_problems(extraction, size)
    yield from _certificate_problems(extraction, size)
    yield from _prompt_problems(extraction)


def _prompt_problems(extraction: Extraction) -> Iterator[str]:
    prompts = extraction.prompts
    if prompts is UNSET:
        return
    if extraction.method != "prompt":
        yield f"it has prompts, and was found by {extraction.method}"
    answered = prompts.asked - prompts.failed
    for name in ("asked", "failed", "wrote"):
        yield from count_problems(f"the number of prompts ({name})", getattr(prompts, name))
    if prompts.wrote > answered or prompts.share.n != answered:
        yield f"{answered:,} prompts were answered, and a member came out after {prompts.wrote:,} of {prompts.share.n:,}"
        return
    yield from estimate_problems("the share of prompts", prompts.share, 0, 1)
    if bool(prompts.wrote) != bool(extraction.found):
        yield "members came out after no prompt, or none came out after some"
    if prompts.share.value is not None and hits_of(prompts.share.value, answered) != prompts.wrote:
        yield f"the share of prompts is {prompts.share.value:g}, and a member came out after {prompts.wrote:,} of {answered:,}"


def _format_problems(extraction: Extraction, size: int) -> Iterator[str]:
    """Whether the texts are members of the format; of one with a word list, only the manifest knows the words."""
    try:
        form = Format(extraction.format_template)
    except InputError:
        if extraction.words_sha256 is None and "{word" not in extraction.format_template:
            yield "its format does not compile"
        return
    if size > form.size or (not extraction.given and size != form.size):
        yield f"its size is {size:,}, and its format has {form.size:,} members"
    if any(one.text not in form for one in extraction.found):
        yield "it found a text that is not a member of its format"
    if extraction.method != "prompt" and not all(
        one.text.startswith(extraction.given) for one in extraction.found
    ):
        yield "it found a text that does not begin with what was given"


def _found_problems(extraction: Extraction, size: int) -> Iterator[str]:
    found = extraction.found
    most = size if extraction.top is None else min(extraction.top, size)
    if len(found) > most:
        yield f"{most:,} members were asked for or are there, and {len(found):,} were found"
    if len({one.text for one in found}) < len(found):
        yield "the same member was found twice"
    if [one.place for one in found] != list(range(1, len(found) + 1)):
        yield "the places are not numbered from 1 on"
    costs = [one.log_perplexity_bits for one in found if one.log_perplexity_bits is not None]
    if extraction.method != "prompt" and len(costs) < len(found):
        yield "a member has no cost"
    for cost in costs:
        yield from in_range("the cost of a member", cost, -1e-3)
    if any(one > other for one, other in itertools.pairwise(costs)):
        yield "the members are not in the order of their costs"
    spent = extraction.certificate.expansions
    yield from count_problems("the number of expansions", spent)
    if any(not 0 <= one.expansions <= spent for one in found):
        yield f"a member was found after more expansions than the {spent:,} that there were"


def _certificate_problems(extraction: Extraction, size: int) -> Iterator[str]:
    certificate, found = extraction.certificate, extraction.found
    bound, gap = certificate.best_open_bits, certificate.gap_bits
    yield from in_range("the bound", bound, -1e-3)
    if extraction.method not in _PROVING:
        if certificate.proven or certificate.exhausted or bound is not None or gap is not None:
            yield f"it is said to be proven by {extraction.method}, which proves nothing"
        return
    if certificate.proven and gap != 0:
        yield f"it says that nothing cheaper is left, and that its gap is {gap}"
    if certificate.proven and extraction.top is not None and len(found) != min(extraction.top, size):
        yield f"{min(extraction.top, size):,} members were asked for, and {len(found):,} are there"
    if (bound is None) != certificate.exhausted:
        yield "it has neither a bound nor the statement that nothing was left, or both"
    if not found:
        if certificate.proven:
            yield "no member was found"
        return
    last = found[-1].log_perplexity_bits
    if last is None or bound is None:
        return
    if certificate.proven and bound < last:
        yield f"the bound of {bound:.6f} bits is below the {last:.6f} of the last member, which proves nothing"
    if not certificate.proven and gap is not None and abs(gap - (last - bound)) > _GAP_ROUNDING:
        yield f"the gap is {last - bound:.6f} bits, and the certificate says {gap:.6f}"


def verified_problems(document: Verified) -> Iterator[str]:
    """What cannot be true of the canaries that came out."""
    yield from twice("canary", [one.canary_id for one in document.canaries])
    taken = [(one.format_id, one.place) for one in document.canaries if one.place is not None]
    if len(set(taken)) < len(taken):
        yield "two canaries of one format are at the same place"
    for one in document.canaries:
        name = f"canary {one.canary_id!r}"
        yield from count_problems(f"{name}: the number of copies", one.repetitions)
        yield from count_problems(f"{name}: its place", one.place, 1)
        yield from count_problems(f"{name}: the number of expansions", one.expansions)
        if not one.extracted == (one.place is not None) == (one.expansions is not None):
            yield f"{name} came out and has no place, or did not and has one"
        if one.problem is not None and (one.extracted or one.proven):
            yield f"{name} could not be looked for, and is said to have come out, or to be proven not to"


def search_problems(document: Verified, format_id: str, extraction: Extraction) -> Iterator[str]:
    """What is said of the canaries of one format, and the extraction that it comes from does not say."""
    for one in document.canaries:
        if one.format_id == format_id:
            yield from _canary_problems(one, extraction)


def _canary_problems(one: CanaryExtraction, extraction: Extraction) -> Iterator[str]:
    name = f"canary {one.canary_id!r}"
    if one.proven != extraction.proven and one.problem is None:
        yield f"{name} is said to be {'proven' if one.proven else 'not proven'}, and the extraction of its format is not"
    if one.place is None or one.expansions is None:
        return
    if one.place > len(extraction.found):
        yield f"{name} has place {one.place:,}, and {len(extraction.found):,} members of its format were found"
    elif extraction.found[one.place - 1].expansions != one.expansions:
        yield f"{name} was found after another number of expansions than the member at its place"


def verified_manifest_problems(document: Verified, canaries: CanarySet) -> Iterator[str]:
    """What the results say of canaries, and the manifest that they were searched with does not."""
    known = {canary.canary_id: canary for canary in canaries}
    for one in document.canaries:
        canary = known.get(one.canary_id)
        if canary is None:
            yield f"canary {one.canary_id!r} is not in the manifest"
        elif (one.format_id, one.repetitions) != (canary.format_id, canary.times_trained_on):
            yield f"canary {one.canary_id!r} is of another format, or was planted another number of times, by the manifest"


def search_manifest_problems(
    document: Verified, format_id: str, extraction: Extraction, canaries: CanarySet
) -> Iterator[str]:
    """What is said of the canaries of one format, and the texts that its search found do not say."""
    form = canaries.formats.get(format_id)
    if form is None:
        yield f"a format {format_id!r} was searched, which is not in the manifest"
        return
    if extraction.format_template != form.template:
        yield f"the search of format {format_id!r} is of another template than that of the manifest"
        return
    size = int(extraction.size)
    if size > form.size or (not extraction.given and size != form.size):
        yield f"the search of format {format_id!r} is of {size:,} members, and the format has {form.size:,}"
    if any(one.text not in form for one in extraction.found):
        yield f"the search of format {format_id!r} found a text that is not a member of the format"
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
