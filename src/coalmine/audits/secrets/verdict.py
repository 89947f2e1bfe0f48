"""What the first screen of a report says about secrets of the training data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coalmine.audits.secrets.findings import COME_FIRST
from coalmine.evidence.findings import Finding, first
from coalmine.evidence.replies import Reply, Tone, Topic

# On the first screen only where an audit replies to it; its part of the verdict is a sentence of its own.
SECRETS = Topic("Did it memorize secrets of its data?", "")
_ANSWERS: tuple[tuple[str, str, Tone], ...] = (
    ("CM701", "Yes, and they can be extracted", "bad"),
    ("CM702", "Yes", "bad"),
    ("CM703", "In part", "warn"),
)


def secret_replies(findings: Sequence[Finding]) -> Iterator[Reply]:
    """Whether secrets were memorized, where any were measured."""
    for code, answer, tone in _ANSWERS:
        one = first(findings, code, "found")
        if one is not None:
            yield Reply(SECRETS, answer, one.evidence, tone)
            return
    open_one = (
        _come_first(findings)
        or first(findings, "CM705", "not_measured")
        or first(findings, "CM704", "not_measured")
    )
    if open_one is not None:
        yield Reply(SECRETS, "Cannot be said", open_one.evidence, "open")
        return
    clear = first(findings, "CM704", "clear")
    if clear is not None:
        yield Reply(SECRETS, "Not that can be seen", clear.evidence, "good")


def secret_sentences(findings: Sequence[Finding]) -> Iterator[str]:
    """A sentence of the verdict, where secrets were memorized."""
    out, memorized = (first(findings, code, "found") for code in ("CM701", "CM702"))
    count = "" if memorized is None else memorized.evidence.partition(" ")[0]
    if out is not None:
        more = "" if memorized is None else f", and {count} more {'is' if count == '1' else 'are'} memorized"
        yield f"{_counted(out)} can be read out of the model{more}."
    elif memorized is not None:
        yield f"{_counted(memorized)} {'is' if count == '1' else 'are'} memorized."
    elif first(findings, "CM703", "found") is not None:
        yield "Secrets of its training data are more exposed than chance explains."
    come_first = _come_first(findings)
    if come_first is not None:
        yield f"{come_first.evidence.partition(':')[0]}."


def _come_first(findings: Sequence[Finding]) -> Finding | None:
    return next((one for one in findings if one.title == COME_FIRST), None)


def _counted(found: Finding) -> str:
    """How many secrets a finding is about, as its evidence says."""
    words = found.evidence.partition(" (")[0]
    return f"{words}," if ", of " in words else words
