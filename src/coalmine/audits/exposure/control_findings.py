"""The findings of the control: whether withheld canaries look memorized, by their exposures or because a search found them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import median

from coalmine.audits.exposure.catalog import finding
from coalmine.audits.exposure.chance import FEWEST, Judged, chance_in_words, group_test, judged
from coalmine.audits.exposure.findings import canary_finding
from coalmine.audits.exposure.results import EXPOSURES
from coalmine.audits.exposure.single_canaries import FoundPlace, places_of
from coalmine.audits.extraction.results import VERIFIED
from coalmine.evidence.budget import Decisions, Suspicion
from coalmine.evidence.findings import NAMED, Finding
from coalmine.evidence.run import Run
from coalmine.evidence.words import times_in_words


def control_suspicions(run: Run) -> Iterator[Suspicion]:
    """The withheld canaries of each format, and those that a search found."""
    for format_id, group in _by_format(_withheld(run)).items():
        yield Suspicion("control", ("exposure", format_id), group_test(group).p_value)
    for number, places in enumerate(_places(run)):
        if places:
            yield Suspicion("control", ("extraction", str(number)), _chance_of_places(places))


def control_findings(run: Run, decided: Decisions) -> Iterator[Finding]:
    """What withheld canaries show about the measurement itself."""
    out = [
        one
        for number, places in enumerate(_places(run))
        if decided.shown("control", "extraction", str(number))
        for one in places
        if one.p_value * len(places) <= decided.levels["control", ("extraction", str(number))]
    ]
    withheld = _withheld(run)
    if withheld:
        yield _exposures(withheld, decided, spoiled=bool(out))
    if out:
        yield finding("CM205", "high", "found", _came_out(out), subject=[one.canary_id for one in out])
    chance = [one for places in _places(run) for one in places if one.place is not None and one not in out]
    if chance:
        title = "A withheld canary comes out, which chance explains"
        evidence = f"{_came_out(chance)} In a space this small, guesses hit one this often."
        subject = [one.canary_id for one in chance]
        yield finding("CM205", "info", "found", evidence, subject=subject, title=title)


def _withheld(run: Run) -> list[Judged]:
    document = run.first(EXPOSURES)
    return [one for one in (judged(document) if document else ()) if one.result.repetitions == 0]


def _by_format(withheld: Sequence[Judged]) -> dict[str, list[Judged]]:
    """Canaries with a number to rely on, by format."""
    known = [one for one in withheld if one.known]
    return {
        name: [one for one in known if one.result.format_id == name]
        for name in sorted({one.result.format_id for one in known})
    }


def _places(run: Run) -> list[list[FoundPlace]]:
    """The withheld canaries of each verified.json."""
    return [[one for one in places_of(run, located) if one.repetitions == 0] for located in run.all(VERIFIED)]


def _chance_of_places(places: Sequence[FoundPlace]) -> float:
    return min(1.0, len(places) * min(one.p_value for one in places))


def _exposures(withheld: Sequence[Judged], decided: Decisions, *, spoiled: bool) -> Finding:
    groups = _by_format(withheld)
    measured = [one for group in groups.values() for one in group]
    say = partial(canary_finding, "CM105", canaries=withheld)
    if not measured:
        said = f"{len(withheld):,} canaries were withheld, and none of them could be measured."
        return say("info", "not_measured", said)
    middle = median([one.low if one.result.exposure is None else one.result.exposure for one in measured])
    p_value = min(1.0, len(groups) * min(group_test(group).p_value for group in groups.values()))
    counted = "" if len(measured) == len(withheld) else f", and {len(measured):,} of them could be measured"
    said = (
        f"{len(withheld):,} canaries were withheld{counted}: median exposure {middle:.1f} bits where guessing gives 1, which "
        f"chance gives with probability {chance_in_words(p_value)}"
    )
    if any(decided.shown("control", "exposure", name) for name in groups):
        return say("high", "found", f"{said}.", title="Canaries that were withheld look memorized")
    if spoiled:
        return say("info", "not_measured", f"{said}. But a search found withheld canaries; see CM205.")
    if len(measured) < FEWEST:
        return say("info", "not_measured", f"{said}. These are too few to trust the control.")
    return say("pass", "clear", f"{said}.", title="The control holds: withheld canaries look like guesses")


def _came_out(these: Sequence[FoundPlace]) -> str:
    named = "; ".join(
        f"{one.canary_id}, trained on {times_in_words(one.repetitions)}, at place {one.place}"
        for one in these[:NAMED]
    )
    many = "1 canary" if len(these) == 1 else f"{len(these):,} canaries"
    return f"{many} came out that {'was' if len(these) == 1 else 'were'} never trained on: {named}."
