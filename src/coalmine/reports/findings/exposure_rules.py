"""What do the exposures say? Which canaries are memorized, beyond what chance explains, and how far."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from statistics import median

from coalmine.audits.exposure_results import ExposureDocument
from coalmine.reports.exposure_table import exposure_in_words, times_in_words
from coalmine.reports.findings.catalog import finding
from coalmine.reports.findings.chance import (
    FEWEST,
    LEVEL,
    Judged,
    at_most_share,
    group_p_value,
    judged,
    share,
)
from coalmine.reports.findings.findings import Finding
from coalmine.reports.runs.reading import Run

# How many canaries a sentence names, and how many a finding lists.
NAMED, LISTED = 3, 50
# Whom a share is of where not all could be measured.
AND_MEASURED = "that were trained on and measured"


def exposure_findings(run: Run) -> Iterator[Finding]:
    """Findings about the exposures to go by."""
    document = run.exposure
    if document is None:
        return
    everyone = judged(document)
    trained = [one for one in everyone if one.result.repetitions > 0]
    if trained:
        yield from _trained(document, trained)
    withheld = [one for one in everyone if one.result.repetitions == 0]
    if withheld:
        yield _control(withheld)
    yield from _bad_fits(document)


def _trained(document: ExposureDocument, trained: Sequence[Judged]) -> Iterator[Finding]:
    known = [one for one in trained if one.known]
    shown = [one for one in trained if one.shown(len(trained))]
    full = [one for one in shown if one.fully_exposed]
    memorized = [one for one in shown if not one.fully_exposed]
    others = [one for one in trained if not one.shown(len(trained))]
    if full:
        yield _about(
            "CM101",
            full,
            known,
            trained,
            "among the model's first two guesses even at the lower limit",
            document.confidence,
            severity="critical",
        )
    if memorized:
        worst = any(one.high >= one.space_bits / 2 for one in memorized)
        yield _about(
            "CM102",
            memorized,
            known,
            trained,
            f"exposed so far that chance alone would show even one such canary in fewer than {100 * LEVEL:g} % of runs",
            document.confidence,
            severity="high" if worst else "medium",
        )
    unclear = [one for one in others if one.open(len(trained))]
    yield from _groups([one for one in others if not one.open(len(trained))])
    if unclear:
        yield _unmeasured(unclear, len(trained))


def _about(
    code: str,
    these: Sequence[Judged],
    known: Sequence[Judged],
    trained: Sequence[Judged],
    what: str,
    confidence: float,
    *,
    severity: str,
) -> Finding:
    # What could not be measured is in no share: it would count as safe.
    which = "that were trained on" if len(known) == len(trained) else AND_MEASURED
    estimate = share(
        len(these), len(known), f"{which} {'is' if len(these) == 1 else 'are'} {what}", confidence
    )
    ordered = sorted(these, key=lambda one: -one.low)
    fewest = min(one.result.repetitions for one in these)
    some = "; ".join(_named(one) for one in ordered[:NAMED])
    more = f"; and {len(ordered) - NAMED:,} more" if len(ordered) > NAMED else ""
    return finding(
        code,
        severity,  # type: ignore[arg-type]  # one of the severities, by the callers above
        "found",
        f"{estimate.statement}: {some}{more}. The least repeated of them was trained on {times_in_words(fewest)}.",
        estimates=(estimate, *(one.result.estimate for one in ordered[:LISTED])),
        subject=[one.result.canary_id for one in ordered[:LISTED]],
    )


def _named(one: Judged) -> str:
    result = one.result
    low, high = result.interval
    if result.estimate.status == "lower_bound":
        interval = f"{100 * (result.estimate.confidence or 0):g} % confidence"
    elif low is None or low == high:
        interval = "exact"
    else:
        upper = "?" if high is None else f"{math.ceil(high * 100) / 100:.2f}"
        interval = f"{math.floor(low * 100) / 100:.2f} to {upper}"
    return (
        f"{result.canary_id}, trained on {times_in_words(result.repetitions)}, exposure {exposure_in_words(result)} "
        f"({interval}) of at most {one.space_bits:.2f} bits"
    )


def _groups(others: Sequence[Judged]) -> Iterator[Finding]:
    """Canaries that show nothing alone, by how often they were trained on: together they may."""
    keys = sorted({(one.result.format_id, one.result.repetitions) for one in others})
    groups = [
        [one for one in others if (one.result.format_id, one.result.repetitions) == key] for key in keys
    ]
    suspect: list[list[Judged]] = []
    quiet: list[list[Judged]] = []
    for group in groups:
        (suspect if group_p_value(group) < LEVEL / len(groups) else quiet).append(group)
    if suspect:
        worst = max(one.high / one.space_bits for group in suspect for one in group if one.space_bits)
        yield finding(
            "CM103",
            "medium" if worst >= 0.25 else "low",
            "found",
            "Not one by one, but together: " + "; ".join(_group_words(group) for group in suspect) + ".",
            estimates=[one.result.estimate for group in suspect for one in group][:LISTED],
            subject=[one.result.canary_id for group in suspect for one in group][:LISTED],
        )
    if quiet:
        yield _quiet(quiet)


def _group_words(group: Sequence[Judged]) -> str:
    middle = median(_point(one) for one in group)
    many = "1 canary" if len(group) == 1 else f"{len(group):,} canaries"
    return (
        f"{many} trained on {times_in_words(group[0].result.repetitions)}: median exposure {middle:.1f} bits, "
        f"upper limits up to {max(one.high for one in group):.1f}, as high by chance with probability {_chance(group_p_value(group))}"
    )


def _point(one: Judged) -> float:
    return one.low if one.result.exposure is None else one.result.exposure


def _chance(p_value: float) -> str:
    return "below 1e-12" if p_value < 1e-12 else f"{p_value:.2g}"


def _quiet(groups: Sequence[Sequence[Judged]]) -> Finding:
    few = [group for group in groups if len(group) < FEWEST]
    words = "; ".join(_group_words(group) for group in groups)
    smallest = min(len(group) for group in groups)
    limit = f"up to {100 * at_most_share(smallest):.0f} % of such canaries could still be memorized (95 % confidence)"
    everyone = [one for group in groups for one in group]
    say = partial(
        finding,
        "CM104",
        estimates=[one.result.estimate for one in everyone[:LISTED]],
        subject=[one.result.canary_id for one in everyone[:LISTED]],
    )
    if few:
        evidence = f"{words}. That is too few to say that such canaries are safe: {limit}."
        return say(
            "info",
            "not_measured",
            evidence,
            title="Too few canaries to rule memorization out",
        )
    return say(
        "pass",
        "clear",
        f"{words}. Even so, {limit}.",
    )


def _unmeasured(unclear: Sequence[Judged], trained: int) -> Finding:
    none = sum(not one.known for one in unclear)
    wide = len(unclear) - none
    parts = []
    if none:
        parts.append(f"{none:,} of {trained:,} have no number, or none to rely on")
    if wide:
        parts.append(
            f"{wide:,} of {trained:,} may be no more exposed than by chance or far more, as far as the interval goes"
        )
    return finding(
        "CM911",
        "info",
        "not_measured",
        f"Of the canaries that were trained on, {' and '.join(parts)}.{_reasons(unclear)}",
        estimates=[one.result.estimate for one in unclear][:LISTED],
        subject=[one.result.canary_id for one in unclear][:LISTED],
    )


def _reasons(unclear: Sequence[Judged]) -> str:
    """Why formats could not be measured at all, a sentence each."""
    told = dict.fromkeys(
        f" Format {one.result.format_id}: {one.result.estimate.statement}."
        for one in unclear
        if one.result.estimate.status == "not_measured"
    )
    more = f" And {len(told) - NAMED:,} more reasons." if len(told) > NAMED else ""
    return "".join(list(told)[:NAMED]) + more


def _control(withheld: Sequence[Judged]) -> Finding:
    measured = [one for one in withheld if one.known]
    if not measured:
        evidence = f"{len(withheld):,} canaries were withheld, and none of them could be measured."
        return finding(
            "CM105",
            "info",
            "not_measured",
            evidence,
            subject=[one.result.canary_id for one in withheld[:LISTED]],
        )
    formats = sorted({one.result.format_id for one in measured})
    chances = [group_p_value([one for one in measured if one.result.format_id == name]) for name in formats]
    p_value = min(1.0, len(formats) * min(chances))
    middle = median([_point(one) for one in measured])
    said = (
        f"{len(withheld):,} canaries were withheld{_of_them(measured, withheld)}: median exposure {middle:.1f} bits where guessing "
        f"gives 1, as high by chance with probability {_chance(p_value)}"
    )
    say = partial(
        finding,
        "CM105",
        estimates=[one.result.estimate for one in withheld[:LISTED]],
        subject=[one.result.canary_id for one in withheld[:LISTED]],
    )
    # Two ways to fail share the chance of a false alarm.
    if p_value < LEVEL / 2 or any(one.shown(2 * len(withheld)) for one in measured):
        title = "Canaries that were withheld look memorized"
        return say("high", "found", f"{said}.", title=title)
    if len(measured) < FEWEST:
        evidence = f"{said}. That is too few to trust the control."
        return say("info", "not_measured", evidence)
    title = "The control holds: withheld canaries look like guesses"
    return say("pass", "clear", f"{said}.", title=title)


def _of_them(measured: Sequence[Judged], withheld: Sequence[Judged]) -> str:
    return "" if len(measured) == len(withheld) else f", and {len(measured):,} of them could be measured"


def _bad_fits(document: ExposureDocument) -> Iterator[Finding]:
    for format_id, fit in document.tail_fits.items():
        if fit.warnings:
            yield finding(
                "CM106",
                "medium",
                "found",
                f"Format {format_id}: {'; '.join(fit.warnings)}.",
                subject=[format_id],
            )
