"""Policies: TOML files of what a model must not remember, read strictly: a key that is not known is an error."""

from __future__ import annotations

import difflib
import math
import os
import re
from pathlib import Path
from typing import Any, Literal, NoReturn

import msgspec

from coalmine.errors import InputError
from coalmine.storage.decoding import UndecodableError, decode_toml
from coalmine.storage.files import read_bytes

RequiredAudit = Literal["exposure", "extraction", "membership", "recitation"]


class ExposureRules(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on each planted canary's exposure, in bits."""

    at_most: float | None = None
    # Canaries that were trained on more often are not judged by `at_most`.
    up_to_repetitions: int | None = None
    # A limit for the canaries that were trained on exactly so often; TOML has text for keys.
    by_repetitions: dict[str, float] = {}
    # Whether the upper limits of all canaries must hold together at the confidence of the policy (Bonferroni).
    all_at_once: bool = False


class ExtractionRules(msgspec.Struct, frozen=True, kw_only=True):
    """How many planted canaries may come out."""

    at_most_extracted: int | None = None
    # Only places up to this one count as extracted; without it, all that the audit looked for.
    among_first: int | None = None
    up_to_repetitions: int | None = None
    # Whether "did not come out within the budget" counts, and how many expansions that budget must have had.
    accept_unproven: bool = False
    budget_at_least: int | None = None


class MembershipRules(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on what membership inference can do with the canaries' scores."""

    auc_at_most: float | None = None
    tpr_at_fpr_1_percent_at_most: float | None = None
    # A lower bound on epsilon above this breaks the rule; one below proves nothing, and is called "no violation shown".
    no_epsilon_shown_above: float | None = None
    delta: float | None = None
    up_to_repetitions: int | None = None


class RecitationRules(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on the share of sampled training sequences that the model recites."""

    rate_at_most: float | None = None


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is checked against; see docs/guides/ci.md."""

    # The level that a limit must have to count; half of the rest is how often a model without memorization may be called broken.
    confidence: float = 0.95
    # With fewer canaries than this, a rule about them is not shown to hold.
    min_canaries: int = 1
    # Audits whose results must be there.
    require: tuple[RequiredAudit, ...] = ()
    exposure: ExposureRules = ExposureRules()
    extraction: ExtractionRules = ExtractionRules()
    membership: MembershipRules = MembershipRules()
    recitation: RecitationRules = RecitationRules()


_SECTIONS: dict[str, type[msgspec.Struct]] = {
    "exposure": ExposureRules,
    "extraction": ExtractionRules,
    "membership": MembershipRules,
    "recitation": RecitationRules,
}
# What a section is there for: one of these must be in it.
_LIMITS: dict[str, tuple[str, ...]] = {
    "exposure": ("at_most", "by_repetitions"),
    "extraction": ("at_most_extracted",),
    "membership": ("auc_at_most", "tpr_at_fpr_1_percent_at_most", "no_epsilon_shown_above"),
    "recitation": ("rate_at_most",),
}
_SHARES = {"auc_at_most", "tpr_at_fpr_1_percent_at_most", "rate_at_most"}
_FROM_ONE = {"min_canaries", "up_to_repetitions", "among_first", "budget_at_least"}


def read_policy(path: str | os.PathLike[str]) -> Policy:
    """The policy in a TOML file."""
    return parse_policy(read_bytes(path, "the policy"), Path(path).name)


def parse_policy(content: str | bytes, name: str = "the policy") -> Policy:
    r"""A policy from the content of a TOML file; `name` is what errors call it.

    >>> parse_policy("[exposure]\nat_most = 10").exposure.at_most
    10.0
    >>> parse_policy("[exposure]\natmost = 10")
    Traceback (most recent call last):
    coalmine.errors.InputError: the policy, line 2: there is no key 'atmost' in [exposure]; did you mean 'at_most'?
    """
    encoded = content.encode() if isinstance(content, str) else content
    try:
        found = decode_toml(encoded)
    except UndecodableError as problem:
        raise InputError(
            f"{name} is not TOML ({problem}); `coalmine policy init` writes one to start from"
        ) from None
    document = _Document(encoded.decode(), name)
    _check_keys(found, document)
    try:
        policy = msgspec.convert(found, Policy)
    except msgspec.ValidationError as problem:
        said, _, place = str(problem).replace(" | null", "").partition(" - at ")
        path = re.sub(r"\[[^\]]*\]", "", place.strip("`")).removeprefix("$.").split(".")
        document.refuse(path, f"{'.'.join(path)}: {said[:1].lower()}{said[1:]}; mend the value")
    _check_values(policy, document)
    return policy


class _Document:
    """The text of a policy, to point at the line that is at fault."""

    def __init__(self, text: str, name: str) -> None:
        self.lines, self.name = text.splitlines(), name

    def refuse(self, path: list[str], problem: str) -> NoReturn:
        line = self._line_of(path)
        raise InputError(f"{self.name}{'' if line is None else f', line {line}'}: {problem}")

    def _line_of(self, path: list[str]) -> int | None:
        """The line with a key, also where its table is written as a dotted key; None where it is written in another way."""
        section: list[str] = []
        for number, line in enumerate(self.lines, 1):
            header = re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line)
            key = re.match(r"\s*([\w.\"'-]+)\s*=", line)
            if header:
                section = _parts(header[1])
                if section == path:
                    return number
            elif key and section + _parts(key[1]) == path:
                return number
        return None


def _parts(dotted: str) -> list[str]:
    return [part.strip().strip("\"'") for part in dotted.split(".")]


def _check_keys(found: dict[str, Any], document: _Document) -> None:
    _refuse_unknown([], found, Policy.__struct_fields__, document)
    for section, kind in _SECTIONS.items():
        if section not in found:
            continue
        if not isinstance(found[section], dict):
            document.refuse([section], f"{section} must be a table; write [{section}] and its keys below it")
        _refuse_unknown([section], found[section], kind.__struct_fields__, document)


def _refuse_unknown(
    place: list[str], found: dict[str, Any], known: tuple[str, ...], document: _Document
) -> None:
    for key in found:
        if key not in known:
            where = f"in [{'.'.join(place)}]" if place else "at the top"
            close = difflib.get_close_matches(key, known, n=1)
            advice = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
            document.refuse([*place, key], f"there is no key {key!r} {where}; {advice}")


def _check_values(policy: Policy, document: _Document) -> None:
    if not 0 < policy.confidence < 1:
        document.refuse(
            ["confidence"], f"confidence must be between 0 and 1, such as 0.95, got {policy.confidence}"
        )
    _check_numbers([], policy, document)
    some = bool(policy.require)
    for section, limits in _LIMITS.items():
        rules = getattr(policy, section)
        _check_numbers([section], rules, document)
        limited = any(getattr(rules, name) not in (None, {}) for name in limits)
        if not limited and rules != type(rules)():
            document.refuse(
                [section], f"[{section}] has no limit, so it would check nothing; add {' or '.join(limits)}"
            )
        some = some or limited
    if not some:
        raise InputError(
            f"{document.name} has no rule, so every model would pass; add a limit, such as at_most below [exposure]"
        )
    if policy.extraction.budget_at_least is not None and not policy.extraction.accept_unproven:
        document.refuse(
            ["extraction", "budget_at_least"],
            "budget_at_least says when an unproven search counts; add accept_unproven = true, or leave it out",
        )


def _check_numbers(place: list[str], rules: msgspec.Struct, document: _Document) -> None:
    for key in rules.__struct_fields__:
        value = getattr(rules, key)
        entries: dict[tuple[str, ...], Any] = {(key,): value}
        if isinstance(value, dict):
            entries = {(key, name): one for name, one in value.items()}
            for name in value:
                if not name.isascii() or not name.isdigit() or int(name) < 1:
                    document.refuse(
                        [*place, key, name],
                        f"{key} has a limit for each number of repetitions, such as 4 = 10.0, got the key {name!r}",
                    )
        for names, one in entries.items():
            if isinstance(one, bool) or not isinstance(one, (int, float)):
                continue
            path, called = [*place, *names], ".".join([*place, *names])
            if not math.isfinite(one) or one < (1 if key in _FROM_ONE else 0):
                least = "at least 1" if key in _FROM_ONE else "a number of at least 0"
                document.refuse(path, f"{called} must be {least}, got {one}")
            if key in _SHARES and one > 1:
                document.refuse(path, f"{called} is a share between 0 and 1, got {one}; 1% is 0.01")
            if key == "delta" and one >= 1:  # every mechanism keeps such a promise
                document.refuse(path, f"{called} must be below 1, such as 1e-5, got {one}")


TEMPLATE = """\
# What this model must not remember. `coalmine check RUN --policy FILE` exits with
#   0  every rule is shown to hold
#   1  a rule is shown to be broken
#   2  a rule is not shown either way (and none is broken), or something is wrong with the files
# A rule holds by the upper confidence limit. It is broken by the lower one, where chance alone does not explain that. What was not
# audited never passes.

# The level that limits must have to count; measure with at least this --confidence. A model that remembers nothing is called
# broken in at most (1 - confidence) / 2 of runs, over all rules together.
confidence = 0.95

# With fewer canaries than this, rules about canaries are not shown to hold.
min_canaries = 1

# Audits whose results must be there, for every format and canary of the manifest: "exposure", "extraction", "membership",
# "recitation". A canary that could not be measured, or was only extrapolated, is missing.
require = ["exposure"]

[exposure]
# Bits, for each canary that was planted. A model that remembers nothing gives about 1, and 10 for one canary in 1,024; the most
# is log2 |R|, which is extractable at once. `coalmine expose` measures it. Canaries need a format with more bits than this.
at_most = 10.0
# Judge only canaries that were trained on up to so many times.
#up_to_repetitions = 4
# Whether the upper limits of all canaries must hold together at the level above (Bonferroni). The gate does not need it: a
# canary whose exposure is above its limit passes with probability (1 - confidence) / 2 at most, however many there are.
#all_at_once = true

# Other limits for canaries that were trained on exactly so often.
#[exposure.by_repetitions]
#1 = 3.0
#16 = 10.0

#[extraction]
# How many planted canaries may come out; `coalmine extract --verify` says which do.
#at_most_extracted = 0
# Count only those among the first so many guesses; without it, all that the audit looked for (its --top).
#among_first = 10
#up_to_repetitions = 4
# A search that ends with its budget proves nothing. To accept "not within the budget" all the same, say so, and how many
# expansions it must have spent.
#accept_unproven = true
#budget_at_least = 1_000_000

#[membership]
# From `coalmine membership`, for each format and each number of repetitions.
#auc_at_most = 0.6
#tpr_at_fpr_1_percent_at_most = 0.05
# A claimed epsilon: broken if the audit proves more. If it does not, no violation was shown, and no more than that.
#no_epsilon_shown_above = 8.0
#delta = 1e-5
#up_to_repetitions = 1

#[recitation]
# The share of sampled training sequences that the model recites, at each context that was tried (`coalmine recite`).
#rate_at_most = 0.01
"""
