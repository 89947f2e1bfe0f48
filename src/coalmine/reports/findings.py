"""`findings_of`: everything that the measures of a run show, the most severe first; no audit judges its own numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import msgspec

from coalmine.audits.registry import audits
from coalmine.errors import InputError
from coalmine.evidence.measures import Decisions, Measure, Status, decide
from coalmine.evidence.run import Run
from coalmine.grouped import grouped
from coalmine.records import Estimate
from coalmine.reports.catalog import STATUSES, Entry, Severity, catalog, chosen, docs_of

# The most severe first.
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
# The most subjects that a finding lists; and of single things, and of others, how many a sentence names.
LISTED, NAMED_SINGLES, NAMED = 50, 3, 12
MISSING = "missing."
REST = "some of these are found one by one, so the others are not called clear"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a run shows.

    `status` is "found" (there is evidence of a problem), "clear" (it was looked for, and the evidence speaks against it),
    "not_tested" (the audit was not run) or "not_measured" (it was run, but gives no honest answer). Only a finding that is clear has
    the severity "pass".
    """

    code: str
    # The key of the measures that it is about, such as "membership.auc".
    key: str
    title: str
    severity: Severity
    status: Status
    # A sentence, with an interval wherever there is one.
    evidence: str
    # The numbers in that sentence.
    estimates: tuple[Estimate, ...] = ()
    # What to do about it.
    advice: str
    # What it is about: ids of canaries, names of populations or models; never the text of a secret.
    subject: tuple[str, ...] = ()
    # The page about this code: a path from the root of the project, or an address.
    docs: str
    # What the first screen asks, what this answers, and its sentence of the verdict; empty for what is not on the first screen.
    question: str = ""
    answer: str = ""
    sentence: str = ""
    discredits: str = ""


def measures_of(run: Run) -> list[Measure]:
    """What all audits say of a run, and which of them have no results."""
    untested = {MISSING + audit.name for audit in audits() if not audit.tested_in(run)}
    every = (one for audit in audits() for one in audit.measures(run))
    found = [one for one in every if not one.key.startswith(MISSING) or one.key in untested]
    if any(audit.stands_alone(run) for audit in audits()):
        return [one for one in found if one.status != "not_tested"]
    said = {one.key for one in found}
    for audit in audits():
        key = MISSING + audit.name
        if audit.is_missed and key not in said and not audit.tested_in(run):
            found.append(Measure(key=key, status="not_tested"))
    return found


def findings_of(run: Run) -> tuple[Finding, ...]:
    """All findings of a run, the most severe first, including what was not tested and what could not be measured.

    >>> import tempfile
    >>> from coalmine import membership_of_scores, read_run
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = membership_of_scores(range(80, 180), range(100)).save(folder)
    ...     findings_of(read_run(folder))[0].code
    'CM301'
    """
    return judged(measures_of(run))


class _JudgedMeasure(msgspec.Struct):
    """A measure and what became of it."""

    measure: Measure
    entry: Entry
    status: Status
    severity: Severity
    about: tuple[str, ...]


def judged(measures: Sequence[Measure]) -> tuple[Finding, ...]:
    """The findings that measures amount to; measures of one kind with the same outcome are one finding."""
    decided = decide(measures)
    known = catalog()
    unknown = next((one.key for one in measures if one.key not in known), None)
    if unknown is not None:
        raise InputError(
            f"an audit reports {unknown!r}, which no catalog has; declare it in the entries of the audit"
        )
    accused: dict[str, set[str]] = {}
    for one in measures:
        if decided.shows(one):
            accused.setdefault(one.key, set()).update(one.about)
    rows = [row for one in measures if (row := _judged(one, known[one.key], decided, accused)) is not None]
    groups = grouped(
        ((row.measure.key, row.status, row.severity, chosen(row.entry.title, row.severity, row.status)), row)
        for row in rows
    )
    found = [_finding(these, measures, decided) for these in groups.values()]
    return tuple(
        sorted(found, key=lambda one: (SEVERITIES.index(one.severity), STATUSES.index(one.status), one.code))
    )


def _judged(
    one: Measure, entry: Entry, decided: Decisions, accused: dict[str, set[str]]
) -> _JudgedMeasure | None:
    """What becomes of a measure; None for one that has nothing to say."""
    about, shown = one.about, decided.shows(one)
    if entry.rest_of:
        about = tuple(name for name in one.about if name not in accused.get(entry.rest_of, ()))
        if one.about and not about:
            return None
        if len(about) < len(one.about):
            # The single things that are found say it all, and what is left of their group is not judged again without them.
            shown, one = False, replace(one, doubt=REST)
    status: Status = "not_measured"
    if one.status is not None:
        status = one.status
    elif shown:
        status = "found"
    elif one.is_measured and not one.doubt:
        if entry.quiet:
            return None
        # The only veto there is: what another measure shows something of is not clear.
        suspect = any(name in names for names in accused.values() for name in one.about)
        size = -math.inf if one.estimate is None else one.high
        if entry.clear_below is not None and not suspect and size <= entry.clear_below:
            status = "clear"
    severity: Severity = "info"
    if status == "found":
        severity = entry.severity_of(one.high if one.size is None else one.size)
    return _JudgedMeasure(one, entry, status, "pass" if status == "clear" else severity, about)


def _finding(rows: Sequence[_JudgedMeasure], measures: Sequence[Measure], decided: Decisions) -> Finding:
    entry, severity, status, key = rows[0].entry, rows[0].severity, rows[0].status, rows[0].measure.key
    of_kind = [one for one in measures if one.key == key]
    first = rows[0].measure
    counts = {
        "here": f"{len(rows):,}",
        "be": "is" if len(rows) == 1 else "are",
        "found": f"{sum(map(decided.shows, of_kind)):,}",
        "of": f"{sum(one.is_measured or decided.shows(one) for one in of_kind):,}",
        "text": "" if first.estimate is None else first.estimate.text(),
        "share": "" if first.estimate is None else first.estimate.text("%"),
        "but": first.but,
    }

    def words(given: dict[str, str]) -> str:
        return chosen(given, severity, status).format_map(counts)

    code = chosen(entry.code, severity, status)
    return Finding(
        code=code,
        key=key,
        title=chosen(entry.title, severity, status),
        severity=severity,
        status=status,
        # What was not tested has the reason of whoever decided that, or else the usual one.
        evidence=_evidence(rows, "" if status == "not_tested" and first.says else words(entry.says))
        or chosen(entry.title, severity, status) + ".",
        estimates=tuple(row.measure.estimate for row in rows[:LISTED] if row.measure.estimate is not None),
        advice=chosen(entry.advice, severity, status),
        subject=tuple(dict.fromkeys(name for row in rows for name in row.about))[:LISTED],
        docs=docs_of(code, entry),
        question=entry.question,
        answer=words(entry.answer),
        sentence=words(entry.sentence),
        discredits=entry.discredits if status == "found" else "",
    )


def _evidence(rows: Sequence[_JudgedMeasure], opening: str) -> str:
    """What the measures say, those with the same doubt together; the strongest evidence first."""
    ordered = sorted(rows, key=lambda row: (row.measure.p_value is None, row.measure.p_value))
    parts = []
    for doubt, these in grouped(
        (row.measure.doubt if row.status != "found" else "", row) for row in ordered
    ).items():
        named = NAMED_SINGLES if these[0].entry.quiet else NAMED
        said = [words for row in these[:named] if (words := row.measure.words)]
        more = [f"and {len(these) - named:,} more"] if len(these) > named else []
        text = "; ".join([*said, *more])
        # A name, such as that of a file, is written as it is.
        parts += [
            text if these[0].measure.name else _begun(text),
            _begun(f"but {doubt}" if text and doubt else doubt),
        ]
    if rows[0].status == "clear":
        parts += [
            f"Even so, {one}"
            for one in dict.fromkeys(row.measure.if_clear for row in rows if row.measure.if_clear)
        ]
    sentences = [f"{part}." for part in parts if part]
    if not opening:
        return " ".join(sentences)
    return f"{opening}: {' '.join([f'{parts[0]}.', *sentences[1:]])}" if parts and parts[0] else f"{opening}."


def _begun(sentence: str) -> str:
    """With a capital letter, unless it begins with a path or a template."""
    first = sentence.partition(" ")[0].rstrip(",:;")
    return sentence[:1].upper() + sentence[1:] if first.isalpha() else sentence
