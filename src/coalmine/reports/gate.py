"""The gate: a policy of limits, and whether each of them is shown to hold, shown to be broken, or neither.

A rule holds by the upper confidence limit of each measure. It is broken by the lower one, at a level that all of them share, where chance
alone does not explain that. What was not measured, a limit that lies between both, and a bound that could not have shown a violation
are not shown either way. All rules of a policy share one error: without memorization any of them is called broken in at
most (1 - confidence) / 2 of runs.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from coalmine.audits.registry import audits
from coalmine.errors import InputError
from coalmine.evidence.measures import Measure, Rule
from coalmine.evidence.reading import check_again, other_manifest, other_weights
from coalmine.evidence.run import Run
from coalmine.evidence.tables import Column, Table
from coalmine.grouped import grouped
from coalmine.records.estimate import Level, Positive
from coalmine.reports.export import JunitCase, junit
from coalmine.reports.findings import findings_of, measures_of
from coalmine.statistics.multiple_tests import holm
from coalmine.storage.decoding import UndecodableError, decode_toml
from coalmine.storage.files import read_bytes, write_bytes
from coalmine.visible import visible

Outcome = Literal["broken", "not_shown", "holds"]
SCHEMA = "coalmine.check/3"
EXIT_CODES: dict[Outcome, int] = {"holds": 0, "broken": 1, "not_shown": 2}
WORDS: dict[Outcome, str] = {"holds": "holds", "broken": "broken", "not_shown": "not shown"}
TERMS = ("require", "confidence", "min_canaries")
UP_TO = "up_to_repetitions"
ABSENT = "there is no result of this audit"


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
    up_to: dict[str, Positive] = {}
    require: tuple[str, ...] = ()
    confidence: Level = 0.95
    min_canaries: Positive = 1

    @property
    def level(self) -> float:
        """How often a model without memorization may be called broken."""
        return (1 - self.confidence) / 2


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
    """The policy in a TOML file; `coalmine init` writes one to start from.

    >>> read_policy("policy.toml").limits  # doctest: +SKIP
    {'exposure.at_most': 10.0}
    """
    return parse_policy(read_bytes(path, "the policy"), Path(path).name)


def parse_policy(content: str | bytes, name: str = "the policy") -> Policy:
    r"""A policy from the content of a TOML file, read strictly; `name` is what errors call it.

    >>> parse_policy("[exposure]\nat_most = 10").limits
    {'exposure.at_most': 10.0}
    """
    try:
        found = decode_toml(content.encode() if isinstance(content, str) else content)
    except UndecodableError as problem:
        raise InputError(f"{name} is not TOML ({problem}); `coalmine init` writes one") from None
    known = rules()
    parts: dict[str, Any] = {"limits": {}, "up_to": {}}
    sections = {key.partition(".")[0] for key, rule in known.items() if rule.about_canaries}
    for key, value in _flat(found):
        section, _, last = key.rpartition(".")
        if key in known:
            parts["limits"][key] = _limit(known[key], value, name)
        elif last == UP_TO and section in sections:
            parts["up_to"][section] = value
        elif key in TERMS:
            parts[key] = value
        else:
            raise InputError(f"{name}: there is no key {key!r}; known are {', '.join((*known, *TERMS))}")
    try:
        policy = msgspec.convert(parts, Policy)
    except msgspec.ValidationError as problem:
        raise InputError(f"{name} has a value that cannot be ({problem}); mend it") from None
    limited = {key.partition(".")[0] for key in policy.limits}
    for section in policy.up_to:
        if section not in limited:
            raise InputError(
                f"{name}: [{section}] has {UP_TO} and no limit, so it would check nothing; add a limit"
            )
    names = [audit.name for audit in audits() if audit.rules]
    unknown = [one for one in policy.require if one not in names]
    if unknown:
        raise InputError(f"{name}: require names {unknown[0]!r}, which is not an audit; known are {names}")
    if not policy.limits and not policy.require:
        raise InputError(
            f"{name} has no rule, so every model would pass; add a limit, such as exposure.at_most"
        )
    return policy


def _flat(table: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from ((f"{key}.{last}", one) for last, one in value.items())
        else:
            yield key, value


def _limit(rule: Rule, value: Any, name: str) -> float:
    """The limit of a rule; `true` is that of a rule that asks for nothing at all of something."""
    if isinstance(rule.example, bool):
        allowed, sort = value is True, "true, or left out"
    else:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        allowed = is_number and 0 <= value <= rule.most and value < math.inf
        most = "" if math.isinf(rule.most) else f" and at most {rule.most:g}"
        sort = f"a number of at least 0{most}, such as {rule.example}"
    if not allowed:
        raise InputError(f"{name}: {rule.key} must be {sort}, got {value!r}; mend the value")
    return 0.0 if isinstance(rule.example, bool) else float(value)


def template() -> str:
    """A policy with every rule, all but the first commented out; what `coalmine init` writes."""
    lines = [_OPENING.format(audits=", ".join(f'"{audit.name}"' for audit in audits() if audit.rules))]
    mark = ""
    for section, some in grouped((key.partition(".")[0], rule) for key, rule in rules().items()).items():
        lines.append(f"{mark}[{section}]")
        for rule in some:
            says = rule.says.format(limit=0.0 if isinstance(rule.example, bool) else rule.example)
            example = str(rule.example).lower()
            lines += [f"# {says[:1].upper()}{says[1:]}.", f"{mark}{rule.key.partition('.')[2]} = {example}"]
            mark = "#"
        if any(rule.about_canaries for rule in some):
            lines += ["# Judge only what was trained on up to so many times.", f"#{UP_TO} = 4"]
        lines.append("")
    return "\n".join(lines)


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
    found = list(_required(policy, measures, stale))
    for key, limit in policy.limits.items():
        rule, most = rules()[key], policy.up_to.get(key.partition(".")[0], math.inf)
        # Of what else there is, remarks say nothing about a limit.
        own = [
            one
            for one in _measures_of(rule, measures)
            if (one.copies or 0) <= most and (one.key == rule.of or one.estimate is not None)
        ]
        outcome = judge_rule(rule, limit, own, policy, stale)
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
    # Only a rule that is above its limit can be called broken, so for the others the probability is put at 1.
    able = [one for one in found if one.chance is not None]
    p_values = [(one.chance or 0.0) if one.outcome == "broken" else 1.0 for one in able]
    levels = iter(holm(p_values, policy.level).levels)
    judged = tuple(one if one.chance is None else _within(one, next(levels)) for one in found)
    worst = _worst([one.outcome for one in judged])
    return GateResult(run=run.name, outcome=worst, exit_code=EXIT_CODES[worst], rules=judged, policy=policy)


def _worst(outcomes: Sequence[Outcome]) -> Outcome:
    return "broken" if "broken" in outcomes else "not_shown" if "not_shown" in outcomes else "holds"


def _measures_of(rule: Rule, measures: Sequence[Measure]) -> list[Measure]:
    return [one for one in measures if one.key in {rule.of, *rule.also} and one.status is None]


class _PartOutcome(NamedTuple):
    """What became of one measure; the worst has the largest `size`."""

    name: str
    outcome: Outcome
    why: str
    size: float


def judge_rule(
    rule: Rule, limit: float, own: Sequence[Measure], policy: Policy, stale: str = ""
) -> RuleOutcome:
    """What becomes of one rule by itself, given its measures, or why they are not about this model."""
    asks = rule.says.format(limit=limit)
    if stale or not own:
        command = next((audit.command for audit in audits() if rule in audit.rules), "")
        settle = "measure this model again" if own else f"run `{command}`"
        evidence = stale if own else ABSENT
        return RuleOutcome(rule=rule.key, asks=asks, outcome="not_shown", evidence=evidence, settle=settle)
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
    what = f"{len(decided):,} of {len(parts):,} {WORDS[outcome]}; " if len(parts) > 1 else ""
    evidence = what + ": ".join(filter(None, (worst.name, worst.why)))
    if outcome == "holds":
        doubt = rule.doubt(own, policy.level)
        fewest = min((one.n for one in own if one.n), default=len(own))
        if not doubt and rule.about_canaries and fewest < policy.min_canaries:
            doubt = f"{fewest} canaries were judged, and the policy asks for at least {policy.min_canaries}"
        if doubt:
            outcome, evidence = "not_shown", f"{evidence}; but {doubt}"
    found = RuleOutcome(
        rule=rule.key,
        asks=asks,
        outcome=outcome,
        evidence=evidence,
        judged=len(own),
        settle=rule.settle,
        chance=rule.chance(own, limit),
        details=tuple(f"{part.name}: {part.why}" for part in parts if part.outcome != "holds" and part.name),
    )
    return _within(found, policy.level)


def _part(one: Measure, rule: Rule, limit: float, confidence: float, shared: float) -> _PartOutcome:
    """Holds by the upper limit, is broken by the lower one at a level that all share; a bound from below never holds by itself."""
    estimate, size = one.estimate, one.high
    if estimate is None or not one.is_measured:
        return _PartOutcome(one.name, "not_shown", one.said, math.inf)
    outcome: Outcome = "not_shown"
    by_violation = rule.by_violation and (estimate.low or 0.0) <= limit
    if one.low_at(shared) > limit:
        outcome, why = "broken", ""
        size = estimate.low or 0.0 if math.isinf(size) else size
    elif estimate.confidence is not None and estimate.confidence < confidence - 1e-9:
        why = f"; its interval has a confidence of {100 * estimate.confidence:g}%, and {100 * confidence:g}% is asked for"
    elif one.ceiling <= limit:
        why = f"; the most that could have been shown is {one.ceiling:.2f}"
    elif one.high > limit and not by_violation:
        why = ": there is no upper limit" if math.isinf(one.high) else ": the limit lies in between"
    elif one.doubt:
        why = f"; but {one.doubt}"
    else:
        outcome = "holds"
        why = "; no violation was shown, which does not prove privacy" if by_violation else ""
    return _PartOutcome(one.name, outcome, one.said + why, size)


def _sum_part(own: Sequence[Measure], limit: float) -> _PartOutcome:
    """Whether a number of things is at most a limit: those that are certain, and those that are possible."""
    certain = [one for one in own if one.low_at(0.0) > 0]
    low = sum(one.low_at(0.0) for one in certain)
    high = sum(1.0 if math.isinf(one.high) else one.high for one in own)
    names = f" ({', '.join(one.name for one in certain[:3])}{', ...' if len(certain) > 3 else ''})"
    why = f"{low:.0f} of {len(own):,}{names if certain else ''}"
    possible = [one for one in own if one.high > 0 >= one.low_at(0.0)]
    if possible:
        first = possible[0]
        why += f", and {len(possible):,} more are not known, such as {first.name}: {first.said}"
    # What is missing and is no single thing, such as a search that is gone, is not a number of things.
    missing = [one.said for one in own if not one.about and not one.is_measured]
    doubt = next(filter(None, [*(one.doubt for one in own), *missing]), "")
    outcome: Outcome = "broken" if low > limit else "not_shown" if high > limit or doubt else "holds"
    return _PartOutcome("", outcome, f"{why}; but {doubt}" if outcome == "not_shown" and doubt else why, low)


def _within(one: RuleOutcome, level: float) -> RuleOutcome:
    """The same outcome, where it is not "broken" by evidence that chance gives too often without memorization."""
    if one.outcome == "broken" and one.chance is not None and one.chance > level * (1 + 1e-9):
        percent = f"{100 * one.chance:.2g}%" if one.chance < 1 else "all"
        why = f"Without memorization, chance gives as much in up to {percent} of runs, and this rule allows {100 * level:.2g}%"
        return msgspec.structs.replace(
            one,
            outcome="not_shown",
            evidence=f"{one.evidence}. {why}",
            settle="measure others of them, and more: memorization would show in them too, and chance would not",
        )
    return one if one.outcome == "not_shown" else msgspec.structs.replace(one, settle="")


def _required(policy: Policy, measures: Sequence[Measure], stale: str) -> Iterator[RuleOutcome]:
    """Whether the results are there that the policy asks for: of everything that the audit should have measured."""
    for audit in audits():
        if audit.name not in policy.require:
            continue
        # The measures of the first rule are there for everything that the manifest names.
        own = _measures_of(audit.rules[0], measures)
        missing = [one for one in own if not one.is_measured]
        why = stale or ("" if own else ABSENT)
        if not why and missing:
            why = f"{len(missing):,} of {len(own):,} are not there or could not be measured, such as {missing[0].words}"
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
    many, unknown = len(result.rules), result.counted("not_shown")
    verdict = {
        "holds": f"The policy holds: {many} of {many} rules.",
        "broken": f"The policy is BROKEN: {result.counted('broken')} of {many} rules ({unknown} not shown either way).",
        "not_shown": f"The policy is NOT SHOWN to hold, and not shown to be broken: {unknown} of {many} rules.",
    }[result.outcome]
    return [*lines, verdict]


def write_junit(result: GateResult, path: str | os.PathLike[str]) -> None:
    """JUnit XML: a broken rule is a failure, and one that is not shown either way is an error."""
    tags = {"broken": "failure", "not_shown": "error", "holds": "system-out"}
    cases = [
        JunitCase(
            f"coalmine.{result.run}",
            one.rule,
            tags[one.outcome],
            one.evidence,
            "\n".join([f"asks: {one.asks}", one.evidence, one.settle, *one.details]),
        )
        for one in result.rules
    ]
    write_bytes(path, junit([("coalmine check", cases)]))
