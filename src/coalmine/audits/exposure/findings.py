"""The findings about exposures: which canaries are memorized beyond what chance explains, and how strongly."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import chain
from statistics import median

from coalmine.audits.exposure.catalog import COME_FIRST, finding
from coalmine.audits.exposure.chance import (
    FEWEST,
    SPREAD,
    WRONG_SIDE,
    Judged,
    at_most_share,
    chance_explains,
    chance_in_words,
    first_in_words,
    group_test,
    is_first,
    judged,
    pushed_away,
    share,
)
from coalmine.audits.exposure.estimators import estimator_of
from coalmine.audits.exposure.results import EXPOSURES, Exposures
from coalmine.audits.exposure.single_canaries import canary_suspicions, extracted_canaries
from coalmine.audits.exposure.table import exposure_in_words
from coalmine.audits.membership.findings import shown_of_population
from coalmine.evidence.budget import LEVEL, Decisions, Suspicion
from coalmine.evidence.findings import LISTED, NAMED, Finding, FindingStatus, Severity
from coalmine.evidence.run import Run
from coalmine.evidence.words import FormatNames, format_names, times_in_words
from coalmine.records.estimate import rounded_down, rounded_up


def canary_finding(
    code: str,
    severity: Severity,
    status: FindingStatus,
    evidence: str,
    canaries: Sequence[Judged],
    title: str | None = None,
) -> Finding:
    """A finding about canaries, with the exposures of those that it lists."""
    estimates = [one.result.estimate for one in canaries[:LISTED]]
    subject = [one.result.canary_id for one in canaries]
    return finding(code, severity, status, evidence, estimates=estimates, subject=subject, title=title)


def exposure_suspicions(run: Run) -> Iterator[Suspicion]:
    """Each canary that was trained on, and those of each format and number of repetitions together."""
    yield from canary_suspicions(run)
    document = run.first(EXPOSURES)
    if document is not None:
        trained = [one for one in judged(document) if one.result.repetitions > 0]
        for key, group in _groups(trained).items():
            yield Suspicion("group", _named_key(key), group_test(group).p_value)


def exposure_findings(run: Run, decided: Decisions) -> Iterator[Finding]:
    """Findings about the exposures that the report relies on."""
    document = run.first(EXPOSURES)
    if document is None:
        return
    trained = [one for one in judged(document) if one.result.repetitions > 0]
    if trained:
        yield from _trained(run, document, trained, decided)
    yield from _curves(document)


def _groups(canaries: Sequence[Judged]) -> dict[tuple[str, int], list[Judged]]:
    """Canaries with a number to rely on, by format and by how often they were trained on."""
    known = [one for one in canaries if one.known]
    return {key: [one for one in known if one.group == key] for key in sorted({one.group for one in known})}


def _named_key(key: tuple[str, int]) -> tuple[str, str]:
    return (key[0], str(key[1]))


def _trained(
    run: Run, document: Exposures, trained: Sequence[Judged], decided: Decisions
) -> Iterator[Finding]:
    known = [one for one in trained if one.known]
    shown = [one for one in known if decided.shown("canary", one.result.canary_id)]
    full = [one for one in shown if one.fully_exposed]
    memorized = [one for one in shown if not one.fully_exposed]
    about = partial(_about, shown=shown, known=known, trained=trained)
    if full:
        what = "among the model's first two guesses even at the lower limit"
        yield about("CM101", full, what=what, severity="critical")
    if memorized:
        worst = any(one.high >= one.space_bits / 2 for one in memorized)
        what = f"so exposed that chance alone would make this report show even one in fewer than {100 * LEVEL:g}% of runs"
        yield about("CM102", memorized, what=what, severity="high" if worst else "medium")
    yield from _together(run, document, trained, decided)


def _about(
    code: str,
    these: Sequence[Judged],
    *,
    shown: Sequence[Judged],
    known: Sequence[Judged],
    trained: Sequence[Judged],
    what: str,
    severity: Severity,
) -> Finding:
    # A canary that could not be measured is not counted in the share, where it would look safe.
    which = "that were trained on" if len(known) == len(trained) else "that were trained on and measured"
    estimate = share(len(these), len(known), f"{which} {'is' if len(these) == 1 else 'are'} {what}")
    # The number that the first screen has.
    every = "" if len(these) == len(shown) else f", and {len(shown):,} are each shown to be memorized"
    ordered = sorted(these, key=lambda one: -one.low)
    fewest = min(one.result.repetitions for one in these)
    some = "; ".join(_named(one) for one in ordered[:NAMED])
    more = f"; and {len(ordered) - NAMED:,} more" if len(ordered) > NAMED else ""
    return finding(
        code,
        severity,
        "found",
        f"{estimate.statement}{every}: {some}{more}. The least repeated of them was trained on {times_in_words(fewest)}.",
        estimates=(estimate, *(one.result.estimate for one in ordered[:LISTED])),
        subject=[one.result.canary_id for one in ordered],
    )


def _named(one: Judged) -> str:
    result = one.result
    low, high = result.interval
    if result.estimate.status == "lower_bound":
        level = result.estimate.confidence
        interval = "proven" if level is None else f"{100 * level:g}% confidence"
    elif low is None or low == high:
        interval = "exact"
    else:
        interval = f"{rounded_down(low)} to {'?' if high is None else rounded_up(high)}"
    proven = f", {rounded_down(one.proven)} by its probability" if one.proven else ""
    return (
        f"{result.canary_id}, trained on {times_in_words(result.repetitions)}, exposure {exposure_in_words(result)} "
        f"({interval}{proven}) of at most {one.space_bits:.2f} bits"
    )


def _together(
    run: Run, document: Exposures, trained: Sequence[Judged], decided: Decisions
) -> Iterator[Finding]:
    """Canaries that are not shown individually: they may be shown together; otherwise they are clear, or not known."""
    names = format_names(document.formats)
    suspect: list[list[Judged]] = []
    quiet: list[list[Judged]] = []
    unclear = [one for one in trained if not one.known]
    level = decided.level("canary")
    for key, group in _groups(trained).items():
        rest = [one for one in group if not decided.shown("canary", one.result.canary_id)]
        if not rest:
            continue
        # If some of a group are shown individually, the others are judged without them.
        needed = decided.levels["group", _named_key(key)]
        if decided.shown("group", *_named_key(key)) and group_test(rest).p_value <= needed:
            suspect.append(rest)
            continue
        # Nothing better can be measured of a rank that is known exactly.
        open_ones = [one for one in rest if 2.0**-one.high < level and one.low != one.high]
        closed = [one for one in rest if 2.0**-one.high >= level or one.low == one.high]
        unclear += open_ones
        if closed:
            quiet.append(closed)
    if suspect:
        yield _suspected(suspect, names)
    by_membership = [group for group in quiet if _shown_by_membership(group, decided)]
    if by_membership:
        yield _quiet_alone(by_membership, names)
    quiet = [group for group in quiet if group not in by_membership]
    away = [group for group in quiet if pushed_away(group, LEVEL / len(quiet))]
    if away:
        evidence = f"{'; '.join(_group_words(group, names) for group in away)}. But {WRONG_SIDE}."
        title = "Canaries are more surprising than guessing explains"
        yield canary_finding("CM104", "info", "not_measured", evidence, list(chain(*away)), title)
    quiet = [group for group in quiet if group not in away]
    spread = len(quiet) > 1 and group_test(list(chain(*quiet))).p_value <= LEVEL
    out = extracted_canaries(run)
    firsts = [group for group in quiet if any(is_first(one, out) for one in group)]
    if firsts:
        yield _first(firsts, out, names)
    quiet = [group for group in quiet if group not in firsts]
    if quiet and spread:
        evidence = f"{'; '.join(_group_words(group, names) for group in quiet)}. But {SPREAD}."
        title = "It is not known whether canaries were memorized"
        yield canary_finding("CM104", "info", "not_measured", evidence, list(chain(*quiet)), title)
    elif quiet:
        yield _quiet(quiet, names)
    if unclear:
        yield _unmeasured(unclear, len(trained), names)


def _suspected(suspect: Sequence[Sequence[Judged]], names: FormatNames) -> Finding:
    severities: list[Severity] = [_severity(group) for group in suspect]
    severity = min(severities, key=("high", "medium", "low").index)
    words = "; ".join(_group_words(group, names) for group in suspect)
    evidence = f"Not individually, but together: {words}."
    return canary_finding("CM103", severity, "found", evidence, list(chain(*suspect)))


def _severity(group: Sequence[Judged]) -> Severity:
    """High if those that show it may reach half of the maximum; medium if any may reach a quarter of it."""
    place = group_test(group).place
    shares = sorted((one.high / one.space_bits for one in group if one.space_bits), reverse=True)
    if shares and shares[min(place, len(shares)) - 1] >= 0.5:
        return "high"
    return "medium" if shares and shares[0] >= 0.25 else "low"


def _group_words(group: Sequence[Judged], names: FormatNames) -> str:
    points = sorted((_point(one), one.result.exposure is None) for one in group)
    middle = median(point for point, _ in points)
    bound = "at least " if points[len(points) // 2][1] else ""
    many = "1 canary" if len(group) == 1 else f"{len(group):,} canaries"
    first = group[0]
    beat = sum(one.better == 0 for one in group)
    estimator = estimator_of(first.result.estimate.method)
    besides = (
        f"; {beat:,} of them beat all {first.result.estimate.n:,} {estimator.among}"
        if beat and estimator.among_others
        else ""
    )
    return (
        f"{many} of {names[first.result.format_id]} trained on {times_in_words(first.result.repetitions)}: median exposure "
        f"{bound}{middle:.1f} bits, upper limits up to {max(one.high for one in group):.1f}{besides}, which chance gives with "
        f"probability {chance_in_words(group_test(group).p_value)}"
    )


def _point(one: Judged) -> float:
    return one.low if one.result.exposure is None else one.result.exposure


def _quiet(groups: Sequence[Sequence[Judged]], names: FormatNames) -> Finding:
    few = [group for group in groups if len(group) < FEWEST]
    words = "; ".join(_group_words(group, names) for group in groups)
    smallest = min(len(group) for group in groups)
    limit = f"up to {100 * at_most_share(smallest):.0f}% of such canaries could still be memorized (95% confidence)"
    everyone = list(chain(*groups))
    if few:
        evidence = f"{words}. These are too few to call such canaries safe: {limit}."
        title = "Too few canaries to rule out memorization"
        return canary_finding("CM104", "info", "not_measured", evidence, everyone, title)
    return canary_finding("CM104", "pass", "clear", f"{words}. Even so, {limit}.", everyone)


def _first(groups: Sequence[Sequence[Judged]], out: Collection[str], names: FormatNames) -> Finding:
    """Canaries that came out, or are the first guess, and that chance may explain: they are no evidence, and nothing is clear."""
    everyone = list(chain(*groups))
    these = [one for one in everyone if is_first(one, out)]
    by_chance = min(1.0, len(groups) * min(group_test(group).p_value for group in groups))
    said = (
        f"{len(these):,} of {len(everyone):,} {'canary' if len(everyone) == 1 else 'canaries'} {first_in_words(these, out)}, "
        f"{chance_explains(by_chance)}"
    )
    words = "; ".join(_group_words(group, names) for group in groups)
    return canary_finding("CM104", "info", "not_measured", f"{said}: {words}.", these, COME_FIRST)


def _shown_by_membership(group: Sequence[Judged], decided: Decisions) -> bool:
    """Whether membership shows that canaries are memorized, although their exposures alone do not."""
    planned = {one.result.planned_repetitions or one.result.repetitions for one in group}
    return any(shown_of_population(decided, group[0].result.format_id, copies) for copies in planned)


def _quiet_alone(groups: Sequence[Sequence[Judged]], names: FormatNames) -> Finding:
    words = "; ".join(_group_words(group, names) for group in groups)
    evidence = f"{words}. Membership shows that they are remembered (CM301, CM302 or CM304), so this does not clear them."
    title = "Exposures alone do not show what membership does"
    return canary_finding("CM104", "info", "not_measured", evidence, list(chain(*groups)), title)


def _unmeasured(unclear: Sequence[Judged], trained: int, names: FormatNames) -> Finding:
    none = sum(not one.known for one in unclear)
    wide = len(unclear) - none
    parts = []
    if none:
        parts.append(f"{none:,} of {trained:,} have no exposure, or none that can be relied on")
    if wide:
        parts.append(
            f"{wide:,} of {trained:,} have intervals that are too wide to tell chance from memorization"
        )
    evidence = f"Of the canaries that were trained on, {' and '.join(parts)}.{_reasons(unclear, names)}"
    return canary_finding("CM911", "info", "not_measured", evidence, unclear)


def _reasons(unclear: Sequence[Judged], names: FormatNames) -> str:
    """Why formats could not be measured at all, one sentence each."""
    reasons = dict.fromkeys(
        f" Format {names[one.result.format_id]}: {_why(one)}." for one in unclear if not one.known
    )
    more = f" And {len(reasons) - NAMED:,} more reasons." if len(reasons) > NAMED else ""
    return "".join(list(reasons)[:NAMED]) + more


def _why(one: Judged) -> str:
    estimate = one.result.estimate
    if not estimator_of(estimate.method).is_evidence and estimate.status != "not_measured":
        return "the limits of an extrapolated curve do not hold deep in its tail, so they are not evidence"
    return estimate.statement


def _curves(document: Exposures) -> Iterator[Finding]:
    """Formats whose exposures were extrapolated by a curve that does not fit."""
    names = format_names(document.formats)
    for format_id, fit in document.tail_fits.items():
        if fit.warnings:
            evidence = f"Format {names[format_id]}: {'; '.join(fit.warnings)}."
            yield finding("CM106", "info", "not_measured", evidence, subject=[format_id])


def no_control(run: Run) -> Iterator[Finding]:
    """Whether canaries were withheld, which show what the measurement gives without memorization."""
    document = run.first(EXPOSURES)
    if document is not None and all(result.planted for result in document.results):
        evidence = (
            "Every canary was planted, so nothing shows what the measurement gives without memorization."
        )
        yield finding("CM908", "info", "not_tested", evidence)
