"""The audit of exposure, as reports and the gate see it: single canaries, groups of them, and the control of withheld ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from statistics import median

from coalmine.audits.exposure.chance import (
    FEWEST,
    WRONG_SIDE,
    FoundPlace,
    Judged,
    at_most_share,
    canary_p_values,
    chance_explains,
    extracted_canaries,
    group_test,
    measured_canaries,
    places_of,
    pushed_away,
    secrets_test,
)
from coalmine.audits.exposure.data_checks import data_measures, planted_in
from coalmine.audits.exposure.display import (
    canary_table,
    exposure_figure,
    histogram_figure,
    most_exposed_first,
    names_of_formats,
)
from coalmine.audits.exposure.estimators import estimator_of
from coalmine.audits.exposure.results import EXPOSURES
from coalmine.audits.extraction.results import VERIFIED
from coalmine.evidence.measures import LEVEL, Audit, Measure, Rule, widened_low
from coalmine.evidence.run import Run
from coalmine.evidence.tables import Detail, Search
from coalmine.evidence.words import FormatNames, format_names, times_in_words
from coalmine.grouped import grouped
from coalmine.records import Estimate
from coalmine.statistics.intervals import clopper_pearson

# There are many single canaries, and one that is memorized must not be missed.
WEIGHT = 4.0
EXTRAPOLATED = (
    "its exposure was extrapolated, and the limits of a curve do not hold deep in its tail; measure with --method splitting, guided "
    "or references"
)
# The size of what is among the first two guesses in its whole space; others have the share of it that they may reach.
FULL = 2.0


def measures(run: Run) -> Iterator[Measure]:
    """What exposures, and searches for the same canaries, show."""
    canaries = [one for one in measured_canaries(run) if one.result.repetitions > 0]
    names = names_of_formats(run)
    yield from single_measures(run, canaries, "exposure.canary", partial(_named, names))
    yield from _missing(run, names)
    yield from _groups(run, canaries, names)
    yield from _control(run, names)
    document = run.first(EXPOSURES)
    if document is not None:
        if all(result.planted for result in document.results):
            yield Measure(key="exposure.no_control", status="not_tested")
        for format_id, fit in document.tail_fits.items():
            if fit.warnings:
                yield Measure(
                    key="exposure.curve",
                    name=names[format_id],
                    status="not_measured",
                    says="; ".join(fit.warnings),
                )


def single_measures(
    run: Run, canaries: Sequence[Judged], key: str, name: Callable[[Judged], str]
) -> Iterator[Measure]:
    """One measure per canary; its exposure and the searches that found it are one test.

    A canary that only searches looked for has no estimate: it counts where it came out, and rules about exposure leave it out.
    """
    p_values, out = canary_p_values(run), extracted_canaries(run)
    kind = key.rpartition(".")[2]
    for one in canaries:
        result, estimate = one.result, one.result.estimate
        if not one.known and estimate.status != "not_measured":
            estimate = Estimate.not_measured(estimate.method, EXTRAPOLATED)
        yield Measure(
            key=key,
            name=name(one),
            estimate=estimate,
            p_value=p_values.pop(result.canary_id, None),
            test=(kind, result.canary_id),
            weight=WEIGHT,
            about=(result.canary_id,),
            says=_exposure_words(one) if one.known else "",
            size=FULL if one.fully_exposed else one.high / one.space_bits if one.space_bits else 1.0,
            copies=result.repetitions,
            ceiling=one.space_bits,
            lower=partial(_low_at, one),
            source=one,
        )
    for canary_id, p_value in p_values.items():
        yield Measure(
            key=key,
            name=canary_id,
            p_value=p_value,
            test=(kind, canary_id),
            weight=WEIGHT,
            about=(canary_id,),
            says="it came out of a search" if canary_id in out else "no search found it",
            size=FULL,
        )


def _named(names: FormatNames, one: Judged) -> str:
    return f"{one.result.canary_id} of {names[one.result.format_id]}, trained on {times_in_words(one.result.repetitions)}"


def _exposure_words(one: Judged) -> str:
    proven = f", and at least {one.proven:.2f} by its probability" if one.proven else ""
    return f"exposure {one.result.estimate.text()}{proven} of at most {one.space_bits:.2f} bits"


def _low_at(one: Judged, confidence: float) -> float:
    """The lower limit of an exposure at a confidence: exact for ranks among references or samples, else that of a widened interval."""
    estimate, better = one.result.estimate, one.better
    low = widened_low(estimate, confidence, estimator_of(estimate.method).degrees_of_freedom)
    if better is not None and estimate.low is not None and (estimate.confidence or 1.0) < confidence:
        share = clopper_pearson(better, estimate.n, confidence)[1]
        low = min(estimate.low, math.inf if share <= 0 else -math.log2(share))
    return max(low, one.proven or low)


def _missing(run: Run, names: FormatNames) -> Iterator[Measure]:
    """Planted canaries that no exposures cover."""
    documents = [document for _, document in run.all(EXPOSURES)]
    there = {(one.manifest_sha256, result.canary_id) for one in documents for result in one.results}
    for one in planted_in(run) if documents else ():
        if (one.manifest_sha256, one.canary_id) in there:
            continue
        why = f"no result covers it (format {names[one.format_id]})"
        yield Measure(
            key="exposure.canary",
            name=f"{one.canary_id}, trained on {times_in_words(one.repetitions)}",
            estimate=Estimate.not_measured("none", why),
            about=(one.canary_id,),
            copies=one.repetitions,
        )


def _groups(run: Run, canaries: Sequence[Judged], names: FormatNames) -> Iterator[Measure]:
    """The canaries of each format that were trained on equally often, together."""
    groups = dict(sorted(grouped((one.group, one) for one in canaries if one.known).items()))
    out = extracted_canaries(run)
    # Of groups that show nothing by themselves, whether all of them together do.
    quiet = [some for some in groups.values() if group_test(some).p_value > LEVEL / len(groups)]
    spread = len(quiet) > 1 and group_test([one for some in quiet for one in some]).p_value <= LEVEL
    for (format_id, copies), some in groups.items():
        test = group_test(some)
        middle = median(_point(one) for one in some)
        yield Measure(
            key="exposure.group",
            name=f"{len(some):,} {'canary' if len(some) == 1 else 'canaries'} of {names[format_id]}, trained on {times_in_words(copies)}",
            p_value=test.p_value,
            test=("group", format_id, str(copies)),
            about=tuple(one.result.canary_id for one in some),
            says=f"median exposure {middle:.1f} bits, upper limits up to {max(one.high for one in some):.1f}{_ahead(some)}",
            doubt=doubt_of_group(some, "canaries", out, len(groups), len(canaries), spread=spread),
            if_clear=f"up to {100 * at_most_share(len(some)):.0f}% of such canaries could still be memorized (95% confidence)",
            size=_size(some, test.place),
            copies=copies,
        )


def _ahead(some: Sequence[Judged]) -> str:
    beat = sum(one.better == 0 for one in some)
    estimate = some[0].result.estimate
    return f"; {beat:,} of them beat all {estimate.n:,} {estimator_of(estimate.method).among}" if beat else ""


def _point(one: Judged) -> float:
    return one.low if one.result.exposure is None else one.result.exposure


def _size(some: Sequence[Judged], place: int) -> float:
    """The share of the most possible that those that show it may reach, or twice that of the best if that is less than a half."""
    shares = sorted((one.high / one.space_bits for one in some if one.space_bits), reverse=True)
    if not shares:
        return 0.0
    of_place = shares[min(place, len(shares)) - 1]
    return of_place if of_place >= 0.5 else min(0.49, shares[0])


def doubt_of_group(
    some: Sequence[Judged], what: str, out: Collection[str], groups: int, canaries: int, *, spread: bool
) -> str:
    """Why it would be no good news that a group shows nothing; empty where there is no reason."""
    # Secrets have references of their own, whose number says how wide an interval must be.
    wide = sum(one.low != one.high and not one.natural and 2.0**-one.high < LEVEL / canaries for one in some)
    if wide:
        return f"{wide:,} of {len(some):,} {what} have intervals that are too wide to tell chance from memorization"
    if pushed_away(some, LEVEL / groups):
        return WRONG_SIDE
    first = sum(one.first or one.result.canary_id in out for one in some)
    if first:
        p_values = [one.p_value for one in some]
        test = secrets_test(p_values, some) if some[0].natural else group_test(some)
        return (
            f"{first:,} of {len(some):,} {what} came out or come first among all that they were ranked among, "
            f"{chance_explains(test.p_value)}"
        )
    if spread:
        return "all of them together are more exposed than guessing explains, although no group by itself is shown to be"
    if len(some) < FEWEST:
        share = f"{100 * at_most_share(len(some)):.0f}%"
        return f"these are too few to call such {what} safe: up to {share} of them could still be memorized (95% confidence)"
    return ""


def _control(run: Run, names: FormatNames) -> Iterator[Measure]:
    """Withheld canaries, which show what the measurement gives without memorization."""
    withheld = [one for one in measured_canaries(run) if one.result.repetitions == 0]
    for format_id, every in grouped((one.result.format_id, one) for one in withheld).items():
        some = [one for one in every if one.known]
        few = f"only {len(some):,} of {len(every):,} could be measured, too few to trust the control"
        middle = (
            f"median exposure {median(map(_point, some)):.1f} bits where guessing gives 1" if some else ""
        )
        yield Measure(
            key="exposure.control",
            name=f"{len(every):,} withheld of {names[format_id]}",
            p_value=group_test(some).p_value if some else None,
            test=("control", "exposure", format_id),
            about=tuple(one.result.canary_id for one in every),
            says=middle,
            doubt=few if len(some) < FEWEST else "",
        )
    for number, located in enumerate(run.all(VERIFIED)):
        places = [one for one in places_of(run, located) if one.repetitions == 0]
        if places:
            out = [one for one in places if one.place is not None]
            yield Measure(
                key="exposure.control_out",
                p_value=min(1.0, len(places) * min(one.p_value for one in places)),
                test=("control", "extraction", str(number)),
                about=tuple(one.canary_id for one in out or places),
                says=_came_out(out) if out else "",
                doubt="in a space this small, guesses hit one this often" if out else "",
            )


def _came_out(these: Sequence[FoundPlace]) -> str:
    named = ", ".join(f"{one.canary_id} at place {one.place}" for one in these[:3])
    return f"{len(these):,} withheld {'canary' if len(these) == 1 else 'canaries'} came out: {named}"


def chance_of_exposures(these: Sequence[Measure], _limit: float) -> float:
    """The probability of exposures as high as the best of these without memorization."""
    return group_test([one.source for one in these if one.source is not None]).p_value


def doubt_of_exposures(these: Sequence[Measure], level: float) -> str:
    """Why low exposures say nothing, if so."""
    return WRONG_SIDE if pushed_away([one.source for one in these if one.source is not None], level) else ""


RULES = (
    Rule(
        key="exposure.at_most",
        of="exposure.canary",
        says="exposure of every planted canary at most {limit:g} bits, of at most log2 |R|",
        example=10.0,
        settle="measure with another method (`coalmine expose --method guided`), or among more references",
        chance=chance_of_exposures,
        doubt=doubt_of_exposures,
        about_canaries=True,
    ),
)


def exposure_details(run: Run, reveal: bool) -> Iterator[Detail]:
    """All canaries, the most exposed first; and how each format was measured."""
    document = run.first(EXPOSURES)
    if document is None:
        return
    if document.results:
        texts = {canary.canary_id: canary.text for canary in run.canaries or ()}
        times = sorted({result.repetitions for result in document.results})
        yield canary_table(format_names(document.formats), texts).detail(
            most_exposed_first(document),
            reveal=reveal and bool(texts),
            section="Canaries",
            caption="Canaries, the most exposed first",
            search=Search(
                name="canaries",
                column="trained on",
                label="Trained on",
                choices={one: times_in_words(one) for one in times},
            ),
        )
    yield Detail(
        section="Record",
        title="Formats",
        columns=("format", "template", "members", "method", "because"),
        rows=[(one.format_id, one.template, one.size, one.method, one.why) for one in document.formats],
        caption="Formats and how they were measured",
    )


EXPOSURE = Audit(
    name="exposure",
    command="coalmine expose",
    documents=(EXPOSURES,),
    measures=lambda run: [*measures(run), *data_measures(run)],
    rules=RULES,
    figures=lambda run: (exposure_figure(run.first(EXPOSURES)), histogram_figure(run)),
    details=exposure_details,
)
