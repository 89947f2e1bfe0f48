"""The gate: a policy of limits, and whether each of them is shown to hold, shown to be broken, or neither.

A rule holds by the upper confidence limit of each measure. It is broken by the lower one, at a level that all of them share, where chance
alone does not explain that. What was not measured, a limit that lies between both, and a bound that could not have shown a violation
are not shown either way. All rules of a policy share one error: without memorization any of them is called broken in at
most (1 - confidence) / 2 of runs.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple
from xml.etree import ElementTree as ET

import msgspec

from coalmine.audits.registry import audits
from coalmine.errors import InputError
from coalmine.evidence.measures import Measure, Rule
from coalmine.evidence.reading import check_again, other_manifest, other_weights
from coalmine.evidence.run import Run
from coalmine.evidence.tables import Column, Table
from coalmine.reports.findings import findings_of, measures_of
from coalmine.statistics.multiple_tests import holm
from coalmine.storage.decoding import UndecodableError, decode_toml
from coalmine.storage.files import read_bytes, write_bytes
from coalmine.visible import visible

Outcome = Literal["broken", "not_shown", "holds"]
SCHEMA = "coalmine.check/3"
EXIT_CODES: dict[Outcome, int] = {"holds": 0, "broken": 1, "not_shown": 2}
WORDS: dict[Outcome, str] = {"holds": "holds", "broken": "broken", "not_shown": "not shown"}
UP_TO = "up_to_repetitions"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What a model must not remember.

    Attributes:
        limits: by rule, such as "exposure.at_most".
        up_to: for each section, how often canaries were trained on at most that its rules are about.
        require: the audits whose results must be there, for everything that the manifest names.
        confidence: the level that a limit must have to count.
        min_canaries: with fewer than this, a rule about canaries is not shown to hold.
    """

    limits: dict[str, float] = {}
    up_to: dict[str, int] = {}
    require: tuple[str, ...] = ()
    confidence: float = 0.95
    min_canaries: int = 1


class RuleOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one rule.

    Attributes:
        rule: its key in the policy.
        asks: what it asks for, in words.
        evidence: a sentence with the numbers that decided.
        judged: how many canaries, populations or groups were judged.
        settle: what would settle a rule that is not shown either way.
        chance: the probability, at most, of evidence as strong against the rule if the model remembers nothing; None for a rule
            that only asks whether results are there, which takes no share of the error.
        details: one line for each that broke the rule or could not be shown to keep it.
    """

    rule: str
    asks: str
    outcome: Outcome
    evidence: str
    judged: int = 0
    settle: str = ""
    chance: float | None = 1.0
    details: tuple[str, ...] = ()


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of every rule of a policy for one run."""

    schema: str = SCHEMA
    run: str
    outcome: Outcome
    exit_code: int
    rules: tuple[RuleOutcome, ...]
    policy: Policy

    def counted(self, outcome: Outcome) -> int:
        """How many rules ended so."""
        return sum(one.outcome == outcome for one in self.rules)


def rules() -> dict[str, Rule]:
    """The rules of all audits, by their keys."""
    return {rule.key: rule for audit in audits() for rule in audit.rules}


def read_policy(path: str | os.PathLike[str]) -> Policy:
    r"""The policy in a TOML file; `coalmine init` writes one to start from.

    >>> import pathlib
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "policy.toml"
    ...     _ = path.write_text("[exposure]\nat_most = 10")
    ...     read_policy(path).limits
    {'exposure.at_most': 10.0}
    """
    return parse_policy(read_bytes(path, "the policy"), Path(path).name)


def parse_policy(content: str | bytes, name: str = "the policy") -> Policy:
    r"""A policy from the content of a TOML file, read strictly; `name` is what errors call it.

    >>> parse_policy("[exposure]\natmost = 10")
    Traceback (most recent call last):
    coalmine.errors.InputError: the policy, line 2: there is no key 'exposure.atmost'; did you mean 'exposure.at_most'?
    """
    encoded = content.encode() if isinstance(content, str) else content
    try:
        found = decode_toml(encoded)
    except UndecodableError as problem:
        raise InputError(
            f"{name} is not TOML ({problem}); `coalmine init` writes one to start from"
        ) from None
    known, lines = rules(), encoded.decode().splitlines()
    limits: dict[str, float] = {}
    up_to: dict[str, int] = {}
    terms: dict[str, Any] = {}

    def refuse(key: str, problem: str) -> InputError:
        last = re.escape(key.rpartition(".")[2])
        line = next(
            (at for at, text in enumerate(lines, 1) if re.match(rf"\s*\[?\s*[\w.\"']*{last}\b", text)), None
        )
        return InputError(f"{name}{'' if line is None else f', line {line}'}: {problem}")

    sections = {key.partition(".")[0] for key, rule in known.items() if rule.about_canaries}
    for key, value in _flat(found):
        section, _, last = key.rpartition(".")
        if key in known:
            limits[key] = _limit(known[key], value, refuse)
        elif last == UP_TO and section in sections:
            if type(value) is not int or value < 1:
                raise refuse(
                    key, f"{key} must be a whole number of at least 1, got {value!r}; mend the value"
                )
            up_to[section] = value
        elif key in {"require", "confidence", "min_canaries"}:
            terms[key] = value
        else:
            close = difflib.get_close_matches(key, [*known, "require", "confidence", "min_canaries"], n=1)
            advice = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
            raise refuse(key, f"there is no key {key!r}; {advice}")
    try:
        policy = msgspec.convert({**terms, "limits": limits, "up_to": up_to}, Policy)
    except msgspec.ValidationError as problem:
        said, _, place = str(problem).partition(" - at ")
        key = place.strip("`").removeprefix("$.").partition("[")[0]
        raise refuse(key, f"{key}: {said[:1].lower()}{said[1:]}; mend the value") from None
    if not 0 < policy.confidence < 1:
        raise refuse(
            "confidence", f"confidence must be between 0 and 1, such as 0.95, got {policy.confidence}"
        )
    if policy.min_canaries < 1:
        raise refuse(
            "min_canaries",
            f"min_canaries must be at least 1, got {policy.min_canaries}; leave it out or raise it",
        )
    names = [audit.name for audit in audits() if audit.rules]
    for one in policy.require:
        if one not in names:
            raise refuse(
                "require",
                f"require names {one!r}, which is not an audit with rules; known are {', '.join(names)}",
            )
    idle = next((one for one in up_to if not any(key.startswith(f"{one}.") for key in limits)), None)
    if idle is not None:
        raise refuse(f"{idle}.{UP_TO}", f"[{idle}] has no limit, so {UP_TO} would check nothing; add one")
    if not policy.limits and not policy.require:
        raise InputError(
            f"{name} has no rule, so every model would pass; add a limit, such as at_most below [exposure]"
        )
    return policy


def _flat(table: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _limit(rule: Rule, value: Any, refuse: Any) -> float:
    """The limit of a rule; `true` is that of a rule that asks for nothing at all of something."""
    if isinstance(rule.example, bool):
        if value is not True:
            raise refuse(rule.key, f"{rule.key} must be true, or left out, got {value!r}; mend the value")
        return 0.0
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= rule.most
        or math.isinf(value)
    ):
        most = "" if math.isinf(rule.most) else f" and at most {rule.most:g}"
        raise refuse(
            rule.key,
            f"{rule.key} must be a number of at least 0{most}, such as {rule.example}, got {value!r}; mend the value",
        )
    return float(value)


def template() -> str:
    """A policy with every rule, all but the first commented out; what `coalmine init` writes."""
    names = ", ".join(f'"{audit.name}"' for audit in audits() if audit.rules)
    lines = [_OPENING.format(audits=names)]
    for place, (section, some) in enumerate(_by_section().items()):
        mark = "" if place == 0 else "#"
        lines.append(f"{mark}[{section}]")
        for at, rule in enumerate(some):
            example = str(rule.example).lower()
            says = rule.says.format(limit=0.0 if isinstance(rule.example, bool) else rule.example)
            lines += [
                f"# {says[:1].upper()}{says[1:]}.",
                f"{'' if place + at == 0 else '#'}{rule.key.partition('.')[2]} = {example}",
            ]
        if any(rule.about_canaries for rule in some):
            lines += ["# Judge only what was trained on up to so many times.", f"#{UP_TO} = 4"]
        lines.append("")
    return "\n".join(lines)


def _by_section() -> dict[str, list[Rule]]:
    found: dict[str, list[Rule]] = {}
    for key, rule in rules().items():
        found.setdefault(key.partition(".")[0], []).append(rule)
    return found


_OPENING = """\
# What this model must not remember. `coalmine check RUN --policy FILE` exits with
#   0  every rule is shown to hold
#   1  a rule is shown to be broken
#   2  a rule is not shown either way (and none is broken), or something is wrong with the files
# A rule holds by the upper confidence limit. It is broken by the lower one, where chance alone does not explain that. What was not
# audited never passes. A claimed epsilon that the audit refutes breaks every policy.

# The level that limits must have to count; measure with at least this --confidence. A model that remembers nothing is called
# broken in at most (1 - confidence) / 2 of runs, over all rules together.
confidence = 0.95

# With fewer canaries than this, rules about canaries are not shown to hold.
min_canaries = 1

# Audits whose results must be there, for every format and canary of the manifest. The audits are:
# {audits}
require = ["exposure"]
"""


def check(run: Run, policy: Policy) -> GateResult:
    r"""Every rule of a policy, judged by the measures of a run.

    >>> import tempfile
    >>> from coalmine import membership_of_scores, parse_policy, read_run
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = membership_of_scores(range(80, 180), range(100)).save(folder)
    ...     check(read_run(folder), parse_policy("[membership]\nauc_at_most = 0.6")).outcome
    'broken'
    """
    for part in (run, run.secrets):
        # Results that were never in a file can only be believed.
        for kind, these in () if part is None else part.documents.items():
            for one in these:
                if one.path.is_file():
                    check_again(kind, one.path, one.document)
    stale = other_weights(run) or other_manifest(run) or ""
    measures = measures_of(run)
    doubts = [f"{one.code}, {one.evidence}".removesuffix(".") for one in findings_of(run) if one.discredits]
    commands = {rule.key: audit.command for audit in audits() for rule in audit.rules}
    found = list(_required(policy, measures, stale))
    for key, limit in policy.limits.items():
        rule, most = rules()[key], policy.up_to.get(key.partition(".")[0], math.inf)
        own = [
            one
            for one in measures
            if one.key in {rule.of, *rule.also}
            and one.status is None
            and (one.copies or 0) <= most
            # Of what else there is, remarks say nothing about a limit.
            and (one.key == rule.of or one.estimate is not None)
        ]
        if stale or not own:
            why = stale if own else "there is no result of this audit"
            settle = "measure this model again" if own else f"run `{commands[key]}`"
            found.append(
                RuleOutcome(
                    rule=key, asks=_asks(rule, limit), outcome="not_shown", evidence=why, settle=settle
                )
            )
            continue
        outcome = judge_rule(rule, limit, own, policy)
        if outcome.outcome == "holds" and rule.about_canaries and doubts:
            settle = "train again on the planted corpus, and measure that model"
            outcome = msgspec.structs.replace(
                outcome, outcome="not_shown", evidence=f"{doubts[0]}; {outcome.evidence}", settle=settle
            )
        found.append(outcome)
    # A claim that an audit refutes breaks every policy.
    found += [
        RuleOutcome(
            rule=one.key,
            asks="no claimed epsilon is refuted",
            outcome="broken" if one.size else "not_shown" if doubts else "holds",
            evidence=one.says,
            judged=1,
            settle="plant more canaries, once each, and withhold half of them by a coin",
            chance=1.0 if one.p_value is None else one.p_value,
        )
        for one in measures
        if one.key.endswith(".claim") and one.status is None and not stale
    ]
    level = (1 - policy.confidence) / 2
    # Only a rule that is above its limit can be called broken, so for the others the probability is put at 1.
    able = [one for one in found if one.chance is not None]
    levels = iter(
        holm([(one.chance or 0.0) if one.outcome == "broken" else 1.0 for one in able], level).levels
    )
    judged = tuple(one if one.chance is None else _within(one, next(levels)) for one in found)
    worst = _worst([one.outcome for one in judged])
    return GateResult(run=run.name, outcome=worst, exit_code=EXIT_CODES[worst], rules=judged, policy=policy)


def _worst(outcomes: Sequence[Outcome]) -> Outcome:
    return "broken" if "broken" in outcomes else "not_shown" if "not_shown" in outcomes else "holds"


def _asks(rule: Rule, limit: float) -> str:
    return rule.says.format(limit=limit)


class _PartOutcome(NamedTuple):
    """One measure and what became of it; the worst has the largest `size`."""

    measure: Measure
    outcome: Outcome
    why: str
    size: float


def judge_rule(rule: Rule, limit: float, own: Sequence[Measure], policy: Policy) -> RuleOutcome:
    """What becomes of one rule by itself, given its measures."""
    uncertain = sum(one.estimate is None or one.estimate.confidence is not None for one in own)
    shared = 1 - (1 - policy.confidence) / max(1, uncertain)
    parts = (
        [_sum_part(own, limit)]
        if rule.in_all
        else [_part(one, rule, limit, policy.confidence, shared) for one in own]
    )
    outcome = _worst([part.outcome for part in parts])
    decided = [part for part in parts if part.outcome == outcome]
    worst = max(decided, key=lambda part: part.size)
    fewest = min((one.n for one in own if one.n), default=len(own))
    what = f"{len(decided):,} of {len(parts):,} {WORDS[outcome]}; " if len(parts) > 1 else ""
    evidence = what + ": ".join(filter(None, (worst.measure.name, worst.why)))
    doubt = rule.doubt(own, (1 - policy.confidence) / 2)
    if outcome == "holds" and doubt:
        outcome, evidence = "not_shown", f"{evidence}; but {doubt}"
    if outcome == "holds" and rule.about_canaries and fewest < policy.min_canaries:
        outcome, evidence = (
            "not_shown",
            f"{fewest} canaries were judged, and the policy asks for at least {policy.min_canaries}",
        )
    found = RuleOutcome(
        rule=rule.key,
        asks=_asks(rule, limit),
        outcome=outcome,
        evidence=evidence,
        judged=len(own),
        settle=rule.settle,
        chance=rule.chance(own, limit),
        details=tuple(
            f"{part.measure.name}: {part.why}"
            for part in parts
            if part.outcome != "holds" and part.measure.name
        ),
    )
    return _within(found, (1 - policy.confidence) / 2)


def _part(one: Measure, rule: Rule, limit: float, confidence: float, shared: float) -> _PartOutcome:
    """Holds by the upper limit, is broken by the lower one at a level that all share; a bound from below never holds by itself."""
    estimate = one.estimate
    if estimate is None or estimate.status == "not_measured":
        return _PartOutcome(
            one, "not_shown", one.says or ("" if estimate is None else estimate.statement), math.inf
        )
    shown, size = one.says or estimate.statement, one.high
    if one.low_at(shared) > limit:
        return _PartOutcome(one, "broken", shown, estimate.low or 0.0 if math.isinf(size) else size)
    if estimate.confidence is not None and estimate.confidence < confidence - 1e-9:
        weak = f"its interval has a confidence of {100 * estimate.confidence:g}%, and {100 * confidence:g}% is asked for"
        return _PartOutcome(one, "not_shown", f"{weak} (measure with --confidence {confidence:g})", size)
    if one.ceiling <= limit:
        return _PartOutcome(
            one, "not_shown", f"{shown}; the most that could have been shown is {one.ceiling:.2f}", size
        )
    if rule.by_violation and (estimate.low or 0.0) <= limit:
        holds, why = True, f"{shown}; no violation was shown, which does not prove privacy"
    else:
        holds, why = one.high <= limit, shown
    between = "there is no upper limit" if math.isinf(one.high) else "the limit lies in between"
    if holds and one.doubt:
        return _PartOutcome(one, "not_shown", f"{shown}; but {one.doubt}", size)
    return (
        _PartOutcome(one, "holds", why, size)
        if holds
        else _PartOutcome(one, "not_shown", f"{shown}: {between}", size)
    )


def _sum_part(own: Sequence[Measure], limit: float) -> _PartOutcome:
    """Whether a number of things is at most a limit: those that are certain, and those that are possible."""
    low = sum(max(0.0, one.low_at(0.0)) for one in own)
    high = sum(1.0 if math.isinf(one.high) else one.high for one in own)
    names = [one.name for one in own if one.low_at(0.0) > 0][:3]
    open_ones = [one for one in own if one.high > 0 >= one.low_at(0.0)]
    why = f"{low:.0f} of {len(own):,}" + (
        f" ({', '.join(names)}{', ...' if low > len(names) else ''})" if names else ""
    )
    if open_ones:
        first = open_ones[0]
        said = first.says or ("" if first.estimate is None else first.estimate.statement)
        why += f", and {len(open_ones):,} more are not known, such as {first.name}: {said}"
    doubt = next((one.doubt for one in own if one.doubt), "")
    # What is missing and is no single thing, such as a search that is gone, is not a number of things.
    missing = next((one for one in own if not one.about and not one.is_measured), None)
    if missing is not None and missing.estimate is not None:
        doubt = doubt or missing.estimate.statement
    outcome: Outcome = "broken" if low > limit else "not_shown" if high > limit or doubt else "holds"
    return _PartOutcome(
        Measure(key=own[0].key),
        outcome,
        f"{why}; but {doubt}" if outcome == "not_shown" and doubt else why,
        low,
    )


def _within(one: RuleOutcome, level: float) -> RuleOutcome:
    """The same outcome, where it is not "broken" by evidence that chance gives too often without memorization."""
    if one.outcome == "broken" and one.chance is not None and one.chance > level * (1 + 1e-9):
        percent = f"{100 * one.chance:.2g}%" if one.chance < 1 else "all"
        return msgspec.structs.replace(
            one,
            outcome="not_shown",
            evidence=(
                f"{one.evidence}. Without memorization, chance gives as much in up to {percent} of runs, and this rule allows "
                f"{100 * level:.2g}%"
            ),
            settle="measure others of them, and more: memorization would show in them too, and chance would not",
        )
    return one if one.outcome == "not_shown" else msgspec.structs.replace(one, settle="")


def _required(policy: Policy, measures: Sequence[Measure], stale: str) -> Iterator[RuleOutcome]:
    """Whether the results are there that the policy asks for: of everything that the audit should have measured."""
    for audit in audits():
        if audit.name not in policy.require:
            continue
        # The measures of the first rule are there for everything that the manifest names.
        own = [
            one
            for one in measures
            if one.key in {audit.rules[0].of, *audit.rules[0].also} and one.status is None
        ]
        open_ones = [one for one in own if one.estimate is not None and not one.is_measured]
        why = stale or ("" if own else "there is no result of this audit")
        if not why and open_ones:
            first = open_ones[0]
            why = f"{len(open_ones):,} of {len(own):,} are not there or could not be measured, such as {first.words}"
        yield RuleOutcome(
            rule=f"require {audit.name}",
            asks=f"results of {audit.name}",
            outcome="not_shown" if why else "holds",
            evidence=why or "there",
            judged=len(own),
            settle=f"run `{audit.command}`",
            chance=None,
        )


GATE: Table[RuleOutcome] = Table(
    (
        Column("rule", lambda one: one.rule),
        Column("outcome", lambda one: WORDS[one.outcome]),
        Column("asked, and found", lambda one: f"{one.asks}: {one.evidence}"),
    )
)


def gate_lines(result: GateResult) -> list[str]:
    """What would settle the rules that are not shown, and the verdict in a sentence."""
    lines = [
        f"What would settle {visible(one.rule)}: {visible(one.settle)}."
        for one in result.rules
        if one.outcome == "not_shown" and one.settle
    ]
    many = len(result.rules)
    verdict = {
        "holds": f"The policy holds: {many} of {many} rules.",
        "broken": f"The policy is BROKEN: {result.counted('broken')} of {many} rules.",
        "not_shown": f"The policy is NOT SHOWN to hold, and not shown to be broken: {result.counted('not_shown')} of {many} rules.",
    }[result.outcome]
    open_ones = result.counted("not_shown")
    if result.outcome == "broken" and open_ones:
        verdict += f" Besides, {open_ones} {'is' if open_ones == 1 else 'are'} not shown either way."
    return [*lines, verdict]


def write_junit(result: GateResult, path: str | os.PathLike[str]) -> None:
    """JUnit XML: a broken rule is a failure, and one that is not shown either way is an error."""
    suites = ET.Element("testsuites")
    suite = ET.SubElement(
        suites,
        "testsuite",
        name="coalmine check",
        tests=str(len(result.rules)),
        failures=str(result.counted("broken")),
        errors=str(result.counted("not_shown")),
        skipped="0",
    )
    tags = {"broken": "failure", "not_shown": "error", "holds": "system-out"}
    for one in result.rules:
        case = ET.SubElement(
            suite, "testcase", classname=f"coalmine.{visible(result.run)}", name=visible(one.rule)
        )
        settle = [f"what would settle it: {one.settle}"] if one.settle else []
        said = ET.SubElement(case, tags[one.outcome])
        if one.outcome != "holds":
            said.set("message", visible(one.evidence))
        said.text = "\n".join(map(visible, [f"asks: {one.asks}", one.evidence, *settle, *one.details]))
    write_bytes(path, ET.tostring(suites, encoding="utf-8", xml_declaration=True) + b"\n")
