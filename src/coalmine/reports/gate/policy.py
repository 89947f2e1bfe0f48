"""Policies: TOML files of what a model must not remember, read strictly: an unknown key is an error."""

from __future__ import annotations

import difflib
import math
import os
import re
from pathlib import Path
from typing import Any, Literal, NoReturn

import msgspec

from coalmine.audits.registry import audits
from coalmine.errors import InputError
from coalmine.evidence.policy import PolicySection, PolicyTerms
from coalmine.storage.decoding import UndecodableError, decode_toml
from coalmine.storage.files import read_bytes

# The sections of a policy, by the audit that each is about; an audit with a section can be required too.
SECTIONS: dict[str, PolicySection[Any]] = {
    audit.name: audit.policy for audit in audits() if audit.policy is not None
}
_Required: Any = tuple[Literal.__getitem__(tuple(SECTIONS)), ...]  # type: ignore[misc]  # the names are known when this runs
# What a run is checked against: the terms, the audits whose results must be there, and one section per audit.
Policy: Any = msgspec.defstruct(
    "Policy",
    [
        ("require", _Required, ()),
        *((name, section.rules, section.rules()) for name, section in SECTIONS.items()),
    ],
    bases=(PolicyTerms,),
    frozen=True,
    kw_only=True,
    module=__name__,
)
_COUNTS = frozenset({"min_canaries"})


def read_policy(path: str | os.PathLike[str]) -> Any:
    r"""The policy in a TOML file; `coalmine policy init` writes one to start from.

    >>> import pathlib
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "policy.toml"
    ...     _ = path.write_text("[exposure]\nat_most = 10")
    ...     read_policy(path).exposure.at_most
    10.0
    """
    return parse_policy(read_bytes(path, "the policy"), Path(path).name)


def parse_policy(content: str | bytes, name: str = "the policy") -> Any:
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
    for section, declared in SECTIONS.items():
        if section not in found:
            continue
        if not isinstance(found[section], dict):
            document.refuse([section], f"{section} must be a table; write [{section}] and its keys below it")
        _refuse_unknown([section], found[section], declared.rules.__struct_fields__, document)


def _refuse_unknown(
    place: list[str], found: dict[str, Any], known: tuple[str, ...], document: _Document
) -> None:
    for key in found:
        if key not in known:
            where = f"in [{'.'.join(place)}]" if place else "at the top"
            close = difflib.get_close_matches(key, known, n=1)
            advice = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
            document.refuse([*place, key], f"there is no key {key!r} {where}; {advice}")


def _check_values(policy: Any, document: _Document) -> None:
    if not 0 < policy.confidence < 1:
        document.refuse(
            ["confidence"], f"confidence must be between 0 and 1, such as 0.95, got {policy.confidence}"
        )
    _check_numbers([], policy, document, _COUNTS, frozenset())
    some = bool(policy.require)
    for name, section in SECTIONS.items():
        rules = getattr(policy, name)
        _check_numbers([name], rules, document, section.counts, section.shares)
        limited = any(getattr(rules, limit) not in (None, {}) for limit in section.limits)
        if not limited and rules != type(rules)():
            document.refuse(
                [name], f"[{name}] has no limit, so it would check nothing; add {' or '.join(section.limits)}"
            )
        for broken in section.check(rules):
            document.refuse([name, broken.key], broken.problem)
        some = some or limited
    if not some:
        raise InputError(
            f"{document.name} has no rule, so every model would pass; add a limit, such as at_most below [exposure]"
        )


def _check_numbers(
    place: list[str],
    rules: msgspec.Struct,
    document: _Document,
    counts: frozenset[str],
    shares: frozenset[str],
) -> None:
    for key in rules.__struct_fields__:
        value = getattr(rules, key)
        entries: dict[tuple[str, ...], Any] = {(key,): value}
        if isinstance(value, dict):
            entries = {(key, name): one for name, one in value.items()}
            _check_repetitions([*place, key], value, document)
        for names, one in entries.items():
            if isinstance(one, bool) or not isinstance(one, (int, float)):
                continue
            path, called = [*place, *names], ".".join([*place, *names])
            if not math.isfinite(one) or one < (1 if key in counts else 0):
                least = "at least 1" if key in counts else "a number of at least 0"
                document.refuse(path, f"{called} must be {least}, got {one}")
            if key in shares and one > 1:
                document.refuse(path, f"{called} is a share between 0 and 1, got {one}; 1% is 0.01")


def _check_repetitions(place: list[str], limits: dict[str, Any], document: _Document) -> None:
    for name in limits:
        if not name.isascii() or not name.isdigit() or int(name) < 1:
            document.refuse(
                [*place, name],
                f"{place[-1]} has a limit for each number of repetitions, such as 4 = 10.0, got the key {name!r}",
            )


_OPENING = """\
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

# Audits whose results must be there, for every format and canary of the manifest. A canary that could not be measured, or was only
# extrapolated, is missing. The audits are:
# {audits}
require = ["exposure"]
"""
# What `coalmine policy init` writes: every rule, most of them commented out.
_NAMES = ", ".join(f'"{name}"' for name in SECTIONS)
TEMPLATE = "\n".join([_OPENING.format(audits=_NAMES), *(section.template for section in SECTIONS.values())])
