"""The p-value of each canary, from its exposure and from the searches that found it."""

from __future__ import annotations

from typing import NamedTuple

from coalmine.audits.exposure.chance import judged
from coalmine.audits.exposure.results import EXPOSURES
from coalmine.audits.extraction.results import EXTRACTIONS, VERIFIED, Verified
from coalmine.evidence.run import Located, Run
from coalmine.grouped import grouped


class FoundPlace(NamedTuple):
    """Where a search found a canary, and the probability of such a place without memorization."""

    canary_id: str
    repetitions: int
    place: int | None
    p_value: float


def canary_p_values(run: Run) -> dict[str, float]:
    """The p-value of each canary that was trained on; its exposure and its extraction are one question."""
    p_values: dict[str, float] = {}
    document = run.first(EXPOSURES)
    exposures = {one.result.canary_id: one for one in (judged(document) if document else ())}
    placed = (one for located in run.all(VERIFIED) for one in places_of(run, located))
    places = grouped((one.canary_id, one.p_value) for one in placed if one.repetitions > 0)
    trained = [name for name, one in exposures.items() if one.result.repetitions > 0]
    for name in dict.fromkeys((*trained, *places)):
        found = places.get(name, [])
        by_place = min(1.0, len(found) * min(found)) if found else 1.0
        exposure = exposures.get(name)
        if exposure is None or not exposure.known:
            p_value = by_place
        elif exposure.measured_in_space or not found:
            # A rank in the whole space and the place in a search of it are the same number.
            p_value = min(exposure.p_value, by_place)
        else:
            p_value = min(1.0, 2.0 * min(exposure.p_value, by_place))
        if found or (exposure is not None and exposure.known):
            p_values[name] = p_value
    return p_values


def extracted_canaries(run: Run) -> set[str]:
    """The canaries that any search or prompt of the run has found."""
    return {one.canary_id for _, document in run.all(VERIFIED) for one in document.canaries if one.extracted}


def places_of(run: Run, located: Located[Verified]) -> list[FoundPlace]:
    """The canaries of one verified.json; without memorization one is among the first k of |R| with probability k / |R|."""
    sizes = _sizes(run, located)
    fewest = min(sizes.values(), default=None)
    document = run.first(EXPOSURES)
    formats = {result.canary_id: result.format_id for result in (document.results if document else ())}
    formats |= {canary.canary_id: canary.format_id for canary in run.canaries or ()}
    found = []
    for one in located.document.canaries:
        size = sizes.get(one.format_id or formats.get(one.canary_id, ""), fewest)
        if not one.extracted:
            p_value = 1.0
        elif size is None:
            # It came out, and nothing says that the space is small.
            p_value = 0.0
        else:
            p_value = min(1.0, (one.place or 1) / size)
        found.append(FoundPlace(one.canary_id, one.repetitions, one.place, p_value))
    return found


def _sizes(run: Run, located: Located[Verified]) -> dict[str, int]:
    """The sizes of formats, by id."""
    beside = {
        one.path.stem.removeprefix("extraction-"): int(one.document.size)
        for one in run.all(EXTRACTIONS)
        if one.path.parent == located.path.parent
    }
    if beside:
        return beside
    document = run.first(EXPOSURES)
    if document is not None:
        return {facts.format_id: int(facts.size) for facts in document.formats}
    return {} if run.canaries is None else {name: form.size for name, form in run.canaries.formats.items()}
